"""What the dashboard takes: bytes, seconds until curves are seen in a real browser, and how soon a report is.

Run it with `python benchmarks/dashboard.py`. With `--peer PYTHON`, an interpreter that has optuna-dashboard
(`python -m venv peer && peer/bin/pip install optuna-dashboard`), that looks at the same study in the same browser.
Chromium must be there: `apt-get install chromium`. The studies are written straight into a record: 20 epochs of two
metrics for each trial, six hyperparameters.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, Page, sync_playwright

from headwater.report.mirroring import Mirror, open_storage
from headwater.report.page.html import PARTS, dashboard_html
from headwater.report.page.report_file import make_report
from headwater.store import Batch, Store, StudyInfo, Transition, open_store
from headwater.trials import Lane, Report, Status

NUM_EPOCHS = 20
GROUP = 50
KEYS = {"lr": (-4, 0), "weight_decay": (-6, -2), "eps": (-9, -3)}
SHARES = ("momentum", "dropout", "gamma")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
PATIENCE_MS = 300_000
PAINTED = """() => {
    const canvas = document.querySelector(".chart canvas");
    if (!canvas || !canvas.width) return false;
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let painted = 0;
    for (let place = 3; place < data.length; place += 4) painted += data[place] > 0;
    return painted > 50000;
}"""
PEER_DRAWN = "() => document.querySelectorAll('.js-plotly-plot .main-svg').length > 0"
LIVE_S = 20.0
MOST_OF_PEER = 1_000
"""Copying 10,000 trials into Optuna's storage takes minutes, and so does looking at them there."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--peer", help="a Python that has optuna-dashboard")
    parser.add_argument("--browser", default="/usr/bin/chromium")
    options = parser.parse_args()
    print(f"load average                      {os.getloadavg()[0]:8.1f}      seconds want a quiet machine")
    parts = [dashboard_html(), *(part.read() for part in PARTS.values())]
    print(f"page (HTML, scripts, styles)      {sum(len(part.encode()) for part in parts) / 1e3:8.0f} kB   goal 250")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.browser, args=FLAGS)
        for num_trials in options.trials:
            storage = Path(folder) / f"{num_trials}.db"
            write_study(storage, num_trials)
            look(browser, storage, num_trials)
            if options.peer and num_trials <= MOST_OF_PEER:
                look_with_peer(browser, storage, Path(folder), options.peer)
        follow(browser, Path(folder) / "live.db")
        browser.close()


def look(browser: Browser, storage: Path, num_trials: int) -> None:
    goal_s = 1 if num_trials <= 1_000 else 3
    print(f"\n{num_trials:,} trials of {NUM_EPOCHS} epochs")
    begin_s = time.perf_counter()
    report = len(make_report(str(storage), None).encode())
    print(f"  report file                     {report / 1e3:8.0f} kB   goal 1,000 for 1,000 trials")
    print(f"  ... made in                     {time.perf_counter() - begin_s:8.2f} s")
    with serve(storage) as (url, _):
        cold_s = time_until(browser, url, "#1/curves", PAINTED)
        warm_s = [time_until(browser, url, "#1/curves", PAINTED) for _ in range(3)]
        data = urlopen(Request(f"{base_of(url)}api/study?id=1", headers=bearer(url))).read()
    print(f"  data of the page                {len(data) / 1e3:8.0f} kB   goal 500 for 1,000 trials")
    print(f"  curves seen, first look         {cold_s:8.2f} s    goal {goal_s}")
    print(f"  curves seen, later ({min(warm_s):.2f} at best){sum(warm_s) / len(warm_s):9.2f} s    goal {goal_s}")


def follow(browser: Browser, storage: Path) -> None:
    """Write reports one by one, and see how soon each is on the page, and what the dashboard computes meanwhile."""
    write_study(storage, 100)
    with open_store(storage) as store, serve(storage) as (url, pid):
        page = open_page(browser, url, "#1/table")
        page.wait_for_selector(".live.on")
        before_s, begin_s = cpu_seconds(pid), time.perf_counter()
        lags, epoch = [], NUM_EPOCHS
        while time.perf_counter() - begin_s < LIVE_S:
            epoch += 1
            write_reports(store, epoch)
            written_s = time.perf_counter()
            shown = f"() => document.querySelector('tr[data-trial=\"0\"]')?.innerText.includes('\\t{epoch}\\t')"
            page.wait_for_function(shown, polling=10)
            lags.append(time.perf_counter() - written_s)
        share = (cpu_seconds(pid) - before_s) / (time.perf_counter() - begin_s)
        page.close()
    print(f"\nupdates seen after                {sum(lags) / len(lags):8.2f} s    goal 1 (worst {max(lags):.2f})")
    print(
        f"CPU of the dashboard meanwhile    {share:8.1%}      goal 1 %, with {len(lags) / LIVE_S:.1f} updates a second"
    )


