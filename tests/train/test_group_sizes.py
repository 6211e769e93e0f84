"""Which sizes of groups are measured again, and when a search of sizes ends."""

from __future__ import annotations

import math

import pytest
import torch
from tests.train.lab import Tiny, lanes_of
from torch import nn

from headwater.train import Trial
from headwater.train.group_sizes import (
    FINAL_S,
    LONG_S,
    MOST_S,
    NUM_RACING,
    ends,
    find_final_s,
    find_finalists,
    foresee_search,
    hold_finals,
    is_worth_its_time,
)
from headwater.train.profiling import _conclude, profile_lanes
from headwater.train.running import TrainingSetup
from headwater.train.stopwatch import NUM_WARM_UP
from headwater.trials import Measurement


def seconds_at(seconds: dict[int, float]) -> dict[int, Measurement]:
    """Return measurements of these sizes with so many seconds per lane-step."""
    return {
        size: Measurement(num_lanes=size, seconds_per_lane_step=value, peak_bytes=None)
        for size, value in seconds.items()
    }


class Again:
    """Stands for measuring again: a size takes so many seconds the first time, the second, and so on."""

    def __init__(self, seconds: dict[int, list[float]] | None = None) -> None:
        self.asked: list[tuple[int, int]] = []
        self._seconds = {size: iter(values) for size, values in (seconds or {}).items()}

    def __call__(self, size: int, num_warm_up: int) -> Measurement | None:
        self.asked.append((size, num_warm_up))
        return seconds_at({size: next(self._seconds[size])})[size] if size in self._seconds else None


def test_the_time_to_measure_grows_with_steps_and_starts_up_to_where_it_is_cut() -> None:
    short, started, long = (
        foresee_search([2, 4, 8], step_s, start_s) for step_s, start_s in ((0.001, 0.0), (0.001, 1.0), (10.0, 0.0))
    )
    assert short == pytest.approx(1.5 * 3 * 0.15, rel=0.2), "as long as is timed of each, and the finals"
    assert started == pytest.approx(short + 3 * 1.5, rel=0.1)
    assert long == MOST_S + FINAL_S


def test_the_sizes_near_the_best_are_measured_again_and_one_lane_where_little_is_gained() -> None:
    measured = seconds_at({1: 1.4e-3, 2: 1.3e-3, 4: 1.1e-3, 8: 1e-3})
    assert find_finalists(measured, 6) == [8, 1, 4]


def test_sizes_that_would_take_too_long_are_not_measured_again() -> None:
    measured = seconds_at({1: 0.25, 16: 0.00275, 32: 0.0025, 64: 0.0026})
    assert find_finalists(measured, 6) == [32, 64, 16]
    assert find_finalists(measured, 16) == [32, 16]


def test_finals_go_on_until_the_best_stays_the_best() -> None:
    measured = seconds_at({4: 1.1e-3, 8: 1e-3})
    again = Again({4: [0.9e-3, 1.2e-3, 1.3e-3], 8: [1.1e-3, 0.8e-3, 1e-3]})
    assert hold_finals(measured, 5, True, again) == [8, 4]
    race, warm = NUM_RACING, NUM_WARM_UP
    assert again.asked == [(8, race), (4, race), (4, warm), (8, warm), (8, warm), (4, warm)]
    assert {size: item.computing_s for size, item in measured.items()} == {4: 1.2e-3, 8: 1e-3}


def test_finals_count_alone_for_what_was_measured_when_the_machine_was_fast() -> None:
    measured = seconds_at({1: 0.7e-3, 8: 1e-3, 16: 0.9e-3})
    finalists = hold_finals(measured, 3, False, Again({1: [1.5e-3, 1.6e-3], 8: [1e-3] * 2, 16: [1.1e-3] * 2}))
    assert _conclude(TrainingSetup(Tiny()), measured, None, finalists).num_lanes == 8


