"""The functions that a recipe may name: a closed table, so that what was loaded can compute and do nothing else.

None of them writes anywhere, reads anything but its arguments or calls what it is given, save for the keywords in
`CALLED`, which recipes only ever give functions of this table.
"""

from __future__ import annotations

import builtins
import cmath
import json
import math
import operator
import os.path
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import BuiltinFunctionType, NoneType
from typing import Any, TypeAlias

from headwater.space.configuration import freeze

Function: TypeAlias = Callable[..., Any]  # Any: it computes with whatever configurations hold

NUMPY = "numpy."
"""What names of NumPy's functions begin with; these are looked up when they are needed."""


def find_function(name: str) -> Function:
    """Return the function of this name.

    Raises:
        KeyError: The table has none.
    """
    return (_numpy_functions() if name.startswith(NUMPY) else FUNCTIONS)[name]


def find_name(function: object) -> str | None:
    """Return the name of a function in the table, if it has one."""
    try:
        return _names().get(function) or ("numpy" in sys.modules and _numpy_names().get(function)) or None
    except TypeError:  # it has no hash, so it is nothing of ours
        return None


def unbind(function: Function) -> tuple[Function, tuple[Any, ...]]:
    """Return a method of a text or a number as a function, and what it is called with first."""
    owner = getattr(function, "__self__", None)
    if type(function) is BuiltinFunctionType and type(owner) in _IMMUTABLE:
        return getattr(type(owner), function.__name__), (owner,)
    return function, ()


def allows(name: str, keyword: str) -> bool:
    """Tell whether a function may be given this keyword; what is called or written to has others."""
    return keyword in _KEYWORDS or name == "str.format"


def read_section(value: Any) -> Any:
    """Return a part of a configuration as the training function gets it."""
    return freeze(value) if isinstance(value, dict) else value


def name_type(value: Any) -> str:
    """Return the name of a value's type."""
    return type(value).__name__


def make_list(*items: Any) -> list[Any]:
    """Return a list of these."""
    return [*items]


def make_tuple(*items: Any) -> tuple[Any, ...]:
    """Return a tuple of these."""
    return items


def make_dict(keys: Iterable[Any], *values: Any) -> dict[Any, Any]:
    """Return a dictionary of these."""
    return dict(zip(keys, values, strict=True))


def join_pieces(*pieces: Any) -> str:
    """Write an f-string: its words, and its values with their conversion and format."""
    return "".join([_write(piece) for piece in pieces])


def _write(piece: Any) -> str:
    if isinstance(piece, str):
        return piece
    value, conversion, spec = piece
    convert = _CONVERSIONS.get(conversion)
    return format(value if convert is None else convert(value), spec)


_CONVERSIONS: Mapping[int, Function] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}


def fill_in(a: Any, b: Any) -> Any:
    """Fill values into a text."""
    return a % b


def _type_of(value: Any) -> Any:
    """Return the type of a value; `type` itself would also make new ones."""
    return type(value)


def _list_functions() -> Iterator[tuple[str, Function]]:
    for home, names in _NAMES.items():
        yield from ((f"{home.__name__}.{name}", getattr(home, name)) for name in names)
    yield from ((f"os.path.{name}", getattr(os.path, name)) for name in _PATHS)
    yield from ((name, getattr(builtins, name)) for name in _BUILTINS)
    for kind in _IMMUTABLE:
        yield from ((f"{kind.__name__}.{name}", getattr(kind, name)) for name in dir(kind) if _is_method(kind, name))
    yield from ((function.__name__, function) for function in _OURS)
    yield from (("type", _type_of), ("NoneType", NoneType))


def _is_method(kind: type, name: str) -> bool:
    return not name.startswith("_") and callable(getattr(kind, name))


@cache
def _names() -> Mapping[object, str]:
    names: dict[object, str] = {function: name for name, function in reversed([*FUNCTIONS.items()])}
    return names | {type: "type"}


@cache
def _numpy_functions() -> Mapping[str, Function]:
    import numpy as np

    def is_known(name: str, value: object) -> bool:
        is_number = isinstance(value, type) and issubclass(value, np.number | np.bool_)
        return isinstance(value, np.ufunc) or is_number or name in _NUMPY

    return {f"{NUMPY}{name}": value for name, value in sorted(vars(np).items()) if is_known(name, value)}


@cache
def _numpy_names() -> Mapping[object, str]:
    return {function: name for name, function in _numpy_functions().items()}


_IMMUTABLE = (str, bytes, int, float, complex, bool)
_NAMES: Mapping[Any, Iterable[str]] = {
    operator: (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift", "eq", "ne",
        "lt", "le", "gt", "ge", "neg", "pos", "invert", "abs", "is_", "is_not", "getitem", "contains",
    ),
    math: [name for name in dir(math) if callable(getattr(math, name)) and not name.startswith("_")],
    cmath: [name for name in dir(cmath) if callable(getattr(cmath, name)) and not name.startswith("_")],
    statistics: (
        "mean", "fmean", "geometric_mean", "harmonic_mean", "median", "median_low", "median_high", "mode", "multimode",
        "pstdev", "pvariance", "stdev", "variance",
    ),
    re: ("match", "search", "fullmatch", "findall", "split", "sub", "escape"),
    textwrap: ("dedent", "fill", "shorten", "wrap"),
    json: ("dumps", "loads"),
}  # fmt: skip
_PATHS = ("basename", "dirname", "join", "normpath", "split", "splitext")
_BUILTINS = (
    "abs", "all", "any", "ascii", "bin", "bool", "callable", "chr", "complex", "dict", "divmod", "float", "format",
    "frozenset", "hasattr", "hex", "int", "isinstance", "issubclass", "len", "list", "max", "min", "oct", "ord", "pow",
    "repr", "round", "set", "sorted", "str", "sum", "tuple",
)  # fmt: skip
_OURS = (read_section, name_type, make_list, make_tuple, make_dict, join_pieces, fill_in)
_KEYWORDS = frozenset({
    "abs_tol", "axis", "base", "ddof", "default", "dtype", "encoding", "indent", "keepdims", "key", "maxsplit",
    "ndigits", "rel_tol", "reverse", "sep", "sort_keys", "start", "width",
})  # fmt: skip
CALLED = frozenset({"key", "default"})
"""Keywords of `max`, `min`, `sorted` and `json.dumps` whose values are called."""
_NUMPY = frozenset({
    "all", "any", "allclose", "amax", "amin", "arange", "argmax", "argmin", "array", "array_equal", "asarray",
    "average", "clip", "concatenate", "cumsum", "dot", "interp", "isclose", "linspace", "max", "mean", "median", "min",
    "ndim", "ones", "percentile", "prod", "quantile", "round", "shape", "size", "sort", "stack", "std", "sum", "var",
    "where", "zeros",
})  # fmt: skip

FUNCTIONS: Mapping[str, Function] = dict(_list_functions())
"""All but NumPy's, by name."""
