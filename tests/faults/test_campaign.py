"""A few faults of the campaign, of every kind that any machine allows; `make faults` tries hundreds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.execute.calling import python_environment
from tests.faults.campaign import list_cases, try_fault
from tests.faults.kinds import KINDS, can_be_tried, mount
from tests.faults.records import compare
from tests.faults.runs import Case
from tests.faults.watching import TRAINED, await_parting, count_again

HERE = ("inline", "processes")
EVERYWHERE = [kind for kind in KINDS if KINDS[kind].prepare is not mount and "inline" in KINDS[kind].executors]
APART = [
    Case("kill of a worker", "asha", "processes", 1001),
    Case("kill of a worker", "ranks", "processes", 1002),
    Case("kill of the study", "packs", "processes", 1003),
    Case("out of memory", "asha", "processes", 1004),
]
"""Groups, packs and trials on two devices, in processes that can die without their study."""


@pytest.mark.parametrize("case", list_cases(2 * len(EVERYWHERE), 1000, EVERYWHERE, executors=HERE), ids=str)
def test_a_study_that_a_fault_befalls_ends_as_one_left_alone(case: Case) -> None:
    assert try_fault(case).problem == ""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", APART, ids=str)
def test_a_study_whose_processes_die_ends_as_one_left_alone_and_leaves_nothing(case: Case) -> None:
    if not can_be_tried(case.kind):
        pytest.skip("no control group can be made here")
    assert try_fault(case).problem == ""


@pytest.mark.timeout(600)
def test_studies_on_ray_end_as_those_left_alone_and_leave_nothing() -> None:
    """In a process of its own: one that has used Ray cannot be forked."""
    pytest.importorskip("ray")
    kinds = ["kill of the study", "kill of a Ray actor", "kill of a raylet"]
    options = [
        "--num",
        "3",
        "--jobs",
        "1",
        "--seed",
        "1005",
        "--search",
        "ranks",
        "--executor",
        "ray",
        "--kind",
        *kinds,
    ]
    command = [sys.executable, "-m", "tests.faults", *options]
    done = subprocess.run(command, env=python_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_difference_is_found() -> None:
    assert compare({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-12]}) == ""
    assert compare({"a": [1.0, 2.0]}, {"a": [1.0, 2.1]}) == "/a/1 is 2.0, undisturbed 2.1"
    assert compare({"a": "completed"}, {"a": "failed"}) == "/a is 'completed', undisturbed 'failed'"
    assert compare([1.0], [1.0, 2.0]) != ""


def test_epochs_that_are_trained_again_are_counted(tmp_path: Path) -> None:
    assert count_again(tmp_path) == 0
    reports = [("one", 0, 1), ("one", 0, 2), ("one", 1, 1), ("one.target-0", 0, 1), ("one", 0, 2), ("one", 0, 1)]
    (tmp_path / TRAINED).write_text("".join(f"{json.dumps(report)}\n" for report in reports))
    assert count_again(tmp_path) == 2


def test_a_worker_process_that_is_left_is_found() -> None:
    name, study = "work_for_parent", "123456789"
    with subprocess.Popen([sys.executable, "-c", "input()", name, study], stdin=subprocess.PIPE) as process:
        assert await_parting(int(study), 0.0) == f"the worker processes ['{process.pid}'] are left"
    assert await_parting(int(study)) == ""
