"""Ways to call a function that knows nothing of lanes, with values that differ by lane.

A function is *lifted* where it is known to compute and no more: it runs once per lane, on the lane's own plain values.
A function that is not known gets no value that differs by lane, whatever holds it: the lanes split.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Number
from types import FunctionType, GeneratorType, ModuleType
from typing import Any, TypeAlias

from torch import Tensor, nn

from headwater.errors import LanesPart
from headwater.fuse import files
from headwater.fuse.apart import is_per_lane, join, reach_all, split, tensors
from headwater.fuse.arrays import PerLaneArray, take_out
from headwater.fuse.effects import writes_arrays
from headwater.fuse.per_lane import PerLane, PerLaneMapping, PerLaneText, PerLaneThing, gather, run_by_lane, same
from headwater.fuse.roster import ROSTER, Roster
from headwater.fuse.spelling import reads_objects, spell_arguments
from headwater.fuse.users_code import is_users_module
from headwater.torch_private import is_lane_tensor
from headwater.trials import Recipe
from headwater.trials.functions import fill_in, join_pieces, make_dict, make_list, make_tuple, unbind
from headwater.trials.recipes import Call, Constant, Expression

Function: TypeAlias = Callable[..., Any]


def lift(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function that computes and no more, for each lane."""
    if not kwargs and all(type(arg) in _INERT for arg in args):
        return function(*args)
    if function in _PICKERS and kwargs.get("key") is not None:
        return _pick_by_key(function, *args, **kwargs)
    if args and type(args[0]) in _ONE_PASS and _consumes(function):
        args = ([*args[0]], *args[1:])
    args = (*spell_arguments(function, args),)
    if reads_objects(function, args, kwargs) and (roster := roster_of((args, kwargs))) is not None:
        return _compute_in_views(function, args, kwargs, roster)
    reads_tensors = _reads_tensors(function)
    if not differs(args, reads_tensors) and not differs(kwargs.values(), reads_tensors):
        if function in _BUILTINS or not find_stand_ins((args, kwargs)):
            return function(*args, **kwargs)
        return call_unknown(function, *args, **kwargs)
    roster = roster_of((args, kwargs))
    if roster is None or _may_change(function, args, kwargs):
        return call_unknown(function, *args, **kwargs)
    return _compute(function, args, kwargs, roster)


