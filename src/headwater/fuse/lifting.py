"""Ways to call a function that knows nothing of lanes, with values that differ by lane.

It is *lifted* where it is known to compute and no more: it runs once per lane, on the lane's own plain values. What is
*shown* runs once, with text of all lanes. Any other function is *guarded*: it may keep a number that differs by lane or
compute with it, but where it raises, each lane has to find out alone.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from numbers import Number
from types import GeneratorType
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from headwater.errors import CannotFuseError
from headwater.fuse.apart import join, split, tensors
from headwater.fuse.arrays import PerLaneArray, take_out
from headwater.fuse.functorch import is_lane_tensor
from headwater.fuse.per_lane import PerLane, PerLaneMapping, PerLaneText, PerLaneThing, gather, run_by_lane
from headwater.fuse.roster import Roster
from headwater.fuse.shortage import is_out_of_memory
from headwater.fuse.spelling import reads_objects, spell_arguments
from headwater.trials import Recipe
from headwater.trials.functions import fill_in, join_pieces, make_dict, make_list, make_tuple, unbind
from headwater.trials.recipes import Call, Constant, Expression

Function: TypeAlias = Callable[..., Any]

ROSTER: ContextVar[Roster | None] = ContextVar("roster", default=None)
"""Whose lanes this thread runs."""


def lift(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function that computes and no more, for each lane."""
    if args and type(args[0]) in _ONE_PASS and _consumes(function):
        args = ([*args[0]], *args[1:])
    args = (*spell_arguments(function, args),)
    if reads_objects(function, args, kwargs) and (roster := roster_of((args, kwargs))) is not None:
        return _compute_in_views(function, args, kwargs, roster)
    reads_tensors = _reads_tensors(function)
    if not differs(args, reads_tensors) and not differs(kwargs.values(), reads_tensors):
        return function(*args, **kwargs)
    roster = roster_of((args, kwargs))
    if roster is None or _writes(function, args, kwargs):
        return guard(function, *args, **kwargs)
    return _compute(function, args, kwargs, roster)