def look_with_peer(browser: Browser, storage: Path, folder: Path, python: str) -> None:
    copy = folder / f"{storage.stem}-optuna.db"
    with open_store(storage, create=False) as store:
        mirror = Mirror(open_storage(copy), store.study(), store)
        mirror.sync(is_over=True)
        mirror.close()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = f"from optuna_dashboard import run_server; run_server('sqlite:///{copy}', host='127.0.0.1', port={port})"
    with subprocess.Popen([python, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            await_port(port)
            url = f"http://127.0.0.1:{port}/dashboard/studies/1/analytics"
            seen_s = [time_until(browser, url, "", PEER_DRAWN) for _ in range(2)]
            data = urlopen(f"http://127.0.0.1:{port}/api/studies/1?after=0").read()
        finally:
            process.kill()
    print(f"  optuna-dashboard: its data      {len(data) / 1e3:8.0f} kB")
    print(f"  ... a plot seen, first look     {seen_s[0]:8.2f} s")
    print(f"  ... a plot seen, later          {seen_s[1]:8.2f} s")


def time_until(browser: Browser, url: str, view: str, seen: str) -> float:
    """Return how long it takes from asking for a page until it shows what is waited for, in a fresh browser context."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    begin_s = time.perf_counter()
    page.goto(f"{url}{view}", wait_until="commit")
    page.wait_for_function(seen, polling=20)
    seen_s = time.perf_counter() - begin_s
    context.close()
    return seen_s


def open_page(browser: Browser, url: str, view: str) -> Page:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{url}{view}")
    return page


@contextmanager
def serve(storage: Path) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "headwater", "dashboard", "--storage", str(storage)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


def await_port(port: int) -> None:
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)


def base_of(url: str) -> str:
    return url.split("?", maxsplit=1)[0]


def bearer(url: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {url.split('token=')[1]}"}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_study(path: Path, num_trials: int) -> None:
    """Write a study whose curves look like curves."""
    draw = random.Random(0)
    ticks = iter(range(10**9))
    space = [
        *(_row(key, f"loguniform({10.0**low}, {10.0**high})") for key, (low, high) in KEYS.items()),
        *(_row(key, "uniform(0.0, 1.0)") for key in SHARES),
    ]
    with open_store(path, clock=lambda: 1.79e9 + 0.05 * next(ticks)) as store:
        settings = {"num_trials": num_trials, "search": "random", "num_seeds": 1}
        info = StudyInfo(name="load", metric="accuracy", mode="max", seed=0, space=space, settings=settings)
        study = store.create_study(info)
        for first in range(0, num_trials, GROUP):
            _write_group(store, study, range(first, min(first + GROUP, num_trials)), draw)


def _row(key: str, text: str) -> dict[str, object]:
    return {"key": key, "kind": "domain", "text": text, "num_values": None}


def _write_group(store: Store, study: int, numbers: range, draw: random.Random) -> None:
    trials, curves = [], []
    for number in numbers:
        config = {key: 10 ** draw.uniform(*ends) for key, ends in KEYS.items()} | {key: draw.random() for key in SHARES}
        trials.append(Lane(number=number, config={"codes": config, "shown": config}, seed=number))
        level = 0.95 - 0.1 * abs(math.log10(config["lr"]) + 1.5) - 0.2 * config["dropout"] ** 2
        curves.append((number, level, draw.uniform(0.1, 0.8)))
    store.add_trials(study, trials)
    for epoch in range(1, NUM_EPOCHS + 1):
        reports = []
        for number, level, rate in curves:
            accuracy = level * (1 - math.exp(-rate * epoch)) + draw.gauss(0, 0.01)
            metrics = {"accuracy": accuracy, "loss": 2 * math.exp(-rate * epoch) + draw.gauss(0.3, 0.02)}
            reports.append(Report(number=number, epoch=epoch, metrics=metrics))
        store.write(study, Batch(reports=tuple(reports)))
    ends = [Transition(number=n, status=Status.COMPLETED, epoch=NUM_EPOCHS, seconds=2.0) for n in numbers]
    store.write(study, Batch(transitions=tuple(ends)))


def write_reports(store: Store, epoch: int) -> None:
    """Let a group of trials report one more epoch."""
    reports = [Report(number=number, epoch=epoch, metrics={"accuracy": 0.9, "loss": 0.1}) for number in range(16)]
    store.write(1, Batch(reports=tuple(reports)))


if __name__ == "__main__":
    main()
