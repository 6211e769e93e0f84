"""What tells one training function from another: its code, and all of the user's own that it can reach.

Functions and classes of libraries count by name, tensors and arrays by shape and type. What the user wrote counts to
the last constant: a helper that has changed, a global number, a value in a closure, a default.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

MOST_PARTS = 100_000
"""What has more parts than these is not told from anything."""
MOST_ITEMS = 1_000
"""Of longer lists and tables, the beginning and the length count: they are data."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_LIBRARIES = tuple(
    Path(place).resolve()
    for place in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(__file__).parent.parent),
    )
)
_PACKAGES = frozenset({"site-packages", "dist-packages"})
"""Where packages are installed, also those of another environment that this one sees."""
_IGNORED = {"__dict__", "__weakref__", "__doc__", "__annotations__", "__module__"}
_IGNORED |= {"__firstlineno__", "__static_attributes__", "__slotnames__"}
_DATA_MODULES = ("torch.nn.modules", "torch.utils.data")


def fingerprint(*values: object, with_contents: bool = False) -> str | None:
    """Return what is the same for functions and values that are the same, also in another process.

    With contents, the elements of tensors, arrays, data sets and long lists count too. None where that cannot be told:
    something is too large, or cannot be looked into.
    """
    walk = _Walk(with_contents=with_contents)
    try:
        for value in values:
            walk.add(value)
    except Exception:  # a user's own object answers as it likes
        return None
    return walk.finish()


class _Walk:
    """Goes through all that a value refers to, each part once."""

    def __init__(self, *, with_contents: bool) -> None:
        self._with_contents = with_contents
        self._digest = sha256()
        self._places: dict[int, int] = {}
        self._kept: list[object] = []
        """What was seen lives as long as this, so that no id comes twice."""

    def finish(self) -> str:
        return self._digest.hexdigest()

    def add(self, value: object) -> None:
        if isinstance(value, _PLAIN):
            self._write(type(value).__name__, repr(value))
        elif isinstance(value, tuple | frozenset):  # whether equal ones are one object depends on who compiled them
            self._add_items(value)
        elif id(value) in self._places:
            self._write("again", str(self._places[id(value)]))
        else:
            self._places[id(value)] = len(self._places)
            self._kept.append(value)
            if len(self._kept) > MOST_PARTS:
                raise OverflowError("it has too many parts")
            self._add_new(value)

    def _add_new(self, value: Any) -> None:  # Any: whatever a function refers to
        if isinstance(value, FunctionType):
            self._add_function(value)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, CodeType):
            self._add_code(value)
        elif isinstance(value, ModuleType):
            self._write("module", value.__name__)
        elif isinstance(value, Mapping | list | set):
            self._add_items(value)
        else:
            self._add_object(value)

    def _add_function(self, function: FunctionType) -> None:
        self._write("function", function.__module__ or "", function.__qualname__)
        if is_library(function.__code__.co_filename):
            return
        self.add(function.__code__)
        self._add_all((function.__defaults__, function.__kwdefaults__))
        self._add_all(function.__closure__ or ())
        self.add(getattr(function, "__wrapped__", None))
        space = function.__globals__
        for name in sorted(_names_in(function.__code__)):
            if name in space:
                self._write("global", name)
                self.add(space[name])
        for module in _users_modules(space, function.__code__):
            for name in sorted(_names_in(function.__code__) & vars(module).keys()):
                self._write("attribute", module.__name__, name)
                self.add(vars(module)[name])

    def _add_code(self, code: CodeType) -> None:
        """Add what code does, but not where it stands."""
        self._write("code", code.co_name, code.co_code.hex())
        self._add_all((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_consts))

    def _add_class(self, kind: type) -> None:
        self._write("class", kind.__module__, kind.__qualname__)
        if not is_users(kind):
            return
        self._add_all(kind.__bases__)
        for name, part in vars(kind).items():
            if name not in _IGNORED:
                self._write("member", name)
                self.add(part)

    def _add_items(self, value: Any) -> None:  # Any: one of the containers
        self._write(type(value).__name__, str(len(value)))
        most = len(value) if self._with_contents else MOST_ITEMS
        if isinstance(value, set | frozenset):
            self._add_all(sorted(value, key=repr)[:most])
            return
        items: Iterable[object] = value.items() if isinstance(value, Mapping) else value
        self._add_all([item for item, _ in zip(items, range(most), strict=False)])

    def _add_object(self, value: Any) -> None:  # Any: as above
        """Add an object by its kind, and by what it holds where that kind is the user's own."""
        match value:
            case CellType():
                self._add_all(_contents(value))
            case partial():
                self._add_all((value.func, value.args, value.keywords))
            case MethodType():
                self._add_all((value.__func__, value.__self__))
            case staticmethod() | classmethod():
                self.add(value.__func__)
            case property():
                self._add_all((value.fget, value.fset, value.fdel))
            case Enum():
                self._add_all((type(value), value.name))
            case _:
                self._add_instance(value)

    def _add_instance(self, value: Any) -> None:  # Any: as above
        kind = type(value)
        self.add(kind)
        shape, dtype = (getattr(value, name, None) for name in ("shape", "dtype"))
        if shape is not None and dtype is not None:
            self._write("array", str(tuple(shape)), str(dtype))
            if self._with_contents:
                self._digest.update(_read_elements(value))
        elif hasattr(value, "named_parameters") and not self._with_contents:
            self._write("model", repr(value))
        elif is_users(kind) or (self._with_contents and _holds_data(kind)):
            self._add_all(sorted(vars(value).items()) if hasattr(value, "__dict__") else ())
        else:
            self._write("named", str(getattr(value, "__module__", "")), str(getattr(value, "__qualname__", "")))
            self.add(getattr(value, "__wrapped__", None))

    def _add_all(self, values: Iterable[object]) -> None:
        self._write("begin")
        for value in values:
            self.add(value)
        self._write("end")

    def _write(self, *texts: str) -> None:
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            self._digest.update(f"{len(data)}:".encode() + data)


@cache
def is_library(path: str | None) -> bool:
    """Tell whether a file is no user's; modules without one are none."""
    if path is None:
        return True
    place = Path(path).resolve()
    is_installed = not _PACKAGES.isdisjoint(place.parts)
    return is_installed or any(place.is_relative_to(library) for library in _LIBRARIES)


def is_users(kind: type) -> bool:
    """Tell whether a class is the user's own."""
    module = sys.modules.get(kind.__module__)
    return module is not None and (kind.__module__ == "__main__" or not is_library(getattr(module, "__file__", None)))


def _names_in(code: CodeType) -> set[str]:
    """Return what code, and the code in it, names: globals and attributes."""
    names = set(code.co_names)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            names |= _names_in(part)
    return names


def _users_modules(space: Mapping[str, object], code: CodeType) -> list[ModuleType]:
    found = [space.get(name) for name in sorted(_names_in(code))]
    modules = [module for module in found if isinstance(module, ModuleType)]
    return [module for module in modules if not is_library(getattr(module, "__file__", None))]


def _contents(cell: CellType) -> tuple[object, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _holds_data(kind: type) -> bool:
    """Tell whether instances of a class of torch hold data: models, data sets, samplers and loaders."""
    return any(base.__module__.startswith(_DATA_MODULES) for base in kind.__mro__)


def _read_elements(value: Any) -> bytes:  # Any: a tensor or an array
    """Return the elements of a tensor or an array as bytes."""
    if hasattr(value, "detach"):
        torch = sys.modules["torch"]
        value = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    elements: bytes = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
    return elements
