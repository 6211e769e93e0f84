"""The best trial while a study runs is the best of its result."""

from __future__ import annotations

import math

import pytest

from headwater.conduct.standings import Standings
from headwater.store import StudyInfo
from headwater.trials import Report, Result, Status, TrialRecord, average_replicas

# Reports of trials as (number, epoch, value), in the order in which they come in.
EVENTS = [(0, 1, 0.1), (1, 1, 0.4), (2, 1, 0.2), (3, 1, 0.3), (0, 2, 0.9), (1, 2, 0.5), (2, 2, math.nan), (3, 2, 0.5)]


def make_info(mode: str = "min", num_seeds: int = 1, constraints: list[str] | None = None) -> StudyInfo:
    settings = {"num_seeds": num_seeds, "constraints": constraints}
    return StudyInfo(name="study", metric="loss", mode=mode, seed=0, settings=settings)


def as_report(number: int, epoch: int, value: float) -> Report:
    return Report(number=number, epoch=epoch, metrics={"loss": value, "size": (3 * number + epoch) % 4})


def make_records(events: list[tuple[int, int, float]], failed: frozenset[int]) -> list[TrialRecord]:
    return [
        TrialRecord(
            number=number,
            config={},
            status=Status.FAILED if number in failed else Status.RUNNING,
            history=tuple(as_report(*event) for event in events if event[0] == number),
        )
        for number in range(4)
    ]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("num_seeds", [1, 2])
@pytest.mark.parametrize("failed", [frozenset[int](), frozenset({1})])
@pytest.mark.parametrize("num_events", range(len(EVENTS) + 1))
@pytest.mark.parametrize("constraints", [[], ["size <= 1"], ["size <= 2", "other >= 1"]])
def test_the_best_is_that_of_the_result(
    mode: str, num_seeds: int, failed: frozenset[int], num_events: int, constraints: list[str]
) -> None:
    info = make_info(mode, num_seeds, constraints)
    records = make_records(EVENTS[:num_events], failed)
    trials = average_replicas(records, num_seeds)
    result = Result(
        study="study", metric="loss", mode=mode, trials=trials, storage="memory", constraints=info.constraints
    )
    expected = next(((trial.number, trial.value("loss")) for trial in result.ranked), None)

    seen = Standings(info)
    for event in EVENTS[:num_events]:
        seen.see(as_report(*event))
    for number in failed:
        seen.fail(number)

    assert seen.best == expected
    assert Standings(info, records).best == seen.best


def test_a_target_is_reached_by_the_last_value() -> None:
    standings = Standings(make_info())
    assert not standings.has_reached(0.5)
    standings.see(as_report(0, 1, 0.4))
    assert standings.has_reached(0.5)
    standings.see(as_report(0, 2, 0.6))
    assert not standings.has_reached(0.5)


def test_a_target_is_reached_by_a_trial_that_keeps_to_the_constraints() -> None:
    standings = Standings(make_info(constraints=["size <= 3"]))
    standings.see(Report(number=0, epoch=1, metrics={"loss": 0.4, "size": 4}))
    assert not standings.has_reached(0.5)
    standings.see(Report(number=1, epoch=1, metrics={"loss": 0.5, "size": 3}))
    assert standings.best == (1, 0.5)
    assert standings.has_reached(0.5)
