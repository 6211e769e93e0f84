"""Studies keep to the memory there is: what has ended is freed, and a group that is too large becomes smaller."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GROUP_MIB = 6 * 3 * 2 * 4
"""What six lanes of two matrices of 4 MiB hold: weights, gradients and momentum."""


def run_apart(*args: str) -> Any:  # Any: what the scenario prints as JSON
    """Run a scenario of the lab in a process of its own."""
    command = [sys.executable, "-m", "tests.memory_lab", *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_groups_that_have_ended_are_freed() -> None:
    held = run_apart("equal groups")["held"]
    assert len(held) == 4
    assert max(held) - held[0] < GROUP_MIB / 2


def test_models_that_hold_themselves_are_freed_when_they_have_become_many() -> None:
    held = run_apart("circular models")["held"]
    assert len(held) == 24
    assert max(held) - held[0] < GROUP_MIB
