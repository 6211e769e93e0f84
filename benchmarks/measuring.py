"""What the benchmarks share: the heading of a committed table."""

import platform
import subprocess
import sys
from pathlib import Path

import torch


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
