"""The global variables that a training function uses, put back after each of its calls.

Every call of the function finds them as they were before the first, whatever another call has written there: the
trials of a process must not depend on one another, nor on a call that was broken off.
"""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, ModuleType
from typing import Any

from torch import nn

from headwater.errors import CannotPack, StudyError
from headwater.fuse.users_code import find_functions, is_users_module
from headwater.train.process_settings import apply_process_settings, read_process_settings
from headwater.train.snapshot import Kind, Node, Snapshot, is_same_content, is_same_reference, put_content, read_content

_EVERYTHING = "globals"
"""The function by which code may reach every variable of its module."""
_UNREAD = (Kind.UNKNOWN, Kind.STUCK)
_READERS = frozenset({"load", "load_file", "safe_open"})
"""Names of the functions by which code reads saved weights and the like."""


UNRESTORED = "which cannot be put back, so that other trials find it changed"


class UserGlobals:
    """The global variables of the user's modules that can be reached from one training function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._spaces: dict[str, tuple[dict[str, Any], list[str]]] | None = None
        self._first: Snapshot | None = None
        self._num_active = 0
        self._reader = ""
        self._process: dict[str, Any] = {}
        """The settings of the process before the calls that have not ended."""
        self._has_environment = False
        """Whether the code names the environment variables, and may change them."""
        self.notes: tuple[str, ...] = ()
        """A remark on a variable that was changed and put back."""

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Put the variables back when a call of the function ends.

        Raises:
            StudyError: The call has changed a large tensor or array, of which there is no copy.
            CannotPack: Another call that has changed them has not ended.
        """
        if self._first is None:
            self._first = Snapshot(self.read(), copies=True).take()
        elif self._num_active:
            self._reset(self._first)
        if not self._num_active:
            self._process = self.read_process()
        elif self.read_process() != self._process:
            raise CannotPack("the training function changes settings of the process")
        self._num_active += 1
        try:
            yield
        finally:
            self._num_active -= 1
            if not self._num_active:
                self._reset(self._first)
                self._reset_process(self._process)

    def _reset(self, first: Snapshot) -> None:
        changed = [node for node in first.nodes.values() if not _is_unchanged(node)]
        stuck = [node for node in changed if node.kind in _UNREAD]
        changed = [node for node in changed if node.kind not in _UNREAD]
        now = self.read()
        rebound = [path for path in now.keys() | first.roots.keys() if not _is_same(path, now, first.roots)]
        if (changed or rebound) and self._num_active:
            names = [*rebound, *(node.path for node in changed)]
            raise CannotPack(f"the training function changes the global variable {_name(names[0])}")
        seen = [*rebound, *(node.path for node in changed if not isinstance(node.thing, nn.Module))]
        if seen and not self.notes:
            is_cache = any(node.path == seen[0] and node.kind is Kind.CACHE for node in changed)
            way_out = "fill the cache before the study" if is_cache else "use trial.report, trial.note or a file"
            self.notes = (
                f"the training function changes the global variable {_name(seen[0])}, which is put back after each "
                f"call so that no trial depends on another; to keep values, {way_out}",
            )
        if stuck and not any(UNRESTORED in note for note in self.notes):
            self.notes += (
                f"the training function changes the global variable {_name(stuck[0].path)}, a "
                f"{type(stuck[0].thing).__name__}, {UNRESTORED}; make it in the function",
            )
        for node in changed:
            if not put_content(node.thing, node.kind, node.content):
                way_out = "change a clone of it that the function makes"
                if node.kind is Kind.CACHE:
                    way_out = "call its cache_clear() before the study, or drop the decorator"
                raise StudyError(
                    f"the training function changes the global variable {_name(node.path)} in place, and the next "
                    f"trial would find it changed; {way_out}"
                )
        for path in rebound:
            self._rebind(path, first.roots)

    def _reset_process(self, before: dict[str, Any]) -> None:
        """Put settings of the process and environment variables back, where the call has changed them."""
        now = self.read_process()
        if now != before:
            apply_process_settings(before | {"warnings": []})
        if now.get("environment") != before.get("environment"):
            os.environ.clear()
            os.environ.update(before["environment"])

    def read_process(self) -> dict[str, Any]:  # Any: plain values
        """Return the settings of the process that a call may change, and the environment variables if it names them."""
        self._find()
        settings = {name: value for name, value in read_process_settings().items() if name != "warnings"}
        return settings | ({"environment": dict(os.environ)} if self._has_environment else {})

    def _rebind(self, path: str, before: dict[str, Any]) -> None:
        if path in before:
            self.assign(path, before[path])
        else:
            module, _, name = path.removeprefix("@").partition(":")
            self._find()[module][0].pop(name, None)

    @property
    def reader(self) -> str:
        """The name of a function by which the user's code may read files; empty where it reads none."""
        self._find()
        return self._reader

    def read(self) -> dict[str, Any]:
        """Return the present values by module and name."""
        found: dict[str, Any] = {}
        for module, (space, used) in self._find().items():
            names = [name for name in space if not name.startswith("__")] if _EVERYTHING in used else used
            found |= {f"@{module}:{name}": space[name] for name in names if name in space and _is_kept(space[name])}
        return found

    def assign(self, path: str, value: Any) -> None:
        """Give a variable another value."""
        module, _, name = path.removeprefix("@").partition(":")
        self._find()[module][0][name] = value

    def _find(self) -> dict[str, tuple[dict[str, Any], list[str]]]:
        """Return the variables of each module that the code of the function may read or write."""
        if self._spaces is None:
            found: dict[str, tuple[dict[str, Any], set[str]]] = {}
            waiting, seen = find_functions(self._function, in_globals=False), set[int]()
            while waiting:
                function = waiting.pop()
                if id(function) in seen:
                    continue
                seen.add(id(function))
                space = function.__globals__
                _, names = found.setdefault(str(space.get("__name__", "")), (space, set()))
                for code in _codes_of(function.__code__):
                    used = {name for name in code.co_names if name in space}
                    for name in used - names:
                        waiting += find_functions(space[name], in_globals=False)
                    names |= used | _written_by(code) | ({_EVERYTHING} & set(code.co_names))
                    for module, attributes in _find_attributes(code, space):
                        _, others = found.setdefault(module.__name__, (vars(module), set()))
                        for name in (attributes - others) & vars(module).keys():
                            waiting += find_functions(vars(module)[name], in_globals=False)
                        others |= attributes
                    self._has_environment |= not {"environ", "putenv"}.isdisjoint(code.co_names)
                    self._reader = self._reader or next((name for name in code.co_names if name in _READERS), "")
            self._spaces = {module: (space, sorted(names)) for module, (space, names) in sorted(found.items())}
        return self._spaces


