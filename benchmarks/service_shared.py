"""Two users of a service submit the same files: how much sooner is both's work done if they share lanes?

    python benchmarks/service_shared.py [--rounds 2] [--trials 8]

A real service with one device runs both studies, once in processes of their own and once with --share-lanes. What is
compared is the CPU time of all processes that train, from start to end, which the load of the machine hardly changes,
and the trials that come out.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from measuring import heading

from headwater.execute import Service
from headwater.serve.service.store import ServiceStore
from headwater.serve.service.values import Role

TRAIN = """
import resource

import torch
from torch import nn

import headwater as hw

torch.set_default_dtype(torch.float64)
X = torch.randn(512, 16, generator=torch.Generator().manual_seed(0))
DATA = torch.utils.data.TensorDataset(X, X.sum(1, keepdim=True).sin())

def tell(word):
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(word, used.ru_utime + used.ru_stime, flush=True)

def train(trial):
    tell("BEGAN")
    model = trial.prepare_model(lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)))
    loader = trial.prepare_data_loader(DATA, batch_size=32, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
    for _ in trial.epochs(100):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        trial.report(loss=total)
    tell("ENDED")

study = hw.Study(train, space={"lr": hw.loguniform(1e-3, 0.1)}, metric="loss", lanes=16)
"""
BLOCK = """
import time
import headwater as hw

def train(trial):
    for _ in trial.epochs(100_000):
        time.sleep(0.05)
        trial.report(loss=1.0)

study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", lanes=1)
"""


def submit(user: Service, text: str, num_trials: int, search: str, *, share_lanes: bool) -> str:
    asked = {
        "file": "train.py",
        "files": [{"path": "train.py", "text": text}],
        "options": {"trials": num_trials, "search": search},
        "share_lanes": share_lanes,
    }
    return str(user.submit(asked)["id"])


def await_state(user: Service, study: str, *states: str) -> None:
    found = user.show(study)
    while found["state"] not in states:
        assert found["state"] != "failed", found["reason"]
        found = user.show(study, found["version"])


def run_both(
    url: str, users: list[Service], num_trials: int, *, share_lanes: bool
) -> tuple[tuple[float, float], list[Any]]:
    """Return the CPU time of both studies, in training and in all, and their trials."""
    ada, ben, cy = users
    before = submit(cy, BLOCK, 1, "random", share_lanes=False)
    await_state(cy, before, "running")
    pairs = [
        (user, submit(user, TRAIN, num_trials, search, share_lanes=share_lanes))
        for user, search in ((ada, "random"), (ben, "tpe"))
    ]
    cy.change(before, "stop", {"now": True})
    for user, study in pairs:
        await_state(user, study, "done")
    logs = [user.read_log(study, 0, wait=False)["text"] for user, study in pairs]
    used = [read_times(log) for log in logs]
    trials = [user.ask("GET", f"/v1/studies/{study}/trials") for user, study in pairs]
    used = used[:1] if share_lanes else used
    return (sum(train_s for train_s, _ in used), sum(all_s for _, all_s in used)), [strip(one) for one in trials]


def read_times(log: str) -> tuple[float, float]:
    """Return the CPU time from the first call of the function on, and that of the whole process."""
    told = [line.split() for line in log.splitlines() if line.startswith(("BEGAN", "ENDED"))]
    begin_s = min(float(number) for word, number in told if word == "BEGAN")
    end_s = max(float(number) for word, number in told if word == "ENDED")
    return end_s - begin_s, end_s


def strip(trials: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key != "seconds"} for one in trials]


def find_gap(mine: list[Any], other: list[Any]) -> float:
    """Return the largest relative difference of a loss of two tables that have the same configurations."""
    gaps = []
    for one, two in zip(chain(*mine), chain(*other), strict=True):
        assert {**one, "metrics.loss": 0} == {**two, "metrics.loss": 0}
        gaps.append(abs(one["metrics.loss"] - two["metrics.loss"]) / abs(two["metrics.loss"]))
    return max(gaps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--trials", type=int, default=8)
    options = parser.parse_args()
    print(heading("Two users of a service, the same files"))
    print("| training, apart | together | times less | of whole processes | gap | seconds |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        storage = str(Path(folder) / "service.db")
        command = [sys.executable, "-m", "headwater", "serve", "--storage", storage, "--port", "0", "--devices", "1"]
        command += ["--same-user"] if os.geteuid() == 0 else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
            assert service.stdout is not None
            url = service.stdout.readline().strip().partition("=")[2]
            with ServiceStore.open(storage) as store:
                users = []
                for name in ("ada", "ben", "cy"):
                    store.add_user(name, Role.USER, {})
                    users.append(Service(url, store.create_token(name)))
            ratios = []
            for place in range(options.rounds):
                order = (False, True) if place % 2 == 0 else (True, False)
                begin_s = time.perf_counter()
                found = {share: run_both(url, users, options.trials, share_lanes=share) for share in order}
                (apart, table), (together, shared) = found[False], found[True]
                times = [mine / other for mine, other in zip(apart, together, strict=True)]
                ratios.append(times[0])
                parts = [f"{apart[0]:.1f} s", f"{together[0]:.1f} s", f"{times[0]:.2f}", f"{times[1]:.2f}"]
                parts += [f"{find_gap(shared, table):.1e}", f"{time.perf_counter() - begin_s:.0f}"]
                print(f"| {' | '.join(parts)} |", flush=True)
            print(f"\nmedian: {statistics.median(ratios):.2f} times less CPU time in training")
            service.terminate()


if __name__ == "__main__":
    main()
