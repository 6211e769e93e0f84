"""The private calls of torch do what the lanes rest on; a release that changes one fails here first."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import pytest
import torch
import torch._functorch.eager_transforms as eager_transforms
import torch._functorch.vmap as vmap
from torch import Tensor, nn
from torch._C import _functorch as C
from torch.nn.modules._functions import BackwardHookFunction
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from headwater import torch_private
from headwater.torch_private import BackwardOptions, lanes_of, stack_of


def test_a_stack_shows_the_shape_of_one_lane_and_comes_back_as_itself() -> None:
    stack = torch.arange(12.0).view(3, 4).requires_grad_()
    lane_tensor = C._add_batch_dim(stack, 0, 1)
    assert lane_tensor.shape == (4,)
    assert C.is_batchedtensor(lane_tensor)
    assert not C.is_batchedtensor(stack)
    assert C.get_unwrapped(lane_tensor) is stack
    assert C.maybe_get_bdim(lane_tensor) == 0


def test_the_wrapper_itself_never_asks_for_a_gradient() -> None:
    assert not lanes_of(torch.ones(3, 4, requires_grad=True)).requires_grad


def test_lanes_that_are_not_first_in_memory_come_first_in_the_stack() -> None:
    lane_tensor = C._add_batch_dim(torch.arange(12.0).view(4, 3), 1, 1)
    assert stack_of(lane_tensor).shape == (3, 4)
    settled = torch_private.settled_stack_of(lane_tensor)
    assert torch_private.memory_of(lane_tensor) is settled
    assert torch.equal(settled, torch.arange(12.0).view(4, 3).t())


def test_a_level_opens_at_one_and_closes_again() -> None:
    assert C._vmap_increment_nesting(3, "same") == torch_private.LEVEL
    try:
        assert torch_private.is_transforming()
        total = (lanes_of(torch.ones(3, 4)) * 2).sum()
    finally:
        C._vmap_decrement_nesting()
    assert not torch_private.is_transforming()
    assert torch.equal(stack_of(total), torch.full((3,), 8.0))


def test_a_call_in_a_level_closes_it_when_it_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        torch_private.call_in_level(3, lambda: 1 / 0, (), {})
    assert not torch_private.is_transforming()
    answer = torch_private.call_in_level(3, torch.sum, (lanes_of(torch.ones(3, 4)),), {"dim": 0})
    assert torch.equal(stack_of(answer), torch.full((3,), 4.0))


def test_the_lanes_level_refuses_to_open_above_another() -> None:
    def inner(x: Tensor) -> Tensor:
        with torch_private.vmap_level(2):
            return x

    with pytest.raises(RuntimeError, match="another functorch transform"):
        torch.vmap(inner)(torch.ones(2))


def test_random_numbers_in_a_level_are_those_of_one_lane() -> None:
    torch.manual_seed(0)
    alone = torch.rand(4)
    torch.manual_seed(0)
    with torch_private.vmap_level(3):
        drawn = torch.rand_like(lanes_of(torch.ones(3, 4)))
    drawn = stack_of(drawn)[0] if torch_private.is_lane_tensor(drawn) else drawn
    assert torch.equal(drawn, alone)


def test_lane_tensors_outside_a_level_fail_loudly() -> None:
    with pytest.raises(RuntimeError, match="vmap"):
        lanes_of(torch.ones(3, 4)).sum()


def test_swapping_gives_every_holder_the_new_tensor() -> None:
    plain = torch.ones(4)
    holder = [plain]
    torch_private.swap(plain, lanes_of(torch.zeros(3, 4)))
    assert torch_private.is_lane_tensor(holder[0])


def test_swapping_keeps_class_attributes_and_weak_references() -> None:
    parameter: Any = nn.Parameter(torch.zeros(4))
    parameter.is_special = True
    weak: Any = weakref.ref(parameter)
    before = lanes_of(torch.zeros(3, 4))
    torch_private.swap(parameter, before)
    assert type(weak()) is nn.Parameter
    assert weak().is_special
    assert len(stack_of(weak())) == 3
    torch_private.swap(parameter, before)
    assert not torch_private.is_lane_tensor(parameter)


def test_a_tensor_marked_as_parameter_is_one() -> None:
    lane_tensor: Any = lanes_of(torch.zeros(3, 4))
    lane_tensor._is_param = True
    module = nn.Module()
    module.weight = lane_tensor
    assert [id(parameter) for parameter in module.parameters()] == [id(lane_tensor)]


def test_the_holders_of_memory_are_counted() -> None:
    tensor = torch.zeros(4, 4)
    assert torch_private.num_holders(tensor) == 1
    row, alias = tensor[0], tensor.detach()
    assert [torch_private.num_holders(holder) for holder in (tensor, row, alias)] == [3, 3, 3]
    assert row._base is tensor
    assert not torch.from_numpy(tensor.numpy()).untyped_storage().resizable()


def test_the_modes_of_a_thread_are_listed_outermost_first() -> None:
    class Mode(TorchFunctionMode):
        pass

    with Mode() as outer, Mode() as inner:
        assert torch_private.active_modes() == [outer, inner]
    assert torch_private.active_modes() == []


def test_slow_batching_warns_unless_told_not_to() -> None:
    def batch_slowly() -> None:
        with torch_private.vmap_level(3):
            torch.histc(lanes_of(torch.rand(3, 4)), 4, 0, 1)

    torch_private.warn_of_slow_batching(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            batch_slowly()
    finally:
        torch_private.warn_of_slow_batching(True)


def test_the_engine_runs_with_the_modes_left_on() -> None:
    seen: list[list[Any]] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    leaf = torch.ones(3, requires_grad=True)
    root = (leaf * 2).sum()
    root.register_hook(lambda grad: seen.append(torch_private.active_modes()))
    with Mode() as mode:
        torch_private.run_backward([root], [torch.ones(())], [], BackwardOptions(retain_graph=True, create_graph=False))
        options = BackwardOptions(retain_graph=False, create_graph=False, accumulate=False)
        (returned,) = torch_private.run_backward([root], [torch.ones(())], [leaf], options)
    assert seen == [[mode], [mode]]
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, torch.full((3,), 2.0))
    assert returned is not None
    assert torch.equal(returned, leaf.grad)


def test_hooks_that_save_tensors_elsewhere_are_noticed() -> None:
    assert not torch_private.saves_elsewhere()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        assert torch_private.saves_elsewhere()
    assert not torch_private.saves_elsewhere()


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_backward_pass_tells_whether_it_keeps_its_graph(is_kept: bool) -> None:
    told: list[bool] = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda _: told.append(torch_private.keeps_graph()))
    x.sum().backward(retain_graph=is_kept)
    assert told == [is_kept]


def test_a_function_of_stacks_is_applied_by_torch_itself() -> None:
    class Double(torch_private.StackFunction):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad * 2

    x = torch.ones(3, requires_grad=True)
    Double.apply(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((3,), 2.0))


@pytest.mark.parametrize(
    ("home", "name"),
    [
        (nn.Parameter, "__new__"),
        (torch._C.ScriptFunction, "__call__"),
        (torch._C.ScriptMethod, "__call__"),
        (vmap, "vmap_increment_nesting"),
        (eager_transforms, "grad_increment_nesting"),
        (eager_transforms, "jvp_increment_nesting"),
    ],
)
def test_what_the_bypasses_replace_is_where_they_look_for_it(home: Any, name: str) -> None:
    assert name in vars(home)


def test_an_apply_that_was_taken_from_its_class_ends_at_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

    apply = Double.apply
    monkeypatch.setattr(torch_private.FUNCTION_BASE, "apply", classmethod(lambda function, *args: (function, *args)))
    assert apply(3) == (Double, 3)  # type: ignore[no-untyped-call]


def test_the_functions_that_bypasses_know_by_name_exist() -> None:
    assert issubclass(CheckpointFunction, torch.autograd.Function)
    x = torch.ones(2, requires_grad=True) * 1
    (hooked,) = BackwardHookFunction.apply(x)
    assert hooked.grad_fn.name() == "BackwardHookFunctionBackward"
    assert torch.compiler.set_stance is not None
