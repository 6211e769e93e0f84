"""What happens in one lane stays in it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from headwater.fuse.strategies import LANE_BY_LANE, Strategies
from headwater.train.running import Workshop
from tests.parity.harness import Case, Trained, deviations_of, train_lanes, training_function
from tests.parity.tasks import RECIPES
from tests.parity.zoo import PLAIN_TASKS

SICK = 1
"""The lane that diverges."""

every_recipe = pytest.mark.parametrize("recipe", ["sgd", "adamw"])
cheap_tasks = pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "encoder"])


def case_of(name: str, recipe: str) -> Case:
    return Case(task=PLAIN_TASKS[name], recipe=RECIPES[recipe], dtype=torch.float32)


def infect(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**item, "lr": 1e30} if number == SICK else item for number, item in enumerate(settings)]


def fixed_workshop(case: Case) -> Workshop:
    """Choose ways that do not depend on the clock, nor on the number of lanes."""
    return Workshop(training_function(case), strategies=Strategies(preset=LANE_BY_LANE))


def worst_deviation(ours: Trained, theirs: Trained) -> float:
    return max(deviations_of(ours, theirs).values())


@every_recipe
@cheap_tasks
def test_a_lane_that_diverges_leaves_its_neighbours_as_they_are_beside_a_healthy_one(name: str, recipe: str) -> None:
    case = case_of(name, recipe)
    workshop = fixed_workshop(case)
    healthy = train_lanes(case, case.settings(4), workshop)
    infected = train_lanes(case, infect(case.settings(4)), workshop)
    assert math.isnan(infected[SICK].metrics[-1]["train_loss"])
    assert all(worst_deviation(infected[number], healthy[number]) == 0 for number in (0, 2, 3))


@every_recipe
@cheap_tasks
def test_a_lane_that_diverges_leaves_its_neighbours_as_they_are_without_it(name: str, recipe: str) -> None:
    case = case_of(name, recipe)
    settings = case.settings(4)
    workshop = fixed_workshop(case)
    without = train_lanes(case, [item for number, item in enumerate(settings) if number != SICK], workshop)
    infected = train_lanes(case, infect(settings), workshop)
    pairs = {0: 0, 2: 1, 3: 2}
    worst = max(worst_deviation(infected[number], without[other]) for number, other in pairs.items())
    # Torch's vectorised sigmoid rounds the last elements of a stretch of memory otherwise than those before them, and
    # without the lane its neighbours lie elsewhere.
    assert worst <= (1e-6 if name == "lstm" else 0)
