"""What tensor operations say about sizes beyond comparing them: what is looked up stays, what is split has parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from torch import SymInt, Tensor

from headwater.scale.layouts import Layout
from headwater.scale.polynomials import constant

if TYPE_CHECKING:
    from headwater.scale.symbols import Symbols

Note = Callable[["Symbols", Sequence[Any], Any], None]


def notes_of(operation: str) -> Note | None:
    """What to note after an operation, given its name as in `aten::cat`."""
    return _note_attended if operation.startswith("aten::_scaled_dot_product") else _NOTES.get(operation)


def answer_of(operation: str) -> Callable[[Sequence[Any]], Tensor | None] | None:
    """What to answer in the place of an operation that takes no symbols, given its name."""
    return _pad if operation == "aten::constant_pad_nd" else None


def _pad(args: Sequence[Any]) -> Tensor | None:
    tensor: Tensor
    tensor, amounts = args[:2]
    if not any(isinstance(amount, SymInt) for amount in amounts):
        return None
    sizes = list(tensor.shape)
    for place, amount in enumerate(amounts):
        sizes[-1 - place // 2] += amount
    return tensor.new_empty(sizes)


def _note_rows_looked_up(symbols: Symbols, args: Sequence[Any], result: Any) -> None:
    symbols.pin(symbols.polynomial(args[0].shape[0]), "rows are looked up")


def _note_indexed(symbols: Symbols, args: Sequence[Any], result: Any) -> None:
    dim = 0
    for index in args[1]:
        if index is not None:
            symbols.pin(symbols.polynomial(args[0].shape[dim]), "entries are looked up")
        dim += 1 if index is None or index.dtype.is_floating_point or "bool" not in str(index.dtype) else index.dim()


def _note_dim_looked_up(symbols: Symbols, args: Sequence[Any], result: Any) -> None:
    symbols.pin(symbols.polynomial(args[0].shape[args[1]]), "entries are looked up")


def _note_selected(symbols: Symbols, args: Sequence[Any], result: Any) -> None:
    if not isinstance(args[2], SymInt) and args[2] not in (0, -1):
        symbols.pin(symbols.polynomial(args[0].shape[args[1]]), f"entry {args[2]} is taken")


def _note_sliced(symbols: Symbols, args: Sequence[Any], result: Any) -> None:
    tensor, dim, start, end = (*args, *(None,) * 4)[:4]
    size = tensor.shape[dim or 0]
    for bound in (start, end):
        if type(bound) is int and bound != 0 and abs(bound) < int(_present(size)):
            symbols.pin(symbols.polynomial(size), f"a slice ends or begins at {bound}")


def _note_split(symbols: Symbols, args: Sequence[Any], result: Any) -> None:
    tensor, sizes, dim = (*args, 0)[:3]
    whole = symbols.polynomial(tensor.shape[dim])
    if type(sizes) is int and not whole.is_constant:
        symbols.pin(whole, f"is split every {sizes}")
    elif isinstance(sizes, SymInt):
        parts = constant(len(result)) * symbols.polynomial(sizes)
        symbols.require(whole - parts - constant((whole - parts).at(symbols.values)))
    symbols.layouts.append((whole, Layout(tuple((symbols.polynomial(part.shape[dim]),) for part in result))))


def _note_unbound(symbols: Symbols, args: Sequence[Any], result: Any) -> None:
    symbols.pin(symbols.polynomial(args[0].shape[(*args, 0)[1]]), "is taken apart one by one")


def _note_joined(symbols: Symbols, args: Sequence[Any], result: Tensor) -> None:
    dim = (*args, 0)[1]
    tensors = [tensor for tensor in args[0] if tensor.dim() == result.dim()]
    parts = tuple((symbols.polynomial(tensor.shape[dim]),) for tensor in tensors)
    symbols.layouts.append((symbols.polynomial(result.shape[dim]), Layout(parts)))


def _note_attended(symbols: Symbols, args: Sequence[Any], result: Any) -> None:
    """Attention does not compare its inputs: heads of keys and values are equal, those of queries a multiple."""
    queries, keys, values = args[:3]
    heads, fewer, also = (symbols.polynomial(tensor.shape[-3]) for tensor in (queries, keys, values))
    symbols.require(fewer - also)
    symbols.require(symbols.polynomial(queries.shape[-1]) - symbols.polynomial(keys.shape[-1]))
    symbols.require(heads - fewer * symbols.quotient_of(heads, fewer))


def _note_padded(symbols: Symbols, args: Sequence[Any], result: Any) -> None:
    for place, amount in enumerate(args[1]):
        if type(amount) is int and amount != 0:
            symbols.pin(symbols.polynomial(args[0].shape[-1 - place // 2]), f"{amount} entries are added")


def _note_viewed(symbols: Symbols, args: Sequence[Any], result: Tensor) -> None:
    """Match runs of old dimensions with runs of new ones of the same size."""
    old, new = list(args[0].shape), list(result.shape)
    while old and new:
        before, after = [old.pop(0)], [new.pop(0)]
        while old and new and _size(before) != _size(after):
            if _size(before) < _size(after):
                before.append(old.pop(0))
            else:
                after.append(new.pop(0))
        if _size(before) == _size(after) and (len(before) == 1) != (len(after) == 1):
            whole, factors = (before, after) if len(before) == 1 else (after, before)
            part = tuple(symbols.polynomial(size) for size in factors)
            symbols.layouts.append((symbols.polynomial(whole[0]), Layout((part,))))


def _size(sizes: Sequence[int]) -> int:
    return prod(_present(size) for size in sizes)


def _present(size: int | SymInt) -> int:
    return int(size.node.hint) if isinstance(size, SymInt) else size


_NOTES: Mapping[str, Note] = {
    "aten::embedding": _note_rows_looked_up,
    "aten::_embedding_bag": _note_rows_looked_up,
    "aten::index": _note_indexed,
    "aten::index_put": _note_indexed,
    "aten::index_put_": _note_indexed,
    "aten::gather": _note_dim_looked_up,
    "aten::scatter": _note_dim_looked_up,
    "aten::scatter_add": _note_dim_looked_up,
    "aten::index_select": _note_dim_looked_up,
    "aten::select": _note_selected,
    "aten::slice": _note_sliced,
    "aten::split": _note_split,
    "aten::split_with_sizes": _note_split,
    "aten::unbind": _note_unbound,
    "aten::cat": _note_joined,
    "aten::constant_pad_nd": _note_padded,
    "aten::view": _note_viewed,
    "aten::_unsafe_view": _note_viewed,
    "aten::reshape": _note_viewed,
}
