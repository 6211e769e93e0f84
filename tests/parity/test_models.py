"""Parity of every model of the zoo, trained in lanes with different hyperparameters, with plain PyTorch."""

from __future__ import annotations

import pytest
import torch
from tests.parity.harness import Case, require_parity, train_lanes, train_plain
from tests.parity.hugging_face import HUGGING_FACE_TASKS
from tests.parity.tasks import RECIPES
from tests.parity.zoo import PLAIN_TASKS

TASKS = PLAIN_TASKS | HUGGING_FACE_TASKS
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5}
CHEAP = ["mlp", "cnn", "lstm", "encoder"]

in_both_precisions = pytest.mark.parametrize("dtype", TOLERANCES, ids=["float64", "float32"])


def require_parity_of_lanes(case: Case, num_lanes: int) -> None:
    settings = case.settings(num_lanes)
    lanes = train_lanes(case, settings)
    assert len(lanes) == num_lanes
    for number, item in enumerate(settings):
        require_parity(lanes[number], train_plain(case, item, number), TOLERANCES[case.dtype])


@in_both_precisions
@pytest.mark.parametrize("recipe", ["sgd", "adamw"])
@pytest.mark.parametrize("name", TASKS)
def test_four_lanes_equal_four_plain_runs(name: str, recipe: str, dtype: torch.dtype) -> None:
    require_parity_of_lanes(Case(task=TASKS[name], recipe=RECIPES[recipe], dtype=dtype), num_lanes=4)


@pytest.mark.parametrize("num_lanes", [1, 2, 7])
@pytest.mark.parametrize("name", CHEAP)
def test_any_number_of_lanes_equals_plain_runs(name: str, num_lanes: int) -> None:
    require_parity_of_lanes(Case(task=TASKS[name], recipe=RECIPES["sgd"], dtype=torch.float64), num_lanes)


# The gradient of an encoder's key bias is zero but for rounding, and RMSprop would scale that rounding up to a step.
@pytest.mark.parametrize("name", [name for name in CHEAP if name != "encoder"])
def test_lanes_with_different_optimizers_equal_plain_runs(name: str) -> None:
    require_parity_of_lanes(Case(task=TASKS[name], recipe=RECIPES["mixed"], dtype=torch.float64), num_lanes=7)


@pytest.mark.parametrize("name", ["cnn", "encoder", "gpt2"])
def test_a_factory_gives_each_lane_the_weights_that_it_would_have_alone(name: str) -> None:
    case = Case(task=TASKS[name], recipe=RECIPES["adamw"], dtype=torch.float64, from_factory=True)
    require_parity_of_lanes(case, num_lanes=3)
