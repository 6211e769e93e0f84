"""A `torch.autograd.Function` of the user's own computes with lanes as with one model, and runs once for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.fuse.parity import Agreement, make_mode
from torch import Tensor
from torch.autograd.function import once_differentiable

from headwater.errors import CannotFuseError, LanesPart
from headwater.torch_private import lanes_of, stack_of


class Function(torch.autograd.Function):
    """As the user's own ones begin; torch leaves `apply` without types."""

    apply: Any


class Weighted(Function):
    """Two tensors, a number and an output without gradient."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, k: float = 2.0) -> Any:
        ctx.save_for_backward(a, b)
        ctx.k = k
        above = a > 0
        ctx.mark_non_differentiable(above)
        return a * a * k + b, above

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Any:
        a, _b = ctx.saved_tensors
        return 2 * a * grad * ctx.k, grad if ctx.needs_input_grad[1] else None, None


class Sign(Function):
    """A straight-through estimator in the newer spelling, with a default."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, limit: float = 0.5) -> Tensor:
        return a.sign()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.limit = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.clamp(-ctx.limit, ctx.limit), None


class Scaled(Function):
    """Saves its answer, and goes back once only."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        answer = a.exp()
        ctx.save_for_backward(answer)
        return answer

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (answer,) = ctx.saved_tensors
        return grad * answer


class Doubled(Function):
    """Writes into its argument."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.mark_dirty(a)
        return a.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * 2


class Broadcast(Function):
    """Leaves it to autograd to add up a gradient that is larger than the argument."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, bias: Tensor) -> Tensor:
        return a + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, grad


class Cubed(Function):
    """Can be differentiated twice, and has an answer that depends on nothing."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Any:
        ctx.save_for_backward(a)
        return a**3, torch.ones(2, dtype=a.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Any:
        (a,) = ctx.saved_tensors
        return 3 * a**2 * grad


class Gated(Function):
    """Branches on the value of its argument."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        return a * 2 if a.norm().item() > 4 else a * 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad


def _slope(x: Tensor) -> Any:
    (slope,) = torch.autograd.grad(Cubed.apply(x)[0].sum(), x, create_graph=True)
    return slope * x


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "several": lambda x: Weighted.apply(x, x * 2, 3.0),
    "mixed": lambda x: Weighted.apply(torch.ones(4, 5, dtype=x.dtype), x),
    "in-two-parts": lambda x: (Sign.apply(x) * x).sum(),
    "by-keyword": lambda x: (Sign.apply(x, limit=0.1) * x).sum(),
    "saves-its-answer": lambda x: Scaled.apply(x),  # noqa: PLW0108 - `apply` is read from the class at each call
    "transposed": lambda x: Scaled.apply(x.transpose(0, 1)),
    "in-place": lambda x: Doubled.apply(x * 1),
    "in-place-and-seen": lambda x: (y := x * 1, Doubled.apply(y), y * 3)[1:],
    "larger-gradient": lambda x: Broadcast.apply(x, x.sum(0)),
    "larger-by-the-number-of-lanes": lambda x: Broadcast.apply(x[:3], x[0]),
    "constant-answer": lambda x: Cubed.apply(x),  # noqa: PLW0108 - likewise
    "twice": _slope,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_gives_each_lane_what_it_gives_alone(name: str) -> None:
    Agreement().check(PROGRAMS[name], torch.randn(3, 4, 5, dtype=torch.float64))


def test_a_function_takes_numbers_that_differ_by_lane() -> None:
    numbers = [(1.0, 2.0, 3.0)]
    Agreement().check(lambda x, p: Weighted.apply(x, x, p)[0], torch.randn(3, 4, 5).double(), numbers=numbers)


def test_a_function_runs_once_for_all_lanes() -> None:
    calls: list[Tensor] = []

    class Watch(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            calls.append(x.mean())
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            calls.append(grad.mean())
            return grad

    stack = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with make_mode(2):
        (Watch.apply(lanes_of(stack)) * 2).sum().backward()
    assert [stack_of(call).tolist() for call in calls] == [[1.5, 3.5], [2.0, 2.0]]


def test_a_branch_in_a_function_makes_lanes_part() -> None:
    stack = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with make_mode(2), pytest.raises(LanesPart):
        Gated.apply(lanes_of(stack))


def test_lanes_that_a_function_does_not_take_are_constants_to_it_as_in_torch() -> None:
    weight = lanes_of(torch.tensor([[2.0], [3.0]], requires_grad=True))

    class Hiding(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * weight

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad

    stack = torch.ones(2, 1, requires_grad=True)
    with make_mode(2):
        answer = Hiding.apply(lanes_of(stack))
    assert stack_of(answer).tolist() == [[2.0], [3.0]]
    with make_mode(2), pytest.raises(CannotFuseError, match="does not take as arguments"):
        Hiding.apply(torch.ones(1))


def test_too_few_gradients_are_an_error() -> None:
    class Short(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            return a + b

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad

    stack = torch.ones(2, 3, requires_grad=True)
    with make_mode(2), pytest.raises(RuntimeError, match="1 gradients for 2 arguments"):
        Short.apply(lanes_of(stack), lanes_of(stack)).sum().backward()


def test_a_tensor_with_a_gradient_that_lanes_share_is_refused() -> None:
    shared, stack = torch.ones(3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    with make_mode(2), pytest.raises(CannotFuseError, match="not part of a prepared model"):
        Weighted.apply(lanes_of(stack), shared)
