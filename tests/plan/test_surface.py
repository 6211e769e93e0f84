"""What is read off a surface that was measured in a few places."""

from __future__ import annotations

import math

import pytest

from headwater.plan.surface import PRIOR_SCALING, Shape, Surface, cut_evenly, read_between

KIND = ("relu",)


def make_surface(**epochs: float) -> Surface:
    """Return a surface with steps that were measured, and epochs that were trained: lanes_devices=seconds."""
    surface = Surface(steps={KIND: {1: 1.0, 4: 1.6, 16: 4.0}})
    for name, seconds in epochs.items():
        num_lanes, num_devices = map(int, name.removeprefix("on").split("_"))
        surface.add_epoch(KIND, Shape(num_lanes, num_devices), seconds)
    return surface


def test_between_measured_sizes_a_line_is_drawn_and_beyond_them_nothing_is_known() -> None:
    table = {1: 1.0, 4: 1.6, 16: 4.0}
    assert read_between(table, 4) == 1.6
    assert read_between(table, 10) == pytest.approx(2.8)
    assert read_between(table, 17) is None
    assert read_between({}, 1) is None


def test_lanes_are_compared_by_the_steps_that_were_measured() -> None:
    assert make_surface().compare(KIND, Shape(16), Shape(4)) == pytest.approx(0.4)
    assert make_surface().compare(KIND, Shape(4), Shape(4)) == 1.0
    assert make_surface().compare(KIND, Shape(32), Shape(16)) == math.inf
    assert make_surface().compare(("gelu",), Shape(16), Shape(4)) == math.inf


def test_epochs_that_were_trained_count_for_more_than_steps_that_were_tried() -> None:
    surface = make_surface(on16_1=10.0, on4_1=9.0)
    assert surface.compare(KIND, Shape(16), Shape(4)) == pytest.approx(0.9)


def test_a_newer_epoch_replaces_half_of_what_was_known() -> None:
    surface = make_surface(on1_1=10.0)
    surface.add_epoch(KIND, Shape(1), 12.0)
    assert surface.epochs[KIND][Shape(1)] == 11.0


def test_devices_are_compared_by_a_guess_until_one_was_tried() -> None:
    surface = make_surface(on1_1=10.0)
    assert surface.compare(KIND, Shape(1), Shape(1, 2)) == pytest.approx(PRIOR_SCALING / 2)
    tried = make_surface(on1_1=10.0, on1_2=6.0)
    assert tried.compare(KIND, Shape(1), Shape(1, 2)) == pytest.approx(0.6)
    assert tried.speeds(KIND, 4).scaling == pytest.approx(1.2)
    assert tried.compare(KIND, Shape(1), Shape(1, 3)) == pytest.approx(1.2**2 / 3)


def test_another_kind_scales_like_those_that_were_tried() -> None:
    surface = make_surface(on1_1=10.0, on1_2=9.0)
    assert surface.speeds(("gelu",), 2).scaling == pytest.approx(1.8)


def test_the_first_change_replaces_the_guess_and_later_ones_half_of_it() -> None:
    surface = Surface()
    surface.add_change(4.0)
    assert surface.change_s == 4.0
    surface.add_change(2.0)
    assert surface.change_s == 3.0


@pytest.mark.parametrize(("num_lanes", "num_parts", "sizes"), [(16, 2, [8, 8]), (16, 4, [4] * 4), (10, 3, [4, 3, 3])])
def test_parts_differ_by_one_lane_at_most(num_lanes: int, num_parts: int, sizes: list[int]) -> None:
    assert cut_evenly(num_lanes, num_parts) == sizes


def test_what_a_trial_saw_of_devices_counts_for_more_than_trials_that_differ() -> None:
    surface = Surface()
    surface.add_epoch(("a",), Shape(1), 100.0)
    surface.add_epoch(("a",), Shape(1, 2), 1.0)
    assert surface.compare(("a",), Shape(1), Shape(1, 2)) == pytest.approx(0.01), "of a trial that is faster anyway"
    surface.add_share(("a",), 2, 0.9)
    assert surface.compare(("a",), Shape(1), Shape(1, 2)) == pytest.approx(0.9)
    assert surface.compare(("a",), Shape(1, 2), Shape(1)) == pytest.approx(1 / 0.9)


def test_nobody_knows_of_more_than_twice_as_many_devices_as_were_tried() -> None:
    surface = Surface()
    assert surface.speeds(("a",), 40).max_devices == 4
    surface.add_epoch(("a",), Shape(1), 1.0)
    surface.add_share(("a",), 4, 0.25)
    assert surface.speeds(("a",), 40).max_devices == 8
