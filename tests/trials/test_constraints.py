"""What trials must keep to: how it is written, and how far metrics are from it."""

from __future__ import annotations

import math

import pytest

from headwater.errors import StudyError
from headwater.trials import Constraint, Objective, Report, Result, Status, TrialRecord, read_constraints


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latency <= 20", Constraint("latency", "<=", 20.0)),
        ("  top-1 accuracy>=-1e-3 ", Constraint("top-1 accuracy", ">=", -0.001)),
    ],
)
def test_a_constraint_is_a_metric_a_relation_and_a_number(text: str, expected: Constraint) -> None:
    assert Constraint.read(text) == expected
    assert Constraint.read(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    ["latency < 20", "latency", "<= 20", "latency <= fast", "latency <= nan", "1 <= x <= 2", "x == 1", "", None, 3],
)
def test_what_is_no_constraint_is_refused_in_a_line_that_says_how_to_write_one(text: object) -> None:
    with pytest.raises(StudyError, match=r"write it as .* such as 'latency <= 20'") as error:
        Constraint.read(text)
    assert "\n" not in str(error.value)


def test_one_side_of_a_metric_is_bounded_once() -> None:
    assert len(read_constraints(["x <= 2", "x >= 1"])) == 2
    with pytest.raises(StudyError, match="x <= more than once"):
        read_constraints(["x <= 2", "x <= 1"])
    with pytest.raises(StudyError, match="it must be a list"):
        read_constraints({"x": 2})


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("x <= 20", 30.0, 0.5),
        ("x <= 20", 20.0, 0.0),
        ("x >= 4", 1.0, 0.75),
        ("x <= 0", 3.0, 3.0),
        ("x >= -2", -3.0, 0.5),
    ],
)
def test_a_bound_is_broken_by_a_part_of_itself(text: str, value: float, expected: float) -> None:
    assert Constraint.read(text).violation({"x": value}) == expected


@pytest.mark.parametrize("metrics", [{}, {"x": math.nan}])
def test_what_is_not_known_keeps_no_bound(metrics: dict[str, float]) -> None:
    assert Constraint.read("x <= 20").violation(metrics) == math.inf


def make_result(*rows: tuple[float, float, float]) -> Result:
    trials = tuple(
        TrialRecord(
            number=number,
            config={},
            status=Status.COMPLETED,
            history=(Report(number=number, epoch=1, metrics=dict(zip(("loss", "size", "speed"), row, strict=True))),),
        )
        for number, row in enumerate(rows)
    )
    constraints = read_constraints(["size <= 10", "speed >= 100"])
    also = {"size": "min"}
    return Result(
        study="s", metric="loss", mode="min", trials=trials, storage="", constraints=constraints, also=also
    )  # fmt: skip


def test_trials_that_keep_to_all_go_first_and_of_the_others_the_nearest() -> None:
    result = make_result((0.1, 20, 100), (0.9, 10, 100), (0.2, 11, 90), (0.5, 5, 200), (0.0, 15, 20))
    assert [trial.number for trial in result.ranked] == [3, 1, 2, 0, 4]
    assert [trial.number for trial in result.feasible] == [3, 1]
    assert result.best.number == 3


def test_the_front_holds_only_what_keeps_to_all() -> None:
    result = make_result((0.1, 20, 100), (0.5, 5, 100), (0.6, 4, 200), (0.7, 6, 100))
    assert [trial.number for trial in result.front()] == [1, 2]
    assert [trial.number for trial in result.front(loss="min")] == [1]


def test_where_no_trial_keeps_to_all_the_nearest_count() -> None:
    result = make_result((0.1, 30, 100), (0.5, 20, 100), (0.4, 12, 20), (0.7, 20, 100))
    assert [trial.number for trial in result.ranked] == [2, 1, 3, 0]
    assert result.feasible == ()
    assert [trial.number for trial in result.front()] == [2]


def test_without_constraints_nothing_is_broken() -> None:
    assert Objective("loss").violation({}) == 0
