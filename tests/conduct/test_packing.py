"""Which groups train next as a pack."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from headwater.conduct.packing import WORTHWHILE, Packer, read_batch_size
from headwater.plan import Packing
from headwater.space import Space, choice, uniform
from headwater.trials import Lane, LoadingCost, TrialGroup, UnitCost

SPACE = Space({"batch_size": choice([8, 16]), "lr": uniform(0.0, 1.0)})
SLOW_LOADING = LoadingCost(unit=UnitCost(compute_s=0.1, load_s=1.0, memory_bytes=10))


class Packs:
    """A packer, and what it said."""

    def __init__(self, packing: Packing | None, max_units: int = 64) -> None:
        self.remarks: list[str] = []
        self.packer = Packer(packing, SPACE, Random(0), lambda text, lanes: self.remarks.append(text), max_units)


def make_lane(number: int, start_epoch: int = 0, seed: int = 0) -> Lane:
    config = {"batch_size": 8 + 8 * (number % 2), "lr": number / 10}
    return Lane(number=number, config=config, seed=seed, start_epoch=start_epoch)


def make_groups(numbers: Sequence[int], start_epoch: int = 0) -> list[TrialGroup]:
    return [TrialGroup(lanes=(make_lane(number, start_epoch),)) for number in numbers]


def take(packer: Packer, waiting: Sequence[TrialGroup]) -> list[int]:
    return [group.key for group in packer.take(waiting)]


def test_without_packing_the_first_group_trains() -> None:
    packs = Packs(None)
    assert take(packs.packer, make_groups(range(3))) == [0]
    assert not packs.packer.wants_cost(make_groups(range(3)))


def test_loading_is_measured_once_where_there_is_somebody_to_share_it_with() -> None:
    packer = Packs(Packing.COST).packer
    groups = make_groups(range(3))
    assert not packer.wants_cost(groups[:1])
    assert not packer.wants_cost([*groups[:1], *make_groups([5], start_epoch=2)])
    assert packer.wants_cost(groups)
    packer.take_cost(groups[0], SLOW_LOADING)
    assert not packer.wants_cost(groups)


@pytest.mark.parametrize(
    ("shares", "is_measured"), [([0.0, 0.05, 0.09], False), ([0.0, 0.2, 0.0], True), ([0.0, None, 0.0], True)]
)
def test_loading_is_not_measured_where_groups_are_known_to_load_little(
    shares: list[float | None], is_measured: bool
) -> None:
    packer = Packs(Packing.COST).packer
    groups = make_groups(range(3))
    packer.rule_out(groups, lambda group: shares[group.key])
    assert packer.wants_cost(groups) == packer.may_pack == is_measured


def test_a_group_that_cannot_be_measured_trains_and_the_next_is_tried() -> None:
    packer = Packs(Packing.COST).packer
    groups = make_groups(range(3))
    packer.take_cost(groups[0], None)
    assert not packer.wants_cost(groups)
    assert take(packer, groups) == [0]
    assert packer.wants_cost(groups[1:])


def test_groups_that_read_the_same_data_train_together_where_loading_is_slow() -> None:
    packs = Packs(Packing.COST)
    packs.packer.take_cost(make_groups([0])[0], SLOW_LOADING)
    waiting = [*make_groups(range(3)), *make_groups([3], start_epoch=2), *make_groups([4])]
    assert take(packs.packer, waiting) == [0, 1, 2, 4]
    assert packs.remarks[0].startswith("4 groups train as a pack: loading their data once should save")


def test_where_loading_is_next_to_nothing_no_pack_is_made() -> None:
    packer = Packs(Packing.COST).packer
    packer.take_cost(make_groups([0])[0], LoadingCost(unit=UnitCost(compute_s=1.0, load_s=WORTHWHILE / 2)))
    assert take(packer, make_groups(range(3))) == [0]


def test_where_nothing_can_be_shared_no_pack_is_made_and_nobody_joins() -> None:
    packer = Packs(Packing.COST).packer
    packer.take_cost(make_groups([0])[0], LoadingCost(unit=None))
    assert take(packer, make_groups(range(3))) == [0]
    assert packer.count_free(1) == 0


@pytest.mark.parametrize(("max_units", "room_bytes", "size"), [(2, 100, 2), (64, 30, 3)])
def test_a_pack_is_as_large_as_its_limit_and_the_memory_allow(max_units: int, room_bytes: float, size: int) -> None:
    packer = Packs(Packing.COST, max_units).packer
    packer.take_cost(make_groups([0])[0], LoadingCost(unit=SLOW_LOADING.unit, room_bytes=room_bytes))
    chosen = take(packer, make_groups(range(6)))
    assert chosen[0] == 0
    assert len(chosen) <= size
    assert packer.count_free(max_units) == 0
    assert packer.count_free(0) == size


def test_by_batch_size_trials_that_agree_on_it_train_together() -> None:
    packer = Packs(Packing.BATCH_SIZE).packer
    lanes = [make_lane(number) for number in range(5)]
    packer.assign(lanes)
    assert len({packer.key(lane) for lane in lanes[::2]}) == 1
    assert packer.key(lanes[0]) != packer.key(lanes[1])
    assert take(packer, make_groups(range(5))) == [0, 2, 4]


def test_packs_of_one_round_are_not_those_of_the_next() -> None:
    packer = Packs(Packing.BATCH_SIZE).packer
    packer.assign([make_lane(0), make_lane(2)])
    packer.assign([make_lane(4), make_lane(6)])
    assert packer.key(make_lane(0)) != packer.key(make_lane(4))


def test_after_a_refusal_there_are_no_packs_any_more() -> None:
    packs = Packs(Packing.BATCH_SIZE)
    packs.packer.assign([make_lane(number) for number in range(4)])
    packs.packer.close("one of them reads its own files")
    packs.packer.close("and another")
    assert take(packs.packer, make_groups(range(4))) == [0]
    assert packs.packer.key(make_lane(0)) is None
    assert packs.remarks == ["groups train one after the other, not as packs: one of them reads its own files"]


def test_a_batch_size_is_found_at_whatever_depth() -> None:
    assert read_batch_size({"data": {"batch_size": 8}}) == "8"
    assert read_batch_size({"lr": 0.1}) is None
