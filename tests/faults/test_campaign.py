"""A few faults of the campaign, of every kind that any machine allows; `make faults` tries hundreds."""

from __future__ import annotations

import pytest
from tests.faults.campaign import list_cases, try_fault
from tests.faults.kinds import KINDS, mount
from tests.faults.records import compare
from tests.faults.runs import Case

EVERYWHERE = [kind for kind in KINDS if KINDS[kind].prepare is not mount]


@pytest.mark.parametrize("case", list_cases(2 * len(EVERYWHERE), 1000, EVERYWHERE), ids=str)
def test_a_study_that_a_fault_befalls_ends_as_one_left_alone(case: Case) -> None:
    assert try_fault(case).problem == ""


def test_a_difference_is_found() -> None:
    assert compare({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-12]}) == ""
    assert compare({"a": [1.0, 2.0]}, {"a": [1.0, 2.1]}) == "/a/1 is 2.0, undisturbed 2.1"
    assert compare({"a": "completed"}, {"a": "failed"}) == "/a is 'completed', undisturbed 'failed'"
    assert compare([1.0], [1.0, 2.0]) != ""
