"""Who gets idle devices, and who gives them back."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from headwater.plan.allocation import Policy
from headwater.plan.moves import GroupTime, Move, choose_moves, choose_narrowed, find_move, gain_by_merging, share_new
from headwater.plan.speeds import Speeds
from headwater.plan.surface import Shape, Surface

KIND = ("relu",)
STEPS = {1: 1.0, 2: 1.1, 4: 1.3, 8: 3.0, 16: 8.0}
CHEAP = Surface(steps={KIND: STEPS}, change_s=1.0)


def make_tried(seconds: float) -> Surface:
    """Return a surface on which a trial of 10 s has taken so long on two devices."""
    return Surface(steps={KIND: STEPS}, shares={KIND: {2: seconds / 10}}, change_s=1.0)


def make_group(key: int, num_lanes: int = 1, num_devices: int = 1, seconds: float = 100.0) -> GroupTime:
    return GroupTime(key=key, kind=KIND, shape=Shape(num_lanes, num_devices), epochs_left=10, epoch_s=seconds / 10)


def place(moves: list[Move]) -> dict[int, tuple[int, int]]:
    return {move.key: (move.num_parts, move.num_devices) for move in moves}


def test_a_group_is_cut_where_its_parts_are_faster() -> None:
    (move,) = choose_moves([make_group(0, 16)], 1, CHEAP)
    assert (move.num_parts, move.num_devices) == (2, 1)
    assert move.seconds_left == pytest.approx(100 * 3 / 8 + 1)
    assert move.gain_s == pytest.approx(100 - move.seconds_left)


def test_a_group_stays_whole_where_its_parts_are_hardly_faster() -> None:
    slow = replace(CHEAP, change_s=20.0)
    assert choose_moves([make_group(0, 4)], 1, slow) == []
    assert choose_moves([make_group(0, 4)], 1, CHEAP) != []


def test_nothing_is_cut_of_which_no_size_was_measured() -> None:
    assert choose_moves([make_group(0, 16)], 3, Surface()) == []


def test_the_trial_that_holds_up_the_rest_gets_the_device() -> None:
    groups = [make_group(0, seconds=20.0), make_group(1, seconds=100.0), make_group(2, seconds=50.0)]
    assert place(choose_moves(groups, 1, CHEAP)) == {1: (1, 2)}
    assert place(choose_moves(groups, 3, CHEAP)) == {1: (1, 3), 2: (1, 2)}, "then the other would end last"


def test_more_devices_go_to_several_trials_where_one_cannot_use_them_all() -> None:
    tried = make_tried(7.0)
    groups = [make_group(0), make_group(1)]
    assert place(choose_moves(groups, 2, tried)) == {0: (1, 2), 1: (1, 2)}


def test_of_trials_in_lockstep_one_gets_devices_whoever_reports_first() -> None:
    """Each has an epoch more left at the report of the other, in which it stands by then."""
    for first, second in ((0, 1), (1, 0)):
        mine, other = make_group(first), replace(make_group(second), epochs_left=11).age(10.0)
        groups = sorted((mine, other), key=lambda group: group.key)
        moves = [find_move(mine, groups, 1, CHEAP), find_move(replace(other, epochs_left=10), groups, 1, CHEAP)]
        assert [move is not None for move in moves].count(True) == 1
    assert make_group(0).age(0.0) == make_group(0)
    assert make_group(0).age(1e9).epochs_left == 9, "else it would have reported"


def test_idle_devices_are_shared_so_that_the_last_group_ends_first() -> None:
    known = Surface(steps={KIND: STEPS}, change_s=1.0)
    known.add_share(KIND, 2, 0.55)
    known.add_share(KIND, 4, 0.33)
    assert place(choose_moves([make_group(0), make_group(1)], 4, known)) == {0: (1, 3), 1: (1, 3)}


def test_who_may_not_be_widened_is_not() -> None:
    assert choose_moves([replace(make_group(0), can_widen=False)], 1, CHEAP) == []


def test_a_trial_that_is_about_to_end_stays_as_it_is() -> None:
    assert choose_moves([make_group(0, seconds=2.0)], 1, CHEAP) == []


def test_devices_that_were_of_no_use_are_not_given_again() -> None:
    tried = make_tried(9.9)
    assert choose_moves([make_group(0)], 1, tried) == []


@pytest.mark.parametrize("policy", [Policy.FIFO, Policy.EVEN])
def test_queues_and_even_shares_never_change_what_runs(policy: Policy) -> None:
    assert choose_moves([make_group(0, 16), make_group(1)], 2, CHEAP, policy) == []


def test_the_papers_rule_shares_in_proportion_to_time() -> None:
    groups = [make_group(0, seconds=30.0), make_group(1, seconds=90.0)]
    assert place(choose_moves(groups, 2, CHEAP, Policy.FLUID)) == {1: (1, 3)}


def test_wide_trials_give_back_devices_when_groups_wait() -> None:
    groups = [make_group(0, num_devices=2, seconds=50.0), make_group(1, num_devices=2, seconds=80.0), make_group(2)]
    assert place(choose_narrowed(groups, 1, CHEAP)) == {0: (1, 1)}
    assert place(choose_narrowed(groups, 2, CHEAP)) == {0: (1, 1), 1: (1, 1)}
    assert choose_narrowed(groups, 0, CHEAP) == []
    assert place(choose_narrowed([make_group(0, num_devices=6)], 2, CHEAP)) == {0: (1, 4)}
    assert choose_narrowed([make_group(0, num_devices=2, seconds=0.5)], 1, CHEAP) == []


SCALING = Speeds(scaling=1.1, max_devices=8)


@pytest.mark.parametrize(
    ("policy", "shares"),
    [(Policy.FIFO, [1, 1, 1]), (Policy.EVEN, [2, 2, 2]), (Policy.FLUID, [1, 2, 3]), (Policy.OURS, [1, 1, 4])],
)
def test_trials_that_start_share_all_devices(policy: Policy, shares: list[int]) -> None:
    assert share_new([4.0, 12.0, 30.0], 6, SCALING, policy) == shares


def test_a_device_that_hardly_helps_is_left_idle() -> None:
    assert share_new([10.0], 8, Speeds(scaling=1.5, max_devices=8)) == [2]
    assert share_new([10.0], 8, Speeds(scaling=1.995, max_devices=8)) == [1]


def test_nothing_to_share_among_is_no_share() -> None:
    for policy in Policy:
        assert share_new([], 3, SCALING, policy) == []


@pytest.mark.parametrize("policy", list(Policy))
def test_no_more_devices_are_shared_out_than_there_are(policy: Policy) -> None:
    shares = share_new([1.0] * 9 + [3.0] * 5, 16, Speeds(scaling=1.15, max_devices=3), policy)
    assert min(shares) == 1
    assert sum(shares) <= 16


def test_two_groups_become_one_where_a_device_is_saved() -> None:
    first, second = make_group(0, num_lanes=2, seconds=100.0), make_group(1, num_lanes=2, seconds=90.0)
    cheap = Surface(steps={KIND: {1: 1.0, 4: 1.3}}, change_s=1.0)
    dear = Surface(steps={KIND: {1: 1.0, 4: 4.0}}, change_s=1.0)
    assert gain_by_merging(first, second, cheap) == pytest.approx(190.0 - 100.0 * 1.3 / 1.1 - 2.0)
    assert gain_by_merging(first, second, dear) < 0
    assert gain_by_merging(first, make_group(1, num_lanes=3), cheap) < 0, "nobody knows what five take"
    assert gain_by_merging(first, make_group(1, num_devices=2), cheap) < 0


def test_what_one_group_is_to_do_is_what_is_chosen_for_all() -> None:
    random = Random(0)
    for _ in range(200):
        groups = [
            make_group(key, random.choice((1, 1, 2, 4)), 1, seconds=random.uniform(1.0, 100.0)) for key in range(6)
        ]
        groups = [
            replace(group, shape=Shape(1, random.choice((1, 2)))) if group.shape.num_lanes == 1 else group
            for group in groups
        ]
        surface = Surface(steps={KIND: {1: 1.0, 2: 1.2, 4: 2.0}}, change_s=random.uniform(0.0, 5.0))
        surface.add_share(KIND, 2, random.uniform(0.5, 1.2))
        num_idle = random.randrange(8)
        chosen = {move.key: move for move in choose_moves(groups, num_idle, surface)}
        assert all(find_move(group, groups, num_idle, surface) == chosen.get(group.key) for group in groups)
        assert sum(move.num_taken - groups[move.key].shape.num_devices for move in chosen.values()) <= num_idle