def test_sizes_that_took_no_part_in_the_finals_are_not_chosen() -> None:
    measured = seconds_at({1: 2e-3, 2: 1.3e-3, 8: 1e-3, 16: 1.1e-3})
    finalists = hold_finals(measured, 1, False, Again({8: [1.5e-3], 16: [1.6e-3]}))
    assert finalists == [8, 16]
    profile = _conclude(TrainingSetup(Tiny()), measured, None, finalists)
    assert profile.num_lanes == 8
    assert len(profile.measurements) == 4


def test_a_size_that_does_not_run_again_keeps_its_measurement() -> None:
    measured = seconds_at({4: 1.1e-3, 8: 1e-3})
    hold_finals(measured, 2, False, Again())
    assert measured == seconds_at({4: 1.1e-3, 8: 1e-3})


def test_finals_do_not_wait_for_races_of_long_steps() -> None:
    again = Again()
    hold_finals(seconds_at({1: 0.04, 8: 0.038}), 1, True, again)
    assert again.asked == [(8, NUM_WARM_UP), (1, NUM_WARM_UP)]


def test_a_search_goes_on_where_the_last_sizes_are_faster_when_measured_again() -> None:
    slow = {1: 1.0, 2: 1.5, 4: 1.4, 8: 1.3, 16: 1.2}
    again = Again({16: [0.7]})
    assert not ends(seconds_at(slow), 0.0, again)
    assert again.asked == [(4, NUM_WARM_UP), (8, NUM_WARM_UP), (16, NUM_WARM_UP)]
    assert ends(seconds_at(slow), 0.0, Again({16: [1.1]}))


def test_a_long_search_ends_without_a_second_chance() -> None:
    again = Again({16: [0.7]})
    assert ends(seconds_at({1: 1.0, 2: 1.5, 4: 1.4, 8: 1.3, 16: 1.2}), LONG_S + 1, again)
    assert not again.asked


def test_no_search_goes_on_for_ever() -> None:
    measured = seconds_at({1: 1.0, 2: 0.5, 4: 0.25})
    assert ends(measured, MOST_S + 1, Again())
    assert not ends(measured, MOST_S - 1, Again())


def test_a_race_of_ways_is_over_before_the_finals() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1)))
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        for _ in range(100):
            model(torch.ones(2, 1, 6, 6)).sum().backward()
            optimizer.step()
        trial.report(loss=0.0)

    plain, racing = TrainingSetup(Tiny()), TrainingSetup(train)
    for setup in (plain, racing):
        assert profile_lanes(setup, lanes_of(2), share=math.inf)[1] is None
    assert not plain.strategies.have_raced
    assert racing.strategies.have_raced


def test_a_larger_size_is_measured_only_where_it_may_save_more_than_that_takes() -> None:
    gaining, flat = seconds_at({1: 4e-3, 2: 2e-3, 4: 1e-3}), seconds_at({1: 1e-3, 2: 1e-3, 4: 1e-3})
    left = 10_000  # 10 s at the fastest size; a gain of 2 makes one of 1.41 likely, which saves 2.9 s
    assert is_worth_its_time(gaining, 1.4, left)
    assert not is_worth_its_time(gaining, 1.5, left)
    assert is_worth_its_time(flat, 0.24, left)
    assert not is_worth_its_time(flat, 0.26, left)


def test_the_first_larger_size_and_studies_without_end_are_always_worth_it() -> None:
    assert is_worth_its_time(seconds_at({1: 1e-3}), 4.9, 10_000)
    assert is_worth_its_time(seconds_at({1: 1e-3, 2: 1e-3}), 1e6, math.inf)


def test_measuring_again_takes_a_small_part_of_what_is_left() -> None:
    measured = seconds_at({1: 2e-3, 8: 1e-3, 16: 1.05e-3})
    assert find_final_s(measured, 10_000) == 0.2
    assert find_final_s(measured, math.inf) == FINAL_S
    again = Again()
    assert hold_finals(measured, 3, False, again, most_s=0.05) == []
    assert again.asked == []
