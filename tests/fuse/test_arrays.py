"""Arrays of NumPy that differ by lane compute as each lane's own would."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.fuse.parity import make_mode

from headwater.errors import CannotFuseError
from headwater.fuse.models import repeat_model
from headwater.fuse.per_lane import PerLane
from headwater.torch_private import lanes_of

STACK = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[-1.0, 0.5], [2.0, 8.0]]])


def write_into(array: Any) -> Any:
    row = array[0]
    row += 10
    array[1, 0] = -1.0
    return array


def write_into_a_copy(array: Any) -> Any:
    other = copy.deepcopy(array)
    other *= 0
    return array + other


def methods_of_numbers(array: Any) -> Any:
    return array.mean().item() + array.max().round(1)


ACTIONS: dict[str, Callable[[Any], Any]] = {
    "operators": lambda array: (array + 1) * array - 2 / array,
    "swapped": lambda array: np.ones((2, 2)) @ array + array @ np.ones(2) + np.float64(2) * array,
    "items": lambda array: array[:, 1] + array[0] + array[-1, -1],
    "methods": lambda array: array.reshape(-1).astype(int).sum(axis=0),
    "attributes": lambda array: array.T * array.size + len(array) + array.shape[0],
    "iteration": lambda array: sum(row.sum() for row in array),
    "comparison": lambda array: (array > 1).any(axis=0),
    "methods of numbers": methods_of_numbers,
    "written": write_into,
    "copied": write_into_a_copy,
}


@pytest.mark.parametrize("name", ACTIONS)
def test_arrays_answer_for_each_lane(name: str) -> None:
    alone = [ACTIONS[name](lane.clone().numpy()) for lane in STACK]
    with make_mode(2):
        tensor = lanes_of(STACK.clone())
        together = ACTIONS[name](tensor.numpy())
    assert isinstance(together, PerLane)
    for mine, expected in zip(together.values, alone, strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_an_array_shares_the_memory_of_its_tensor() -> None:
    with make_mode(2):
        tensor: Any = lanes_of(STACK.clone())
        array: Any = tensor.numpy()
        array[0, 0] = 5.0
        assert isinstance(array, np.ndarray)
        first: Any = tensor[0, 0].tolist()
        assert first.values == (5.0, 5.0)


def test_weights_are_taken_out_as_a_copy_only() -> None:
    mode = make_mode(2)
    model = repeat_model(torch.nn.Linear(2, 1), 2, mode.swaps)
    with mode, pytest.raises(CannotFuseError, match=r"clone\(\)\.numpy\(\)"):
        model.weight.detach().numpy()  # type: ignore[operator]  # the weight of a layer
    with mode:
        assert len(model.weight.detach().clone().numpy()) == 1  # type: ignore[operator]  # likewise
