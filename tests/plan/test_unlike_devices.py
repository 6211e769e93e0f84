"""Who has which device where devices are unlike, and when idle ones go back."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest
from tests.clocks import JumpingClock

from headwater.plan.surface import Shape, Surface
from headwater.plan.unlike_devices import (
    Bundle,
    DeviceSurfaces,
    choose_slower,
    find_released,
    match_devices,
    measure_utilisation,
    note_idle,
)

KIND, OTHER = ("relu",), ("tanh",)
STEPS = {1: 1.0, 2: 1.1, 4: 1.3, 8: 2.0}


def make_surfaces() -> DeviceSurfaces:
    """Return times of one kind of trial that takes three times as long on slow devices."""
    surfaces = DeviceSurfaces()
    surfaces.add_epoch("fast", KIND, Shape(4), 10.0, STEPS)
    surfaces.add_epoch("slow", KIND, Shape(4), 30.0, STEPS)
    return surfaces


def test_rates_are_those_that_were_trained() -> None:
    surfaces = make_surfaces()
    assert surfaces.rate("fast", KIND, 4) == pytest.approx(0.4)
    assert surfaces.rate("slow", KIND, 4) == pytest.approx(4 / 30)


def test_other_numbers_of_lanes_are_read_off_measured_steps() -> None:
    assert make_surfaces().rate("slow", KIND, 8) == pytest.approx(8 / (30 * 2.0 / 1.3))


def test_what_was_trained_on_one_kind_of_device_is_foreseen_on_another() -> None:
    surfaces = make_surfaces()
    surfaces.add_epoch("fast", OTHER, Shape(1), 7.0, {})
    assert surfaces.time_epoch("slow", OTHER, 1) == pytest.approx(21.0)
    assert surfaces.compare("slow", "fast") == pytest.approx(1 / 3)
    assert surfaces.compare("fast", "never seen") == 1.0
    assert surfaces.order(["slow", "fast"]) == ["fast", "slow"]
    assert surfaces.rate("slow", ("unknown",), 1) == 0.0


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


@pytest.mark.parametrize(
    ("utilisation", "others_wait", "kind"), [(0.49, True, "middle"), (0.5, True, None), (0.49, False, None)]
)
def test_what_uses_less_than_half_of_a_fast_device_goes_to_a_slower_one_if_others_wait(
    utilisation: float, others_wait: bool, kind: str | None
) -> None:
    rates = {"fast": 4.0, "middle": 3.0, "slow": 1.0, "unfit": 0.0}
    idle = ["slow", "middle", "unfit"]
    assert choose_slower("fast", idle, rates, utilisation, others_wait=others_wait) == kind


def test_nothing_goes_to_a_device_that_is_faster_or_cannot_train_it() -> None:
    assert choose_slower("slow", ["fast", "unfit"], {"slow": 1.0, "fast": 2.0}, 0.1, others_wait=True) is None


def test_a_group_uses_what_it_gets_done_of_the_most_that_lanes_did() -> None:
    surface = Surface(steps={KIND: STEPS})
    assert measure_utilisation(surface, KIND, 8) == 1.0
    assert measure_utilisation(surface, KIND, 1) == pytest.approx(1 / 4)
    assert measure_utilisation(surface, KIND, 16) == measure_utilisation(surface, OTHER, 1) == 1.0


NODE = Bundle(name="node-1", devices=("gpu:0", "gpu:1"), belongings=("cpu:0", "cpu:1"))


class Watch:
    """Devices that are idle or not, and a clock that jumps."""

    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.since_s: dict[str, float] = {}

    def look(self, idle: set[str], after_s: float = 60.0) -> list[Bundle]:
        self.since_s = note_idle(self.since_s, idle, self.clock())
        return find_released([NODE], self.since_s, self.clock(), after_s)


@pytest.mark.parametrize(("seconds", "released"), [(59.0, []), (61.0, [NODE])])
def test_a_node_goes_as_a_bundle_when_it_was_idle_for_a_minute(seconds: float, released: list[Bundle]) -> None:
    watch = Watch()
    assert watch.look({"gpu:0", "gpu:1"}) == []
    watch.clock.jump(seconds)
    assert watch.look({"gpu:0", "gpu:1"}) == released


def test_work_in_between_starts_the_minute_anew() -> None:
    watch = Watch()
    watch.look({"gpu:0", "gpu:1"})
    watch.clock.jump(50.0)
    watch.look({"gpu:0"})
    watch.clock.jump(11.0)
    assert watch.look({"gpu:0", "gpu:1"}) == []
    watch.clock.jump(59.0)
    assert watch.look({"gpu:0", "gpu:1"}) == []
    watch.clock.jump(2.0)
    assert watch.look({"gpu:0", "gpu:1"}) == [NODE]


def test_a_node_stays_while_one_of_its_devices_works_and_the_time_is_a_setting() -> None:
    watch = Watch()
    watch.look({"gpu:0"})
    watch.clock.jump(500.0)
    assert watch.look({"gpu:0"}) == []
    watch.look({"gpu:0", "gpu:1"}, after_s=5.0)
    watch.clock.jump(6.0)
    assert watch.look({"gpu:0", "gpu:1"}, after_s=5.0) == [NODE]
