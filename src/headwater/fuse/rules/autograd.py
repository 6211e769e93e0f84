"""Gradients per lane: what torch keeps on a tensor, lanes keep on their stack."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from headwater.errors import CannotFuseError
from headwater.fuse.mode import LaneMode
from headwater.torch_private import (
    BackwardOptions,
    get_version,
    is_lane_tensor,
    lanes_of,
    memory_of,
    run_backward,
    settled_stack_of,
    stack_of,
    swap,
    version_of,
)


def _read_from_stack(attribute: str) -> Callable[..., Any]:
    def rule(mode: LaneMode, func: Any, tensor: Tensor, *_: Any) -> Any:
        return getattr(memory_of(tensor), attribute)

    return rule


def _get_version(mode: LaneMode, func: Any, tensor: Tensor, *_: Any) -> int:
    return version_of(memory_of(tensor))


def _get_grad(mode: LaneMode, func: Any, tensor: Tensor, *_: Any) -> Tensor | None:
    memory = memory_of(tensor)
    grad = memory.grad if memory.is_leaf or memory.retains_grad else None
    return None if grad is None else lanes_of(grad)


def _set_grad(mode: LaneMode, func: Any, tensor: Tensor, grad: Tensor | None) -> None:
    if not is_lane_tensor(tensor):
        raise CannotFuseError("a gradient that differs by lane was given to a tensor that all lanes share")
    if grad is None:
        settled_stack_of(tensor).grad = None
        return
    if not is_lane_tensor(grad):
        raise CannotFuseError(
            f"the code sets a gradient to a tensor of shape {tuple(grad.shape)} that all lanes share, and backward "
            "would write each lane's gradient into it; make it with zeros_like of the parameter"
        )
    if stack_of(grad).stride(0) == 0:  # backward adds to the gradient in place, for each lane another
        swap(grad, lanes_of(stack_of(grad).contiguous()))
    if not stack_of(grad).is_contiguous():  # a part of a buffer, which torch has nothing against in a trial alone
        warnings.filterwarnings("ignore", "grad and param do not obey the gradient layout contract")
    settled_stack_of(tensor).grad = stack_of(grad)


def _get_data(mode: LaneMode, func: Any, tensor: Tensor, *_: Any) -> Tensor:
    return lanes_of(stack_of(tensor).data)


def _set_data(mode: LaneMode, func: Any, tensor: Tensor, data: Tensor) -> None:
    """Give the stack other memory; where its type or shape changes, the tensor that shows it must change too."""
    if not is_lane_tensor(tensor):
        raise CannotFuseError("values that differ by lane were given to a tensor that all lanes share")
    stack = settled_stack_of(tensor)
    changes = (tensor.shape, tensor.dtype, tensor.device) != (data.shape, data.dtype, data.device)
    if not is_lane_tensor(data):
        raise CannotFuseError(
            f"the code gives a tensor the memory of another of shape {tuple(data.shape)} that all lanes share; "
            "use copy_ instead of assigning `data`"
        )
    stack.data = stack_of(data)
    if changes:
        swap(tensor, lanes_of(stack))


def _set_requires_grad(mode: LaneMode, func: Any, tensor: Tensor, requires_grad: bool = True) -> Tensor:
    settled_stack_of(tensor).requires_grad_(requires_grad)
    return tensor


def _detach_in_place(mode: LaneMode, func: Any, tensor: Tensor) -> Tensor:
    settled_stack_of(tensor).detach_()
    return tensor


def _retain_grad(mode: LaneMode, func: Any, tensor: Tensor) -> None:
    settled_stack_of(tensor).retain_grad()


def _register_hook(mode: LaneMode, func: Any, tensor: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Any:
    def on_stack(grad: Tensor) -> Tensor | None:
        with mode:
            answer = hook(lanes_of(grad))
        return None if answer is None else mode.stack(answer)

    return settled_stack_of(tensor).register_hook(on_stack)


def _register_after_grad(mode: LaneMode, func: Any, tensor: Tensor, hook: Callable[[Tensor], None]) -> Any:
    def on_stack(_: Tensor) -> None:
        with mode:
            hook(tensor)

    return settled_stack_of(tensor).register_post_accumulate_grad_hook(on_stack)


class LaneNode:
    """A node of the graph that lanes share; it takes the hooks of modules, whose gradients lie lane by lane."""

    def __init__(self, node: Any, mode: LaneMode) -> None:
        self._node = node
        self._mode = mode

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        """Call the hook with the gradients as lane tensors."""
        if self._node.name() != "BackwardHookFunctionBackward":
            raise self._refusal()

        def on_stacks(grad_inputs: Any, grad_outputs: Any) -> Any:
            with self._mode:
                answers = hook(_show(grad_inputs), _show(grad_outputs))
            if answers is None:
                return None
            return tuple(None if answer is None else self._mode.stack(answer) for answer in answers)

        return self._node.register_hook(on_stacks)

    def register_prehook(self, hook: Callable[..., Any]) -> Any:
        """Refuse: the gradients at a node need not lie lane by lane."""
        raise self._refusal()

    def _refusal(self) -> CannotFuseError:
        return CannotFuseError(
            f"a hook on the graph node {self._node.name()} would see all lanes at once; register it on the tensor"
        )


def _show(grads: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    return tuple(None if grad is None else lanes_of(grad) for grad in grads)


def _get_node(mode: LaneMode, func: Any, tensor: Tensor, *_: Any) -> LaneNode | None:
    node = memory_of(tensor).grad_fn
    return None if node is None else LaneNode(node, mode)


def _backward(
    mode: LaneMode, func: Any, tensor: Tensor, gradient: Tensor | None = None, retain_graph: bool | None = None,
    create_graph: bool = False, inputs: Any = None,
) -> None:  # fmt: skip
    """Start from the sum of the lanes' losses: each lane then gets exactly its own gradient."""
    _autograd_backward(mode, func, tensor, gradient, retain_graph, create_graph, inputs=inputs)


