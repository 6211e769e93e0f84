"""Functions and what they refer to, as bytes for a process that has the same files and inherits nothing.

What can be imported goes by module and name. Everything else goes by value: lambdas, closures, and what was defined in
the main script, a notebook or a file that `headwater run` has loaded. Functions that shared their globals share them in
the receiver too, in a module of the same name, with their source, so that they can be compiled anew there.
"""

from __future__ import annotations

import builtins
import io
import linecache
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import CellType, FunctionType, MappingProxyType, ModuleType
from typing import Any, NewType

import cloudpickle
from cloudpickle.cloudpickle import _dynamic_class_reduce

from headwater.errors import StudyError
from headwater.execute.data_files import DataReader, DataWriter, Sent
from headwater.execute.reached import (
    Namespace,
    Place,
    Reach,
    codes_in,
    describe_place,
    find_global_names,
    find_modules,
    find_patches,
    read_cell,
)
from headwater.execute.script_modules import describe_module, is_importable, list_scripts, open_module
from headwater.execute.unsendable import describe_unsendable
from headwater.trials.fingerprint import fingerprint

_COPIED = ("__defaults__", "__kwdefaults__", "__annotations__", "__qualname__", "__module__", "__doc__")

_CACHED = type(lru_cache(len))
NO_COPIES: Mapping[str, str] = MappingProxyType({})
"""Of a receiver that has the sender's files themselves."""
NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})  # Any: plain values
"""Of a sender whose settings do not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A value, and what the receiver must know and have before it opens it."""

    path: tuple[str, ...]
    folder: str
    arguments: tuple[str, ...]
    sources: Mapping[str, str]
    """The text of each file that code was compiled from, as it was then."""
    modules: Mapping[str, Mapping[str, object]]
    """What is known of each module that must not be imported."""
    data_file: str | None
    body: bytes
    settings: Mapping[str, Any]  # Any: plain values
    """Settings of torch, NumPy and Python, as `read_process_settings` returns them."""


def send_value(value: object, folder: Path, settings: Mapping[str, Any] = NO_SETTINGS) -> bytes:  # Any: as above
    """Return a value as bytes, for any number of processes; its large tensors and arrays are in a file in the folder.

    Send all that belongs together as one value: only within one are globals, tensors and objects the same. The file
    must stay until every receiver has received. The receiver applies the settings before it imports or loads anything.

    Raises:
        StudyError: Something that the value refers to cannot be sent.
    """
    stream = io.BytesIO()
    sender = _Sender(stream)
    for place, patch in find_patches():
        sender.reach.add(place, patch)
    error = _try_sending(value, sender)
    if error is not None:
        raise StudyError(describe_unsendable(value, _find_parts, _try_sending)) from error
    message = _Message(
        path=tuple(map(str, sys.path)),
        folder=str(Path.cwd()),
        arguments=tuple(sys.argv),
        sources=sender.sources,
        modules={name: describe_module(vars(sys.modules[name])) for name in list_scripts()},
        data_file=sender.data.write(folder),
        body=stream.getvalue(),
        settings=dict(settings),
    )
    return pickle.dumps(message)


def find_data_file(data: bytes) -> str | None:
    """Return the file with the large tensors and arrays of a value that is sent; None if it has none."""
    message: _Message = pickle.loads(data)  # noqa: S301 # of this process
    return message.data_file


def receive_value(data: bytes, copies: Mapping[str, str] = NO_COPIES) -> Any:  # Any: as sent
    """Return the value that was sent, in a process that works for the sender alone.

    The process takes on the sender's search path, folder and arguments, as far as they are there on its machine, and
    the sender's settings. Values that are sent one after the other share their modules: globals that come again replace
    those that came before. `copies` says where on this machine copies of the sender's files are.

    Raises:
        StudyError: A variable that cannot be sent is not the same here as in the sender.
    """
    message: _Message = pickle.loads(data)  # noqa: S301 # from the process that started this one
    sys.path[:] = dict.fromkeys((*message.path, *sys.path))
    sys.argv[:] = message.arguments
    with suppress(FileNotFoundError):
        os.chdir(message.folder)
    _apply_settings(message.settings)
    for name, text in message.sources.items():
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    for name, about in message.modules.items():  # before anything is imported that might import them
        open_module(name, about)
    file = message.data_file
    receiver = _Receiver(io.BytesIO(message.body), DataReader(None if file is None else copies.get(file, file)))
    value = receiver.load()
    while homes := receiver.load():
        for place, part in homes:
            place.write(part)
    for place, expected, words in receiver.load():
        _require_same(place, expected, words)
    _apply_settings(message.settings, is_last=True)  # an import may have changed them
    return value


def _apply_settings(settings: Mapping[str, Any], *, is_last: bool = False) -> None:  # Any: plain values
    if settings:
        from headwater.train.process_settings import apply_process_settings

        apply_process_settings(settings, with_warnings=is_last)


