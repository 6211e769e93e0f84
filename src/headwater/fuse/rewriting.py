"""The user's functions, compiled from their source so that what no class can answer for many lanes asks us first.

`a is b`, the text of an f-string and a call of `float` are decided by Python itself, whatever class the values have.
While a group runs, the functions of the user's modules run in a variant in which these go through `tools`: attributes
of one object, which stands as a constant in the code. Lines, names and variables are the same. What has no source is
left as it is; `tools` then give it nothing that differs by lane.
"""

from __future__ import annotations
import __future__

import ast
import linecache
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from threading import Lock
from types import CodeType, FunctionType, ModuleType
from typing import Any, Literal, TypeAlias

from headwater.fuse.syntax import rewrite
from headwater.fuse.users_code import find_functions

_TOOLS = "\0the tools of lanes"
_FUTURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})

Codes: TypeAlias = dict[tuple[str, int], list[tuple[CodeType, CodeType]]]
"""Codes as they were written and their variants, by name and line."""


class Rewrites:
    """Counts for each function how many groups want its variant, and keeps it so as long as there is one."""

    def __init__(self, tools: object) -> None:
        self._tools = tools
        self._lock = Lock()
        self._open: dict[int, tuple[FunctionType, CodeType, int]] = {}
        self.variants: dict[int, CodeType] = {}
        """All code that asks the tools."""
        self._sources: dict[int, str] = {}
        """The file that a variant was compiled from, by the id of the variant."""

    def open(self, value: Any, *modules: ModuleType) -> list[FunctionType]:
        """Give the functions of the user's that a value leads to, and those of modules, their variants; return them."""
        wanted = [*find_functions(value), *(part for module in modules for part in _written_in(module))]
        with self._lock:
            for name in {each.__code__.co_filename for each in wanted}:
                linecache.checkcache(name)
            return [each for each in wanted if self._open_one(each)]

    def _open_one(self, function: FunctionType) -> bool:
        _, plain, count = self._open.get(id(function), (function, function.__code__, 0))
        if count == 0:
            variant = self._find_variant(plain, function.__globals__)
            if variant is None:
                return False
            function.__code__ = variant
        self._open[id(function)] = function, plain, count + 1
        return True

    def _find_variant(self, code: CodeType, space: Mapping[str, Any]) -> CodeType | None:
        """Return the variant of a code that was compiled from a file as it is now; None where there is none."""
        source = "".join(linecache.getlines(code.co_filename, dict(space)))
        for plain, variant in _compile(source, code.co_filename, self._tools).get(_key(code), ()):
            if plain == code and variant.co_freevars == code.co_freevars:
                self._note(variant)
                self._sources[id(variant)] = source
                return variant
        return None

    def compile(self, text: str | bytes, mode: Literal["eval", "exec"], flags: int) -> CodeType | None:
        """Return the variant of what is given to `eval` or `exec`, by code with these flags; None for a wrong text."""
        code = _compile_text(text, mode, flags & _FUTURES, self._tools)
        if code is not None:
            self._note(code)
        return code

    def _note(self, variant: CodeType) -> None:
        if id(variant) not in self.variants:
            self.variants.update((id(each), each) for each in (variant, *_codes_in(variant)))

    def has(self, function: FunctionType) -> bool:
        """Tell whether a function runs in its variant now."""
        return id(function.__code__) in self.variants

    def find_definition(self, function: FunctionType) -> ast.FunctionDef | None:
        """Return the syntax tree of a function that runs in its variant; None where it is decorated or not known."""
        code = function.__code__
        found = _definitions(self._sources.get(id(code), "")).get((code.co_name, code.co_firstlineno), [])
        return found[0] if len(found) == 1 and not found[0].decorator_list else None

    def close(self, functions: list[FunctionType]) -> None:
        """Put the plain code back where this was the last group that wanted another."""
        with self._lock:
            for function in functions:
                _, plain, count = self._open.pop(id(function))
                if count > 1:
                    self._open[id(function)] = function, plain, count - 1
                else:
                    function.__code__ = plain


def _written_in(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions whose source is in the module's file, not what decorates them or was imported."""
    waiting = [*vars(module).values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, FunctionType):
            waiting.append(getattr(value, "__wrapped__", None))
            if value.__code__.co_filename == module.__file__:
                yield value


@cache
def _definitions(source: str) -> dict[tuple[str, int], list[ast.FunctionDef]]:
    """Return the functions of a file by name and line, but for coroutines and generators."""
    found: dict[tuple[str, int], list[ast.FunctionDef]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            found.setdefault((node.name, node.lineno), []).append(node)
    return found


@cache
def _compile(source: str, filename: str, tools: object) -> Codes:
    """Compile a file as it is, and with its questions put to the tools."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            plain = compile(tree, filename, "exec", dont_inherit=True)
            variant = compile(rewrite(tree, _TOOLS), filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    plains, variants = _by_key(plain), _by_key(_insert(variant, tools))
    return {
        key: [*zip(codes, variants[key], strict=True)]
        for key, codes in plains.items()
        if len(variants.get(key, ())) == len(codes)
    }


@cache
def _compile_text(text: str | bytes, mode: Literal["eval", "exec"], flags: int, tools: object) -> CodeType | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = text.strip() if mode == "eval" else text
            tree = compile(source, "<string>", mode, flags | ast.PyCF_ONLY_AST, dont_inherit=True)
            return _insert(compile(rewrite(tree, _TOOLS), "<string>", mode, flags, dont_inherit=True), tools)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _by_key(code: CodeType) -> dict[tuple[str, int], list[CodeType]]:
    """Return all code within a code by name and line, several lambdas in a line in their order."""
    found: dict[tuple[str, int], list[CodeType]] = {}
    for part in _codes_in(code):
        found.setdefault(_key(part), []).append(part)
    return found


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _codes_in(part)


def _insert(code: CodeType, tools: object) -> CodeType:
    """Put the tools where the code has their name, there and in all code within."""
    constants: list[Any] = []
    for part in code.co_consts:
        if isinstance(part, CodeType):
            constants.append(_insert(part, tools))
        else:
            constants.append(tools if isinstance(part, str) and part == _TOOLS else part)
    return code.replace(co_consts=tuple(constants))
