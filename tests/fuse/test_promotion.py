"""Types meet for lanes as they meet for one lane alone, above all where a lane has no dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import Agreement
from torch import Tensor

DTYPES = (
    (torch.float64, torch.float32),
    (torch.float32, torch.float64),
    (torch.bfloat16, torch.float32),
    (torch.float16, torch.bfloat16),
    (torch.int64, torch.float32),
    (torch.int32, torch.int64),
    (torch.bool, torch.int64),
)
SHAPES = (((4, 5), (4, 5)), ((4, 5), ()), ((), (4, 5)), ((), ()), ((5,), (4, 5)))

OPERATORS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    **{name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "maximum", "lt", "eq", "atan2")},
    "where": lambda a, b: torch.where(a > 0, a, b),
    "clamp": lambda a, b: a.clamp(min=b),
    "clamp-both": lambda a, b: a.clamp(b, b + 1),
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
    "in-place": lambda a, b: a.clone().add_(b),
    "assigned": lambda a, b: a.clone().copy_(b),
    "joined": lambda a, b: torch.cat([a.reshape(-1), b.reshape(-1)]),
    "mse": lambda a, b: F.mse_loss(*torch.broadcast_tensors(a, b)),
    "bce-with-logits": lambda a, b: F.binary_cross_entropy_with_logits(*torch.broadcast_tensors(a, b)),
    "sum": lambda a, b: sum([a, b]),
}


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_types_meet_as_alone(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    for left, right in DTYPES:
        if not works_alone(OPERATORS[name], shapes, left, right):
            continue
        for shared in ("none", "left", "right"):
            program = meeting(OPERATORS[name], left, right, shared)
            Agreement(0.0).check(program, *(torch.randn(3, *shape, dtype=torch.float64) for shape in shapes))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("numbers", [(1, 2, 3), (0.1, 0.5, 2.5)])
def test_numbers_that_differ_meet_integers_as_alone(numbers: tuple[Any, ...], dtype: torch.dtype) -> None:
    def program(x: Tensor, p: Any) -> Any:
        whole = (x.detach().abs() * 3).to(dtype)
        return whole + p, whole * p, whole / p, whole < p, whole == p, torch.where(whole > 1, whole, p)

    Agreement(0.0).check(program, torch.randn(3, 4, dtype=torch.float64), numbers=[numbers])


def works_alone(operator: Callable[..., Any], shapes: Any, left: torch.dtype, right: torch.dtype) -> bool:
    try:
        operator(*(torch.ones(shape).to(dtype) for shape, dtype in zip(shapes, (left, right), strict=True)))
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


def meeting(operator: Callable[..., Any], left: torch.dtype, right: torch.dtype, shared: str) -> Callable[..., Any]:
    def program(a: Tensor, b: Tensor) -> Any:
        a = torch.full(a.shape, 1.5, dtype=a.dtype) if shared == "left" else a.detach()
        b = torch.full(b.shape, 1.5, dtype=b.dtype) if shared == "right" else b.detach()
        return operator(a.to(left), b.to(right))

    return program
