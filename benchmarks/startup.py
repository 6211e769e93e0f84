"""How long the command takes to answer: CPU seconds of a process, the median of several.

    python benchmarks/startup.py [--runs N]

The record that `ls` and `show` read has one study of 200 trials. CPU seconds are those of user and system together.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from headwater.store import Batch, StudyInfo, Transition, open_store
from headwater.trials import Lane, Report, Status

LIMITS_S = {"headwater --version": 0.3, "headwater ls": 0.3}
"""The aims."""


def measure_cpu(arguments: list[str], num_runs: int) -> float:
    """Run Python with these arguments, and return the median of its CPU seconds."""
    seconds = []
    with Path(os.devnull).open("w") as nowhere:
        actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), descriptor) for descriptor in (1, 2)]
        for _ in range(num_runs):
            pid = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, file_actions=actions)
            _, status, usage = os.wait4(pid, 0)
            if status != 0:
                raise SystemExit(f"python {' '.join(arguments)} ended with status {os.waitstatus_to_exitcode(status)}")
            seconds.append(usage.ru_utime + usage.ru_stime)
    return statistics.median(seconds)


def write_study(path: Path, num_trials: int = 200, num_epochs: int = 9) -> None:
    """Write a record with one study that is over."""
    draw = random.Random(0)
    with open_store(path) as store:
        info = StudyInfo(name="study", metric="loss", mode="min", seed=0, settings={"num_trials": num_trials})
        study = store.create_study(info)
        lanes = [
            Lane(number=number, config={"codes": {}, "shown": {"lr": draw.random()}}, seed=0)
            for number in range(num_trials)
        ]
        store.add_trials(study, lanes)
        for epoch in range(1, num_epochs + 1):
            reports = [Report(number=lane.number, epoch=epoch, metrics={"loss": draw.random()}) for lane in lanes]
            store.write(study, Batch(reports=tuple(reports)))
        moves = [Transition(number=lane.number, status=Status.COMPLETED, epoch=num_epochs) for lane in lanes]
        store.write(study, Batch(transitions=tuple(moves)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    num_runs = parser.parse_args().runs
    with TemporaryDirectory() as folder:
        record = Path(folder) / "record.db"
        write_study(record)
        place = ["--storage", str(record)]
        commands = {
            "python, nothing imported": ["-c", "pass"],
            "import headwater": ["-c", "import headwater"],
            "headwater --version": ["-m", "headwater", "--version"],
            "headwater --help": ["-m", "headwater", "--help"],
            "headwater ls": ["-m", "headwater", "ls", *place],
            "headwater show": ["-m", "headwater", "show", *place],
        }
        for name, arguments in commands.items():
            aim = f"  (aim: below {LIMITS_S[name]} s)" if name in LIMITS_S else ""
            print(f"{name:<26}{measure_cpu(arguments, num_runs):7.3f} s of CPU{aim}")


if __name__ == "__main__":
    main()
