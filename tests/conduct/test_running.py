"""What a conductor knows of the placements that run now."""

from __future__ import annotations

import pytest

from headwater.conduct.running import RunningGroup, RunningPlacements
from headwater.conduct.waiting import Work
from headwater.trials import Lane, Placement, Purpose, TrialGroup


def make_group(*numbers: int, start_epoch: int = 0) -> TrialGroup:
    return TrialGroup(lanes=tuple(Lane(number=n, config={}, seed=0, start_epoch=start_epoch) for n in numbers))


def add(running: RunningPlacements, key: int, *groups: TrialGroup) -> None:
    placement = Placement(key=key, study="s", groups=groups, devices=("cpu:0",))
    running.add(placement, Work(purpose=Purpose.TRAIN, groups=groups))


def test_a_group_starts_with_all_its_lanes_where_they_stand() -> None:
    group = RunningGroup.start(make_group(3, 4, start_epoch=2))
    assert (group.numbers, group.epoch) == ([3, 4], 2)
    group.numbers.remove(3)
    assert [lane.number for lane in group.lanes] == [4]
    assert [lane.number for lane in group.select([3])] == [3]


def test_placements_are_known_by_their_keys_and_groups_by_their_first_trials() -> None:
    running = RunningPlacements()
    add(running, 7, make_group(0, 1), make_group(2))
    add(running, 8, make_group(3))
    assert running[7].groups.keys() == {0, 2}
    assert (running[7].is_pack, running[8].is_pack) == (True, False)
    running[7].add([make_group(5)])
    assert running[7].groups.keys() == {0, 2, 5}
    assert [one.placement.key for one in running] == [7, 8]


def test_a_placement_that_is_over_is_forgotten_even_while_all_are_looked_at() -> None:
    running = RunningPlacements()
    add(running, 7, make_group(0))
    add(running, 8, make_group(3))
    for one in running:
        running.remove(one.placement.key)
    assert 7 not in running
    assert list(running) == []
    with pytest.raises(KeyError):
        running.remove(7)
