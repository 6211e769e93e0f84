"""Module-level data that a sent function reaches, and the places in the receiver's modules where the data belongs.

A worker process imports the user's modules again. Whatever their import computes by chance (a split, an initial
weight) or from settings of the process would differ there. So the sender's values travel along: globals that the code
reads, class attributes, default arguments, contents of closures, and what was set on modules and classes of a library.
"""

from __future__ import annotations

import ast
import dis
import linecache
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from enum import EnumMeta
from functools import partial
from importlib.util import resolve_name
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

from headwater.execute.script_modules import is_importable
from headwater.trials.fingerprint import is_library, is_users

Namespace: TypeAlias = dict[str, Any]  # Any: whatever a module holds
_GLOBAL_NAMES = {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_ANY_NAME = {"getattr", "globals", "vars", "eval", "exec", "__dict__"}
"""Names in code that may read any other name of a module."""
_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True)
class Place:
    """A variable, found step by step from the namespace of a module or a class.

    A step is a name in a namespace or a class, an attribute of a function, or the number of a closure's cell.
    """

    owner: Any  # Any: a namespace or a class
    path: tuple[str | int, ...]

    def then(self, step: str | int) -> Place:
        """Return the place one step further."""
        return Place(self.owner, (*self.path, step))

    def read(self) -> Any:  # Any: whatever is there
        """Return the value.

        Raises:
            LookupError: This process has nothing there.
            AttributeError: As above.
        """
        value = self.owner
        for step in self.path:
            value = _take_step(value, step)
        return value

    def write(self, value: object) -> None:
        """Replace the value."""
        owner, last = Place(self.owner, self.path[:-1]).read(), self.path[-1]
        if isinstance(owner, dict):
            owner[last] = value
        elif isinstance(last, int):
            owner.__closure__[last].cell_contents = value
        elif not isinstance(owner, type) or last not in vars(owner) or vars(owner)[last] is not value:
            setattr(owner, last, value)


def _take_step(owner: Any, step: str | int) -> Any:  # Any: as in Place
    if isinstance(owner, dict):
        return owner[step]
    if isinstance(step, int):
        return owner.__closure__[step].cell_contents
    return vars(owner)[step] if isinstance(owner, type) else getattr(owner, step)


class Reach:
    """Collects the places of the user's importable modules that code reads, each once."""

    def __init__(self) -> None:
        self._seen: dict[int, object] = {}
        self._places: set[tuple[int, tuple[str | int, ...]]] = set()
        self._found: list[tuple[Place, object]] = []
        self._named: list[object] = []
        """Values of the globals that code names, and modules."""
        self._names: set[str] = set()
        """Names and texts in code."""

    def take(self) -> list[tuple[Place, object]]:
        """Return the places found since the last call, with their values."""
        for place, value in find_library_values(self._named, self._names):
            self.add(place, value)
        found, self._found = self._found, []
        return found

    def add(self, place: Place, value: object) -> None:
        """Add a variable, unless an import gives the same one for certain."""
        key = id(place.owner), place.path
        if key not in self._places and not _is_of_library(value):
            self._places.add(key)
            self._found.append((place, value))

    def add_named(self, function: FunctionType) -> None:
        """Add what a function reads that the receiver finds by its name."""
        space = vars(sys.modules[function.__module__])
        self.add_function(function, Place(space, tuple(function.__qualname__.split("."))))

    def add_function(self, function: Any, place: Place | None = None) -> None:  # Any: whatever wraps a function
        """Add what a function reads; with the place of the function, also what belongs to the function itself."""
        if id(function) in self._seen:
            return
        self._seen[id(function)] = function
        if hasattr(function, "__wrapped__"):
            self.add_function(function.__wrapped__, place and place.then("__wrapped__"))
        if not isinstance(function, FunctionType) or not is_users_code(function):
            return
        for owner, name in find_reads(function):
            if is_users_module(owner):
                self.add(Place(owner, (name,)), owner[name])
        self._named += [*find_modules(function), *map(function.__globals__.get, find_global_names(function))]
        for code in codes_in(function.__code__):
            self._names.update(code.co_names, (text for text in code.co_consts if type(text) is str))
        if place is not None:
            self._add_own(function, place)

    def add_class(self, kind: type) -> None:
        """Add what the methods of a class and of its bases read, and the data among their attributes."""
        for each in kind.__mro__:
            if id(each) not in self._seen and is_users(each) and is_importable(each.__module__):
                self._seen[id(each)] = each
                self._add_members(each)

    def _add_members(self, kind: type) -> None:
        root = Place(kind, ())
        for name, part in [*vars(kind).items()]:
            accessors = ("fget", "fset", "fdel") if isinstance(part, property) else ("__func__", "func")
            for step in accessors:
                if isinstance(function := getattr(part, step, None), FunctionType):
                    self.add_function(function, root.then(name).then(step))
            if isinstance(part, FunctionType):
                self.add_function(part, root.then(name))
                if is_users_code(part) and part.__qualname__ != f"{kind.__qualname__}.{name}":
                    self.add(root.then(name), part)
            elif not (_is_dunder(name) or isinstance(kind, EnumMeta) or hasattr(type(part), "__get__")):
                self.add(root.then(name), part)

    def _add_own(self, function: FunctionType, place: Place) -> None:
        for name in ("__defaults__", "__kwdefaults__"):
            if getattr(function, name):
                self.add(place.then(name), getattr(function, name))
        for number, cell in enumerate(function.__closure__ or ()):
            for content in read_cell(cell):
                if isinstance(content, FunctionType):
                    self.add_function(content, place.then(number))
                elif not isinstance(content, type):
                    self.add(place.then(number), content)


