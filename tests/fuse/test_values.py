"""What Python takes out of lanes: numbers of each lane, or nothing at all, never the number of one lane for another."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.fuse.parity import Agreement, make_mode
from torch import Tensor, nn

from headwater.errors import CannotFuseError, LanesPart
from headwater.fuse.models import repeat_model
from headwater.fuse.per_lane import PerLane
from headwater.torch_private import lanes_of

NUMBERS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "whole-number": lambda x: (x > 0).sum().item() / 20,
    "list": lambda x: x.tolist(),
    "list-without-dimensions": lambda x: x.sum().tolist(),
    "arithmetic": lambda x: (x.sum().item() + 1) * 2 - x.mean().item() ** 2,
    "rounded": lambda x: [round(x.sum().item(), 2), abs(x.sum().item()), -x.sum().item()],
    "summed": lambda x: sum(row.sum().item() for row in x) / len(x),
    "numpy-numbers": lambda x: [np.float64(2.0) * x.sum().item(), x.sum().item() / np.float64(3.0)],
    "numpy-number-times-tensor": lambda x: [np.float64(2.0) * x, x * np.float64(2.0)],
    "agreeing-truth": lambda x: [bool(torch.isfinite(x).all()), bool(x.sum() > 1e9), 7.5 in x],
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_those_of_each_lane(name: str) -> None:
    Agreement().check(NUMBERS[name], torch.randn(3, 4, 5, dtype=torch.float64))


def test_text_shows_every_lane() -> None:
    x = lanes_of(torch.tensor([1.25, 2.5]))
    with make_mode(2):
        assert f"{x:.1f} {x.item():.2f}" == "[1.2 2.5] [1.25 2.50]"
        assert "1.25" in repr(x)
        assert "2.5" in str(x)


@pytest.mark.parametrize("ask", [bool, float, int, lambda x: [1, 2, 3][x], range])
def test_lanes_part_where_one_python_value_is_asked_of_them(ask: Callable[[Any], Any]) -> None:
    mode, x = make_mode(2), lanes_of(torch.tensor([0, 1]))
    with mode, pytest.raises(LanesPart):
        ask(x)
    assert mode.roster.question is not None
    assert mode.roster.question.recipe is None


def test_lanes_that_agree_answer_as_one() -> None:
    x = lanes_of(torch.tensor([3, 3]))
    with make_mode(2):
        assert (float(x), int(x), bool(x), list(range(x))) == (3.0, 3, True, [0, 1, 2])


def test_the_truth_of_many_elements_is_refused_as_alone() -> None:
    with make_mode(2), pytest.raises(RuntimeError, match="ambiguous"):
        bool(lanes_of(torch.ones(2, 3)))


@pytest.mark.parametrize(
    "leave",
    [
        np.asarray,
        lambda x: torch.save(x, io.BytesIO()),
        pickle.dumps,
        lambda x: x.data_ptr(),
        lambda x: x.untyped_storage(),
        np.from_dlpack,
    ],
    ids=["asarray", "save", "pickle", "data_ptr", "storage", "dlpack"],
)
def test_what_leaves_torch_is_refused(leave: Callable[[Tensor], Any]) -> None:
    with make_mode(2), pytest.raises(CannotFuseError):
        leave(lanes_of(torch.tensor([[1.0], [2.0]])))


def test_saving_a_model_is_refused_with_what_to_do_instead() -> None:
    model = repeat_model(nn.Linear(2, 2), 2)
    with make_mode(2), pytest.raises(CannotFuseError, match=r"trial\.report"):
        torch.save(model.state_dict(), io.BytesIO())


def test_a_tensor_made_of_a_lane_keeps_its_gradient_only_where_torch_keeps_it() -> None:
    stack = torch.ones(2, 3, requires_grad=True)
    x = lanes_of(stack)
    with make_mode(2):
        assert torch.as_tensor(x) is x
        assert not torch.tensor([x.sum(), x.mean()]).requires_grad
        torch.as_tensor(x, dtype=torch.float64).sum().backward()
    assert torch.equal(stack.grad if stack.grad is not None else torch.zeros(()), torch.ones(2, 3))


@pytest.mark.parametrize(
    "size",
    [
        lambda p: torch.zeros(p, 3),
        lambda p: torch.zeros((p, 3)),
        lambda p: torch.ones(12).view(p, -1),
        lambda p: torch.ones(1).expand(p),
        lambda p: nn.Linear(3, p),
        lambda p: nn.Conv2d(1, p, 3),
        lambda p: torch.arange(12)[:p],
    ],
)
def test_lanes_part_where_a_shape_depends_on_the_lane(size: Callable[[Any], Any]) -> None:
    mode = make_mode(2)
    with mode, pytest.raises((LanesPart, TypeError)):  # torch may swallow the signal; the question stays
        size(PerLane((2, 3), mode.roster))
    assert mode.roster.question is not None


def test_numbers_of_unlike_types_make_lanes_part_where_the_type_of_a_tensor_hangs_on_them() -> None:
    mode = make_mode(2)
    with mode, pytest.raises(LanesPart):
        torch.tensor(PerLane((1, 0.5), mode.roster))