def _codes_of(code: CodeType) -> Iterator[CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _codes_of(part)


def _written_by(code: CodeType) -> set[str]:
    return {each.argval for each in dis.get_instructions(code) if each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")}


def _find_attributes(code: CodeType, space: dict[str, Any]) -> Iterator[tuple[ModuleType, set[str]]]:
    """Yield the modules that code names, with the attributes of each that are variables to the code.

    Of the user's modules these are all attributes that the code names, of a library those that the code assigns.
    """
    stored = {each.argval for each in dis.get_instructions(code) if each.opname in ("STORE_ATTR", "DELETE_ATTR")}
    imported = {each.argval for each in dis.get_instructions(code) if each.opname == "IMPORT_NAME"}
    waiting = [space.get(name) for name in code.co_names] + [sys.modules.get(name) for name in imported]
    seen: set[int] = set()
    while waiting:
        module = waiting.pop()
        if isinstance(module, ModuleType) and id(module) not in seen:
            seen.add(id(module))
            waiting += [vars(module).get(name) for name in code.co_names]
            is_users = is_users_module(module.__name__)
            yield module, {name for name in code.co_names if name in vars(module)} | stored if is_users else stored


def _is_kept(value: Any) -> bool:
    """Tell whether a variable may hold state: it is no module, and no function or class of a library."""
    if isinstance(value, ModuleType):
        return False
    owner = getattr(value, "__module__", None) if isinstance(value, type) or callable(value) else None
    return (
        not isinstance(owner, str)
        or is_users_module(owner)
        or not (isinstance(value, type) or hasattr(value, "__code__"))
    )


def _is_unchanged(node: Node) -> bool:
    """Tell whether an object has the content that it had; also where neither can be read."""
    now = read_content(node.thing, node.kind, copies=True)
    if node.kind in _UNREAD and node.content.obstacle:
        return bool(node.content.items == now.items)
    return is_same_content(node.content, now)


def _is_same(path: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    return path in one and path in other and is_same_reference(one[path], other[path])


def _name(path: str) -> str:
    return f"`{path.removeprefix('@').partition(':')[2]}`"