def _require_same(place: Place, expected: str | None, words: str) -> None:
    try:
        found = fingerprint(place.read(), with_contents=True)
    except (LookupError, AttributeError):
        found = None
    if found is None or found != expected:
        raise StudyError(
            f"{words}, differs between the process of the study and its workers, which import the module again, and "
            "cannot be sent to them; seed what is drawn there, build the value inside the training function, or use "
            "executor='inline'"
        )


@dataclass(frozen=True, slots=True)
class _SentNamespace:
    """The globals of functions."""

    number: int
    name: str | None
    """The module that they are; None if they are no module's."""
    about: Mapping[str, object] | None
    """None if the receiver can import it."""


class _Sender(cloudpickle.Pickler):  # type: ignore[misc] # it has no types
    """Decides for every object on the way how it goes."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.data = DataWriter()
        self.homes: list[tuple[Place, object]] = []
        """Places in modules that the receiver cannot import, and what belongs there."""
        self.reach = Reach()
        self.sources: dict[str, str] = {}
        self._spaces: dict[int, tuple[_SentNamespace, Namespace]] = {}

    def persistent_id(self, value: object) -> Sent | _SentNamespace | None:
        """Return what stands for memory and namespaces; None for everything else."""
        if type(value) is dict:
            return self._spaces[id(value)][0] if id(value) in self._spaces else None
        return self.data.place(value)

    def reducer_override(self, value: Any) -> Any:  # Any: as pickle wants it
        """Return how to make a value in the receiver."""
        if isinstance(value, FunctionType):
            return self._reduce_function(value)
        if isinstance(value, CellType):
            content = read_cell(value)
            return (CellType, (), content, None, None, _fill_cell) if content else (CellType, ())
        if isinstance(value, ModuleType):
            return _reduce_module(value)
        if isinstance(value, type):
            return self._reduce_class(value)
        if isinstance(value, io.TextIOWrapper):
            return _reduce_stream(value)
        if isinstance(value, _CACHED | NewType):
            return self._reduce_wrapper(value)
        return _reduce_storage(value) or super().reducer_override(value)

    def dump_modules(self) -> None:
        """Write all that belongs into modules of the receiver, and then the places of what cannot be sent."""
        held = list[tuple[Place, str | None, str]]()
        while (found := self.reach.take()) or self.homes:
            kept = (
                []
                if _try_dumping([value for _, value in found]) is None
                else [(place, value) for place, value in found if _try_dumping(value) is not None]
            )
            held += [(place, fingerprint(value, with_contents=True), describe_place(place)) for place, value in kept]
            without = {id(place) for place, _ in kept}
            homes, self.homes = [*self.homes, *(one for one in found if id(one[0]) not in without)], []
            for place, _ in (*found, *homes):
                if isinstance(place.owner, dict):
                    self._open_space(place.owner)
            if homes:
                self.dump(homes)
        self.dump([])
        self.dump(held)

    def _reduce_class(self, kind: type) -> Any:  # Any: as pickle wants it
        if _is_script(kind.__module__):
            self._note_home(vars(sys.modules[kind.__module__]), kind.__name__, kind)
            return _dynamic_class_reduce(kind)
        self.reach.add_class(kind)
        return super().reducer_override(kind)

    def _reduce_wrapper(self, value: Any) -> Any:  # Any: a cached function or a NewType, and as pickle wants it
        if _is_script(value.__module__):
            self._note_home(vars(sys.modules[value.__module__]), value.__name__, value)
            return _reduce_named(value)
        if isinstance(value, _CACHED):
            self.reach.add_function(value)
        return super().reducer_override(value)

    def _reduce_function(self, function: FunctionType) -> Any:  # Any: as pickle wants it
        if _goes_by_name(function):
            self.reach.add_named(function)
            return NotImplemented
        self.reach.add_function(function)
        sent = self._open_space(function.__globals__)
        self._note_home(function.__globals__, function.__name__, function)
        code, names = function.__code__, _find_globals(function)
        attributes = _find_attributes(function)
        submodules = [f"{module.__name__}.{name}" for module, name in attributes]  # `os.path`, for one
        for module, name in attributes:
            if _is_script(module.__name__):
                self._note_home(vars(module), name, vars(module)[name])
        if code.co_filename not in self.sources:
            text = "".join(linecache.getlines(code.co_filename, function.__globals__))
            self.sources |= {code.co_filename: text} if text else {}
        state = (
            vars(function) | {name: getattr(function, name) for name in _COPIED},
            {} if sent.about is None else names,
            [path for path in submodules if path in sys.modules and is_importable(path)],
        )
        new = code, function.__globals__, function.__name__, None, function.__closure__
        return FunctionType, new, state, None, None, _fill_function

    def _open_space(self, space: Namespace) -> _SentNamespace:
        if id(space) in self._spaces:
            return self._spaces[id(space)][0]
        name = space.get("__name__")
        is_module = isinstance(name, str) and name in sys.modules and vars(sys.modules[name]) is space
        about = None if is_module and is_importable(str(name)) else describe_module(space)
        sent = _SentNamespace(len(self._spaces), name if is_module else None, about)
        self._spaces[id(space)] = sent, space
        return sent

    def _note_home(self, space: Namespace, name: str, value: object) -> None:
        if space.get(name) is value:
            self._open_space(space)
            self.homes.append((Place(space, (name,)), value))


class _Receiver(pickle.Unpickler):
    """Makes what was sent."""

    def __init__(self, stream: io.BytesIO, data: DataReader) -> None:
        super().__init__(stream)
        self._data = data
        self._spaces: dict[int, Namespace] = {}

    def persistent_load(self, sent: Any) -> object:  # Any: a Sent, or a _SentNamespace
        """Return the memory or the namespace that something stands for."""
        if not isinstance(sent, _SentNamespace):
            return sent.open(self._data)
        if sent.number not in self._spaces:
            self._spaces[sent.number] = _open_namespace(sent)
        return self._spaces[sent.number]


def _open_namespace(sent: _SentNamespace) -> Namespace:
    if sent.about is None:
        return vars(import_module(str(sent.name)))
    return {**sent.about, "__builtins__": builtins} if sent.name is None else vars(open_module(sent.name, sent.about))


def _is_script(name: object) -> bool:
    return isinstance(name, str) and name in sys.modules and not is_importable(name)


def _goes_by_name(function: FunctionType) -> bool:
    if function.__module__ not in sys.modules or not is_importable(function.__module__):
        return False
    found: object = sys.modules[function.__module__]
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _find_globals(function: FunctionType) -> Namespace:
    """Return the globals that a function, or the code in it, names."""
    space = function.__globals__
    return {name: space[name] for name in sorted(find_global_names(function)) if name in space}


def _find_attributes(function: FunctionType) -> list[tuple[ModuleType, str]]:
    """Return the modules that a function names or imports, each with what the function may ask of it."""
    asked = sorted({name for code in codes_in(function.__code__) for name in code.co_names})
    return [(module, name) for module in find_modules(function) for name in asked if name in vars(module)]


def _fill_cell(cell: CellType, content: tuple[object]) -> None:
    (cell.cell_contents,) = content


def _fill_function(function: FunctionType, state: tuple[Namespace, Namespace, list[str]]) -> None:
    attributes, names, submodules = state
    for name, value in attributes.items():
        setattr(function, name, value)
    function.__globals__.update(names)
    for name in submodules:
        import_module(name)


def _reduce_module(module: ModuleType) -> tuple[Callable[..., ModuleType], tuple[Any, ...]]:
    if is_importable(module.__name__):
        return import_module, (module.__name__,)
    return open_module, (module.__name__, describe_module(vars(module)))


def _reduce_stream(stream: io.TextIOWrapper) -> tuple[Any, ...]:
    for name in ("stdout", "stderr"):
        if stream is getattr(sys, name):
            return getattr, (sys, name)
    raise pickle.PicklingError("an open file belongs to this process")


def _reduce_named(value: Any) -> tuple[Any, ...]:
    """Return how to make what Python itself would send by name alone; what a cache has found is left behind."""
    if isinstance(value, NewType):
        return NewType, (value.__name__, value.__supertype__)
    return _cache_again, (value.__wrapped__, value.cache_parameters()), vars(value)


def _cache_again(function: Callable[..., Any], parameters: Mapping[str, Any]) -> object:
    return lru_cache(**parameters)(function)


def _reduce_storage(value: Any) -> tuple[Any, ...] | None:
    """Have what torch pickles tensors with refer to memory that is sent apart."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.storage.TypedStorage):
        return None
    from headwater.torch_private import untyped_storage_of  # torch is imported already

    return _wrap_storage, (torch.storage.TypedStorage, untyped_storage_of(value), value.dtype)


