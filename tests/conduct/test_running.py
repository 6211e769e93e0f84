"""What a conductor knows of the placements that run now."""

from __future__ import annotations

from headwater.conduct.grouping import Work
from headwater.conduct.running import RunningGroup, RunningPlacement
from headwater.trials import Lane, Placement, Purpose, TrialGroup


def make_group(*numbers: int, start_epoch: int = 0) -> TrialGroup:
    return TrialGroup(lanes=tuple(Lane(number=n, config={}, seed=0, start_epoch=start_epoch) for n in numbers))


def start(*groups: TrialGroup, purpose: Purpose = Purpose.TRAIN) -> RunningPlacement:
    placement = Placement(key=7, study="s", groups=groups, devices=("cpu:0",), purpose=purpose)
    return RunningPlacement.start(placement, Work(purpose=purpose, groups=groups), 3.0)


def test_a_group_starts_with_all_its_lanes_where_they_stand() -> None:
    group = RunningGroup.start(make_group(3, 4, start_epoch=2))
    assert (group.numbers, group.epoch) == ([3, 4], 2)
    group.numbers.remove(3)
    assert [lane.number for lane in group.lanes] == [4]
    assert [lane.number for lane in group.select([3])] == [3]


def test_groups_of_a_placement_are_known_by_their_first_trials() -> None:
    pack, alone = start(make_group(0, 1), make_group(2)), start(make_group(3))
    assert pack.groups.keys() == {0, 2}
    assert (pack.is_pack, alone.is_pack) == (True, False)
    pack.add([make_group(5)])
    assert pack.groups.keys() == {0, 2, 5}
    assert pack.numbers == (0, 1, 2, 5)


def test_a_placement_has_begun_when_one_of_its_groups_has() -> None:
    pack = start(make_group(0, 1), make_group(2))
    assert not pack.has_begun
    pack.groups[2].since_s = 0.0
    assert pack.has_begun


def test_trials_sit_on_a_device_from_their_start_and_what_is_measured_from_when_it_is_placed() -> None:
    assert (start(make_group(0)).since_s, start(make_group(0), purpose=Purpose.PROFILE).since_s) == (None, 3.0)


def test_an_epoch_takes_from_one_report_to_the_next() -> None:
    group = RunningGroup.start(make_group(0))
    group.time_epoch(5.0)
    assert group.epoch_s == 0.0, "nobody knows when it began"
    group.time_epoch(7.5)
    assert group.epoch_s == 2.5
