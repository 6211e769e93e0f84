"""The user's own tensors that have become lane tensors in a run, and what each of them held before."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import ReferenceType, ref

from torch import Tensor

from headwater.torch_private import accumulation_hooks_of, gradient_hooks_of, is_lane_tensor, lanes_of, stack_of, swap


class Swaps:
    """Makes plain tensors lane tensors, for everyone who holds them, and plain ones again when the run ends.

    What a tensor held before lies untouched meanwhile. A tensor that nobody holds any longer is forgotten.
    """

    def __init__(self, mode: AbstractContextManager[Any] | None = None) -> None:
        self._mode: AbstractContextManager[Any] = mode or nullcontext()
        self._before: dict[int, tuple[ReferenceType[Tensor], Tensor]] = {}

    def turn(self, plain: Tensor, stack: Tensor) -> None:
        """Let the object show the lanes of this stack from now on; its hooks see the gradients of the lanes."""
        self._carry_hooks(plain, stack)
        other = lanes_of(stack)
        swap(plain, other)
        key = id(plain)

        def forget(_: Any) -> None:
            self._before.pop(key, None)

        self._before[key] = (ref(plain, forget), other)

    def shares_memory(self, stack: Tensor) -> bool:
        """Tell whether this is memory of a tensor that was turned, such as a weight."""
        place = stack.untyped_storage().data_ptr()
        turned = (reference() for reference, _ in [*self._before.values()])
        return any(
            tensor is not None and is_lane_tensor(tensor) and stack_of(tensor).untyped_storage().data_ptr() == place
            for tensor in turned
        )

    def undo(self) -> None:
        """Give every tensor back what it held when it was turned."""
        for reference, before in list(self._before.values()):
            tensor = reference()
            if tensor is not None:
                swap(tensor, before)
        self._before.clear()

    def _carry_hooks(self, plain: Tensor, stack: Tensor) -> None:
        hooks, late_hooks = gradient_hooks_of(plain), accumulation_hooks_of(plain)

        def on_gradient(grad: Tensor) -> Tensor:
            with self._mode:
                shown = lanes_of(grad)
                for hook in list(hooks.values()):
                    answer = hook(shown)
                    shown = shown if answer is None else answer
            return stack_of(shown) if is_lane_tensor(shown) else shown.expand_as(grad)

        def on_accumulated(_: Tensor) -> None:
            with self._mode:
                for hook in list(late_hooks.values()):
                    hook(plain)

        if hooks:
            stack.register_hook(on_gradient)
        if late_hooks:
            stack.register_post_accumulate_grad_hook(on_accumulated)
