"""Objects that the user's code can reach from some variables, and the content that each of them had at one time.

Content is shallow: the items of a container, the attributes of an object, the numbers of a tensor. An object keeps its
identity, so that its content can be compared with the present one, or be put back into it.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import io
import itertools
import logging
import operator
import pickle
import random
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, partial
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwater.fuse.apart import is_per_lane
from headwater.fuse.per_lane import same
from headwater.fuse.users_code import WRAPPERS, find_functions, is_library, is_users_module
from headwater.torch_private import (
    COMPILED_CALL,
    DisableTorchFunction,
    hook_tables_of,
    is_lane_tensor,
    stack_of,
    version_of,
)

LITERALS = frozenset({type(None), bool, int, float, str})
"""Values that a checkpoint holds as they are."""
VALUES = LITERALS | {complex, bytes, range, slice, torch.dtype, torch.device, torch.Size, type(Ellipsis)}
"""Values that cannot change; equal ones are interchangeable."""
_CONSTANTS: tuple[Any, ...] = (
    FunctionType, MethodType, partial, frozenset, BuiltinFunctionType, ModuleType, PurePath, Enum, logging.Logger,
    MappingProxyType, torch.layout, torch.memory_format, type(torch.finfo(torch.float32)), type(torch.ops),
    weakref.ref, staticmethod, classmethod, property,
)  # fmt: skip
_CACHED = type(lru_cache(len))
_METHODS = (FunctionType, staticmethod, classmethod, property, _CACHED)
_OUTPUTS = ("tqdm", "logging", "tensorboard", "torch.utils.tensorboard", "tensorboardX", "wandb", "mlflow", "trackio")
"""Packages whose objects only show or record something, and are made anew by the function."""
_RANDOM = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_HEAP_TYPE = 1 << 9
"""The flag of classes that were made by a `class` statement."""
_UNSEEN = frozenset({COMPILED_CALL, "_claimed", "__weakref__", "__dict__"})
"""Attributes that belong to Python or to this package."""
MAX_OBJECTS = 200_000
"""How many objects are looked at; a function that reaches more cannot be continued."""
BIG_BYTES = 1 << 20
"""Tensors from this size on are summed up instead of hashed, and are not copied."""
_COLUMNS = 4096


class Kind(Enum):
    """How the content of an object is read."""

    CONSTANT = "constant"
    LIST = "list"
    SET = "set"
    DICT = "dict"
    OBJECT = "object"
    CLASS = "class"
    CELL = "cell"
    CACHE = "cache"
    TENSOR = "tensor"
    WEIGHT = "weight"
    ARRAY = "array"
    RANDOM = "random"
    UNKNOWN = "unknown"
    STUCK = "stuck"


NUMERIC = frozenset({Kind.TENSOR, Kind.WEIGHT, Kind.ARRAY})


@dataclass(slots=True)
class Content:
    """The shallow content of one object."""

    items: Any = None
    """The items of a container or the pairs of a dictionary; of a tensor or an array, a hash or a copy."""
    attributes: dict[str, Any] | None = None
    fixed: tuple[Any, ...] = ()
    """Parts that cannot be saved, and must stay the same objects: the class of an object, the hooks of a tensor."""
    obstacle: str = ""
    """Why the content cannot be read; empty if it can."""


@dataclass(slots=True)
class Node:
    """One object, where it was found first, and the content that it had."""

    path: str
    thing: Any
    kind: Kind
    content: Content


@dataclass(slots=True)
class Snapshot:
    """The objects that some variables lead to, by identity and by path."""

    roots: dict[str, Any]
    covered: Mapping[int, Any] = field(default_factory=dict)
    """Tensors whose numbers are saved elsewhere, by id."""
    opaque: Mapping[int, Any] = field(default_factory=dict)
    """Objects whose state is saved elsewhere, by id."""
    copies: bool = False
    """Whether small tensors and arrays are copied, so that they can be put back."""
    nodes: dict[int, Node] = field(default_factory=dict)
    paths: dict[str, Any] = field(default_factory=dict)
    classes: dict[type, str] = field(default_factory=dict)
    """Where an object of each class, or the class itself, is found."""
    memories: dict[int, tuple[int, Any]] = field(default_factory=dict)
    """Where the memory of tensors and arrays was and which part of it they showed, by id."""
    is_complete: bool = True

    def take(self) -> Snapshot:
        """Look at everything that can be reached now."""
        waiting: deque[tuple[str, Any]] = deque(self.roots.items())
        while waiting:
            path, value = waiting.popleft()
            if type(value) is tuple or (isinstance(value, tuple) and type(value) not in VALUES):
                waiting.extend((f"{path}[{place}]", item) for place, item in enumerate(value))
                self._note_class(path, type(value))
            elif not is_plain(value) and id(value) not in self.nodes:
                if len(self.nodes) >= MAX_OBJECTS:
                    self.is_complete = False
                    return self
                waiting.extend(self._add(path, value))
        return self

    def _add(self, path: str, thing: Any) -> list[tuple[str, Any]]:
        kind = self.classify(thing)
        content = self.read(thing, kind)
        self.nodes[id(thing)] = Node(path, thing, kind, content)
        self.paths[path] = thing
        self._note_class(path, type(thing))
        if isinstance(thing, type):
            self.classes.setdefault(thing, f"{path}!")
        return [(f"{path}{key}", value) for key, value in children(thing, kind, content)]

    def _note_class(self, path: str, kind: type) -> None:
        self.classes.setdefault(kind, path)

    def classify(self, thing: Any) -> Kind:
        """Say how the content of an object is read."""
        if id(thing) in self.opaque:
            return Kind.CONSTANT
        if id(thing) in self.covered:
            return Kind.WEIGHT
        return classify(thing)

    def read(self, thing: Any, kind: Kind) -> Content:
        """Return the present content of an object."""
        return read_content(thing, kind, copies=self.copies)


def is_plain(value: Any) -> bool:
    """Tell whether a value is no object with an identity of its own: it cannot change, or stands for lanes."""
    return type(value) in VALUES or is_per_lane(value) or isinstance(value, np.generic)


def classify(thing: Any) -> Kind:
    """Say how the content of an object is read, by its class."""
    if isinstance(thing, Tensor):
        return Kind.TENSOR if thing.layout == torch.strided and not thing.is_meta else Kind.STUCK
    if isinstance(thing, np.ndarray):
        return Kind.ARRAY if type(thing) is np.ndarray and not thing.dtype.hasobject else Kind.UNKNOWN
    if isinstance(thing, _RANDOM):
        return Kind.RANDOM
    if isinstance(thing, type):
        return Kind.CLASS if is_users_module(thing.__module__) and not issubclass(thing, Enum) else Kind.CONSTANT
    if isinstance(thing, CellType):
        return Kind.CELL
    module = type(thing).__module__
    if isinstance(thing, _CACHED):
        return Kind.CACHE if find_functions(thing, in_globals=False) else Kind.CONSTANT
    if isinstance(thing, _CONSTANTS) or module.startswith(("headwater.", *_OUTPUTS)):
        return Kind.CONSTANT
    return _classify_object(thing)


def _classify_object(thing: Any) -> Kind:
    kind = type(thing)
    made = [base for base in kind.__mro__ if base.__flags__ & _HEAP_TYPE]
    for base, found in _CONTAINERS.items():
        if isinstance(thing, base):
            return found
    if isinstance(thing, GeneratorType) or (isinstance(thing, Iterator) and not is_users_module(kind.__module__)):
        return Kind.STUCK
    builtin = next(base for base in kind.__mro__ if base not in made or _is_extension(base))
    has_attributes = made and builtin is object and (hasattr(thing, "__dict__") or any(_slots(kind)))
    return Kind.OBJECT if has_attributes else Kind.UNKNOWN


def _is_extension(kind: type) -> bool:
    """Tell whether a class comes from an extension module: its objects keep data outside of their attributes."""
    return isinstance(vars(kind).get("__new__"), BuiltinFunctionType)


_CONTAINERS: dict[type, Kind] = {
    list: Kind.LIST, deque: Kind.LIST, set: Kind.SET, dict: Kind.DICT, SimpleNamespace: Kind.OBJECT,
}  # fmt: skip


def read_content(thing: Any, kind: Kind, *, copies: bool = False, is_fresh: bool = False) -> Content:
    """Return the present shallow content of an object.

    Args:
        thing: The object.
        kind: How it is read.
        copies: Whether small tensors and arrays are copied, so that they can be put back.
        is_fresh: Whether big tensors are summed up even if torch has not counted a change: `tensor.data` and NumPy
            change them unseen.
    """
    if kind in (Kind.TENSOR, Kind.ARRAY):
        content = _read_numbers(thing, copies=copies, is_fresh=is_fresh)
    elif kind is Kind.CACHE:
        content = _read_cache(thing, with_counts=not copies)  # which cannot be put back
    else:
        reader = _READERS.get(kind)
        content = Content() if reader is None else reader(thing)
    if isinstance(thing, Tensor):
        content.fixed = read_hooks(thing)
    elif kind is Kind.OBJECT:
        content.fixed = (type(thing),)
    return content


def _read_class(thing: Any) -> Content:
    return Content(None, {name: value for name, value in vars(thing).items() if _is_data(name, value)})


def _read_cell(thing: Any) -> Content:
    try:
        return Content([thing.cell_contents])
    except ValueError:  # empty
        return Content([])


def _read_cache(thing: Any, *, with_counts: bool) -> Content:
    """Read the entries of a cached function, in their order, where the garbage collector finds them."""
    held = gc.get_referents(thing)
    pairs = [pair for part in held if type(part) is dict for pair in part.items()]
    entries = [pair for pair in pairs if type(pair[1]).__name__ != "_lru_list_elem"]  # whose results are in `held`
    counts = [thing.cache_info()] if with_counts else []
    return Content([*(part for part in held if type(part) is not dict), *entries, *counts])


def children(thing: Any, kind: Kind, content: Content) -> Iterator[tuple[str, Any]]:
    """Yield the objects that an object holds, with their place in it."""
    if kind is Kind.DICT:
        for place, (key, value) in enumerate(content.items):
            yield f".key{place}", key
            yield f"[{key!r}]" if type(key) is str else f"[{place}]", value  # the numbers of hooks differ by call
        yield "?", thing.default_factory if isinstance(thing, defaultdict) else None
    elif kind in (Kind.LIST, Kind.CELL, Kind.CACHE):
        yield from ((f"[{place}]", item) for place, item in enumerate(content.items))
    elif kind is Kind.CONSTANT:
        yield from _held_by_constant(thing)
    elif kind is Kind.CLASS:
        yield from ((f".{name}", part) for name, part in vars(thing).items() if _is_code_or_descriptor(part))
    elif kind is Kind.OBJECT:
        yield ".__class__", type(thing)
    for name, value in (content.attributes or {}).items():
        yield f".{name}", value


def _is_code_or_descriptor(part: Any) -> bool:
    """Tell whether an attribute of a class may hold state beside data: a function, or a descriptor of the user's."""
    return isinstance(part, _METHODS) or is_users_module(type(part).__module__)


