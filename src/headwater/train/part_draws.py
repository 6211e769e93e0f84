"""Random numbers for a part of a batch: those that its rows have when the whole batch is computed.

A model that computes some rows draws for all of them and takes its own, so that dropout masks and noise are those of
one process. Which dimension of a draw counts the rows is learnt from a run of the whole batch: there it is larger. This
works below autograd, where every draw passes as an operator with a tag, whoever asks for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from headwater.errors import CannotDivideError
from headwater.torch_private import TorchDispatchMode, saves_elsewhere, schema_of
from headwater.train.ranks import Part

aten = torch.ops.aten
_FACTORIES = frozenset({aten.rand, aten.randn, aten.randint})
_LIKE = frozenset({aten.rand_like, aten.randn_like, aten.randint_like})
_FILLING = frozenset(
    {aten.bernoulli_, aten.uniform_, aten.normal_, aten.random_, aten.exponential_, aten.log_normal_, aten.geometric_,
     aten.cauchy_}
)  # fmt: skip

Agree: TypeAlias = Callable[[float], bool]
"""Tells whether all parts have read this value."""


class WholeDraws(TorchDispatchMode):
    """Writes down what shapes are drawn while the whole batch is computed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes: list[tuple[Any, tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _draws(func, args, kwargs or {}):
            self.shapes.append((func, _shape_of(args)))
        return func(*args, **(kwargs or {}))


class RowDims:
    """Which dimension of each draw counts rows; None for a draw that is the same for all rows."""

    def __init__(self) -> None:
        self.draws_again = False
        """Whether something is computed a second time in the backward pass, by a checkpoint."""
        self._in_order: list[tuple[Any, int | None]] = []
        self._by_kind: defaultdict[Any, set[int | None]] = defaultdict(set)

    def learn(self, kind: Any, dim: int | None) -> None:
        """Note the next draw."""
        self._in_order.append((kind, dim))
        self._by_kind[kind].add(dim)

    def find(self, place: int | None, kind: Any) -> int | None:
        """Return the dimension of a draw by its kind, or by its place in the order where that does not tell."""
        dims = self._by_kind.get(kind, set())
        if len(dims) == 1:
            return next(iter(dims))
        if place is not None and place < len(self._in_order) and self._in_order[place][0] == kind:
            return self._in_order[place][1]
        raise CannotDivideError(f"it draws random numbers ({kind[0]}) in another order than it did at first")


class PartDraws(TorchDispatchMode):
    """Lets a part draw what its rows have in the whole, and compares what Python code reads with other parts."""

    def __init__(self, part: Part, dims: RowDims, agree: Agree, whole: WholeDraws | None = None) -> None:
        """Learn the dimensions from a run of the whole batch, if one is given."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._part = part
        self._dims = dims
        self._agree = agree
        self._whole = whole
        self._num_draws: int | None = 0
        self._plain: dict[Any, bool] = {}

    def start_again(self) -> None:
        """Expect draws in any order from now on: a backward pass computes some of them a second time."""
        self._num_draws = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._plain.get(func):
            return func(*args, **kwargs)
        if _draws(func, args, kwargs):
            return self._draw(func, args, kwargs)
        answer = func(*args, **kwargs)
        if isinstance(answer, bool | int | float):
            self._read(answer)
        else:
            self._plain[func] = torch.Tag.nondeterministic_seeded not in func.tags
        return answer

    def _read(self, value: float) -> None:
        if not self._agree(value):
            raise CannotDivideError("it reads a value from its batch that differs between parts of it")

    def _draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        shape = _shape_of(args)
        dim = self._find_dim(func, shape)
        if torch.is_grad_enabled() and saves_elsewhere():
            self._dims.draws_again = True
        if dim is None:
            return func(*args, **kwargs)
        num_each, rest = divmod(shape[dim], len(self._part))
        if rest:
            raise CannotDivideError(f"it draws random numbers of shape {shape} for {len(self._part)} rows")
        start, size, total = (num_each * count for count in (self._part.start, len(self._part), self._part.total))
        return _draw_rows(func, args, kwargs, _Cut(dim, start, size, total))

    def _find_dim(self, func: Any, shape: tuple[int, ...]) -> int | None:
        kind, place = (func, len(shape)), self._num_draws
        if self._num_draws is not None:
            self._num_draws += 1
        if self._whole is None or place is None:
            return self._dims.find(place, kind)
        if place >= len(self._whole.shapes) or self._whole.shapes[place][0] is not func:
            raise CannotDivideError("it draws other random numbers for a part of a batch than for the whole")
        dim = find_row_dim(self._whole.shapes[place][1], shape, self._part)
        self._dims.learn(kind, dim)
        return dim


def _draws(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a call takes from the main stream of random numbers; attention does only to drop something."""
    if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
        return False
    names = [argument.name for argument in schema_of(func).arguments]
    if "dropout_p" not in names:
        return True
    place = names.index("dropout_p")
    return bool(kwargs.get("dropout_p", args[place] if place < len(args) else 0.0))


def find_row_dim(whole: Sequence[int], own: Sequence[int], part: Part) -> int | None:
    """Return the one dimension in which a part is smaller than the whole by its share of rows; None for equal shapes.

    Raises:
        CannotDivideError: The shapes differ in another way.
    """
    if tuple(whole) == tuple(own):
        return None
    pairs = list(zip(whole, own, strict=False))
    unlike = [dim for dim, (all_rows, rows) in enumerate(pairs) if all_rows != rows]
    if (
        len(whole) != len(own)
        or len(unlike) != 1
        or pairs[unlike[0]][0] * len(part) != pairs[unlike[0]][1] * part.total
    ):
        raise CannotDivideError(
            f"a batch of {part.total} rows gives a tensor of shape {tuple(whole)} and {len(part)} of them one of shape "
            f"{tuple(own)}, which is not its part"
        )
    return unlike[0]


class _Cut:
    """Which stretch of which dimension of a draw is wanted, and how long that dimension is in the whole."""

    def __init__(self, dim: int, start: int, size: int, total: int) -> None:
        self._dim, self._start, self._size, self.total = dim, start, size, total

    def enlarge(self, shape: Sequence[int]) -> list[int]:
        return [self.total if dim == self._dim else size for dim, size in enumerate(shape)]

    def take(self, whole: Tensor) -> Tensor:
        return whole.narrow(self._dim, self._start, self._size)

    def whole_like(self, own: Tensor) -> Tensor:
        """Make an empty tensor for the whole whose memory is laid out as that of a part."""
        strides = own.stride()
        order = sorted(range(own.dim()), key=lambda dim: (-strides[dim], dim))
        sizes = self.enlarge(own.shape)
        empty = own.new_empty([sizes[dim] for dim in order])
        return empty.permute([order.index(dim) for dim in range(own.dim())])


def _draw_rows(func: Any, args: Any, kwargs: Any, cut: _Cut) -> Any:
    """Draw for all rows, and return those of the cut."""
    packet = func.overloadpacket
    if packet in _FACTORIES:
        place = _find_sizes(args)
        sizes = cut.enlarge(args[place])
        return cut.take(func(*args[:place], sizes, *args[place + 1 :], **kwargs)).clone()
    own, *rest = args
    if any(isinstance(value, Tensor) for value in rest):
        raise CannotDivideError(f"it draws random numbers by {func}, for which there is no rule")
    whole = cut.whole_like(own)
    if packet in _FILLING:
        return own.copy_(cut.take(func(whole, *rest, **kwargs)))
    if packet in _LIKE:
        return cut.take(func(whole, *rest, **kwargs)).clone()
    if packet is aten.bernoulli and not rest:
        cut.take(whole.fill_(0.5)).copy_(own)  # every element costs one number, whatever its probability
        return cut.take(func(whole, **kwargs)).clone()
    if packet is aten.native_dropout:
        scale, mask = func(whole.fill_(1), *rest, **kwargs)
        return own * cut.take(scale), cut.take(mask).clone()
    raise CannotDivideError(f"it draws random numbers by {func}, for which there is no rule")


def _shape_of(args: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape that is drawn: that of the first tensor, or what a factory is asked for."""
    for value in args:
        if isinstance(value, Tensor):
            return tuple(value.shape)
    place = _find_sizes(args)
    return tuple(args[place]) if place < len(args) else tuple(args)


def _find_sizes(args: Sequence[Any]) -> int:
    return next((place for place, value in enumerate(args) if isinstance(value, list | tuple)), len(args))
