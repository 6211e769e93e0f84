"""Attention whose heads are smaller in a surrogate than in its target.

A target multiplies the products of queries and keys by a factor, mostly 1/√D for heads of D numbers. What queries and
keys learn to agree in grows with D, so a surrogate with heads of d numbers needs that factor times D/d: the 1/d rule,
counted from the target. Nothing is needed where heads keep their size, or where torch is not what computes attention
and so no factor can be given: then the surrogate is refused.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwater.errors import CannotScaleError

_PRODUCTS = frozenset({"matmul", "bmm", "baddbmm", "einsum", "__matmul__"})
_SCALE_PLACE = 6
"""Where the factor stands among the arguments of `scaled_dot_product_attention`."""
_NO_OPTIONS: Mapping[str, Any] = {}


@dataclass(slots=True)
class Heads:
    """What a model attends with in one forward."""

    calls: list[tuple[int, float]] = field(default_factory=list)
    """The size of heads and the factor of their products, for each time that torch computes attention."""
    lengths: list[int] = field(default_factory=list)
    """Over how many numbers each product sums that the model itself gives to a softmax."""


class HeadWatch(TorchFunctionMode):
    """Notes what a model attends with."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads()
        self._products: list[tuple[torch.Size, int]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Look at a call, and make it."""
        kwargs = kwargs or _NO_OPTIONS
        name = getattr(func, "__name__", "")
        if func in (F.scaled_dot_product_attention, F.multi_head_attention_forward):
            self.heads.calls.append(_read_call(func, args, kwargs))
        elif name == "softmax" and args:
            self.heads.lengths += [length for shape, length in self._products if shape == args[0].shape]
        answer = func(*args, **kwargs)
        if name in _PRODUCTS and isinstance(answer, Tensor):
            self._products.append((answer.shape, _length_of(name, args)))
        return answer


def find_factors(whole: Heads, small: Heads) -> dict[int, float]:
    """Return by what the products of a surrogate's heads are to be multiplied, by the size of these; none to change.

    Raises:
        CannotScaleError: Heads are smaller where no factor can be given, or two kinds of heads cannot be told apart.
    """
    for length, shorter in zip(whole.lengths, small.lengths, strict=False):
        if shorter < length:
            raise CannotScaleError(
                f"attention that the model computes itself sums over {length} numbers, and over {shorter} in the "
                "surrogate, whose products would need another factor; use F.scaled_dot_product_attention or "
                "nn.MultiheadAttention, which Headwater can give one, more and smaller heads (their number shrinks "
                "first), a smaller scale, or tune the model itself with surrogate=None"
            )
    pairs = list(zip(whole.calls, small.calls, strict=False))
    if all(size == smaller for (size, _), (smaller, _) in pairs):
        return {}
    factors: dict[int, float] = {}
    for (size, factor), (smaller, _) in pairs:
        wanted = factor * size / smaller
        if not math.isclose(factors.setdefault(smaller, wanted), wanted):
            raise CannotScaleError(
                f"heads of different sizes would all have {smaller} numbers in the surrogate, so that their products "
                "cannot be given factors of their own; ask for a smaller scale, or tune with surrogate=None"
            )
    return factors


class FactorGiver:
    """Gives the attention of surrogates its factors."""

    def __init__(self, factors: Mapping[int, float]) -> None:
        self._factors = factors
        self._kinds: dict[type[nn.Module], type[nn.Module]] = {}

    def give(self, model: nn.Module) -> None:
        """Have a surrogate attend with the factors whenever it runs."""
        if self._factors:
            kind = type(model)
            if kind not in self._kinds:
                self._kinds[kind] = _attending(kind, self._factors)
            model.__class__ = self._kinds[kind]


def _attending(kind: type[nn.Module], factors: Mapping[int, float]) -> type[nn.Module]:
    """A class like this one, whose forward gives factors."""

    @functools.wraps(kind.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _Attention(factors):
            return kind.forward(self, *args, **kwargs)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__, "__doc__": kind.__doc__})


class _Attention(TorchFunctionMode):
    """Gives torch's attention the factor that goes with the size of the heads."""

    def __init__(self, factors: Mapping[int, float]) -> None:
        super().__init__()
        self._factors = factors

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Make a call, with the factor where it attends."""
        kwargs = kwargs or _NO_OPTIONS
        if func in (F.scaled_dot_product_attention, F.multi_head_attention_forward):
            size, factor = _read_call(func, args, kwargs)
            wanted = self._factors.get(size, factor)
            if func is F.scaled_dot_product_attention:
                return func(*args[:_SCALE_PLACE], **{**kwargs, "scale": wanted})
            args, kwargs = _with_queries(args, kwargs, wanted / factor)
        return func(*args, **kwargs)


def _read_call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, float]:
    """The size of heads, and what their products are multiplied by."""
    if func is F.multi_head_attention_forward:
        size = int(args[3]) // int(args[4])
        return size, size**-0.5
    query = args[0] if args else kwargs["query"]
    given = args[_SCALE_PLACE] if len(args) > _SCALE_PLACE else kwargs.get("scale")
    size = int(query.shape[-1])
    return size, size**-0.5 if given is None else float(given)


def _with_queries(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], ratio: float
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `multi_head_attention_forward` with the weights that make queries multiplied."""
    width, weight, bias = int(args[3]), args[5], args[6]
    options = dict(kwargs)
    if options.get("use_separate_proj_weight"):
        options["q_proj_weight"] = options["q_proj_weight"] * ratio
    else:
        weight = torch.cat([weight[:width] * ratio, weight[width:]])
    if bias is not None:
        bias = torch.cat([bias[:width] * ratio, bias[width:]])
    return (*args[:5], weight, bias, *args[7:]), options


def _length_of(name: str, args: Sequence[Any]) -> int:
    """Over how many numbers a product sums."""
    if name == "einsum":
        return math.prod(_summed(args[0], args[1:]))
    return int(args[1 if name == "baddbmm" else 0].shape[-1])


def _summed(equation: Any, operands: Sequence[Any]) -> Iterator[int]:
    """The sizes that an einsum sums over."""
    if not isinstance(equation, str) or "->" not in equation:
        return
    inputs, _, output = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for term, operand in zip(inputs.split(","), operands, strict=False):
        before, _, after = term.partition("...")
        sizes |= dict(zip(before, operand.shape, strict=False))
        sizes |= dict(zip(reversed(after), reversed(operand.shape), strict=False))
    yield from (size for letter, size in sizes.items() if letter not in output)