def _autograd_backward(
    mode: LaneMode, func: Any, tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, grad_variables: Any = None, inputs: Any = None,
) -> None:  # fmt: skip
    roots, seeds = _roots(mode, tensors, grad_tensors if grad_tensors is not None else grad_variables)
    leaves = [] if inputs is None else [_leaf(item) for item in _listed(inputs)]
    retain_graph = create_graph if retain_graph is None else retain_graph
    _refuse_anomaly_mode()
    with mode:
        run_backward(roots, seeds, leaves, BackwardOptions(retain_graph=retain_graph, create_graph=create_graph))


def _grad(
    mode: LaneMode, func: Any, outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
    is_grads_batched: bool = False, materialize_grads: bool = False,
) -> Any:  # fmt: skip
    if is_grads_batched:
        raise CannotFuseError("torch.autograd.grad with is_grads_batched=True cannot be done for several lanes at once")
    roots, seeds = _roots(mode, outputs, grad_outputs)
    leaves = [_leaf(item) for item in _listed(inputs)]
    options = BackwardOptions(
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
        accumulate=False,
        allow_unused=bool(allow_unused),
    )
    _refuse_anomaly_mode()
    with mode:
        answers = run_backward(roots, seeds, leaves, options)
    if materialize_grads:
        pairs = zip(answers, leaves, strict=True)
        answers = tuple(torch.zeros_like(leaf) if answer is None else answer for answer, leaf in pairs)
    return _show(answers)


def _refuse_anomaly_mode() -> None:
    if torch.is_anomaly_enabled():
        raise CannotFuseError("torch.autograd.detect_anomaly raises for all lanes where one of them has a NaN")


def _listed(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, Tensor) or not hasattr(tensors, "__iter__") else list(tensors)


def _leaf(tensor: Any) -> Tensor:
    if not isinstance(tensor, Tensor) or not is_lane_tensor(tensor):
        raise CannotFuseError("the code asks for the gradient of a tensor that all lanes share; each lane has another")
    return settled_stack_of(tensor)


def _roots(mode: LaneMode, tensors: Any, gradients: Any) -> tuple[list[Tensor], list[Tensor]]:
    listed = _listed(tensors)
    seeds = [gradients] * len(listed) if gradients is None or isinstance(gradients, Tensor) else gradients
    pairs = zip(listed, seeds, strict=True)
    return [mode.stack(tensor) for tensor in listed], [_seed(mode, tensor, seed) for tensor, seed in pairs]


def _seed(mode: LaneMode, tensor: Tensor, gradient: Tensor | None) -> Tensor:
    if gradient is not None:
        if gradient.shape != tensor.shape:
            raise RuntimeError(f"Mismatch in shape: the output has {tensor.shape}, its gradient {gradient.shape}")
        return mode.stack(gradient)
    if tensor.numel() != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    return torch.ones_like(mode.stack(tensor))


def _deepcopy(mode: LaneMode, func: Any, tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    if id(tensor) in memo:
        known: Tensor = memo[id(tensor)]
        return known
    stack = stack_of(tensor)
    if not stack.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol")
    copied = stack.detach().clone().requires_grad_(stack.requires_grad)
    if stack.grad is not None:
        copied.grad = stack.grad.detach().clone()
    copy = lanes_of(copied)
    copy.__dict__.update(tensor.__dict__)
    memo[id(tensor)] = copy
    return copy


def _refuse_to_pickle(mode: LaneMode, func: Any, tensor: Tensor, *_: Any) -> Any:
    raise CannotFuseError(
        "the code pickles the weights of several lanes at once (torch.save); leave saving to trial.report, "
        "which keeps each lane's weights apart"
    )


_TENSOR: Any = Tensor  # torch declares its attributes by the values that they have on an instance

RULES: dict[Any, Any] = {
    _TENSOR.grad.__get__: _get_grad,
    _TENSOR.grad.__set__: _set_grad,
    _TENSOR.data.__get__: _get_data,
    _TENSOR.data.__set__: _set_data,
    _TENSOR.requires_grad.__get__: _read_from_stack("requires_grad"),
    _TENSOR.requires_grad.__set__: _set_requires_grad,
    Tensor.requires_grad_: _set_requires_grad,
    _TENSOR.is_leaf.__get__: _read_from_stack("is_leaf"),
    _TENSOR.retains_grad.__get__: _read_from_stack("retains_grad"),
    _TENSOR.grad_fn.__get__: _get_node,
    get_version: _get_version,
    Tensor.detach_: _detach_in_place,
    Tensor.retain_grad: _retain_grad,
    Tensor.register_hook: _register_hook,
    Tensor.register_post_accumulate_grad_hook: _register_after_grad,
    Tensor.backward: _backward,
    Tensor.__deepcopy__: _deepcopy,
    Tensor.__reduce_ex__: _refuse_to_pickle,
    torch.autograd.backward: _autograd_backward,
    torch.autograd.grad: _grad,
}
