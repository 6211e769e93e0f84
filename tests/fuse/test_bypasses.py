"""Calls that no torch-function mode sees still treat each lane alone, and are torch's own again afterwards."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._functorch.vmap as vmap
from tests.fuse.parity import Agreement, Parity, make_mode
from torch import Tensor, nn

from headwater.errors import CannotFuseError
from headwater.fuse.models import repeat_model
from headwater.torch_private import FUNCTION_BASE, IS_APPLY_COMPILED, lanes_of, stack_of


class Function(torch.autograd.Function):
    """As the user's own ones begin; torch leaves `apply` without types."""

    apply: Any


class Weighted(Function):
    """Two tensors, a number and an output without gradient."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, k: float = 2.0) -> Any:
        ctx.save_for_backward(a, b)
        ctx.k = k
        return a * a * k + b, a > 0

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Any:
        a, _b = ctx.saved_tensors
        return 2 * a * grad * ctx.k, grad, None


class Scripted(nn.Module):
    """Branches on its input, as only a script or Python can."""

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            return x * 2
        return x + 1


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_scripted_function_runs_lane_by_lane() -> None:
    scripted = torch.jit.script(Scripted())
    Agreement().check(scripted, torch.randn(3, 4, 5, dtype=torch.float64))


TRANSFORMS: dict[str, Callable[[Tensor], Any]] = {
    "vmap-of-what-lanes-share": lambda x: torch.vmap(lambda row: row.sum())(torch.ones(5, 2)),
    "vmap-with-lanes": lambda x: torch.vmap(lambda row: row.softmax(0) * x[0])(torch.ones(3, 5, dtype=x.dtype)),
    "vmap-over-lanes": lambda x: torch.vmap(lambda row: row.norm())(x * 2),
    "grad": lambda x: torch.func.grad(lambda a: (a**3).sum())(x * 2),
    "jacrev": lambda x: torch.func.jacrev(lambda a: (a * a).sum(0))(x * 2),
    "jacfwd": lambda x: torch.func.jacfwd(lambda a: (a * a).sum(0))(x.detach()),
    "hessian": lambda x: torch.func.hessian(lambda a: (a**3).sum())(x[0]),
    "grad-per-example": lambda x: torch.vmap(torch.func.grad(lambda p, d: (d @ p).tanh().sum()), in_dims=(None, 0))(
        x, torch.ones(3, 2, 4, dtype=x.dtype)
    ),
}


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch itself, where it loads its derivatives
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_the_users_own_nest_in_the_lanes(name: str) -> None:
    Agreement().check(TRANSFORMS[name], torch.randn(3, 4, 5, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_model_runs_as_written() -> None:
    compiled: dict[int, Any] = {}

    def step(model: nn.Module) -> Any:
        return compiled.setdefault(id(model), torch.compile(model, backend="eager"))(
            torch.ones(2, 3, dtype=torch.float64)
        )

    Parity().check(lambda: nn.Linear(3, 3), step)


def test_torch_has_its_own_functions_back_after_the_last_mode() -> None:
    def held() -> list[Any]:
        homes = (FUNCTION_BASE, nn.Parameter, torch._C.ScriptFunction, Tensor, vmap)
        names = ("apply", "__new__", "__call__", "set_", "vmap_increment_nesting")
        return [torch.compile, *(vars(home).get(name) for home, name in zip(homes, names, strict=True))]

    before = held()
    outer, inner = make_mode(2), make_mode(2)
    with outer:
        with inner, outer:
            during = held()
        assert held() == during
    assert during != before
    assert held() == before


def test_an_error_in_the_users_code_gives_torch_its_functions_back() -> None:
    before = vars(FUNCTION_BASE).get("apply")
    with pytest.raises(KeyError), make_mode(2):
        raise KeyError
    assert vars(FUNCTION_BASE).get("apply") is before


def test_an_apply_that_was_taken_from_its_class_computes_with_lanes_or_is_refused() -> None:
    """A library may have taken it long ago; from torch 2.15 on it is C++ that nobody can lead elsewhere."""
    taken = Weighted.apply
    stack = torch.arange(6.0).view(2, 3).requires_grad_()
    if IS_APPLY_COMPILED:
        with make_mode(2), pytest.raises(CannotFuseError, match=r"call Weighted\.apply"):
            taken(lanes_of(stack), lanes_of(stack))
    else:
        with make_mode(2):
            taken(x := lanes_of(stack), x)[0].sum().backward()
        assert stack.grad is not None
        torch.testing.assert_close(stack.grad, 4 * stack.detach() + 1)
    assert taken(stack, stack)[0].grad_fn is not None


def test_threads_without_lanes_compute_as_ever() -> None:
    inside, done = threading.Event(), threading.Event()
    answers: list[Tensor] = []

    def plain() -> None:
        inside.wait(30)
        x = torch.ones(3, requires_grad=True)
        torch.vmap(lambda a: a * 2)(x).sum().backward()
        answers.extend(
            [Weighted.apply(x, x)[0].detach(), x.grad if x.grad is not None else x, nn.Parameter(torch.ones(2))]
        )
        done.set()

    thread = threading.Thread(target=plain)
    thread.start()
    with make_mode(2):
        inside.set()
        done.wait(30)
    thread.join()
    assert [answer.tolist() for answer in answers] == [[3.0] * 3, [2.0] * 3, [1.0] * 2]


def test_many_threads_may_have_lanes_of_their_own() -> None:
    before = vars(FUNCTION_BASE).get("apply")
    failures: list[BaseException] = []

    def train(num_lanes: int) -> None:
        try:
            stack = torch.arange(float(num_lanes * 3)).view(num_lanes, 3).requires_grad_()
            for _ in range(20):
                with make_mode(num_lanes):
                    Weighted.apply(x := lanes_of(stack), x)[0].sum().backward()
            assert stack.grad is not None
            torch.testing.assert_close(stack.grad, 20 * (4 * stack.detach() + 1))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=train, args=(num_lanes,)) for num_lanes in (1, 2, 5, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert vars(FUNCTION_BASE).get("apply") is before


def test_no_warning_of_slow_batching_reaches_the_user() -> None:
    x = lanes_of(torch.rand(2, 4, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with make_mode(2):
            torch.histc(x, 5)
            torch.nn.functional.multi_margin_loss(x, torch.tensor([0, 1, 2, 3]))


def test_setting_the_memory_of_a_lane_tensor_reaches_every_holder() -> None:
    model = repeat_model(nn.Linear(2, 2, bias=False), 3)
    (weight,) = model.parameters()
    double: Any = lanes_of(stack_of(weight).detach() * 2)
    with make_mode(3), torch.no_grad():
        weight.set_(double)
        doubled = next(model.parameters()).sum()
    assert torch.equal(stack_of(doubled), stack_of(weight).sum((1, 2)))
