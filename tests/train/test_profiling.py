"""How many lanes pay, by a few real steps at 1, 2, 4, … of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, cycle
from typing import Any

import pytest
import torch
from tests.train.lab import open_lanes
from torch import nn

from headwater.errors import LanesLeave
from headwater.train import Trial, profiling
from headwater.train.profiling import (
    LONG_S,
    MOST_S,
    NUM_FINALS,
    NUM_RACING,
    NUM_WARM_UP,
    _conclude,
    _ends,
    _finalists,
    _hold_finals,
    _Stopwatch,
    _would_not_fit,
    profile_lanes,
)
from headwater.train.running import Workshop
from headwater.trials import Decision, Lane, Measurement, Outcome, Report


def lanes_of(count: int, **fixed: Any) -> tuple[Lane, ...]:
    return open_lanes({number: {"lr": 0.01 * (number + 1), **fixed} for number in range(count)})


class Tiny:
    """A training function that is all overhead, so that lanes pay; it counts its steps."""

    def __init__(self) -> None:
        self.num_steps = 0

    def __call__(self, trial: Trial) -> None:
        layers = [layer for _ in range(4) for layer in (nn.Linear(4, 4), nn.ReLU())]
        model = trial.prepare_model(nn.Sequential(*layers))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        x = torch.ones(2, 4)
        for _ in trial.epochs(1000):
            for _ in range(20):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
                self.num_steps += 1
            trial.report(loss=1.0)


def test_lanes_are_chosen_where_they_are_faster() -> None:
    profile, ending = profile_lanes(Workshop(Tiny()), lanes_of(8))
    assert ending is None
    assert profile.num_lanes > 1
    assert "times as fast per step as separate training" in profile.reason


def test_every_measurement_is_recorded() -> None:
    profile, _ = profile_lanes(Workshop(Tiny()), lanes_of(6))
    assert [item.num_lanes for item in profile.measurements] == [1, 2, 4, 6]
    assert all(item.seconds_per_lane_step > 0 for item in profile.measurements)
    assert profile.seconds_alone == profile.measurements[0].seconds_per_lane_step


def test_the_largest_group_is_limited() -> None:
    profile, _ = profile_lanes(Workshop(Tiny()), lanes_of(9), max_lanes=4)
    assert [item.num_lanes for item in profile.measurements] == [1, 2, 4]


class Working:
    """A training function whose steps take a time of their own, whatever is computed; its measurer reads that clock."""

    def __init__(self, step_s: Callable[[int], float], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self._step_s = step_s
        monkeypatch.setattr(profiling, "read_clock", lambda: self.now_s)

    def __call__(self, trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(1000):
            for _ in range(20):
                self.now_s += self._step_s(len(trial.lanes))
                optimizer.step()
            trial.report(loss=1.0)


def test_sizes_beyond_the_usual_are_tried_while_they_are_clearly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Working(lambda num_lanes: 1e-3, monkeypatch)
    profile, _ = profile_lanes(Workshop(function), lanes_of(600))
    assert profile.largest == profile.num_lanes == 512


def test_sizes_beyond_the_usual_are_not_tried_where_the_last_was_hardly_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function = Working(lambda num_lanes: 1e-3 * max(1.0, num_lanes / 64) ** 0.97, monkeypatch)
    profile, _ = profile_lanes(Workshop(function), lanes_of(600))
    assert profile.largest == 128


def test_no_more_lanes_are_tried_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    profile, _ = profile_lanes(Workshop(Working(lambda num_lanes: 1e-3, monkeypatch)), lanes_of(64))
    assert profile.largest == 64


def test_large_groups_must_fit_by_a_line_through_two_sizes() -> None:
    mib = 1 << 20
    measured = {
        size: Measurement(num_lanes=size, seconds_per_lane_step=1e-3, peak_bytes=(64 + size) * mib)
        for size in (64, 128)
    }
    assert not _would_not_fit(measured, 256, 320 * mib)
    assert _would_not_fit(measured, 256, 319 * mib)
    assert _would_not_fit({128: measured[128]}, 256, 320 * mib), "one size tells nothing of what all lanes share"
    assert not _would_not_fit({}, 256, 1)


def test_a_few_steps_are_enough() -> None:
    function = Tiny()
    profile_lanes(Workshop(function), lanes_of(2))
    num_runs = 2 + 2 * NUM_FINALS
    assert function.num_steps <= num_runs * (_Stopwatch.MAX_STEPS + NUM_WARM_UP + 2)


def test_lanes_are_not_chosen_where_they_are_slower() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in range(10):
            for _ in range(100 * len(trial.lanes) ** 2):  # stands for work that lanes make worse
                torch.ones(1)
            optimizer.step()
        trial.report(loss=1.0)

    profile, _ = profile_lanes(Workshop(train), lanes_of(4))
    assert profile.num_lanes == 1
    assert profile.reason == "no group was faster than separate training"


def test_a_function_without_steps_is_timed_as_a_whole_to_its_first_report() -> None:
    reports = []

    def train(trial: Trial) -> None:
        for _ in trial.epochs(50):
            reports.append(len(trial.lanes))
            trial.report(loss=trial.config["lr"])

    profile, ending = profile_lanes(Workshop(train), lanes_of(2))
    assert ending is None
    assert [item.num_lanes for item in profile.measurements] == [1, 2]
    assert reports[:2] == [1, 2]
    assert len(reports) <= 2 + 2 * NUM_FINALS


def test_a_function_that_raises_is_left_for_its_own_run_to_tell() -> None:
    def train(trial: Trial) -> None:
        raise ValueError("no")

    profile, ending = profile_lanes(Workshop(train), lanes_of(4))
    assert profile.num_lanes == 1
    assert profile.measurements == ()
    assert ending is not None
    assert ending.outcome is Outcome.RAISED


def test_a_function_that_raises_in_groups_only_is_not_grouped() -> None:
    def train(trial: Trial) -> None:
        if len(trial.lanes) > 2:
            raise ValueError("too many")
        Tiny()(trial)

    profile, ending = profile_lanes(Workshop(train), lanes_of(4))
    assert [item.num_lanes for item in profile.measurements] == [1, 2]
    assert ending is not None
    assert len(ending.lanes) == 4


def test_lanes_that_part_end_the_measuring() -> None:
    def train(trial: Trial) -> None:
        nn.Linear(2, trial.config["width"])
        trial.report(loss=1.0)

    lanes = open_lanes({number: {"width": number // 2 + 2} for number in range(4)})
    profile, ending = profile_lanes(Workshop(train), lanes)
    assert [item.num_lanes for item in profile.measurements] == [1, 2]
    assert ending is not None
    assert ending.outcome is Outcome.PARTED


def test_the_stopwatch_leaves_out_the_warm_up_and_takes_the_lower_quartile() -> None:
    clock = iter([0.0, 5.0, 5.05, 5.051, 5.053, 5.056, 5.057])
    watch = _Stopwatch(lambda: next(clock))
    for _ in range(7):
        watch.step(1)
    assert watch.seconds_per_step == pytest.approx(0.001)


def test_the_stopwatch_leaves_out_steps_in_which_a_way_was_chosen() -> None:
    clock = iter([0.0, 0.05, 0.06, 0.063, 1.0, 1.03, 1.06])
    choices = iter([1, 1, 1, 2, 2, 2, 2])
    watch = _Stopwatch(lambda: next(clock), lambda: next(choices))
    for _ in range(6):
        watch.step(1)
    with pytest.raises(LanesLeave):
        watch.step(1)
    assert watch.seconds_per_step == pytest.approx(0.03)


def test_the_stopwatch_takes_all_steps_where_a_way_was_chosen_in_each() -> None:
    clock, choices = iter([0.0, 2.0, 3.0, 7.0, 9.0]), iter(range(5))
    watch = _Stopwatch(lambda: next(clock), lambda: next(choices))
    for _ in range(5):
        watch.step(1)
    assert watch.seconds_per_step == 2.0


def count_steps(watch: _Stopwatch) -> int:
    """Step until the stopwatch has seen enough."""
    for num_steps in range(100):
        try:
            watch.step(1)
        except LanesLeave:
            return num_steps + 1
    raise AssertionError


def test_the_stopwatch_ends_the_run_when_enough_time_has_passed() -> None:
    clock = iter(range(100))
    num_steps = count_steps(_Stopwatch(lambda: next(clock) * 0.06))
    assert num_steps == NUM_WARM_UP + _Stopwatch.MIN_STEPS + 1


def test_two_long_steps_in_a_row_are_enough() -> None:
    clock = iter([0.0, 0.4, 0.9, 1.2, 1.5])
    watch = _Stopwatch(lambda: next(clock))
    assert count_steps(watch) == 3
    assert watch.seconds_per_step == pytest.approx(0.4)


def test_a_long_step_now_and_then_is_no_reason_to_end() -> None:
    clock = accumulate(cycle([0.5, 0.01]))
    watch = _Stopwatch(lambda: next(clock))
    assert count_steps(watch) == NUM_WARM_UP + _Stopwatch.MIN_STEPS + 1
    assert watch.seconds_per_step == pytest.approx(0.01)


def test_long_steps_are_not_enough_where_ways_race() -> None:
    clock = accumulate(cycle([0.4, 0.3]))
    watch = _Stopwatch(lambda: next(clock), ways_race=True)
    assert count_steps(watch) == NUM_WARM_UP + _Stopwatch.MIN_STEPS + 1


def test_long_steps_in_which_a_way_was_chosen_do_not_count() -> None:
    clock, choices = iter([0.0, 1.0, 2.0, 2.5, 3.0]), iter([0, 1, 2, 2, 2])
    watch = _Stopwatch(lambda: next(clock), lambda: next(choices))
    assert count_steps(watch) == 5
    assert watch.seconds_per_step == 0.5


def test_the_stopwatch_ends_the_run_when_enough_steps_were_seen() -> None:
    num_steps = count_steps(_Stopwatch(lambda: 0.0))
    assert num_steps == NUM_WARM_UP + _Stopwatch.MAX_STEPS + 1


def test_the_stopwatch_stops_at_a_report_only_where_there_are_no_steps() -> None:
    def capture(number: int) -> Any:
        raise AssertionError

    report = Report(number=0, epoch=1, metrics={})
    watch = _Stopwatch()
    assert watch.report([report], capture) == [Decision.STOP]
    watch.step(1)
    assert watch.report([report], capture) == [Decision.CONTINUE]


def test_a_factory_is_called_once_for_each_group_that_is_measured() -> None:
    calls: list[int] = []

    def build() -> nn.Module:
        calls.append(1)
        return nn.Linear(3, 1)

    def train(trial: Trial) -> None:
        model = trial.prepare_model(build)
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        for _ in range(20):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        trial.report(loss=0.0)

    lanes = [Lane(number=n, config={"lr": 0.1 / (n + 1)}, seed=0) for n in range(8)]
    profile, ending = profile_lanes(Workshop(train), lanes)
    assert ending is None
    assert len(calls) <= 2 * len(profile.measurements)


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
