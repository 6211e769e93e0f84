"""Objects outside a training function that its code can change: units of a pack would see the changes of each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from threading import local
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

from headwater.fuse.users_code import find_functions, is_users_module

MAX_OWNERS = 2_000
"""The largest number of objects that are watched, the nearest first."""
MAX_ITEMS = 256
"""Longer lists and dictionaries are not followed: data sets are long, and their settings are not."""
_ENDS = (Tensor, nn.Module, ModuleType, FunctionType, MethodType, local, str, bytes, int, float, complex, type(None))
"""Values whose attributes are not watched; a pack looks after modules itself, and each unit has a thread of its own."""

_OF_PYTHON = frozenset({"__warningregistry__", "__annotations__"})
"""Names that Python itself adds to a module when a warning is shown, or to a class when its annotations are read."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """An object with named values: the globals of a module, an instance, a class or the cell of a closure."""

    name: str
    holder: Any

    def read(self) -> dict[str, Any]:
        """Return the values by name."""
        if isinstance(self.holder, CellType):
            try:
                return {"cell_contents": self.holder.cell_contents}
            except ValueError:  # it is empty
                return {}
        values = self.holder if isinstance(self.holder, dict) else vars(self.holder)
        return {name: value for name, value in values.items() if name not in _OF_PYTHON}

    def write(self, name: str, before: MutableMapping[str, Any]) -> None:
        """Give one name the value that it had, or none."""
        if isinstance(self.holder, dict):
            self.holder.pop(name, None)
            self.holder.update({name: before[name]} if name in before else {})
        elif not isinstance(self.holder, type | CellType):  # past any `__setattr__` of the class
            _Owner("", vars(self.holder)).write(name, before)
        elif name in before:
            setattr(self.holder, name, before[name])
        else:
            delattr(self.holder, name)


class SharedObjects:
    """The globals, closures, classes and instances that a training function reaches, with their values at some time.

    A value counts as changed where its name is bound to another object. The items of lists are not watched.
    """

    def __init__(self, function: Callable[..., Any] | None) -> None:
        self._owners = [] if function is None else list(_find_owners(function))
        self._before: list[dict[str, Any]] = []
        self.note()

    def note(self) -> None:
        """Take the present values for those that all units see."""
        self._before = [owner.read() for owner in self._owners]

    def restore(self) -> str:
        """Put back every value that was changed since they were noted; return the name of one of them, or ''."""
        changed = ""
        for owner, before in zip(self._owners, self._before, strict=True):
            now = owner.read()
            for name in before.keys() | now.keys():
                if (name in before) != (name in now) or before.get(name) is not now.get(name):
                    owner.write(name, before)
                    changed = owner.name if name == "cell_contents" else f"{owner.name}.{name}".removeprefix(".")
        return changed


def _find_owners(function: Callable[..., Any]) -> Iterator[_Owner]:
    """Yield the owners of values that the user's functions reach from this one, the nearest first."""
    functions = find_functions(function)
    spaces = {id(each.__globals__): each.__globals__ for each in functions}
    cells = [cell for each in functions for cell in each.__closure__ or ()]
    names = [name for each in functions for name in each.__code__.co_freevars]
    waiting: deque[tuple[str, Any]] = deque(("", space) for space in spaces.values())
    waiting.extend(zip(names, cells, strict=True))
    waiting.append((getattr(function, "__qualname__", type(function).__name__), function))
    seen: dict[int, Any] = {}
    num_found = 0
    while waiting and num_found < MAX_OWNERS:
        name, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        is_space = id(value) in spaces
        if is_space or isinstance(value, CellType) or _has_attributes(value):
            owner = _Owner(name, value)
            num_found += 1
            yield owner
            waiting.extend(_name_parts(owner))
        elif isinstance(value, list | tuple | dict | set) and len(value) <= MAX_ITEMS:
            waiting.extend((name, item) for item in (value.values() if isinstance(value, dict) else value))


def _has_attributes(value: Any) -> bool:
    if isinstance(value, type):
        return is_users_module(value.__module__)
    is_ours = type(value).__module__.startswith("headwater.")
    return not isinstance(value, _ENDS) and not is_ours and isinstance(getattr(value, "__dict__", None), dict)


def _name_parts(owner: _Owner) -> Iterator[tuple[str, Any]]:
    for name, value in owner.read().items():
        if name[:2] != "__" and not isinstance(value, FunctionType):
            yield (owner.name if name == "cell_contents" else f"{owner.name}.{name}".removeprefix(".")), value