def lift_arrays(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function of NumPy or its like for each lane, which takes tensors for arrays."""
    return lift(function, *map(take_out, args), **{key: take_out(value) for key, value in kwargs.items()})


def _may_change(function: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a call would write into an array, or run the user's code once per lane."""
    is_given_code = any(callable(value) and not _is_plain_type(value) for value in (*args, *kwargs.values()))
    return is_given_code or writes_arrays(function, args, kwargs)


def _is_plain_type(value: Any) -> bool:
    kind = type(value)
    return kind in STAND_INS or (isinstance(value, type) and not is_users_module(value.__module__))


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
        joined = join(values, roster, name_function(function))
        if function in (max, min):  # a lane alone would hold one of the arguments itself
            for tensor in (joined, *tensors(args)):
                roster.watches.add(tensor)
        return joined
    if any(map(_returns_argument, values, rows)):
        raise split_lanes(roster, find_stand_ins((args, kwargs)), f"{call.__name__} returns one of its arguments")
    return gather(values, roster, recipe)


def _returns_argument(value: Any, row: Any) -> bool:
    """Tell whether a value is, or holds, a list or dictionary of the arguments: lanes have copies of these."""
    kinds = (list, dict)
    if not isinstance(value, list | tuple | dict):
        return False
    given = {id(each) for arguments in row for each in _items_of(arguments) if isinstance(each, kinds)}
    given |= {id(part) for each in _items_of(row[0]) for part in _items_of(each) if isinstance(part, kinds)}
    return bool(given) and any(id(each) in given for each in (value, *_items_of(value)))


def _items_of(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()


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


def _pick_by_key(function: Function, *args: Any, key: Function, **options: Any) -> Any:
    """Call `max`, `min` or `sorted` with a key function, which is called once for each item, as ever."""
    items, keys = [], []
    for item in args[0] if len(args) == 1 else args:
        items.append(item)
        keys.append(key(item))
    roster = roster_of(keys)
    if roster is None or not items or not differs(keys):
        order = function(range(len(items)), key=keys.__getitem__, **options)
        return items[order] if type(order) is int else [items[place] for place in order] if items else order

    def order_lane(own: Sequence[Any]) -> Any:
        return function(range(len(own)), key=own.__getitem__, **options)

    orders = gather(run_by_lane(order_lane, [(own,) for own in split(keys, len(roster))], roster), roster, None)
    return [_pick(roster, items, order) for order in orders] if function is sorted else _pick(roster, items, orders)


def _pick(roster: Roster, items: Sequence[Any], place: Any) -> Any:
    """Return the item at a place that may differ by lane."""
    if (
        roster.place is not None
        or type(place) is not PerLane
        or all(same(each, place.values[0]) for each in place.values)
    ):
        return items[place]
    if not all(_is_immutable(item) for item in items):
        raise split_lanes(roster, [place], "lanes pick different objects of a list")
    by_lane = [split(item, len(roster)) for item in items]
    return gather([by_lane[own][lane] for lane, own in enumerate(place.values)], roster, None)


def _is_immutable(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_immutable, value))
    return type(value) in (PerLane, PerLaneText) or isinstance(value, Number | str | bytes | None)


def name_attribute(function: Function, *args: Any) -> Any:
    """Call `getattr` and its like, whose second argument is a name."""
    if function is hasattr and type(args[0]) in STAND_INS:
        return lift(function, *args)
    return function(*(own(arg) if place == 1 else arg for place, arg in enumerate(args)))


def call_unknown(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function whose effect is not known, unless it would get a value that differs by lane.

    Raises:
        LanesPart: It would; the lanes split by the recipe of that value, or train separately.
    """
    roster = ROSTER.get()
    if roster is None:
        return function(*args, **kwargs)
    if roster.kept.files and any(files.reaches_kept(roster, value) for value in (*args, *kwargs.values())):
        raise split_lanes(
            roster, (), f"{name_function(function)} gets the path of a file that each trial has of its own"
        )
    if args or kwargs:
        args = (*map(_settle, args),)
        kwargs = {key: _settle(value) for key, value in kwargs.items()}
    owner = getattr(function, "__self__", function)
    is_held = not isinstance(owner, ModuleType | type | nn.Module) and type(owner) is not FunctionType
    found = find_stand_ins((args, kwargs, owner if is_held else None))
    if found:
        raise split_lanes(roster, found, f"{name_function(function)} is not known to leave values of lanes as they are")
    return function(*args, **kwargs)


def _settle(value: Any) -> Any:
    """Return the one value that lanes share where they agree, or that of the lane that code runs for."""
    if type(value) not in STAND_INS:
        return value
    is_one = value.roster.place is not None or all(same(value.values[0], each) for each in value.values)
    return value.one() if is_one else value


def plain(value: Any) -> Any:
    """Return the one value that lanes have, also in lists."""
    kind = type(value)
    if kind in STAND_INS:
        return value.one()
    if kind in _LISTS and differs([value]):
        return {key: plain(item) for key, item in value.items()} if kind is dict else kind(map(plain, value))
    return value


def split_lanes(roster: Roster, found: Iterable[Any], reason: str) -> LanesPart:
    """Note that the lanes split by a value that was found, or train separately, and return the signal to raise."""
    for each in found:
        recipe = each.recipe
        if recipe is not None and (not isinstance(each, PerLane) or len({*map(repr, each.values)}) > 1):
            return roster.part(recipe, f"the code needs one value of `{recipe.label}`: {reason}")
    roster.refuse(reason)
    return LanesPart(reason)


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


def find_stand_ins(value: Any) -> list[Any]:
    """Return the values that differ by lane and can be reached from a value, whatever holds them."""
    return [each for each in reach_all(value) if is_per_lane(each)]


def roster_of(values: Any) -> Roster | None:
    """Return whose values differ here, or whose lanes this thread runs."""
    return next((each.roster for each in _stand_ins(values)), None) or ROSTER.get()


def _stand_ins(value: Any) -> Iterator[Any]:
    """Find the values that differ by lane, also in lists."""
    kind = type(value)
    if kind in STAND_INS or issubclass(kind, PerLaneMapping):
        yield value
    elif kind in _LISTS:
        for item in value.values() if kind is dict else value:
            yield from _stand_ins(item)


def _recipe(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Recipe | None:
    """Write down how the answer follows from the configuration, if everything in it does."""
    if function is type and len(args) > 1:
        return None  # it makes a new class in every call, which equals no other
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


def own(value: Any) -> Any:
    """Return a value that is used where only numbers may differ by lane."""
    return value.one() if type(value) in (PerLaneText, PerLaneThing) else value


STAND_INS = frozenset({PerLane, PerLaneArray, PerLaneText, PerLaneThing})
_LISTS = frozenset({list, tuple, dict})
_INERT = frozenset({int, float, bool, str, type(None)})
_ONE_PASS = frozenset({
    GeneratorType, deque, map, filter, zip, enumerate, reversed, type({}.keys()), type({}.values()), type({}.items()),
})  # fmt: skip
_PICKERS = frozenset({max, min, sorted})
_CONSUMERS = frozenset({max, min, sorted, math.fsum, math.prod})
_READERS = frozenset({float, int, complex, bool, max, min, str, repr, ascii, format, join_pieces, fill_in})
_BUILTINS = _READERS | {hasattr, sorted, type, ord, chr, hex, oct, bin, id}
"""Functions that ask values by Python's own operators, which answer for every lane or split."""
