"""Lanes that wait for a device: what it is given to do, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from headwater.conduct.grouping import Grouper
from headwater.conduct.packing import Packer
from headwater.conduct.waiting import WaitingLanes, Work
from headwater.plan import Packing
from headwater.space import Space
from headwater.trials import (
    Ending,
    Lane,
    LoadingCost,
    Measured,
    Measurement,
    Outcome,
    Profile,
    Purpose,
    Question,
    Recipe,
    TrialGroup,
    UnitCost,
)
from headwater.trials.recipes import Key

SPACE = Space({"width": 4})
PAYS = Profile(
    num_lanes=2,
    reason="measured",
    measurements=(
        Measurement(num_lanes=1, seconds_per_lane_step=1.0),
        Measurement(num_lanes=2, seconds_per_lane_step=0.1),
    ),
)


def make_waiting(num_lanes: int | None = 2, packing: Packing | None = None) -> WaitingLanes:
    packer = Packer(packing, SPACE, Random(0), lambda text, lanes: None)
    return WaitingLanes(Grouper(num_lanes, lambda text, lanes: None, lambda profile: None), packer)


def make_lanes(numbers: Sequence[int], start_epoch: int = 0) -> list[Lane]:
    return [Lane(number=n, config={"width": 4 + n % 2}, seed=0, start_epoch=start_epoch) for n in numbers]


def numbers_of(work: Work | None) -> list[tuple[int, ...]]:
    assert work is not None
    return [group.numbers for group in work.groups]


def test_lanes_come_out_as_groups_of_the_size_asked_for() -> None:
    waiting = make_waiting()
    waiting.add(make_lanes(range(3)))
    assert waiting.num_lanes == 3
    assert [numbers_of(waiting.take()) for _ in range(2)] == [[(0, 1)], [(2,)]]
    assert waiting.take() is None
    assert waiting.num_lanes == 0


def test_lanes_that_come_later_fill_up_a_group_that_waits() -> None:
    waiting = make_waiting()
    waiting.add(make_lanes([0]))
    waiting.add(make_lanes([1]))
    assert numbers_of(waiting.take()) == [(0, 1)]


def test_groups_that_are_to_stay_come_first_and_meet_nobody() -> None:
    waiting = make_waiting()
    waiting.add(make_lanes([0]))
    waiting.add_groups([TrialGroup(lanes=tuple(make_lanes([number]))) for number in (4, 5)])
    assert [numbers_of(waiting.take()) for _ in range(3)] == [[(4,)], [(5,)], [(0,)]]


def test_a_kind_is_measured_by_one_device_while_the_others_find_nothing() -> None:
    waiting = make_waiting(num_lanes=None)
    waiting.add(make_lanes(range(4)))
    work = waiting.take()
    assert work is not None
    assert (work.purpose, numbers_of(work)) == (Purpose.PROFILE, [(0, 1, 2, 3)])
    assert waiting.take() is None
    assert waiting.num_lanes == 4
    waiting.take_finding(work, Measured(key=0, finding=PAYS))
    assert [numbers_of(waiting.take()) for _ in range(2)] == [[(0, 1)], [(2, 3)]]


def test_what_could_not_be_measured_is_measured_again() -> None:
    waiting = make_waiting(num_lanes=None)
    waiting.add(make_lanes(range(2)))
    work = waiting.take()
    assert work is not None
    waiting.put_back(work)
    assert waiting.take() == work


def test_groups_that_could_not_train_come_back_as_they_were() -> None:
    waiting = make_waiting()
    waiting.add(make_lanes(range(4)))
    work = waiting.take()
    assert work is not None
    waiting.put_back(work)
    assert [numbers_of(waiting.take()) for _ in range(2)] == [[(0, 1)], [(2, 3)]]


def test_lanes_that_part_are_cut_anew_before_and_with_those_that_wait() -> None:
    waiting = make_waiting()
    waiting.add(make_lanes(range(6)))
    work = waiting.take()
    assert work is not None
    question = Question(Recipe("width", Key(("width",))), "a width")
    waiting.part(Ending(outcome=Outcome.PARTED, lanes=work.groups[0].lanes, question=question))
    assert [numbers_of(waiting.take()) for _ in range(4)] == [[(0, 2)], [(4,)], [(1, 3)], [(5,)]]


def test_a_group_that_raised_comes_back_in_halves() -> None:
    waiting = make_waiting(num_lanes=4)
    waiting.add(make_lanes(range(8)))
    work = waiting.take()
    assert work is not None
    waiting.part(Ending(outcome=Outcome.RAISED, lanes=work.groups[0].lanes, error="ValueError: no"))
    assert [numbers_of(waiting.take()) for _ in range(3)] == [[(0, 1)], [(2, 3)], [(4, 5, 6, 7)]]


def test_loading_is_measured_before_groups_train_as_a_pack() -> None:
    waiting = make_waiting(num_lanes=1, packing=Packing.COST)
    waiting.add(make_lanes(range(4)))
    work = waiting.take()
    assert work is not None
    assert (work.purpose, numbers_of(work)) == (Purpose.LOADING, [(0,)])
    waiting.take_finding(work, Measured(key=0, finding=LoadingCost(unit=UnitCost(compute_s=0.1, load_s=1.0))))
    assert numbers_of(waiting.take()) == [(0,), (1,), (2,), (3,)]


def test_loading_is_not_measured_for_groups_that_have_a_device_each() -> None:
    waiting = make_waiting(1, Packing.COST)
    waiting.share_among(2)
    waiting.add(make_lanes(range(2)))
    assert [numbers_of(waiting.take()) for _ in range(2)] == [[(0,)], [(1,)]]
    waiting.add(make_lanes(range(2, 5)))
    work = waiting.take()
    assert work is not None
    assert work.purpose is Purpose.LOADING


def test_mates_start_where_the_pack_stands_under_keys_of_their_own() -> None:
    waiting = make_waiting(num_lanes=1, packing=Packing.COST)
    waiting.packer.take_cost(
        TrialGroup(lanes=tuple(make_lanes([9]))), LoadingCost(unit=UnitCost(compute_s=0.1, load_s=1.0))
    )
    waiting.add([*make_lanes([0, 1]), *make_lanes([2, 3], start_epoch=2)])
    mates = waiting.take_mates(epochs=[2, 5], taken=[2])
    assert [group.numbers for group in mates] == [(3,)]
    assert waiting.num_lanes == 3


def test_without_packs_nobody_joins() -> None:
    waiting = make_waiting(num_lanes=1)
    waiting.add(make_lanes([0, 1]))
    assert waiting.take_mates(epochs=[0], taken=[]) == []


def test_a_group_that_refuses_a_pack_trains_alone_and_so_do_all_others() -> None:
    waiting = make_waiting(num_lanes=1, packing=Packing.COST)
    waiting.add(make_lanes(range(3)))
    group = TrialGroup(lanes=tuple(make_lanes([7])))
    waiting.refuse_packs([group], "it reads its own files")
    assert [numbers_of(waiting.take()) for _ in range(4)] == [[(7,)], [(0,)], [(1,)], [(2,)]]


def test_lanes_that_wait_are_counted_whatever_becomes_of_them() -> None:
    waiting = make_waiting()
    waiting.add(make_lanes(range(5)))
    first = waiting.take()
    assert first is not None
    assert waiting.num_lanes == 3
    waiting.put_back(first)
    waiting.add_groups([TrialGroup(lanes=tuple(make_lanes([7])))])
    assert waiting.num_lanes == 6
    waiting.part(Ending(outcome=Outcome.RAISED, lanes=tuple(make_lanes([8, 9])), error="boom"))
    assert waiting.num_lanes == 8
    taken = [waiting.take() for _ in range(7)]
    assert sum(len(group) for work in taken if work is not None for group in work.groups) == 8
    assert waiting.num_lanes == 0
