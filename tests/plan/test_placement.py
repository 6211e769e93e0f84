"""Seats of trials on nodes: close together, with few moves, and whole nodes come free."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from headwater.errors import PlanError
from headwater.plan.placement import Seating, empty_nodes, seat_trials


def make_nodes(num_nodes: int, size: int = 4) -> dict[str, int]:
    return {f"node-{number}": size for number in range(num_nodes)}


def test_trials_as_large_as_nodes_have_one_each() -> None:
    seating = seat_trials({0: 4, 1: 4, 2: 4}, make_nodes(3))
    assert sorted(tuple(seat.items()) for seat in seating.seats.values()) == [
        (("node-0", 4),),
        (("node-1", 4),),
        (("node-2", 4),),
    ]


def test_small_trials_are_never_split() -> None:
    seating = seat_trials(dict.fromkeys(range(10), 2), make_nodes(5))
    assert all(len(seat) == 1 for seat in seating.seats.values())
    assert set(count_used(seating).values()) == {4}


def test_a_large_trial_takes_whole_nodes() -> None:
    assert seat_trials({0: 8}, make_nodes(2)).seats == {0: {"node-0": 4, "node-1": 4}}
    assert seat_trials({0: 6}, make_nodes(2)).seats == {0: {"node-0": 4, "node-1": 2}}


def test_who_has_the_right_number_stays() -> None:
    before = seat_trials(dict.fromkeys(range(4), 2), make_nodes(2))
    after = seat_trials({0: 2, 1: 2, 2: 2}, make_nodes(2), before)
    assert after.list_moved(before) == []


def test_survivors_move_little_when_nodes_are_given_back() -> None:
    nodes = make_nodes(5)
    before = seat_trials(dict.fromkeys(range(10), 2), nodes)
    survivors = dict.fromkeys([0, 2, 4, 6, 8], 2)
    left = Seating(seats={trial: before.seats[trial] for trial in survivors})
    after = empty_nodes(survivors, nodes, left, num_kept=3)
    assert len(set(count_used(after))) <= 3
    assert len(after.list_moved(left)) == 2
    assert not after.waiting


def test_a_small_trial_gives_way_to_a_larger_one_and_finds_another_seat() -> None:
    before = Seating(seats={0: {"node-0": 1}, 1: {"node-1": 1}})
    after = seat_trials({0: 1, 1: 1, 2: 4}, make_nodes(2), before)
    assert not after.waiting
    assert len(after.list_moved(before)) == 1
    assert len(after.seats[2]) == 1


def test_a_locked_trial_stays_where_it_is() -> None:
    before = Seating(seats={0: {"node-0": 1}, 1: {"node-1": 1}})
    after = seat_trials({0: 1, 1: 1, 2: 4}, make_nodes(2), before, locked=[0])
    assert after.seats[0] == {"node-0": 1}
    both = seat_trials({0: 1, 1: 1, 2: 4}, make_nodes(2), before, locked=[0, 1])
    assert both.waiting == (2,)


def test_what_finds_no_room_waits_and_nobody_moved_for_it() -> None:
    before = seat_trials({0: 2, 1: 2}, make_nodes(1))
    after = seat_trials({0: 2, 1: 2, 2: 5}, make_nodes(1), before)
    assert after.waiting == (2,)
    assert after.list_moved(before) == []


def test_too_few_nodes_are_refused() -> None:
    before = seat_trials({0: 4, 1: 4}, make_nodes(2))
    with pytest.raises(PlanError, match="keep more nodes"):
        empty_nodes({0: 4, 1: 4}, make_nodes(2), before, num_kept=1)


def test_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(PlanError):
        seat_trials({0: 0}, make_nodes(1))


def test_no_node_is_ever_overfull_and_every_trial_sits_or_waits() -> None:
    rng = Random(4)
    for _ in range(200):
        nodes = make_nodes(rng.randint(1, 6), rng.choice([2, 4, 8]))
        seating = Seating(seats={})
        for _ in range(4):
            wanted = {trial: rng.randint(1, 9) for trial in range(rng.randint(1, 12))}
            seating = seat_trials(wanted, nodes, seating)
            require_sound(seating, wanted, nodes)


def require_sound(seating: Seating, wanted: Mapping[int, int], nodes: Mapping[str, int]) -> None:
    assert all(used <= nodes[node] for node, used in count_used(seating).items())
    assert {*seating.seats, *seating.waiting} == set(wanted)
    for trial, seat in seating.seats.items():
        assert sum(seat.values()) == wanted[trial]
        assert sum(count < nodes[node] for node, count in seat.items()) <= 1


def count_used(seating: Seating) -> dict[str, int]:
    used: dict[str, int] = {}
    for seat in seating.seats.values():
        for node, count in seat.items():
            used[node] = used.get(node, 0) + count
    return used
