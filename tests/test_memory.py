"""Studies keep to the memory there is: what has ended is freed, and a group that is too large becomes smaller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
GROUP_MIB = 6 * 3 * 2 * 4
"""What six lanes of two matrices of 4 MiB hold: weights, gradients and momentum."""


def run_apart(*args: str, shell: str = "") -> Any:  # Any: what the scenario prints as JSON
    """Run a scenario of the lab in a process of its own."""
    command = ["sh", "-c", f'{shell} exec "$@"', "sh", sys.executable, "-m", "tests.memory_lab", *args]
    env = {**os.environ, "MALLOC_ARENA_MAX": "1"}  # else a thread may take 128 MiB of addresses, and use none of it
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def alone() -> Any:
    return run_apart("one by one")


def test_groups_that_have_ended_are_freed() -> None:
    held = run_apart("equal groups")["held"]
    assert len(held) == 4
    assert max(held) - held[0] < GROUP_MIB / 2


def test_models_that_hold_themselves_are_freed_when_they_have_become_many() -> None:
    held = run_apart("circular models")["held"]
    assert len(held) == 24
    assert max(held) - held[0] < GROUP_MIB


def test_trials_that_fit_one_by_one_fit_one_after_the_other(alone: Any) -> None:
    assert alone["statuses"] == ["completed"] * 24
    assert run_apart("circular one by one")["losses"] == alone["losses"]


@pytest.mark.parametrize("scenario", ["groups", "careless groups"])
def test_a_group_that_runs_out_of_memory_is_halved_until_it_fits(scenario: str, alone: Any) -> None:
    """Also where the function would pass over what does not fit: alone, everything fits."""
    found = run_apart(scenario)
    assert found["statuses"] == ["completed"] * 24
    assert found["losses"] == pytest.approx(alone["losses"], rel=1e-4)
    assert "6 lanes in a group ran out of memory; at most 3 from now on (all trials)" in found["notes"]
    assert all("ran out of memory" in note for note in found["notes"])  # and nothing else was concluded
    assert 1 < max(found["sizes"]) <= 3


def test_lanes_that_were_too_many_go_on_from_their_last_states(tmp_path: Path, alone: Any) -> None:
    found = run_apart("late", str(tmp_path / "study.db"))
    assert found["losses"] == pytest.approx(alone["losses"], rel=1e-4)
    assert found["sizes"][0] == 3
    assert found["epochs"][:5] == [0, 1, 2, 2, 2]  # three lanes, then two and one


def test_a_trial_that_does_not_fit_alone_fails_and_says_so() -> None:
    found = run_apart("wide")
    assert sorted(found["statuses"]) == ["completed"] * 3 + ["failed"] * 3
    errors = [error for error in found["errors"] if error is not None]
    assert all("DefaultCPUAllocator" in error and "make its model or batches smaller" in error for error in errors)


def test_a_process_that_is_killed_counts_as_out_of_memory() -> None:
    found = run_apart("killed groups")
    assert found["statuses"] == ["completed"] * 24
    assert "6 lanes in a group ran out of memory; at most 3 from now on (all trials)" in found["notes"]
    assert all("out of memory" in note for note in found["notes"])
    assert 1 < max(found["sizes"]) <= 3


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A control group below the one that the tests run in, where the system lets them make one."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = next((path for _, controllers, path in lines if controllers == "memory"), None)
    if own is None:
        pytest.skip("there are no control groups of version 1 here")
    directory = Path(f"/sys/fs/cgroup/memory{own}/headwater-test-{os.getpid()}")
    try:
        directory.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield directory
    directory.rmdir()


def test_a_study_outlives_what_the_system_kills_in_its_control_group(cgroup: Path, alone: Any) -> None:
    found = run_apart("cgroup", str(cgroup), shell=f"echo $$ > {cgroup}/cgroup.procs &&")
    assert found["free"] <= 240
    assert found["statuses"] == ["completed"] * 24
    assert found["losses"] == pytest.approx(alone["losses"], rel=1e-4)
    assert "6 lanes in a group ran out of memory; at most 3 from now on (all trials)" in found["notes"]
