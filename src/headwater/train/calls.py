"""A call of a model, and how it is cut by rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import CannotDivideError, TrialError
from headwater.torch_private import (
    TreeSpec,
    call_module,
    gradient_hooks_of,
    has_call_hooks,
    tree_flatten,
    tree_unflatten,
)
from headwater.train.ranks import Part

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True, slots=True)
class Call:
    """What a model is called with; tensors whose first dimension is that of the first one hold a row per example."""

    model: nn.Module
    leaves: Sequence[Any]
    spec: TreeSpec
    num_rows: int
    params: Sequence[nn.Parameter] = field(default_factory=list)
    """The parameters that learn."""
    kind: Hashable = None
    """The same for calls that can be divided in the same way."""
    has_hooks: bool = False
    """Whether somebody looks into the model while it computes, or at gradients before they are summed."""

    def run(self) -> Any:
        """Compute all rows."""
        args, kwargs = tree_unflatten(self.leaves, self.spec)
        return call_module(self.model, *args, **kwargs)

    def can_divide(self, num_parts: int) -> bool:
        """Tell whether each part has two rows at least: code may treat one differently, as `squeeze` does."""
        return self.num_rows >= 2 * num_parts

    def has_rows(self, leaf: Any) -> bool:
        """Tell whether a leaf is cut."""
        return isinstance(leaf, Tensor) and leaf.dim() > 0 and leaf.shape[0] == self.num_rows

    @property
    def inputs(self) -> list[Tensor]:
        """The arguments that gradients are wanted for."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor) and leaf.requires_grad]

    def cut(self, part: Part) -> PartOfCall:
        """Take some rows, with a graph of their own."""
        leaves = [self._cut_leaf(leaf, part) for leaf in self.leaves]
        inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
        return PartOfCall(self, leaves, inputs)

    def _cut_leaf(self, leaf: Any, part: Part) -> Any:
        if not isinstance(leaf, Tensor) or not (leaf.requires_grad or self.has_rows(leaf)):
            return leaf
        rows = leaf.detach()[part.start : part.stop] if self.has_rows(leaf) else leaf.detach()
        return rows.requires_grad_(leaf.requires_grad)


@dataclass(frozen=True, slots=True)
class PartOfCall:
    """A call with some of its rows."""

    call: Call
    leaves: Sequence[Any]
    inputs: Sequence[Tensor]

    def run(self) -> tuple[list[Any], TreeSpec]:
        """Compute them; return the leaves of the answer, and how they belong together."""
        args, kwargs = tree_unflatten(self.leaves, self.call.spec)
        return flatten_answer(call_module(self.call.model, *args, **kwargs))

    def strays(self, answer: Sequence[Any]) -> Iterator[Tensor]:
        """Yield what else would get gradients by this answer, besides parameters and arguments."""
        known = {id(tensor) for tensor in (*self.call.params, *self.inputs)}
        waiting = [leaf.grad_fn for leaf in answer if isinstance(leaf, Tensor)]
        seen = set()
        while waiting:
            node: Any = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if hasattr(node, "variable") and id(node.variable) not in known:
                yield node.variable
            waiting.extend(following for following, _ in node.next_functions)


def open_call(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call | None:
    """Look at a call; None where nothing in it has rows."""
    leaves, spec = tree_flatten((tuple(args), dict(kwargs)))
    first = next((leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() > 0), None)
    if first is None:
        return None
    modules = list(model.modules())
    params = [param for param in model.parameters() if param.requires_grad]
    has_hooks = any(map(has_call_hooks, modules)) or any(map(gradient_hooks_of, params))
    num_rows = first.shape[0]
    num_training = sum(module.training for module in modules)
    kind = (num_training, torch.is_grad_enabled(), spec, tuple(_describe(leaf, num_rows) for leaf in leaves))
    return Call(model, leaves, spec, num_rows, params, kind, has_hooks)


def flatten_answer(answer: Any) -> tuple[list[Any], TreeSpec]:
    """Return the tensors and plain values of an answer, and how they belong together; others are withheld.

    Raises:
        CannotDivideError: There is no tensor to be found.
    """
    leaves, spec = tree_flatten(answer)
    if not any(isinstance(leaf, Tensor) for leaf in leaves):
        raise CannotDivideError(f"it returns a {type(answer).__name__}, in which no tensors can be found")
    return [leaf if isinstance(leaf, (Tensor, *_PLAIN)) else Withheld(type(leaf).__name__) for leaf in leaves], spec


class Withheld:
    """Takes the place of an object that was returned for a part of a batch, and must not be taken for the whole."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        raise TrialError(
            f"a model returns a {self._kind} beside its tensors, which holds some rows of the batch only; do without "
            "it (language models take use_cache=False), or train on one device"
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)  # raises

    def __getitem__(self, key: Any) -> Any:
        return self.rows[key]  # raises

    def __len__(self) -> int:
        return len(self.rows)  # raises

    def __bool__(self) -> bool:
        return bool(self.rows)  # raises


def _describe(leaf: Any, num_rows: int) -> Hashable:
    if not isinstance(leaf, Tensor):
        return type(leaf).__name__
    return leaf.dtype, leaf.dim(), leaf.requires_grad, leaf.dim() > 0 and leaf.shape[0] == num_rows
