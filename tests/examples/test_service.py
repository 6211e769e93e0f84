"""The example of a service: two users' studies run to their ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "service.py"


def test_the_example_shows_the_best_trials_of_both_users() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(line.startswith("rank ") for line in done.stdout.splitlines()) == 2
    rows = [line for line in done.stdout.splitlines() if line.startswith("digits-")]
    assert [line.split()[1:3] for line in rows] == [["ada", "done"], ["grace", "done"]]
