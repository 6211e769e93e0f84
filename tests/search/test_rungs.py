from __future__ import annotations

import pytest

from headwater.errors import StudyError
from headwater.search import ASHA, PBT, SHA, Hyperband, Problem, Stage, SyncBOHB, plan_brackets, plan_halving
from headwater.search.rungs import list_rungs, plan_bracket
from headwater.space import Space, uniform

PROBLEM = Problem(space=Space({"x": uniform(0, 1)}), metric="a", mode="min", num_trials=5)


def as_pairs(stages: tuple[Stage, ...]) -> list[tuple[int, int | None]]:
    return [(stage.num_trials, stage.until) for stage in stages]


def test_halving_is_rubberbands_schedule_where_the_budget_is_no_power_of_the_reduction() -> None:
    stages = plan_halving(32, reduction=3, min_epochs=1, max_epochs=50)
    assert as_pairs(stages) == [(32, 1), (10, 4), (3, 13), (1, 50)]


def test_stages_add_up_to_rubberbands_largest_study() -> None:
    stages = plan_halving(64, reduction=2, min_epochs=4, max_epochs=508)
    assert as_pairs(stages) == [(64, 4), (32, 12), (16, 28), (8, 60), (4, 124), (2, 252), (1, 508)]


@pytest.mark.parametrize(
    ("num_trials", "max_epochs", "stages"),
    [
        (1, 50, [(1, 50)]),
        (2, 50, [(2, 1), (1, 50)]),
        (100, 10, [(100, 1), (33, 4), (11, 10)]),
        (100, 1, [(100, 1)]),
        (9, None, [(9, 1), (3, 4), (1, None)]),
    ],
)
def test_halving_ends_with_one_trial_or_at_the_limit(
    num_trials: int, max_epochs: int | None, stages: list[tuple[int, int | None]]
) -> None:
    assert as_pairs(plan_halving(num_trials, max_epochs=max_epochs)) == stages


def test_the_brackets_of_hyperband_are_those_of_the_paper() -> None:
    brackets = [as_pairs(bracket) for bracket in plan_brackets(81, reduction=3)]
    assert brackets == [
        [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
        [(34, 3), (11, 9), (3, 27), (1, 81)],
        [(15, 9), (5, 27), (1, 81)],
        [(8, 27), (2, 81)],
        [(5, 81)],
    ]


@pytest.mark.parametrize("power", range(1, 12))
def test_the_number_of_brackets_is_exact_at_powers_of_the_reduction(power: int) -> None:
    assert len(plan_brackets(3**power)) == power + 1
    assert len(plan_brackets(3**power - 1)) == power


def test_the_last_stage_of_every_bracket_reaches_the_limit_whatever_it_is() -> None:
    for max_epochs in range(1, 200):
        brackets = plan_brackets(max_epochs, reduction=4)
        assert {bracket[-1].until for bracket in brackets} == {max_epochs}
        assert all((stage.until or 0) >= 1 for bracket in brackets for stage in bracket)


def test_no_bracket_starts_below_the_least_number_of_epochs() -> None:
    assert [bracket[0].until for bracket in plan_brackets(50, min_epochs=2)] == [5, 16, 50]


def test_a_bracket_that_is_cut_leaves_out_stages_that_drop_no_trial() -> None:
    assert as_pairs(plan_bracket(3, 4, reduction=3, max_epochs=81)) == [(3, 1), (1, 81)]
    assert as_pairs(plan_bracket(1, 4, reduction=3, max_epochs=81)) == [(1, 81)]


def test_the_highest_rung_is_the_limit() -> None:
    assert list(list_rungs(reduction=3, min_epochs=1, max_epochs=50)) == [1, 3, 9, 27, 50]
    assert list(list_rungs(reduction=3, min_epochs=1, max_epochs=27)) == [1, 3, 9, 27]


@pytest.mark.parametrize("kind", [SHA, Hyperband, ASHA])
def test_a_ladder_without_sense_is_refused(kind: type[ASHA]) -> None:
    with pytest.raises(StudyError, match="reduction is 1; it must be a whole number of at least 2"):
        kind(reduction=1)
    with pytest.raises(StudyError, match="min_epochs is 0; it must be a whole number of at least 1"):
        kind(min_epochs=0)
    with pytest.raises(StudyError, match="max_epochs is 4, below the 5 epochs"):
        kind(min_epochs=5, max_epochs=4)


@pytest.mark.parametrize("build", [Hyperband(), SyncBOHB()])
def test_a_search_that_shares_out_epochs_asks_for_them(build: Hyperband | SyncBOHB) -> None:
    with pytest.raises(StudyError, match=r"pass max_epochs to the study, or write search=\w+\(max_epochs="):
        build(PROBLEM)


def test_a_population_asks_when_it_should_be_compared() -> None:
    with pytest.raises(StudyError, match="pass max_epochs to the study"):
        PBT()(PROBLEM)


def test_halving_asks_for_a_number_of_trials_in_an_endless_space() -> None:
    with pytest.raises(StudyError, match="needs num_trials"):
        SHA()(Problem(space=PROBLEM.space, metric="a", mode="min"))
