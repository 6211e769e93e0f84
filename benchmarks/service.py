"""A service under load, killed again and again: is any study lost or run twice, and how soon does one run?

Run `python benchmarks/service.py` (8 users, 60 studies, 100 kills: about half an hour on two cores), or with
`--studies 10 --kills 6` for a part of it; `--storage postgresql://...` has the service on a server, whose connections
are cut too. What is killed at random moments: the service, a runner, a steward, and where there is one, connections.
Every study's trials are compared with those of `headwater run` on the same file. The table goes to standard output as
Markdown.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from measuring import heading
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from headwater.execute import Service
from headwater.serve.service.store import ServiceStore
from headwater.serve.service.values import Role

STUDY = """
import time

import headwater as hw


def train(trial):
    for epoch in trial.epochs(10):
        time.sleep(0.02)
        trial.report(loss=trial.config["lr"] / (epoch + 1))


study = hw.Study(train, space={"lr": hw.uniform(0.1, 1)}, metric="loss", lanes=1, save_every=1)
"""
NUM_TRIALS = 4
OVER = ("done", "failed", "stopped", "paused")
MOST_BETWEEN_S = 8.0
"""No runner may be killed so often that it never trains an epoch: it has failed after the third time."""
NUM_SEEDS = 4
"""So many different studies there are, each run alone once to compare with."""


@dataclass
class Run:
    """A service, its users and what was done to it."""

    folder: Path
    storage: str
    num_devices: int
    process: Any = None  # Any: a process that prints text
    url: str = ""
    kills: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        command = [sys.executable, "-m", "headwater", "serve", "--storage", self.storage, "--port", "0", "--same-user"]
        command += ["--folder", str(self.folder / "studies"), "--devices", str(self.num_devices)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().strip().partition("=")[2]
        if not self.url:
            raise RuntimeError("the service did not start")

    def kill_something(self, dice: random.Random) -> None:
        kinds = ["service", "runner", "steward", *(["connections"] if "://" in self.storage else [])]
        kind = dice.choice(kinds)
        if kind == "service":
            self.process.kill()
            self.process.wait()
            self.start()
        elif kind == "connections":
            cut_connections(self.storage)
        else:
            pids = self._find_pids(kind)
            if not pids:
                return
            os.kill(dice.choice(pids), signal.SIGKILL)
        self.kills[kind] = self.kills.get(kind, 0) + 1

    def _find_pids(self, kind: str) -> list[int]:
        """Return the runners or stewards of this service: processes that this program started, if not directly."""
        mark = str(self.folder)
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdecimal():
                continue
            try:
                words = (process / "cmdline").read_bytes().decode().split("\0")
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            is_runner = "run" in words and any(word.startswith(f"--storage={mark}") for word in words)
            is_steward = "headwater.serve.service.steward" in words and parent == self.process.pid
            if is_runner if kind == "runner" else is_steward:
                found.append(int(process.name))
        return found


def cut_connections(storage: str) -> None:
    engine = create_engine(make_url(storage).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    with engine.connect() as connection:
        connection.execute(text(f"{cut} AND pid <> pg_backend_pid()"))
    engine.dispose()


def list_trials(place: list[str]) -> list[dict[str, Any]]:
    """Return the trials of a record, but for how long each took."""
    command = [sys.executable, "-m", "headwater", "export", *place, "--format", "json", "--history"]
    rows = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return [{key: value for key, value in row.items() if "seconds" not in key and "time" not in key} for row in rows]


def run_alone(folder: Path, seed: int) -> list[dict[str, Any]]:
    file, record = folder / "alone.py", folder / f"alone-{seed}.db"
    file.write_text(STUDY)
    command = [sys.executable, "-m", "headwater", "run", str(file), "--trials", str(NUM_TRIALS), "--quiet"]
    subprocess.run(
        [*command, f"--seed={seed}", f"--storage={record}", "--name=alone"], stdout=subprocess.DEVNULL, check=True
    )
    return list_trials(["alone", f"--storage={record}"])


def follow(run: Run, tokens: dict[str, str], studies: dict[str, tuple[str, int]], num_kills: int, seed: int) -> None:
    """Kill something now and then until as often as asked and all studies have ended."""
    dice = random.Random(seed)
    left = set(studies)
    give_up = time.monotonic() + 60 * len(studies)
    while left or sum(run.kills.values()) < num_kills:
        if time.monotonic() > give_up:
            raise RuntimeError(f"{len(left)} studies have not ended")
        if left and sum(run.kills.values()) < num_kills:
            time.sleep(dice.uniform(0.0, MOST_BETWEEN_S))
            run.kill_something(dice)
        elif not left:
            break
        else:
            time.sleep(0.5)
        for token in tokens.values():
            left -= {one["id"] for one in Service(run.url, token).list_studies() if one["state"] in OVER}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--studies", type=int, default=60)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--storage", default=None)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headwater-service-") as name:
        folder = Path(name)
        alone = {seed: run_alone(folder, seed) for seed in range(min(NUM_SEEDS, asked.studies))}
        run = Run(folder, asked.storage or str(folder / "service.db"), asked.devices)
        run.start()
        try:
            tokens = {}
            with ServiceStore.open(run.storage) as store:
                for number in range(asked.users):
                    user = f"user-{number}"
                    store.add_user(user, Role.USER, {})
                    tokens[user] = store.create_token(user)
            studies = {}
            for number in range(asked.studies):
                user, seed = f"user-{number % asked.users}", number % len(alone)
                body = {"file": "train.py", "files": [{"path": "train.py", "text": STUDY}]}
                sent = Service(run.url, tokens[user]).submit({**body, "options": {"trials": NUM_TRIALS, "seed": seed}})
                studies[sent["id"]] = (user, seed)
            follow(run, tokens, studies, asked.kills, asked.seed)
            tell(run, tokens, studies, alone)
        finally:
            run.process.terminate()
            run.process.wait()


def tell(
    run: Run, tokens: dict[str, str], studies: dict[str, tuple[str, int]], alone: dict[int, list[dict[str, Any]]]
) -> None:
    ended = {study: Service(run.url, tokens[user]).show(study) for study, (user, _) in studies.items()}
    num_equal = 0
    for study, (_, seed) in studies.items():
        record = run.folder / "studies" / "studies" / study / "work" / "record.db"
        num_equal += ended[study]["state"] == "done" and list_trials([study, f"--storage={record}"]) == alone[seed]
    known = sum(len(Service(run.url, token).list_studies()) for token in tokens.values())
    waits = [one["started"] - one["created"] for one in list(ended.values())[: run.num_devices]]
    rows = {
        "users": len(tokens),
        "studies submitted": len(studies),
        "studies known at the end": known,
        "done": sum(one["state"] == "done" for one in ended.values()),
        "with the trials of an undisturbed run": num_equal,
        "kills": ", ".join(f"{count} of {kind}" for kind, count in sorted(run.kills.items())),
        "submitted to running, where a device is free": f"{statistics.median(waits):.2f} s",
    }
    print(heading("The service under load"))
    print("| | |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
