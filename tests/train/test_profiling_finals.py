"""Which sizes of groups are measured again, and when a search of sizes ends."""

from __future__ import annotations

import torch
from tests.train.lab import Tiny, lanes_of
from torch import nn

from headwater.train import Trial
from headwater.train.profiling import (
    LONG_S,
    MOST_S,
    NUM_RACING,
    NUM_WARM_UP,
    _conclude,
    _ends,
    _finalists,
    _hold_finals,
    profile_lanes,
)
from headwater.train.running import Workshop
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


def test_the_sizes_near_the_best_are_measured_again_and_one_lane_where_little_is_gained() -> None:
    measured = seconds_at({1: 1.4e-3, 2: 1.3e-3, 4: 1.1e-3, 8: 1e-3})
    assert _finalists(measured, 6) == [8, 1, 4]


def test_sizes_that_would_take_too_long_are_not_measured_again() -> None:
    measured = seconds_at({1: 0.25, 16: 0.00275, 32: 0.0025, 64: 0.0026})
    assert _finalists(measured, 6) == [32, 64, 16]
    assert _finalists(measured, 16) == [32, 16]


def test_finals_go_on_until_the_best_stays_the_best() -> None:
    measured = seconds_at({4: 1.1e-3, 8: 1e-3})
    again = Again({4: [0.9e-3, 1.2e-3, 1.3e-3], 8: [1.1e-3, 0.8e-3, 1e-3]})
    assert _hold_finals(measured, 5, True, again) == [8, 4]
    race, warm = NUM_RACING, NUM_WARM_UP
    assert again.asked == [(8, race), (4, race), (4, warm), (8, warm), (8, warm), (4, warm)]
    assert {size: item.computing_s for size, item in measured.items()} == {4: 1.2e-3, 8: 1e-3}


def test_finals_count_alone_for_what_was_measured_when_the_machine_was_fast() -> None:
    measured = seconds_at({1: 0.7e-3, 8: 1e-3, 16: 0.9e-3})
    finalists = _hold_finals(measured, 3, False, Again({1: [1.5e-3, 1.6e-3], 8: [1e-3] * 2, 16: [1.1e-3] * 2}))
    assert _conclude(Workshop(Tiny()), measured, None, finalists).num_lanes == 8


def test_sizes_that_took_no_part_in_the_finals_are_not_chosen() -> None:
    measured = seconds_at({1: 2e-3, 2: 1.3e-3, 8: 1e-3, 16: 1.1e-3})
    finalists = _hold_finals(measured, 1, False, Again({8: [1.5e-3], 16: [1.6e-3]}))
    assert finalists == [8, 16]
    profile = _conclude(Workshop(Tiny()), measured, None, finalists)
    assert profile.num_lanes == 8
    assert len(profile.measurements) == 4


def test_a_size_that_does_not_run_again_keeps_its_measurement() -> None:
    measured = seconds_at({4: 1.1e-3, 8: 1e-3})
    _hold_finals(measured, 2, False, Again())
    assert measured == seconds_at({4: 1.1e-3, 8: 1e-3})


def test_finals_do_not_wait_for_races_of_long_steps() -> None:
    again = Again()
    _hold_finals(seconds_at({1: 0.04, 8: 0.038}), 1, True, again)
    assert again.asked == [(8, NUM_WARM_UP), (1, NUM_WARM_UP)]


def test_a_search_goes_on_where_the_last_sizes_are_faster_when_measured_again() -> None:
    slow = {1: 1.0, 2: 1.5, 4: 1.4, 8: 1.3, 16: 1.2}
    again = Again({16: [0.7]})
    assert not _ends(seconds_at(slow), 0.0, again)
    assert again.asked == [(4, NUM_WARM_UP), (8, NUM_WARM_UP), (16, NUM_WARM_UP)]
    assert _ends(seconds_at(slow), 0.0, Again({16: [1.1]}))


def test_a_long_search_ends_without_a_second_chance() -> None:
    again = Again({16: [0.7]})
    assert _ends(seconds_at({1: 1.0, 2: 1.5, 4: 1.4, 8: 1.3, 16: 1.2}), LONG_S + 1, again)
    assert not again.asked


def test_no_search_goes_on_for_ever() -> None:
    measured = seconds_at({1: 1.0, 2: 0.5, 4: 0.25})
    assert _ends(measured, MOST_S + 1, Again())
    assert not _ends(measured, MOST_S - 1, Again())


def test_a_race_of_ways_is_over_before_the_finals() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1)))
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        for _ in range(100):
            model(torch.ones(2, 1, 6, 6)).sum().backward()
            optimizer.step()
        trial.report(loss=0.0)

    plain, racing = Workshop(Tiny()), Workshop(train)
    for workshop in (plain, racing):
        assert profile_lanes(workshop, lanes_of(2))[1] is None
    assert not plain.strategies.have_raced
    assert racing.strategies.have_raced
