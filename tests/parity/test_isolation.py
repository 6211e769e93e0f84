"""What happens in one lane stays in it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.parity.harness import Case, Trained, deviations_of, open_setup, train_lanes
from tests.parity.tasks import RECIPES
from tests.parity.zoo import PLAIN_TASKS

from headwater.fuse.strategies import LANE_BY_LANE

SICK = 1
"""The lane that diverges."""
ACROSS_LANES = ("side by side", "product", "fused", "wide", "batched")

every_recipe = pytest.mark.parametrize("recipe", ["sgd", "adamw"])
cheap_tasks = pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "encoder"])
either_way = pytest.mark.parametrize("ways", [LANE_BY_LANE, ACROSS_LANES], ids=["lane by lane", "across lanes"])


def case_of(name: str, recipe: str) -> Case:
    return Case(task=PLAIN_TASKS[name], recipe=RECIPES[recipe], dtype=torch.float32)


def infect(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**item, "lr": 1e30} if number == SICK else item for number, item in enumerate(settings)]


def worst_deviation(ours: Trained, theirs: Trained) -> float:
    return max(deviations_of(ours, theirs).values())


@either_way
@every_recipe
@cheap_tasks
def test_neighbours_of_a_lane_that_diverges_are_to_the_bit_what_they_are_beside_a_healthy_one(
    name: str, recipe: str, ways: tuple[str, ...]
) -> None:
    case = case_of(name, recipe)
    setup = open_setup(case, *ways)
    healthy = train_lanes(case, case.settings(4), setup)
    infected = train_lanes(case, infect(case.settings(4)), setup)
    assert math.isnan(infected[SICK].metrics[-1]["train_loss"])
    assert [worst_deviation(infected[number], healthy[number]) for number in (0, 2, 3)] == [0, 0, 0]


def train_without(name: str, recipe: str, ways: tuple[str, ...]) -> float:
    """Return how far the neighbours of a lane that diverges are from what they are without it."""
    case = case_of(name, recipe)
    settings = case.settings(4)
    without = train_lanes(case, [*settings[:SICK], *settings[SICK + 1 :]], open_setup(case, *ways))
    infected = train_lanes(case, infect(settings), open_setup(case, *ways))
    return max(worst_deviation(infected[number], without[place]) for place, number in enumerate((0, 2, 3)))


@every_recipe
@cheap_tasks
def test_neighbours_of_a_lane_that_diverges_are_what_they_are_without_it(name: str, recipe: str) -> None:
    assert train_without(name, recipe, ACROSS_LANES) <= 1e-5


@every_recipe
@pytest.mark.parametrize("name", ["mlp", "cnn", "encoder"])
def test_lane_by_lane_even_to_the_bit(name: str, recipe: str) -> None:
    assert train_without(name, recipe, LANE_BY_LANE) == 0
