"""The user's functions, compiled from their source so that what no class can answer for many lanes asks us first.

`a is b`, the text of an f-string and a call of `float` are decided by Python itself, whatever class the values have.
While a group runs, the functions of the user's modules run in a variant in which these go through `tools`: attributes
of one object, which stands as a constant in the code. Lines, names and variables are the same. What has no source is
left as it is.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from threading import Lock
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import torch

from headwater.fuse.syntax import rewrite

_TOOLS = "\0the tools of lanes"
_LIBRARIES = tuple(
    f"{Path(place).resolve()}{os.sep}"
    for place in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(torch.__file__).parent),
        str(Path(__file__).parent.parent),
    )
)

Namespace: TypeAlias = dict[str, Any]  # Any: whatever a module holds
Codes: TypeAlias = dict[tuple[str, int], CodeType]


class Rewrites:
    """Counts for each function how many groups want its variant, and keeps it so as long as there is one."""

    def __init__(self, tools: object) -> None:
        self._tools = tools
        self._lock = Lock()
        self._open: dict[int, tuple[FunctionType, CodeType, int]] = {}

    def open(self, function: Callable[..., Any], *modules: ModuleType) -> list[FunctionType]:
        """Give the function, all that is reachable from it in the user's modules, and that of others their variants."""
        wanted = [*find_functions(function), *(part for module in modules for part in _written_in(module))]
        return [each for each in wanted if self._open_one(each)]

    def _open_one(self, function: FunctionType) -> bool:
        with self._lock:
            _, plain, count = self._open.get(id(function), (function, function.__code__, 0))
            if count == 0:
                variant = _variant(plain, function.__globals__, self._tools)
                if variant is None:
                    return False
                function.__code__ = variant
            self._open[id(function)] = function, plain, count + 1
            return True

    def has(self, function: FunctionType) -> bool:
        """Tell whether a function runs in its variant now."""
        return id(function) in self._open

    def close(self, functions: list[FunctionType]) -> None:
        """Put the plain code back where this was the last group that wanted another."""
        with self._lock:
            for function in functions:
                _, plain, count = self._open.pop(id(function))
                if count > 1:
                    self._open[id(function)] = function, plain, count - 1
                else:
                    function.__code__ = plain


def find_functions(function: Any) -> list[FunctionType]:
    """Return the functions and methods of the user's own modules that can be reached from a function."""
    waiting, spaces, found = [*_functions_in(function)], dict[int, Namespace](), dict[int, FunctionType]()
    while waiting:
        each = waiting.pop()
        if id(each) in found or is_library(each.__code__.co_filename):
            continue
        found[id(each)] = each
        waiting += [part for cell in each.__closure__ or () for part in _functions_in(_content(cell))]
        if id(each.__globals__) not in spaces:
            spaces[id(each.__globals__)] = each.__globals__
            waiting += [part for value in [*each.__globals__.values()] for part in _functions_in(value)]
    return [*found.values()]


@cache
def is_library(filename: str) -> bool:
    """Tell whether a file belongs to Python, to an installed package or to us, not to the user."""
    return filename.startswith("<frozen") or str(Path(filename).resolve()).startswith(_LIBRARIES)


def _written_in(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions whose source is in the module's file, not what decorates them or was imported."""
    for value in [*vars(module).values()]:
        yield from (part for part in _functions_in(value) if part.__code__.co_filename == module.__file__)


def _functions_in(value: Any) -> Iterator[FunctionType]:
    """Yield the functions that a value is made of, as far as they can be the user's."""
    if isinstance(value, FunctionType):
        yield value
        yield from _functions_in(getattr(value, "__wrapped__", None))
    elif isinstance(value, MethodType | staticmethod | classmethod):
        yield from _functions_in(value.__func__)
    elif isinstance(value, partial):
        yield from _functions_in(value.func)
    elif isinstance(value, property):
        yield from (part for part in (value.fget, value.fset) if isinstance(part, FunctionType))
    elif type(value) is ModuleType:
        if is_users_module(value.__name__):
            yield from (part for part in vars(value).values() if isinstance(part, FunctionType))
    else:
        yield from _methods_of(value if isinstance(value, type) else type(value))


def _methods_of(kind: type) -> Iterator[FunctionType]:
    for base in kind.__mro__ if is_users_module(kind.__module__) else ():
        if is_users_module(base.__module__):
            for part in [*vars(base).values()]:
                if isinstance(part, FunctionType | staticmethod | classmethod | property):
                    yield from _functions_in(part)


def is_users_module(name: object) -> bool:
    """Tell whether the module of this name is no library."""
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None:
        return False
    return not is_library(getattr(module, "__file__", None) or ("" if name == "__main__" else "<frozen"))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _variant(code: CodeType, space: Mapping[str, Any], tools: object) -> CodeType | None:
    """Return the variant of a code that was compiled from a file as it is now; None where there is none."""
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename, dict(space)))
    plain, variants = _compile(source, code.co_filename)
    key = code.co_qualname, code.co_firstlineno
    if key not in variants or key not in plain or plain[key] != code:
        return None
    variant = _insert(variants[key], tools)
    return variant if variant.co_freevars == code.co_freevars else None


@cache
def _compile(source: str, filename: str) -> tuple[Codes, Codes]:
    """Compile a file as it is, and with its questions put to the tools."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            plain = compile(tree, filename, "exec", dont_inherit=True)
            variant = compile(rewrite(tree, _TOOLS), filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return {}, {}
    return _codes_in(plain), _codes_in(variant)


def _codes_in(code: CodeType) -> Codes:
    """Return all code within a code by name and line; two lambdas in a line cannot be told apart, and are left out."""
    found: dict[tuple[str, int], list[CodeType]] = {}
    waiting = [code]
    while waiting:
        for part in waiting.pop().co_consts:
            if isinstance(part, CodeType):
                found.setdefault((part.co_qualname, part.co_firstlineno), []).append(part)
                waiting.append(part)
    return {key: parts[0] for key, parts in found.items() if len(parts) == 1}


def _insert(code: CodeType, tools: object) -> CodeType:
    """Put the tools where the code has their name, there and in all code within."""
    constants: list[Any] = []
    for part in code.co_consts:
        if isinstance(part, CodeType):
            constants.append(_insert(part, tools))
        else:
            constants.append(tools if isinstance(part, str) and part == _TOOLS else part)
    return code.replace(co_consts=tuple(constants))
