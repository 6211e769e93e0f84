"""What is read off a surface that was measured in a few places."""

from __future__ import annotations

import math

import pytest

from headwater.plan.surface import MOST_KINDS, PRIOR_SCALING, Shape, Surface, cut_evenly, read_between
from headwater.trials import KindTimes, Learnt, Recipe
from headwater.trials.recipes import Key

KIND = ("relu",)
RECIPE = Recipe("activation", Key(("activation",)))


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
    tried = make_surface(on1_1=10.0)
    tried.add_share(KIND, 2, 0.6)
    assert tried.compare(KIND, Shape(1), Shape(1, 2)) == pytest.approx(0.6)
    assert tried.speeds(KIND, 4).scaling == pytest.approx(1.2)
    assert tried.compare(KIND, Shape(1), Shape(1, 3)) == pytest.approx(1.2**2 / 3)


def test_another_kind_scales_like_those_that_were_tried() -> None:
    surface = make_surface(on1_1=10.0)
    surface.add_share(KIND, 2, 0.9)
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


def test_only_what_one_trial_saw_of_devices_counts_for_trials_differ() -> None:
    surface = Surface()
    surface.add_epoch(("a",), Shape(1), 100.0)
    surface.add_epoch(("a",), Shape(1, 2), 1.0)
    assert surface.compare(("a",), Shape(1), Shape(1, 2)) == pytest.approx(PRIOR_SCALING / 2), (
        "that trial is faster anyway"
    )
    surface.add_share(("a",), 2, 0.9)
    assert surface.compare(("a",), Shape(1), Shape(1, 2)) == pytest.approx(0.9)
    assert surface.compare(("a",), Shape(1, 2), Shape(1)) == pytest.approx(1 / 0.9)


def test_nobody_knows_of_more_than_twice_as_many_devices_as_were_tried() -> None:
    surface = Surface()
    assert surface.speeds(("a",), 40).max_devices == 4
    surface.add_epoch(("a",), Shape(1), 1.0)
    surface.add_share(("a",), 4, 0.25)
    assert surface.speeds(("a",), 40).max_devices == 8


def test_what_was_learnt_is_handed_on_to_another_run() -> None:
    surface = make_surface(on1_1=4.0, on8_1=9.0)
    surface.add_share(KIND, 2, 0.7)
    surface.add_change(3.0)
    learnt = surface.hand_on(Learnt(recipes=(RECIPE,)))
    again = Surface()
    again.recall(learnt)
    assert (again.epochs, again.shares, again.change_s) == (surface.epochs, surface.shares, 3.0)
    again.add_change(1.0)
    assert again.change_s == 2.0, "what was handed on is no guess"
    assert Surface().hand_on(Learnt()).change_s is None
    assert surface.hand_on(Learnt()).times == (), "no recipe tells these kinds"


def test_of_many_kinds_those_that_had_several_devices_are_handed_on() -> None:
    surface = Surface()
    for number in range(2 * MOST_KINDS):
        surface.add_epoch((number,), Shape(1), 1.0)
    surface.add_share((0,), 2, 0.7)
    kinds = {item.kind for item in surface.hand_on(Learnt(recipes=(RECIPE,))).times}
    assert len(kinds) == MOST_KINDS
    assert {(0,), (2 * MOST_KINDS - 1,)} <= kinds


def test_only_what_has_clearly_changed_is_news() -> None:
    surface = make_surface(on1_1=4.0)
    assert not surface.has_news
    for share, is_news in ((0.7, True), (0.72, False), (0.95, True)):
        surface.has_news = False
        surface.add_share(KIND, 2, share)
        assert surface.has_news is is_news


def test_a_trial_that_never_had_one_device_tells_what_further_ones_cost() -> None:
    scaling = 1.3
    surface = Surface()
    surface.add_lone(KIND, 2, 10.0 * scaling / 2, {})
    assert surface.shares == {}
    surface.add_lone(KIND, 4, 10.0 * scaling**3 / 4, {2: 10.0 * scaling / 2})
    assert surface.shares[KIND] == pytest.approx({2: scaling / 2, 4: scaling**3 / 4})
    assert surface.speeds(KIND, 16).scaling == pytest.approx(scaling)


def test_a_trial_is_compared_with_itself_on_devices_of_which_it_is_known_what_they_gain() -> None:
    surface = Surface(shares={KIND: {2: 0.6}})
    surface.add_lone(KIND, 8, 2.0, {2: 6.0})
    assert surface.shares[KIND] == pytest.approx({2: 0.6, 8: 0.2})


def test_a_trial_that_goes_back_to_one_device_tells_what_others_gained() -> None:
    surface = Surface()
    surface.add_lone(KIND, 1, 8.0, {2: 6.0, 4: 16.0})
    assert surface.shares[KIND] == {2: 0.75, 4: 2.0}


def test_no_share_is_so_bad_that_it_cannot_be_reckoned_with() -> None:
    surface = Surface()
    for kind, count in (("relu",), 2), (("gelu",), 512):
        surface.recall(Learnt(times=(KindTimes(kind=kind, shares=((count, 1e300),)),)))
    assert surface.speeds(("other",), 2048).factor(1024) > 1
