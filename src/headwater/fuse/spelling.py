"""The text of the user's own objects: Python itself would take no text that differs by lane from their `__str__`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any

from headwater.fuse.users_code import is_library, is_users_module
from headwater.trials.functions import fill_in, join_pieces

_SPELLERS = frozenset({str, format, repr, ascii})


def spell_arguments(function: Any, args: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments of a function that makes text, with the text of objects in their place."""
    if not args:
        return args
    if function is join_pieces:
        return [_spell_piece(piece) for piece in args]
    if function in _SPELLERS and len(args) == 1:
        return [spell(args[0], is_exact=function not in (str, format))]
    return args


def spell(value: Any, *, is_exact: bool = False) -> Any:
    """Return what an object of the user's own says of itself, for all lanes; anything else as it is."""
    method = _find_method(_kind(value), is_exact)
    return value if method is None else method(value)


def reads_objects(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a function that fills values into a text may ask objects of the user's own for parts of them."""
    if function is fill_in:
        return _has_objects(args[1] if type(args[1]) is tuple else args[1:])
    is_format = type(getattr(function, "__self__", None)) is str and function.__name__ in ("format", "format_map")
    return is_format and (_has_objects(args) or _has_objects(kwargs.values()))


def _has_objects(values: Iterable[Any]) -> bool:
    return any(is_users_module(type(value).__module__) for value in values)


def _spell_piece(piece: Any) -> Any:
    if type(piece) is not tuple:
        return piece
    value, conversion, spec = piece
    method = _find_method(_kind(value), conversion in (ord("r"), ord("a")))
    return piece if method is None or (conversion == -1 and spec) else (method(value), -1, spec)


def _kind(value: Any) -> Any:
    return type(value)


@cache
def _find_method(kind: Hashable, is_exact: bool) -> FunctionType | None:
    """Return the method of the user's own that writes an object, if there is one."""
    if not is_users_module(kind.__module__):
        return None
    methods = [getattr(kind, name) for name in ("__repr__", "__str__", "__format__")]
    method = methods[0] if is_exact or methods[1] is vars(object)["__str__"] else methods[1]
    is_own = isinstance(method, FunctionType) and not is_library(method.__code__.co_filename)
    return method if is_own and methods[2] is vars(object)["__format__"] else None