def _wrap_storage(kind: Any, untyped: object, dtype: object) -> object:  # Any: torch's class
    return kind(wrap_storage=untyped, dtype=dtype, _internal=True)


def _find_parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield what a function that goes by value takes along, each with words for it."""
    if isinstance(value, FunctionType) and not _goes_by_name(value):
        yield from ((f"global {name!r}", part) for name, part in _find_globals(value).items())
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield from ((f"variable {name!r} of the enclosing function", part) for part in read_cell(cell))
        yield from (("default value of an argument", part) for part in value.__defaults__ or ())
        yield from ((f"default value of {name!r}", part) for name, part in (value.__kwdefaults__ or {}).items())
    elif isinstance(value, type) and _is_script(value.__module__):
        yield from ((f"{value.__name__}.{name}", part) for name, part in vars(value).items())


def _try_sending(value: object, sender: _Sender | None = None) -> Exception | None:
    """Send a value and all that belongs into its modules; return why it cannot be sent, None if it can."""
    sender = sender or _Sender(io.BytesIO())
    try:
        sender.dump(value)
        sender.dump_modules()
    except Exception as error:  # of the user's own objects, whatever they raise while they are pickled
        return error
    return None


def _try_dumping(value: object) -> Exception | None:
    """Return why a value alone cannot be sent, None if it can."""
    try:
        _Sender(io.BytesIO()).dump(value)
    except Exception as error:  # as above
        return error
    return None