def _held_by_constant(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a function of the user's, or something that wraps one, can change."""
    if isinstance(thing, FunctionType) and not is_library(thing.__code__.co_filename):
        yield from ((f".cell{place}", cell) for place, cell in enumerate(thing.__closure__ or ()))
        yield from ((f".default{place}", value) for place, value in enumerate(thing.__defaults__ or ()))
        yield from ((f".default_{name}", value) for name, value in (thing.__kwdefaults__ or {}).items())
        yield ".__dict__", thing.__dict__
    elif isinstance(thing, FunctionType):
        yield ".__wrapped__", getattr(thing, "__wrapped__", None)
    else:
        yield from ((f".{name}", getattr(thing, name)) for name in WRAPPERS.get(type(thing), ()))


def is_same_content(one: Content, other: Content) -> bool:
    """Tell whether two contents hold the same objects and the same values."""
    if one.obstacle or other.obstacle:
        return False
    is_fixed = len(one.fixed) == len(other.fixed) and all(map(operator.is_, one.fixed, other.fixed))
    return is_fixed and _same_items(one.items, other.items) and _same_attributes(one.attributes, other.attributes)


def is_same_reference(one: Any, other: Any) -> bool:
    """Tell whether two references lead to the same object, or to values that cannot be told apart."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_same_reference, one, other))
    return (type(one) in VALUES or isinstance(one, np.generic)) and same(one, other)


def _same_items(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_reference, one, other))
    return bool(one == other)


def _same_attributes(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(is_same_reference(value, other[name]) for name, value in one.items())


def put_content(thing: Any, kind: Kind, content: Content) -> bool:
    """Put content that was read from an object back into it; tell whether that is possible."""
    return _put_fixed(thing, kind, content.fixed) and _put_shallow(thing, kind, content)


def _put_shallow(thing: Any, kind: Kind, content: Content) -> bool:
    match kind:
        case Kind.LIST | Kind.SET | Kind.DICT:
            put_items(thing, kind, content.items)
        case Kind.CELL if content.items:
            thing.cell_contents = content.items[0]
        case Kind.TENSOR if isinstance(content.items, Tensor):
            put_numbers(thing, content.items)
        case Kind.ARRAY if isinstance(content.items, np.ndarray) and thing.shape == content.items.shape:
            np.copyto(thing, content.items)
        case Kind.RANDOM:
            put_random(thing, content.items)
        case Kind.OBJECT | Kind.CLASS:
            pass
        case _:
            return kind is Kind.CACHE and _put_cache(thing, content)
    if content.attributes is not None:
        put_attributes(thing, kind, content.attributes)
    return True


def _put_fixed(thing: Any, kind: Kind, fixed: tuple[Any, ...]) -> bool:
    """Give an object its class again, and take new hooks off a tensor; tell whether that is enough."""
    if kind is Kind.OBJECT and type(thing) is not fixed[0]:
        thing.__class__ = fixed[0]
    known = {id(hook) for hook in fixed}
    hooks = _find_hooks(thing) if isinstance(thing, Tensor) else []
    for each in hooks:
        for key in [key for key, hook in each.items() if id(hook) not in known]:
            del each[key]
    return not isinstance(thing, Tensor) or sum(map(len, hooks)) == len(fixed)


def _put_cache(thing: Any, content: Content) -> bool:
    thing.cache_clear()
    return is_same_content(_read_cache(thing, with_counts=False), content)


def put_items(thing: Any, kind: Kind, items: Sequence[Any]) -> None:
    """Replace the items of a container."""
    if kind is Kind.DICT:
        dict.clear(thing)
        for key, value in items:
            dict.__setitem__(thing, key, value)
        if isinstance(thing, OrderedDict):  # which keeps its order elsewhere
            thing.clear()
            thing.update(items)
    elif isinstance(thing, list):
        list.__setitem__(thing, slice(None), items)
    elif isinstance(thing, deque):
        deque.clear(thing)
        deque.extend(thing, items)
    else:
        set.clear(thing)
        set.update(thing, items)


def put_attributes(thing: Any, kind: Kind, attributes: Mapping[str, Any]) -> None:
    """Give an object or a class its attributes, without running code of its class."""
    if kind is Kind.CLASS:
        _put_class_attributes(thing, attributes)
        return
    if isinstance(thing, Tensor) and "grad" in attributes:
        attributes = dict(attributes)
        thing.grad = attributes.pop("grad")
    slots = dict(_slots(type(thing)))
    if hasattr(thing, "__dict__"):
        for name in [name for name in vars(thing) if name not in attributes and name not in _UNSEEN]:
            del vars(thing)[name]
        vars(thing).update({name: value for name, value in attributes.items() if name not in slots})
    for name, member in slots.items():
        if name in attributes:
            member.__set__(thing, attributes[name])


def _put_class_attributes(thing: Any, attributes: Mapping[str, Any]) -> None:
    for name in [name for name in (_read_class(thing).attributes or {}) if name not in attributes]:
        type.__delattr__(thing, name)
    for name, value in attributes.items():
        if name not in vars(thing) or not is_same_reference(vars(thing)[name], value):
            type.__setattr__(thing, name, value)


def put_numbers(tensor: Tensor, values: Tensor) -> None:
    """Give a plain tensor its numbers, in its own memory where they fit."""
    if tensor.shape == values.shape and tensor.dtype == values.dtype:
        tensor.data.copy_(values)
    else:
        tensor.data = values.clone().to(tensor.device)


def read_attributes(thing: Any) -> dict[str, Any] | None:
    """Return the attributes of an object, also those in slots; None if it can have none."""
    found = dict(vars(thing)) if hasattr(thing, "__dict__") else {}
    for name, member in _slots(type(thing)):
        try:
            found[name] = member.__get__(thing)
        except AttributeError:  # not set
            continue
    for name in _UNSEEN:
        found.pop(name, None)
    return found or ({} if hasattr(thing, "__dict__") else None)


def _slots(kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__:
        if base.__flags__ & _HEAP_TYPE:
            yield from ((name, part) for name, part in vars(base).items() if isinstance(part, MemberDescriptorType))


def _is_data(name: str, value: Any) -> bool:
    """Tell whether an attribute of a class is the user's: data, a function or a method."""
    is_own = isinstance(value, _METHODS) or not hasattr(type(value), "__get__")
    return is_own and not (name.startswith("__") or name == "_abc_impl")


def find_grad(tensor: Tensor) -> Tensor | None:
    """Return the gradient of a leaf; of lanes' leaf, that of the stack."""
    with DisableTorchFunction():
        stack = stack_of(tensor) if is_lane_tensor(tensor) else tensor
        return stack.grad if stack.is_leaf else None


def read_hooks(tensor: Tensor) -> tuple[Any, ...]:
    """Return the hooks that the gradients of a leaf go through."""
    return tuple(hook for hooks in _find_hooks(tensor) for hook in hooks.values())


def _find_hooks(tensor: Tensor) -> list[dict[int, Any]]:
    """Return the tables of hooks that gradients of a leaf go through; of lanes' leaf, also those of the stack."""
    with DisableTorchFunction():
        tensors = [tensor, stack_of(tensor)] if is_lane_tensor(tensor) else [tensor]
        if not tensors[-1].is_leaf:
            return []
        found: list[Any] = [table for each in tensors for table in hook_tables_of(each)]
    return [table for table in found if table]


_hashes: dict[int, tuple[weakref.ref[Any], int, str]] = {}


def _read_numbers(thing: Any, *, copies: bool, is_fresh: bool) -> Content:
    """Read a tensor or an array: a copy of a small one where that is wanted, else a hash."""
    if not isinstance(thing, Tensor):
        return Content(thing.copy() if copies and thing.nbytes < BIG_BYTES else hash_numbers(thing))
    attributes = read_attributes(thing)
    if is_lane_tensor(thing):
        return Content(object(), attributes)  # equal to no other content: lanes differ
    num_bytes = thing.numel() * thing.element_size()
    if copies and num_bytes < BIG_BYTES:
        return Content(thing.detach().clone(), {**(attributes or {}), "grad": find_grad(thing)})
    if num_bytes < BIG_BYTES or is_fresh or thing.requires_grad:
        return Content(hash_numbers(thing), attributes)
    known = _hashes.get(id(thing))
    version = -1 if thing.is_inference() else version_of(thing)
    if known is None or known[0]() is not thing or known[1] != version:
        key = id(thing)
        known = _hashes[key] = weakref.ref(thing, lambda _: _hashes.pop(key, None)), version, hash_numbers(thing)
    return Content(known[2], attributes)


def hash_numbers(thing: Any) -> str:
    """Return a hash of the shape, the type and the numbers of a tensor or an array."""
    digest = hashlib.blake2b(f"{tuple(thing.shape)} {thing.dtype}".encode(), digest_size=8)
    if isinstance(thing, Tensor):
        grad = find_grad(thing)
        digest.update(f"{thing.requires_grad} {'' if grad is None else hash_numbers(grad)}".encode())
        with DisableTorchFunction(), torch.no_grad(), torch.inference_mode(False):
            numbers = thing.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
            numbers = torch.view_as_real(numbers).reshape(-1) if numbers.is_complex() else numbers
            for part in _sum_up(numbers.view(torch.uint8)):
                digest.update(part.cpu().clone().numpy().data)  # a tensor whose memory NumPy saw cannot be resized
    elif thing.size:
        digest.update(np.ascontiguousarray(thing).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _sum_up(content: Tensor) -> list[Tensor]:
    """Return the bytes of a small tensor; of a big one, sums over the rows and columns of a table of whole numbers.

    The sums take a fraction of the time of a hash, and every change of a number or of the order changes some.
    """
    num_even = content.numel() // (8 * _COLUMNS) * (8 * _COLUMNS)
    if content.numel() < BIG_BYTES or content.storage_offset() % 8:
        return [content]
    table = content[:num_even].view(torch.int64).reshape(-1, _COLUMNS)
    return [table.sum(0), table.sum(1), content[num_even:]]


def _read_random(thing: Any) -> Any:
    """Return where a generator of random numbers stands, in tuples, numbers, texts and tensors."""
    if isinstance(thing, torch.Generator):
        return thing.get_state()
    if isinstance(thing, random.Random):
        return thing.getstate()
    if isinstance(thing, np.random.Generator):
        return _freeze(thing.bit_generator.state)
    return _freeze(thing.get_state(legacy=False))


def _freeze(state: Any) -> Any:
    """Return the state of a NumPy generator as tuples, which compare as values."""
    if isinstance(state, dict):
        return ("dict", *((key, _freeze(value)) for key, value in state.items()))
    if isinstance(state, np.ndarray):
        return ("array", str(state.dtype), tuple(state.tolist()))
    return state.item() if isinstance(state, np.generic) else state


def _thaw(state: Any) -> Any:
    if isinstance(state, tuple | list) and state and state[0] == "dict":
        return {key: _thaw(value) for key, value in state[1:]}
    if isinstance(state, tuple | list) and state and state[0] == "array":
        return np.array(state[2], dtype=state[1])
    return state


def put_random(thing: Any, state: Any) -> None:
    """Let a generator of random numbers go on from a state."""
    if isinstance(thing, torch.Generator):
        thing.set_state(state)
    elif isinstance(thing, random.Random):
        thing.setstate(state)
    elif isinstance(thing, np.random.Generator):
        thing.bit_generator.state = _thaw(state)
    else:
        thing.set_state(_thaw(state))


class _HashWriter:
    """A file that only hashes."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=8)

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return len(data)


def _read_unknown(thing: Any) -> Content:
    """Hash the pickled form of an object whose class is not known."""
    writer = _HashWriter()
    try:
        pickle.Pickler(writer, protocol=4).dump(thing)
    except Exception as error:  # whatever the class of the user or of a library raises
        return Content(obstacle=f"is a {type(thing).__name__}, which cannot be compared ({type(error).__name__})")
    return Content(writer.digest.hexdigest())


def _read_stuck(thing: Any) -> Content:
    """Tell a generator that has not begun, which the function makes again, from an iterator in the middle."""
    if isinstance(thing, GeneratorType) and inspect.getgeneratorstate(thing) == inspect.GEN_CREATED:
        return Content("not begun")
    if isinstance(thing, io.IOBase):
        return Content(obstacle="is an open file (open a log in each epoch, to append to it)")
    if isinstance(thing, Tensor):
        return Content(obstacle="is a sparse tensor")
    way_out = "(make one in each epoch, or count in a variable and compute the value from the count)"
    place = repr(thing) if isinstance(thing, itertools.count) else None
    return Content(place, obstacle=f"is a {type(thing).__name__} in the middle {way_out}")


_READERS: dict[Kind, Callable[[Any], Content]] = {
    Kind.LIST: lambda thing: Content(list(thing), read_attributes(thing)),
    Kind.SET: lambda thing: Content(list(thing), read_attributes(thing)),
    Kind.DICT: lambda thing: Content(list(dict.items(thing)), read_attributes(thing)),
    Kind.OBJECT: lambda thing: Content(None, read_attributes(thing)),
    Kind.CLASS: _read_class,
    Kind.CELL: _read_cell,
    Kind.WEIGHT: lambda thing: Content((thing.requires_grad, find_grad(thing) is not None), read_attributes(thing)),
    Kind.RANDOM: lambda thing: Content(_read_random(thing)),
    Kind.UNKNOWN: _read_unknown,
    Kind.STUCK: _read_stuck,
}
