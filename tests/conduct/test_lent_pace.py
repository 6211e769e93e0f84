"""Whether a lent device pays: what the study's own devices have done sooner is left to them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.conduct.test_running import make_group

from headwater.conduct.grouping import Work
from headwater.conduct.lent_pace import LentPace
from headwater.conduct.running import RunningPlacement
from headwater.trials import Placement, Purpose, TrialGroup


def start(group: TrialGroup, *, is_lent: bool, train_s: float = 0.0) -> RunningPlacement:
    placement = Placement(key=0, study="s", groups=(group,), devices=("d",), purpose=Purpose.TRAIN)
    running = RunningPlacement.start(placement, Work(purpose=Purpose.TRAIN, groups=(group,)), 0.0, is_lent=is_lent)
    (one,) = running.groups.values()
    one.num_epochs, one.train_s = 9, train_s
    return running


def see(pace: LentPace, num_lanes: int, train_s: float, *, is_lent: bool) -> None:
    placement = start(make_group(*range(num_lanes)), is_lent=is_lent, train_s=train_s)
    pace.see(placement, next(iter(placement.groups.values())), num_lanes)


def make_pace() -> LentPace:
    """Know that an epoch of four lanes takes 10 s, and 50 s where devices are lent."""
    pace = LentPace()
    see(pace, 4, 10.0, is_lent=False)
    see(pace, 4, 50.0, is_lent=True)
    return pace


def pays(
    pace: LentPace, waiting: Sequence[TrialGroup], num_own: int = 1, running: Sequence[RunningPlacement] = ()
) -> bool:
    return pace.pays(waiting[0], waiting, running, num_own)


def test_nothing_is_known_before_both_have_trained_and_only_new_trials_are_tried() -> None:
    pace = LentPace()
    see(pace, 4, 50.0, is_lent=True)
    see(pace, 4, 10.0, is_lent=False)
    assert not pace.is_known
    assert pays(pace, [make_group(0, 1)])
    assert not pays(pace, [make_group(0, 1, start_epoch=3)])


def test_a_lent_device_pays_when_more_waits_than_the_own_ones_do_in_that_time() -> None:
    """Each group has 9 epochs, 90 s: where a device is lent they take 450 s, in which the own one does five."""
    groups = [make_group(*range(4 * place, 4 * place + 4)) for place in range(5)]
    pace = make_pace()
    assert pays(pace, groups)
    assert not pays(pace, groups[:4])
    assert not pays(pace, groups, num_own=2)


def test_what_trains_on_own_devices_counts_as_well() -> None:
    groups = [make_group(*range(4 * place, 4 * place + 4)) for place in range(5)]
    here, lent = start(groups[4], is_lent=False), start(groups[4], is_lent=True)
    assert pays(make_pace(), groups[:4], running=[here])
    assert not pays(make_pace(), groups[:4], running=[lent])


def test_more_lanes_than_were_seen_take_longer_in_proportion_and_fewer_are_no_faster() -> None:
    small, large = make_group(0, 1), make_group(*range(8))
    assert not pays(make_pace(), [small, small, small, small])
    assert pays(make_pace(), [small, large, large])
