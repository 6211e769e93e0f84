"""Calls of a prepared model that several ranks compute together, or one rank in micro-batches.

Every rank is given the global batch and gets the answer for all of it, as if it had computed it alone. Inside, it
computes its own rows; the answers are exchanged, and in the backward pass the gradients are summed. A rank thereby
never sees a part of anything outside of a model, and gradients are summed once, where they leave the call: losses of
any kind, penalties on weights, accumulation, clipping, several models and optimizers are what they are in one process.

Whether rows can be computed apart is not believed but tried: the first call of each kind, and the 8th, 64th and so on,
is computed whole as well, and answers, buffers and random numbers must agree. Where they do not, or where a batch is
too small, every rank computes the whole: no faster, but right.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from headwater.errors import CannotDivideError, StudyError, TrialError
from headwater.torch_private import call_module, is_transforming, set_stand_in, stand_in_of, tree_unflatten
from headwater.train.calls import Call, open_call
from headwater.train.divided_run import DividedRun, Layout, Snapshot
from headwater.train.exchange import Exchange
from headwater.train.ranks import RankGroup
from headwater.train.row_check import RowCheck

CHECK_FACTOR = 8
"""The first call of a kind is checked, then the one that is this many times later, and so on."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Between whom, and in how many micro-batches each, the calls of a trial's models are divided."""

    group: RankGroup
    micro_batches: int = 1

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise StudyError(
                f"micro_batches is {self.micro_batches}; give 1 for whole batches, or how many parts to cut"
            )

    def share(self, model: nn.Module) -> None:
        """Give every rank the weights of rank 0, and have them compute the calls of this model together."""
        self.group.broadcast([tensor for tensor in (*model.parameters(), *model.buffers()) if not is_lazy(tensor)])
        caller = stand_in_of(model)
        if isinstance(model, torch.jit.ScriptModule) or not isinstance(caller, _SharedCall | None):
            self.group.note(f"every rank computes all of {type(model).__name__}'s batches: it is compiled")
        else:
            set_stand_in(model, _SharedCall(model, self.group, self.micro_batches))


class _SharedCall:
    """Stands in for a model's call."""

    def __init__(self, model: nn.Module, group: RankGroup, num_micro: int) -> None:
        self._model = weakref.ref(model)
        self._group = group
        self._num_micro = num_micro
        self._exchange = Exchange(group)
        self._layouts: dict[Hashable, Layout | None] = {}

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become None in copies: what is done here is for one model."""
        return type(None), ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = self._model()
        assert model is not None  # it is the one that calls
        call = None if is_transforming() or self._group.is_dividing else open_call(model, args, kwargs)
        if call is None or not call.can_divide(len(self._group) * self._num_micro):
            return call_module(model, *args, **kwargs)
        if call.has_hooks:
            self._note("hooks look into it")
            return call.run()
        layout = self._find_layout(call)
        if layout is not None:
            before = Snapshot(call.model)
            try:
                return self._divide(call, layout)
            except CannotDivideError as reason:
                self._note(f"for some batches {reason}")
                before.restore()
        return call.run()

    def _find_layout(self, call: Call) -> Layout | None:
        """Return how calls of this kind are divided, having checked that when it is due; None for not at all."""
        layout = self._layouts.get(call.kind)
        if call.kind in self._layouts and layout is None:
            return None
        num_calls = 0 if layout is None else layout.num_calls
        if _is_due(num_calls):
            checked, reason = RowCheck(call, self._exchange, self._num_micro).learn()
            if checked is None and layout is not None:
                raise TrialError(
                    f"{type(call.model).__name__} was computed by rows for {num_calls} calls, which is right no longer "
                    f"({reason}); train it on one device"
                )
            if checked is None:
                self._note(reason)
            self._layouts[call.kind] = layout = checked
        if layout is not None:
            layout.num_calls = num_calls + 1
        return layout

    def _divide(self, call: Call, layout: Layout) -> Any:
        run = DividedRun(call, self._group, self._num_micro, layout)
        leaves, spec, tensors = run.compute_together(self._exchange)
        if run.has_normed and self._num_micro > 1:
            self._group.note(
                f"BatchNorm in {type(call.model).__name__} takes its statistics of each of {self._num_micro} "
                "micro-batches, not of the whole batch"
            )
        if torch.is_grad_enabled() and (call.params or call.inputs):
            tensors = list(_Divided.apply(run, tensors, *call.inputs, *call.params))  # type: ignore[no-untyped-call]
        whole = iter(tensors)
        return tree_unflatten([next(whole) if isinstance(leaf, Tensor) else leaf for leaf in leaves], spec)

    def _note(self, reason: str) -> None:
        model = self._model()
        self._group.note(f"every rank computes all of {type(model).__name__}'s batches: {reason}")


class _Divided(torch.autograd.Function):
    """The whole answer, and the gradients that follow from it."""

    @staticmethod
    def forward(ctx: Any, run: DividedRun, whole: Sequence[Tensor], *_: Tensor) -> tuple[Tensor, ...]:
        ctx.run = run
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(whole[place] for place in run.fixed))
        return tuple(whole)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        return None, None, *ctx.run.differentiate(gradients)


def _is_due(num_calls: int) -> bool:
    """Tell whether the call after this many is the first or a power of the factor."""
    while num_calls > 0 and (num_calls + 1) % CHECK_FACTOR == 0:
        num_calls = (num_calls + 1) // CHECK_FACTOR - 1
    return num_calls == 0
