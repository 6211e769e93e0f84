"""What the benchmarks share: CPU time of competing ways in turns, and the heading of a committed table."""

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

Step = Callable[[], object]


def time_in_turns(ways: Mapping[str, Step], seconds: float = 0.6, min_rounds: int = 3) -> dict[str, float]:
    """Return CPU seconds per call of each way: the lower quartile over rounds in which every way has its turn."""
    laps: dict[str, list[float]] = {name: [] for name in ways}
    for step in ways.values():
        step()
    start = time.process_time()
    while len(next(iter(laps.values()))) < min_rounds or time.process_time() - start < seconds * len(ways):
        for name, step in ways.items():
            begin = time.process_time()
            step()
            laps[name].append(time.process_time() - begin)
    return {name: sorted(values)[len(values) // 4] for name, values in laps.items()}


def heading(title: str) -> str:
    """Say what was run, on what commit and machine, as the head of a table in Markdown."""
    commit = _output("git", "rev-parse", "--short", "HEAD")
    if _output("git", "status", "--porcelain", "--", "src"):
        commit += " with uncommitted changes"
    command = f"python benchmarks/{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}".strip()
    cores = f"{torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}"
    machine = f"{_processor()}, {cores}, Python {platform.python_version()}, torch {torch.__version__}"
    return f"# {title}\n\nCommand: `{command}`  \nCommit: {commit}  \nMachine: {machine}\n"


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
