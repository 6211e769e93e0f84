"""A `torch.autograd.Function` of the user's own, run once for all lanes.

Its forward and backward are the user's code like any other: they may keep what they compute, write into a tensor from
outside and count their calls. So they run as often as for one model, with lane tensors in their hands, while autograd
sees a function of stacks.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from headwater.errors import CannotFuseError
from headwater.torch_private import StackFunction, is_lane_tensor, lanes_of, settled_stack_of


class Guide(Protocol):
    """What a function needs of the lane mode."""

    @property
    def num_lanes(self) -> int:
        """How many lanes ride now."""

    def stack(self, tensor: Tensor) -> Tensor:
        """Return the memory of a lane tensor, or a plain tensor widened."""

    def refuse_unprepared(self, values: Sequence[Any]) -> None:
        """Raise where a tensor that all lanes share needs gradients."""

    def refusal(self, reason: str) -> CannotFuseError:
        """Note that the lanes cannot go on as one, and return the signal to raise."""

    def __enter__(self) -> Any:
        """Let torch compute with lane tensors."""

    def __exit__(self, *error: Any) -> None:
        """Let torch compute as ever."""


def apply_to_lanes(guide: Guide, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Apply a function of the user's own to arguments among which there are lane tensors."""
    if kwargs or _is_in_two_parts(function):
        bound = inspect.signature(function.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        args = bound.args
    if torch.is_grad_enabled():
        guide.refuse_unprepared(args)
    call = _Call(guide, function, args)
    answers = _OnStacks.apply(call, *(settled_stack_of(args[place]) for place in call.places))
    return call.show(answers)


class _Call:
    """One call of a function: what it was given, and what its backward will find."""

    def __init__(self, guide: Guide, function: Any, args: Sequence[Any]) -> None:
        self.guide = guide
        self.function = function
        self.context = Context()
        self.num_args = len(args)
        self.places = [place for place, arg in enumerate(args) if isinstance(arg, Tensor) and is_lane_tensor(arg)]
        self.shapes = [args[place].shape for place in self.places]
        self.args: Sequence[Any] = args

    def run_forward(self) -> Any:
        if not _is_in_two_parts(self.function):
            return self.function.forward(self.context, *self.args)
        answer = self.function.forward(*self.args)
        self.function.setup_context(self.context, tuple(self.args), answer)
        return answer

    def run_backward(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the gradients of the stacks that the function was given."""
        if any(grad is not None and grad.shape[0] != self.guide.num_lanes for grad in grads):
            raise self.guide.refusal(f"{self.function.__name__} goes back to before a lane has left")
        is_named_vjp = self.function.vjp is not torch.autograd.Function.vjp
        run = self.function.vjp if is_named_vjp else self.function.backward
        with self.guide:
            answers = run(self.context, *(None if grad is None else lanes_of(grad) for grad in grads))
            answers = answers if isinstance(answers, tuple) else (answers,)
            if len(answers) < self.num_args:
                raise RuntimeError(
                    f"{self.function.__name__}.backward returned {len(answers)} gradients for {self.num_args} arguments"
                )
            own = [_reduce(answers[place], shape) for place, shape in zip(self.places, self.shapes, strict=True)]
        return [None if grad is None else self.guide.stack(grad) for grad in own]

    def unwrap(self, answer: Any) -> Any:
        """Return the stack of an answer."""
        if not isinstance(answer, Tensor):
            return answer
        if is_lane_tensor(answer):
            return settled_stack_of(answer)
        if any(answer is arg for arg in self.args):
            raise self.guide.refusal(f"{self.function.__name__} returns an argument that all lanes share")
        return self.guide.stack(answer).clone()

    def show(self, answers: Any) -> Any:
        """Return the answers as lane tensors; an argument that was written into is itself the answer."""
        args, self.args = self.args, ()
        by_stack = {id(settled_stack_of(args[place])): args[place] for place in self.places}
        if not isinstance(answers, tuple):
            return _show(answers, by_stack)
        return tuple(_show(answer, by_stack) for answer in answers)


class Context:
    """The `ctx` of a function: keeps lane tensors where torch's own keeps their stacks."""

    _node: Any = None
    _is_saved_by_lane: tuple[bool, ...] = ()
    _dirty: tuple[Tensor, ...] = ()
    _constant: tuple[Tensor, ...] = ()
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors."""
        self._is_saved_by_lane = tuple(isinstance(each, Tensor) and is_lane_tensor(each) for each in tensors)
        self._node.save_for_backward(*map(_settle, tensors))

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What was kept."""
        saved = zip(self._node.saved_tensors, self._is_saved_by_lane, strict=True)
        return tuple(lanes_of(each) if is_by_lane else each for each, is_by_lane in saved)

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which arguments were written into."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which answers have no gradient."""
        self._constant = tensors

    def __getattr__(self, name: str) -> Any:
        if self._node is None or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._node, name)

    @contextmanager
    def at(self, node: Any) -> Iterator[None]:
        """Keep things at a node of the graph for a while; not for longer, for it keeps this."""
        self._node = node
        try:
            yield
        finally:
            self._node = None


class _OnStacks(StackFunction):
    """What autograd sees."""

    @staticmethod
    def forward(node: Any, call: _Call, *stacks: Tensor) -> Any:
        context, node.call = call.context, call
        needed = dict(zip(call.places, node.needs_input_grad[1:], strict=True))
        context.needs_input_grad = tuple(needed.get(place, False) for place in range(call.num_args))
        with context.at(node):
            answers = call.run_forward()
        items = answers if isinstance(answers, tuple) else (answers,)
        unwrapped = tuple(call.unwrap(item) for item in items)
        dirty = [_settle(tensor) for tensor in context._dirty]
        node.mark_dirty(*(stack for stack in stacks if any(stack is each for each in dirty)))
        constant = [
            new for item, new in zip(items, unwrapped, strict=True) if any(item is t for t in context._constant)
        ]
        node.mark_non_differentiable(*constant)
        context._dirty = context._constant = ()
        return unwrapped if isinstance(answers, tuple) else unwrapped[0]

    @staticmethod
    def backward(node: Any, *grads: Tensor | None) -> Any:
        with node.call.context.at(node):
            return None, *node.call.run_backward(grads)


def _is_in_two_parts(function: Any) -> bool:
    """Tell whether a function says in `setup_context` what its backward will need."""
    return function.setup_context is not torch.autograd.Function.setup_context


def _settle(tensor: Any) -> Any:
    return settled_stack_of(tensor) if isinstance(tensor, Tensor) and is_lane_tensor(tensor) else tensor


def _reduce(grad: Tensor | None, shape: torch.Size) -> Tensor | None:
    """Return a gradient in the shape of its argument, as autograd does, but lane by lane."""
    return grad if grad is None or grad.shape == shape else grad.sum_to_size(shape)


def _show(answer: Any, by_stack: Mapping[int, Tensor]) -> Any:
    if not isinstance(answer, Tensor):
        return answer
    given = by_stack.get(id(answer))
    return lanes_of(answer) if given is None else given