def find_patches() -> Iterator[tuple[Place, object]]:
    """Yield the functions and classes of the user that stand in modules or classes of installed libraries."""
    for name, module in [*sys.modules.items()]:
        space = getattr(module, "__dict__", {})
        file = space.get("__file__")
        if name.partition(".")[0] == "headwater" or not file or not is_library(file):
            continue
        for key, value in [*space.items()]:
            if _is_users_own(value):
                yield Place(space, (key,)), value
            elif issubclass(type(value), type) and vars(value).get("__module__") == name:
                for member, part in [*vars(value).items()]:
                    if _is_users_own(part):
                        yield Place(value, (member,)), part


def find_library_values(roots: Sequence[object], names: Set[str]) -> Iterator[tuple[Place, object]]:
    """Yield plain values under these names in library modules and classes that the names lead to from the roots."""
    seen, waiting = set[int](), [*roots]
    while waiting:
        owner: Any = waiting.pop()  # Any: whatever a global or an attribute holds
        is_module = issubclass(type(owner), ModuleType)
        if id(owner) in seen or not (is_module or issubclass(type(owner), type)):
            continue
        seen.add(id(owner))
        name = owner.__name__ if is_module else owner.__module__
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and is_library(file) and name.partition(".")[0] != "headwater":
            for key in sorted(names & vars(owner).keys()):
                waiting.append(vars(owner)[key])
                if type(waiting[-1]) in _PLAIN and not _is_dunder(key):
                    yield Place(vars(owner) if is_module else owner, (key,)), waiting.pop()


def find_reads(function: FunctionType) -> list[tuple[Namespace, str]]:
    """Return the names that a function, or the code in it, reads: globals, and attributes of modules."""
    space = function.__globals__
    names = {name for code in codes_in(function.__code__) for name in code.co_names}
    reads_any = not names.isdisjoint(_ANY_NAME)
    read = {key for key in space if not _is_dunder(key)} if reads_any else find_global_names(function)
    found = [(space, name) for name in sorted(read) if name in space and not _is_dunder(name)]
    seen, modules = set[int](), find_modules(function)
    while modules:
        module = modules.pop()
        if id(module) in seen or not is_users_module(vars(module)):
            continue
        seen.add(id(module))
        read = {key for key in vars(module) if not _is_dunder(key)} if reads_any else names & vars(module).keys()
        found += [(vars(module), name) for name in sorted(read)]
        modules += [part for name in read if isinstance(part := vars(module)[name], ModuleType)]
    return found


