"""Packs: the paper's distance and equations, and what every way of packing keeps to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

from headwater.errors import SpaceError
from headwater.plan import (
    Distance,
    Fits,
    PackCost,
    Packing,
    pack_by_cost,
    pack_by_key,
    pack_neighbours,
    pack_randomly,
    predict_pack,
    tabulate_distances,
)
from headwater.space import Domain, Space, choice, grid, loguniform, qloguniform, quniform, randint, uniform
from headwater.trials import UnitCost

TABLE_3 = Space(
    {
        "batch_size": grid(list(range(20, 75, 5))),
        "optimizer": grid(["Adam", "SGD", "Adagrad", "Momentum"]),
        "lr": grid([1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]),
        "activation": grid(["Sigmoid", "Leaky ReLu", "Tanh", "ReLu"]),
    }
)
EXAMPLES_PER_TURN = 100

Pack = Callable[[Sequence[int], Fits, Random], list[list[int]]]
"""Packs units, given a number for each."""

every_packing = pytest.mark.parametrize(
    "pack",
    [
        pytest.param(lambda sizes, fits, rng: pack_neighbours(len(sizes), _apart(sizes), 2, fits, rng), id="knn"),
        pytest.param(lambda sizes, fits, rng: pack_randomly(len(sizes), 4, fits, rng), id="random"),
        pytest.param(lambda sizes, fits, rng: pack_by_key([size % 3 for size in sizes], fits), id="batch_size"),
        pytest.param(lambda sizes, fits, rng: pack_by_cost(_loading(sizes), 100.0, 100, fits), id="cost"),
    ],
)


# Distance


def measure_distance(space: Space, first: dict[str, Any], second: dict[str, Any]) -> float:
    return tabulate_distances(space, [first, second])(0, 1)


def test_the_example_of_the_paper_is_5_apart() -> None:
    first = {"batch_size": 20, "optimizer": "SGD", "lr": 0.01, "activation": "ReLu"}
    second = {"batch_size": 40, "optimizer": "Adagrad", "lr": 0.01, "activation": "ReLu"}
    assert measure_distance(TABLE_3, first, second) == 5


@pytest.mark.parametrize(
    ("domain", "first", "second", "distance"),
    [
        (choice([64, 16, 32]), 16, 64, 2),
        (choice([1, 2.5, 1000]), 2.5, 1000, 1),
        (choice([None, 1, 2, 3]), 1, 3, 1),
        (choice([None, 1, 2, 3]), None, None, 0),
        (choice([False, True]), False, True, 1),
        (choice([False, 5, 9]), False, 9, 1),
        (choice([int, float, str]), int, str, 1),
        (choice([math.sin, math.cos]), math.cos, math.cos, 0),
        (choice(list(range(100))), 0, 99, 99),
        (randint(2, 6), 2, 5, 3),
        (randint(0, 101), 0, 100, 10),
        (randint(0, 101), 20, 25, 0.5),
        (randint(3, 4), 3, 3, 0),
        (quniform(20, 70, 5), 20, 40, 4),
        (quniform(0.05, 0.45, 0.1), 0.1, 0.4, 3),
        (quniform(0, 1, 0.01), 0.25, 0.75, 5),
        (qloguniform(8, 40, 8), 8, 32, 3),
        (uniform(-1, 1), -0.5, 0.75, 6.25),
        (loguniform(1e-5, 1), 1e-4, 1e-2, 4),
    ],
    ids=str,
)
def test_a_key_counts_by_what_it_is_drawn_from(domain: Domain, first: object, second: object, distance: float) -> None:
    space = Space({"model": {"key": domain}, "seed": 3})
    configs: list[dict[str, Any]] = [{"model": {"key": value}, "seed": 3} for value in (first, second)]
    assert measure_distance(space, configs[0], configs[1]) == pytest.approx(distance)
    assert measure_distance(space, configs[1], configs[0]) == pytest.approx(distance)


def test_a_condition_counts_by_places_only_where_both_are_drawn_from_one_domain() -> None:
    space = Space(
        {
            "optimizer": choice(["sgd", "nag", "adam"]),
            "momentum": lambda config: None if config["optimizer"] == "adam" else uniform(0, 1),
        }
    )
    sgd, other = {"optimizer": "sgd", "momentum": 0.3}, {"optimizer": "nag", "momentum": 0.8}
    adam = {"optimizer": "adam", "momentum": None}
    assert measure_distance(space, sgd, other) == pytest.approx(1 + 5)
    assert measure_distance(space, sgd, adam) == 1 + 1


def test_positions_in_unlike_domains_are_not_compared() -> None:
    space = Space({"depth": choice([2, 9]), "width": lambda config: randint(1, config["depth"] + 1)})
    assert measure_distance(space, {"depth": 2, "width": 1}, {"depth": 9, "width": 9}) == 1 + 1
    assert measure_distance(space, {"depth": 2, "width": 2}, {"depth": 9, "width": 2}) == 1


def test_a_configuration_of_another_space_is_refused() -> None:
    with pytest.raises(SpaceError, match="'lr' is missing"):
        measure_distance(TABLE_3, {"batch_size": 20, "optimizer": "SGD", "activation": "ReLu"}, {})


def test_tabulated_distances_are_the_measured_ones() -> None:
    configs = _sample(TABLE_3, 12)
    distance = tabulate_distances(TABLE_3, configs)
    places = [(first, second) for first in range(12) for second in range(12)]
    measured = [measure_distance(TABLE_3, configs[first], configs[second]) for first, second in places]
    assert [distance(first, second) for first, second in places] == measured
    assert len(set(measured)) > 5


# What a pack costs


def test_a_pack_loads_once_and_pays_for_turns() -> None:
    units = [
        UnitCost(compute_s=2.0, load_s=4.0, memory_bytes=100),
        UnitCost(compute_s=3.0, load_s=5.0, memory_bytes=20),
        UnitCost(compute_s=1.0, load_s=1.0, memory_bytes=3),
    ]
    # Packed: 6 of computing, 5 of loading, three turns of 50 / 100. Apart: 6 of computing, 10 of loading.
    cost = predict_pack(units, switch_s=50.0, examples_per_turn=100)
    assert cost == PackCost(seconds_packed=12.5, seconds_apart=16.0, memory_bytes=123)
    assert cost.improvement == 3.5 / 16


def test_the_improvement_is_that_of_equation_3() -> None:
    assert PackCost(seconds_packed=60.0, seconds_apart=80.0).improvement == 0.25
    assert PackCost(seconds_packed=100.0, seconds_apart=80.0).improvement == -0.25
    assert PackCost(seconds_packed=0.0, seconds_apart=0.0).improvement == 0.0


def test_a_unit_alone_takes_no_turns() -> None:
    cost = predict_pack([UnitCost(compute_s=2.0, load_s=4.0)], switch_s=50.0, examples_per_turn=100)
    assert cost.seconds_packed == cost.seconds_apart == 6.0


def test_memory_is_unknown_where_that_of_one_unit_is() -> None:
    units = [UnitCost(compute_s=1.0, load_s=1.0, memory_bytes=5), UnitCost(compute_s=1.0, load_s=1.0)]
    assert predict_pack(units, switch_s=0.0, examples_per_turn=1).memory_bytes is None


# What every way of packing keeps to


@every_packing
def test_every_unit_is_in_one_pack_in_order(pack: Pack) -> None:
    for seed in range(30):
        sizes = _draw_sizes(seed)
        packs = pack(sizes, _within(sizes, 20), Random(seed))
        assert sorted(place for units in packs for place in units) == list(range(len(sizes)))
        assert packs == sorted(sorted(units) for units in packs)
        assert all(packs)


@every_packing
def test_memory_is_kept_to_and_what_is_larger_is_alone(pack: Pack) -> None:
    for seed in range(30):
        sizes = [*_draw_sizes(seed), 9, 9]
        packs = pack(sizes, _within(sizes, 8), Random(seed))
        assert all(sum(sizes[place] for place in units) <= 8 for units in packs if len(units) > 1)
        assert all([place] in packs for place, size in enumerate(sizes) if size > 8)


@every_packing
def test_equal_seeds_give_equal_packs(pack: Pack) -> None:
    sizes = _draw_sizes(3)
    first, second = (pack(sizes, _within(sizes, 20), Random(7)) for _ in range(2))
    assert first == second


@every_packing
def test_nothing_is_packed_into_nothing(pack: Pack) -> None:
    assert pack([], _always, Random(0)) == []


@pytest.mark.parametrize("name", ["knn", "random"])
def test_chance_makes_the_packs(name: str) -> None:
    sizes = list(range(30))
    ways: dict[str, Callable[[Random], list[list[int]]]] = {
        "knn": lambda rng: pack_neighbours(30, _apart(sizes), 2, _always, rng),
        "random": lambda rng: pack_randomly(30, 4, _always, rng),
    }
    assert len({str(ways[name](Random(seed))) for seed in range(5)}) > 1


# Neighbours


def test_a_threshold_of_0_packs_only_equals() -> None:
    assert pack_neighbours(5, _apart([3, 1, 3, 1, 2]), 0, _always, Random(0)) == [[0, 2], [1, 3], [4]]


def test_a_threshold_as_wide_as_the_space_packs_all() -> None:
    assert pack_neighbours(5, _apart([3, 1, 3, 1, 7]), 6, _always, Random(0)) == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("threshold", [0, 1, 3, 10])
def test_every_pack_lies_within_the_threshold_of_one_of_its_units(threshold: int) -> None:
    for seed in range(20):
        values = _draw_sizes(seed)
        for units in pack_neighbours(len(values), _apart(values), threshold, _always, Random(seed)):
            spreads = [max(abs(values[place] - values[other]) for other in units) for place in units]
            assert min(spreads) <= threshold


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_are_packed_before_the_farther(seed: int) -> None:
    """Three clusters, each as large as a pack may be, though the threshold reaches over all."""
    values = [0, 50, 99, 1, 51, 98, 2, 52, 97]
    packs = pack_neighbours(9, _apart(values), 100, lambda places: len(places) <= 3, Random(seed))
    assert packs == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_a_neighbour_that_does_not_fit_is_passed_over() -> None:
    sizes = [2, 9, 2]
    packs = pack_neighbours(3, lambda first, second: abs(first - second), 2, _within(sizes, 10), Random(0))
    assert packs == [[0, 2], [1]]


def test_500_configurations_of_table_3_are_packed_in_time() -> None:
    assert TABLE_3.size == 1056
    configs = Random(0).sample(list(TABLE_3.configurations()), 500)
    start = time.process_time()
    distance = tabulate_distances(TABLE_3, configs)
    near = pack_neighbours(500, distance, 3, lambda places: len(places) <= 8, Random(0))
    seconds = time.process_time() - start
    by_chance = pack_randomly(500, 8, _always, Random(0))
    assert sum(map(len, near)) == 500
    assert _mean_distance(near, distance) < 0.5 * _mean_distance(by_chance, distance)
    assert seconds < 5


# At random, and by batch size


def test_at_random_packs_are_as_large_as_allowed() -> None:
    assert sorted(map(len, pack_randomly(10, 4, _always, Random(0)))) == [2, 4, 4]


def test_only_equal_keys_are_packed_as_many_as_fit() -> None:
    keys = [32, 64, 32, 32, None, 64, None]
    assert pack_by_key(keys, lambda places: len(places) <= 2) == [[0, 2], [1, 5], [3], [4, 6]]
    assert pack_by_key(keys, _always) == [[0, 2, 3], [1, 5], [4, 6]]


# By cost


def test_nothing_is_packed_where_switching_costs_more_than_loading_saves() -> None:
    units = [UnitCost(compute_s=1.0, load_s=0.5) for _ in range(6)]
    assert pack_by_cost(units, 60.0, EXAMPLES_PER_TURN, _always) == [[place] for place in range(6)]


def test_all_are_packed_where_loading_dominates() -> None:
    units = [UnitCost(compute_s=0.1, load_s=5.0 + place) for place in range(6)]
    assert pack_by_cost(units, 1.0, EXAMPLES_PER_TURN, _always) == [[0, 1, 2, 3, 4, 5]]


def test_what_loads_in_less_time_than_it_switches_stays_alone() -> None:
    units = [UnitCost(compute_s=1.0, load_s=load_s) for load_s in (5.0, 0.4, 5.0, 0.6, 0.5)]
    assert pack_by_cost(units, 50.0, EXAMPLES_PER_TURN, _always) == [[0, 2, 3], [1], [4]]


def test_a_pack_is_found_though_no_two_of_its_units_would_gain() -> None:
    """Two save 1.5 and pay 2; five save 6 and pay 5."""
    units = [UnitCost(compute_s=1.0, load_s=1.5) for _ in range(5)]
    assert pack_by_cost(units[:2], 100.0, EXAMPLES_PER_TURN, _always) == [[0], [1]]
    assert pack_by_cost(units, 100.0, EXAMPLES_PER_TURN, _always) == [[0, 1, 2, 3, 4]]


def test_a_unit_whose_first_companions_do_not_pay_still_joins_others() -> None:
    """Unit 0 and the next dearest fill memory, and two do not pay; the last three have room for it."""
    units = [UnitCost(compute_s=1.0, load_s=load_s) for load_s in (2.0, 1.9, 1.8, 1.8, 1.8, 1.8, 1.8, 1.8)]
    packs = pack_by_cost(units, 100.0, EXAMPLES_PER_TURN, _within([6, 4, 2, 2, 2, 1, 1, 1], 10))
    assert packs == [[0, 5, 6, 7], [1, 2, 3, 4]]


def test_no_partition_is_faster_where_everything_fits() -> None:
    num_packed = 0
    for seed in range(60):
        units, switch_s, _ = _draw_units(Random(seed), 6)
        packs = pack_by_cost(units, switch_s, EXAMPLES_PER_TURN, _always)
        best = min(_total_seconds(units, other, switch_s) for other in _partitions(list(range(6))))
        assert _total_seconds(units, packs, switch_s) == pytest.approx(best)
        num_packed += len(packs) < 6
    assert 10 < num_packed < 60


def test_every_pack_gains_and_no_merge_that_fits_would_gain_more() -> None:
    for seed in range(60):
        units, switch_s, fits = _draw_units(Random(seed), 14)
        packs = pack_by_cost(units, switch_s, EXAMPLES_PER_TURN, fits)
        together = [[units[place] for place in pack] for pack in packs if len(pack) > 1]
        assert all(predict_pack(pack, switch_s, EXAMPLES_PER_TURN).improvement > 0 for pack in together)
        assert all(
            not fits(first + second)
            or _total_seconds(units, [first + second], switch_s)
            >= _total_seconds(units, [first, second], switch_s) - 1e-9
            for first in packs
            for second in packs
            if first < second
        )


@pytest.mark.parametrize("memory_bytes", [30, 300, 10**6])
def test_200_units_are_packed_in_time(memory_bytes: int) -> None:
    rng = Random(0)
    units = [UnitCost(compute_s=rng.random(), load_s=rng.random()) for _ in range(200)]
    sizes = [rng.randint(1, 20) for _ in units]
    start = time.process_time()
    packs = pack_by_cost(units, 1.0, EXAMPLES_PER_TURN, _within(sizes, memory_bytes))
    assert time.process_time() - start < 1
    assert len(packs) < 150


def test_users_write_the_ways_of_packing_as_words() -> None:
    assert [Packing(word) for word in ("cost", "knn", "random", "batch_size")] == list(Packing)


def _always(places: Sequence[int]) -> bool:
    return len(places) > 1


def _within(sizes: Sequence[int], most: int) -> Fits:
    return lambda places: sum(sizes[place] for place in places) <= most


def _apart(values: Sequence[int]) -> Distance:
    return lambda first, second: abs(values[first] - values[second])


def _loading(sizes: Sequence[int]) -> list[UnitCost]:
    return [UnitCost(compute_s=1.0, load_s=float(size)) for size in sizes]


def _sample(space: Space, count: int) -> list[Any]:
    rng = Random(0)
    return [space.sample(rng) for _ in range(count)]


def _draw_sizes(seed: int) -> list[int]:
    rng = Random(seed)
    return [rng.randint(1, 12) for _ in range(rng.randint(1, 25))]


def _draw_units(rng: Random, num: int) -> tuple[list[UnitCost], float, Fits]:
    units = [UnitCost(compute_s=rng.random(), load_s=rng.random()) for _ in range(num)]
    sizes = [rng.randint(1, 10) for _ in range(num)]
    return units, EXAMPLES_PER_TURN * rng.uniform(0.0, 0.8), _within(sizes, rng.randint(8, 40))


def _total_seconds(units: Sequence[UnitCost], packs: Sequence[Sequence[int]], switch_s: float) -> float:
    costs = [predict_pack([units[place] for place in pack], switch_s, EXAMPLES_PER_TURN) for pack in packs]
    return sum(cost.seconds_packed for cost in costs)


def _partitions(places: list[int]) -> Iterator[list[list[int]]]:
    if not places:
        yield []
        return
    for rest in _partitions(places[1:]):
        yield [[places[0]], *rest]
        for index, pack in enumerate(rest):
            yield [*rest[:index], [places[0], *pack], *rest[index + 1 :]]


def _mean_distance(packs: Sequence[Sequence[int]], distance: Distance) -> float:
    pairs = [distance(first, second) for pack in packs for first in pack for second in pack if first < second]
    return sum(pairs) / len(pairs)
