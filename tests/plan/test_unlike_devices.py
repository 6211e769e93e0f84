"""Who has which device where devices are unlike."""

from __future__ import annotations

import math
from itertools import permutations
from random import Random

import pytest

from headwater.plan.surface import Shape
from headwater.plan.unlike_devices import DeviceSurfaces, match_devices

KIND, OTHER = ("relu",), ("tanh",)
STEPS = {1: 1.0, 2: 1.1, 4: 1.3, 8: 2.0}


def make_surfaces() -> DeviceSurfaces:
    """Return times of one kind of trial that takes three times as long on slow devices."""
    surfaces = DeviceSurfaces()
    surfaces.add_epoch("fast", KIND, Shape(4), 10.0, STEPS)
    surfaces.add_epoch("slow", KIND, Shape(4), 30.0, STEPS)
    return surfaces


def test_times_are_those_that_were_trained() -> None:
    surfaces = make_surfaces()
    assert surfaces.time_epoch("fast", KIND, 4) == pytest.approx(10.0)
    assert surfaces.time_epoch("slow", KIND, 4) == pytest.approx(30.0)


def test_other_numbers_of_lanes_are_read_off_measured_steps() -> None:
    assert make_surfaces().time_epoch("slow", KIND, 8) == pytest.approx(30 * 2.0 / 1.3)


def test_what_was_trained_on_one_kind_of_device_is_foreseen_on_another() -> None:
    surfaces = make_surfaces()
    surfaces.add_epoch("fast", OTHER, Shape(1), 7.0, {})
    assert surfaces.time_epoch("slow", OTHER, 1) == pytest.approx(21.0)
    assert surfaces.compare("slow", "fast") == pytest.approx(1 / 3)
    assert surfaces.compare("fast", "never seen") == 1.0
    assert surfaces.order(["slow", "fast"]) == ["fast", "slow"]
    assert surfaces.time_epoch("slow", ("unknown",), 1) == math.inf


def test_the_fast_device_is_for_who_would_lose_most_by_the_slow_one() -> None:
    small, large = {"slow": 15.0, "fast": 10.0}, {"slow": 90.0, "fast": 30.0}
    assert match_devices([small, large], ["fast", "slow"]) == [1, 0]
    assert match_devices([large, small], ["slow", "fast"]) == [1, 0]


def test_the_end_counts_where_nothing_comes_after_them() -> None:
    """A sum of 170 s with an end at 150 s, or of 180 s with an end at 100 s."""
    times = [{"fast": 100.0, "slow": 150.0}, {"fast": 20.0, "slow": 80.0}]
    assert match_devices(times, ["fast", "slow"]) == [1, 0]
    assert match_devices(times, ["fast", "slow"], is_last=True) == [0, 1]


def test_devices_go_out_in_their_order_where_they_are_alike_or_nobody_knows() -> None:
    times = [{"fast": 2.0, "slow": 3.0}, {"fast": 20.0, "slow": 30.0}]
    assert match_devices(times, ["slow", "slow", "slow"]) == [0, 1]
    assert match_devices([{"fast": 1.0, "slow": float("inf")}, times[0]], ["slow", "fast"]) == [0, 1]


@pytest.mark.parametrize("seed", range(20))
def test_with_two_kinds_no_other_match_has_a_smaller_sum(seed: int) -> None:
    rng = Random(seed)
    kinds = [rng.choice(["fast", "slow"]) for _ in range(rng.randint(2, 6))]
    times = []
    for _ in range(len(kinds)):
        fast_s = rng.uniform(1, 10)
        times.append({"fast": fast_s, "slow": fast_s * rng.uniform(1, 5)})

    def add_up(places: tuple[int, ...]) -> float:
        return sum(known[kinds[place]] for known, place in zip(times, places, strict=True))

    chosen = tuple(match_devices(times, kinds))
    assert sorted(chosen) == list(range(len(kinds)))
    assert add_up(chosen) == pytest.approx(min(map(add_up, permutations(range(len(kinds))))))