def lift_arrays(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function of NumPy or its like for each lane, which takes tensors for arrays."""
    return lift(function, *map(take_out, args), **{key: take_out(value) for key, value in kwargs.items()})


def _compute(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], roster: Roster) -> Any:
    recipe = _recipe(function, args, kwargs)
    rows = [*zip(split(list(args), len(roster)), split(dict(kwargs), len(roster)), strict=True)]

    def call(lane_args: Any, lane_kwargs: Any) -> Any:
        return function(*lane_args, **lane_kwargs)

    call.__name__ = name_function(function)
    if roster.place is not None:
        return _compute_own(call, rows, roster, recipe)
    values = run_by_lane(call, rows, roster, recipe)
    if all(isinstance(value, Tensor) for value in values):
        return join(values, roster, name_function(function))
    return gather(values, roster, recipe)


def _compute_in_views(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], roster: Roster) -> Any:
    """Let each lane compute where all that differs answers with its own value, whoever asks for it."""
    if roster.place is not None:
        return function(*args, **kwargs)

    def call(place: int) -> Any:
        with roster.answering_for(place):
            return function(*args, **kwargs)

    call.__name__ = name_function(function)
    return gather(run_by_lane(call, [(place,) for place in range(len(roster))], roster), roster, None)


def _compute_own(call: Function, rows: Sequence[Any], roster: Roster, recipe: Recipe | None) -> Any:
    """Compute for the lane that code runs for; numbers stay one per lane, as far as all have one."""
    try:
        values = [call(*row) for row in rows]
    except Exception:  # of another lane, perhaps: this one's own is raised below
        values = []
    if values and all(isinstance(value, Number) for value in values):
        return gather(values, roster, recipe)
    assert roster.place is not None
    roster.note(recipe)
    return call(*rows[roster.place])


def name_attribute(function: Function, *args: Any) -> Any:
    """Call `getattr` and its like, whose second argument is a name."""
    return function(*(own(arg) if place == 1 else arg for place, arg in enumerate(args)))


def store(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call what writes values down as bytes: of one lane, unless all have the same."""
    return function(*map(plain, args), **{key: plain(value) for key, value in kwargs.items()})


def plain(value: Any) -> Any:
    """Return the one value that lanes have, also in lists."""
    kind = type(value)
    if kind in STAND_INS:
        return value.one()
    if kind in _LISTS and differs([value]):
        return {key: plain(item) for key, item in value.items()} if kind is dict else kind(map(plain, value))
    return value


def guard(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call what knows nothing of lanes; numbers may go there, but not what it might compare by identity or type."""
    if not differs(args) and not differs(kwargs.values()):
        return function(*args, **kwargs)
    try:
        return function(*map(_number, args), **{key: _number(value) for key, value in kwargs.items()})
    except CannotFuseError:
        raise
    except Exception as error:
        stand_ins = [*_stand_ins((args, kwargs))]
        roster = stand_ins[0].roster
        if is_out_of_memory(error):
            raise roster.run_short(error) from error
        if roster.place is not None:
            picked_args, picked_kwargs = (split(each, len(roster))[roster.place] for each in (list(args), kwargs))
            return function(*picked_args, **picked_kwargs)
        recipe = next((each.recipe for each in stand_ins if isinstance(each, PerLane) and each.recipe), None)
        raise roster.part(
            recipe, f"{name_function(function)} does not take a value that differs by lane: {error}"
        ) from error


def _number(value: Any) -> Any:
    """Make lanes part by whatever is no number; a truth might be compared by identity."""
    kind = type(value)
    if kind in STAND_INS:
        return value if kind is PerLane and bool not in map(type, value.values) else value.one()
    if kind in _LISTS and differs([value]):
        return {key: _number(item) for key, item in value.items()} if kind is dict else kind(map(_number, value))
    return value


def differs(values: Iterable[Any], also_tensors: bool = False) -> bool:
    """Tell whether something among the values, or in lists of them, differs by lane."""
    for value in values:
        kind = type(value)
        if kind in _INERT:
            continue
        if kind in STAND_INS or issubclass(kind, PerLaneMapping):
            return True
        if kind in _LISTS:
            if differs(value.values() if kind is dict else value, also_tensors):
                return True
        elif also_tensors and issubclass(kind, Tensor) and is_lane_tensor(value):
            return True
    return False


def is_stand_in(value: Any) -> bool:
    """Tell whether a value stands for those of all lanes."""
    return type(value) in STAND_INS or isinstance(value, PerLaneMapping)


def _stand_ins(value: Any) -> Iterator[Any]:
    """Find what differs by lane."""
    kind = type(value)
    if kind in STAND_INS or issubclass(kind, PerLaneMapping):
        yield value
    elif kind in _LISTS:
        for item in value.values() if kind is dict else value:
            yield from _stand_ins(item)


def roster_of(values: Any) -> Roster | None:
    """Return whose values differ here, or whose lanes this thread runs."""
    return next((each.roster for each in _stand_ins(values)), None) or ROSTER.get()


def _recipe(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Recipe | None:
    """Write down how the answer follows from the configuration, if everything in it does."""
    if _differs_in_tensors((*args, *kwargs.values())):
        return None
    if not all(each.recipe is not None for each in _stand_ins((args, kwargs))):
        return None
    given = (*args, *kwargs.values())
    plain, owner = unbind(function)
    source = Call(plain, (*map(Constant, owner), *map(_express, given)), tuple(kwargs))
    return Recipe(f"{name_function(function)}({', '.join(map(_label, given))})", source)


def _differs_in_tensors(values: Sequence[Any]) -> bool:
    return differs(values, True) and any(is_lane_tensor(tensor) for tensor in tensors(values))


def _express(value: Any) -> Expression:
    kind = type(value)
    if kind in STAND_INS or isinstance(value, PerLaneMapping):
        source: Expression = value.recipe.source
        return source
    if kind is dict:
        return Call(make_dict, (Constant([*value]), *map(_express, value.values())))
    return (
        Call(make_list if kind is list else make_tuple, (*map(_express, value),)) if kind in _LISTS else Constant(value)
    )


def _label(value: Any) -> str:
    kind = type(value)
    if kind in STAND_INS or isinstance(value, PerLaneMapping):
        return str(value.recipe.label)
    if kind is dict:
        return f"{{{', '.join(f'{key!r}: {_label(item)}' for key, item in value.items())}}}"
    return f"[{', '.join(map(_label, value))}]" if kind in _LISTS else repr(value)


def name_function(function: Any) -> str:
    """Return the name of a function, for a sentence about it."""
    name: str = getattr(function, "__name__", "") or repr(function)
    return name.strip("_")


def _consumes(function: Any) -> bool:
    return function in _CONSUMERS or type(getattr(function, "__self__", None)) is str


def _reads_tensors(function: Any) -> bool:
    is_text = type(getattr(function, "__self__", None)) is str
    return is_text or getattr(function, "__module__", "") == "math" or function in _READERS


def _writes(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    name = getattr(function, "__name__", "")
    has_out = "out" in kwargs or (isinstance(function, np.ufunc) and len(args) > function.nin)
    return has_out or name in _WRITERS or (name in CHANGERS and hasattr(function.__self__, "dtype"))


def own(value: Any) -> Any:
    """Return a value that is used where only numbers may differ by lane."""
    return value.one() if type(value) in (PerLaneText, PerLaneThing) else value


STAND_INS = frozenset({PerLane, PerLaneArray, PerLaneText, PerLaneThing})
_LISTS = frozenset({list, tuple, dict})
_INERT = frozenset({int, float, bool, str, type(None)})
_ONE_PASS = frozenset({
    GeneratorType, deque, map, filter, zip, enumerate, reversed, type({}.keys()), type({}.values()), type({}.items()),
})  # fmt: skip
_CONSUMERS = frozenset({max, min, sorted, math.fsum, math.prod})
_READERS = frozenset({float, int, complex, bool, max, min, str, repr, ascii, format, join_pieces, fill_in})
INTO_ARRAYS = frozenset({"copyto", "put", "place", "putmask", "fill_diagonal"})
"""Functions of NumPy that write into what they are given."""
_WRITERS = INTO_ARRAYS | {"save", "savetxt", "savez", "savez_compressed", "dump"}
CHANGERS = frozenset({"fill", "itemset", "setfield", "setflags", "sort", "partition", "resize", "byteswap", "put"})
"""Methods of an array that change it."""