def find_global_names(function: FunctionType) -> set[str]:
    """Return the globals that a function, or the code in it, names."""
    codes = codes_in(function.__code__)
    return {each.argval for code in codes for each in dis.get_instructions(code) if each.opname in _GLOBAL_NAMES}


def find_modules(function: FunctionType) -> list[ModuleType]:
    """Return the modules that a function names or imports, of those that this process has imported."""
    space = function.__globals__
    named = [space.get(name) for name in find_global_names(function)]
    imported = [sys.modules.get(name) for code in codes_in(function.__code__) for name in _find_imports(code, space)]
    return [module for module in (*named, *imported) if isinstance(module, ModuleType)]


def _find_imports(code: CodeType, space: Namespace) -> Iterator[str]:
    level = 0
    for each in dis.get_instructions(code):
        if each.opname == "IMPORT_NAME":
            with suppress(ImportError):  # a relative import outside of a package
                yield resolve_name("." * level + each.argval, space.get("__package__") or "")
        level = each.argval if isinstance(each.argval, int) and "CONST" in each.opname else level


def describe_place(place: Place) -> str:
    """Return the words for a place in messages: the variable with its file and line."""
    space: Any = vars(sys.modules[place.owner.__module__]) if isinstance(place.owner, type) else place.owner
    kind = (place.owner.__qualname__,) if isinstance(place.owner, type) else ()
    file = space.get("__file__") or "?"
    return f"{'.'.join(map(str, (*kind, *place.path)))} of {file}, line {_find_line(file, (*kind, *place.path))}"


def _find_line(file: str, path: tuple[str | int, ...]) -> int:
    """Return the first line of a file that assigns or defines the names of a path, each inside of the one before."""
    line, body = 1, list[ast.stmt]()
    with suppress(SyntaxError):
        body = ast.parse("".join(linecache.getlines(file))).body
    for step in path:
        found = next((node for node in body if step in _names_of(node)), None)
        if found is None:
            break
        line, body = found.lineno, getattr(found, "body", [])
    return line


def _names_of(node: ast.stmt) -> set[object]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def is_users_module(space: Namespace) -> bool:
    """Tell whether a namespace is that of a module of the user's which other processes can import."""
    name = space.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    is_one = module is not None and getattr(module, "__dict__", None) is space
    return is_one and not is_library(space.get("__file__")) and is_importable(str(name))


def is_users_code(function: FunctionType) -> bool:
    """Tell whether a function stands in a file or a notebook of the user's; generated code stands in none."""
    name, file = function.__module__, function.__code__.co_filename
    if not file.startswith("<"):
        return not is_library(file)
    return name not in sys.modules or not is_importable(name)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield code and all code in it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from codes_in(part)


def read_cell(cell: CellType) -> tuple[object, ...]:
    """Return the content of a cell; nothing where the cell is empty."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _is_users_own(value: object) -> bool:
    """Tell whether a function or a class is the user's; no attribute of lazy objects is touched."""
    if type(value) in (staticmethod, classmethod, MethodType):
        value = value.__func__  # type: ignore[attr-defined] # of these three
    elif type(value) is partial:
        value = value.func
    if type(value) is FunctionType:
        # Libraries generate functions too (named tuples, data classes). Generated code counts as the user's only if it
        # belongs to a script or a notebook, which `is_users_code` takes for granted where the module is unknown.
        return value.__globals__.get("__name__") in sys.modules and is_users_code(value)
    return issubclass(type(value), type) and is_users(value)  # type: ignore[arg-type] # it is a class


def _is_of_library(value: object) -> bool:
    """Tell whether a value is a module, or a function or class of a library, which an import gives again."""
    if isinstance(value, FunctionType):
        return not is_users_code(value) and not hasattr(value, "__wrapped__")
    if isinstance(value, type):
        return not is_users(value)
    return isinstance(value, ModuleType | BuiltinFunctionType)


def _is_dunder(name: str) -> bool:
    return (name.startswith("__") and name.endswith("__")) or name == "_abc_impl"
