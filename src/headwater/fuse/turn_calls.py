"""What the user's code may call in a lane's turn: what leaves nothing behind that another lane would find.

A call that changes something says what (`Turn.write`): whether others hold it is seen at the end of the turn. What
might keep anything that cannot be seen, a library that is not known, makes the lanes part.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headwater.fuse.apart import tensors
from headwater.fuse.draws import SHARED_DICE
from headwater.fuse.harmless import DICE, READING, is_harmless, is_used_up, is_within
from headwater.fuse.lifting import CHANGERS, INTO_ARRAYS, is_stand_in, name_function, plain
from headwater.fuse.rewriting import Rewrites
from headwater.fuse.roster import Roster
from headwater.fuse.turns import Turn
from headwater.fuse.users_code import is_library, is_users_module

_LIBRARIES = (
    "torchvision.transforms", "torchvision.datasets", "torch.utils.data", "torch.nn.utils.rnn", "PIL", "math",
    "itertools", "pathlib",
)  # fmt: skip
"""Libraries whose functions and objects keep nothing of what they are called with."""
_CLASSES = ("builtins", "collections", "pathlib", "io", "itertools", "torch", "datetime", "fractions", "functools")
"""Modules whose classes make things that are new."""
_KEEPING = frozenset({
    "save", "savetxt", "savez", "savez_compressed", "dump", "write", "writelines", "truncate", "write_text",
    "write_bytes", "unlink", "mkdir", "rename", "touch", "rmdir",
})  # fmt: skip
"""What writes files."""
_DRAWING = frozenset({
    "paste", "putdata", "putpixel", "putalpha", "putpalette", "thumbnail", "alpha_composite", "seek", "frombytes",
    "apply_transparency",
})  # fmt: skip
"""Methods of an image that change it."""
_WRITERS = INTO_ARRAYS | CHANGERS | {"shuffle"}


def call_in_turn(function: Any, roster: Roster, rewrites: Rewrites, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function for the lane whose turn it is, with the lane's own values."""
    turn = roster.turn
    assert turn is not None
    if type(function) is partial:
        function, args, kwargs = function.func, (*function.args, *args), {**function.keywords, **kwargs}
    given, args, kwargs = args, (*map(plain, args),), {key: plain(value) for key, value in kwargs.items()}
    if any(one is not other and not is_stand_in(one) for one, other in zip(given, args, strict=True)) and _writes(
        function
    ):
        raise roster.part_by_turn(f"it calls {name_function(function)}", turn.recipes)
    are_known = all(_is_seen(value, rewrites) for value in (*args, *kwargs.values()))
    if not are_known or not may_call(function, args, kwargs, rewrites):
        raise roster.part_by_turn(f"it calls {name_function(function)}", turn.recipes)
    _note_changed(function, args, kwargs, turn)
    seen = [(tensor, tensor._version) for tensor in tensors((*args, *kwargs.values())) if not tensor.is_inference()]
    answer = function(*args, **kwargs)
    for tensor, version in seen:
        if tensor._version != version:
            turn.write(tensor)
    return answer


def _is_seen(value: Any, rewrites: Rewrites) -> bool:
    """Tell whether a function that is handed on asks too, where it is the user's."""
    code = getattr(value, "__func__", value)
    return type(code) is not FunctionType or is_library(code.__code__.co_filename) or rewrites.has(code)


def may_call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], rewrites: Rewrites) -> bool:
    """Tell whether it is known what a function does to others."""
    if type(function) is partial:
        return may_call(function.func, args, kwargs, rewrites)
    name = getattr(function, "__name__", "")
    if function is builtins.open:
        return not {*str(kwargs.get("mode", args[1] if len(args) > 1 else "r"))} & {*"wax+"}
    if name in _KEEPING and not isinstance(getattr(function, "__self__", None), Tensor | np.ndarray):
        return False
    if is_harmless(function, rewrites) or function is torch.load:
        return True
    return _is_allowed_class(function, rewrites) if isinstance(function, type) else _is_allowed_library(function)


def _is_allowed_library(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    if type(function) is BuiltinFunctionType and owner is not None and not isinstance(owner, ModuleType):
        return True  # what it changes is noted
    if isinstance(owner, DICE):
        return True
    module = getattr(function, "__module__", None) or type(function).__module__
    return is_within(module, _LIBRARIES) and not is_within(module, ("PIL.ImageDraw",))


def _is_allowed_class(kind: type, rewrites: Rewrites) -> bool:
    if issubclass(kind, nn.Module):
        return False
    if not is_users_module(kind.__module__):
        return is_within(kind.__module__.lstrip("_"), _CLASSES) or kind in DICE or is_within(kind.__module__, ("PIL",))
    found = (vars(base).get(name) for base in kind.__mro__ for name in ("__init__", "__new__", "__post_init__"))
    written = [each for each in found if isinstance(each, FunctionType)]
    return all(rewrites.has(each) or is_library(each.__code__.co_filename) or is_made(each) for each in written)


def is_made(function: FunctionType) -> bool:
    """Tell whether a method was made by a library, such as those that a dataclass has."""
    return function.__code__.co_filename.startswith("<")


def _note_changed(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], turn: Turn) -> None:
    """Note what a call changes, as far as that can be known beforehand."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    given = [value for value in (*args, *kwargs.values()) if is_used_up(value)]
    changed = [value for value in given if not any(value is each for each in SHARED_DICE)]
    if _writes(function):
        changed += args[:1]
    if isinstance(function, np.ufunc):
        changed += args[function.nin :]
    changed += [kwargs["out"]] if kwargs.get("out") is not None else []
    is_method = isinstance(function, BuiltinFunctionType | MethodType) and not isinstance(owner, ModuleType | type)
    if is_method and owner is not None and _changes(owner, name):
        changed.append(owner)
    for each in changed:
        turn.write(each)


def _writes(function: Any) -> bool:
    """Tell by its name whether a function writes into its first argument."""
    return getattr(function, "__name__", "") in _WRITERS


def _changes(owner: Any, name: str) -> bool:
    """Tell whether a method may change its object."""
    if isinstance(owner, str | bytes | int | float | complex | tuple | frozenset) or any(
        owner is each for each in SHARED_DICE
    ):
        return False
    if isinstance(owner, Tensor | np.ndarray):
        return name in CHANGERS or (name.endswith("_") and not name.endswith("__")) or name == "set_"
    if isinstance(owner, list | dict):
        return name not in READING
    if is_within(type(owner).__module__, ("PIL",)):
        return name in _DRAWING
    return not is_users_module(type(owner).__module__) and not is_within(type(owner).__module__, _LIBRARIES)
