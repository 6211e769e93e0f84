"""Settings of many trials as one: what a lane alone would have, and what many lanes have together."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from headwater.fuse.factors import Lanewise, lanewise
from headwater.fuse.per_lane import PerLane, PerLaneText, PerLaneThing, lane_value, same
from headwater.fuse.roster import Roster
from headwater.torch_private import is_lane_tensor, stack_of


def pick(value: Any, place: int) -> Any:
    """Return a value as the lane at this place alone would have it; containers are copied."""
    if isinstance(value, PerLane | PerLaneText):
        return value.values[place]
    if isinstance(value, list | tuple):
        items = [pick(item, place) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        picked = copy.copy(value)
        for key, item in value.items():
            picked[key] = pick(item, place)
        return picked
    return value


def merge(values: Sequence[Any], roster: Roster) -> Any:
    """Return one value that stands for the values of all lanes; containers of one form are merged item by item."""
    first = values[0]
    if all(same(first, value) for value in values):
        return first
    if type(first) in (list, tuple) and all(
        type(value) is type(first) and len(value) == len(first) for value in values
    ):
        return type(first)(merge(items, roster) for items in zip(*values, strict=True))
    if type(first) is dict and all(type(value) is dict and value.keys() == first.keys() for value in values):
        return {key: merge([value[key] for value in values], roster) for key in first}
    return lane_value(values, roster, None)


def settle(value: Any, roster: Roster) -> Any:
    """Return a hyperparameter in the form in which groups keep it: numbers, PerLane numbers, and tuples of these."""
    if isinstance(value, PerLaneThing) and all(type(item) in (list, tuple) for item in value.values):
        return merge([tuple(item) for item in value.values], roster)
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, Tensor):
        return as_numbers(value, roster) if is_lane_tensor(value) else value.item()
    return value


def as_numbers(value: Any, roster: Roster) -> Any:
    """Return a lane tensor of one number as the number of each lane, and anything else as it is."""
    if not (isinstance(value, Tensor) and is_lane_tensor(value)):
        return value
    return PerLane(stack_of(value).reshape(-1).tolist(), roster)


def without_recipe(value: Any, roster: Roster) -> Any:
    """Forget how a number follows from the configuration.

    A schedule multiplies a learning rate thousands of times; a recipe of all these products would only grow.
    """
    if type(value) is PerLane:
        return PerLane(value.values, roster)
    if type(value) in (list, tuple):
        return type(value)(without_recipe(item, roster) for item in value)
    return value


def holds_per_lane(value: Any) -> bool:
    """Tell whether a value, or something in it, differs by lane."""
    if isinstance(value, list | tuple):
        return any(holds_per_lane(item) for item in value)
    if isinstance(value, dict):
        return any(holds_per_lane(item) for item in value.values())
    return isinstance(value, PerLane | PerLaneText)


def select(value: Any, places: Sequence[int]) -> Lanewise:
    """Return a number as the lanes at these places have it."""
    if not isinstance(value, PerLane):
        number: float = value
        return number
    values = value.values
    return lanewise(values if len(places) == len(values) else [values[place] for place in places])


def select_item(pair: Any, index: int, places: Sequence[int]) -> Lanewise:
    """Return one number of a tuple, such as the first of `betas`, as the lanes at these places have it."""
    if isinstance(pair, tuple):
        return select(pair[index], places)
    return lanewise([pick(pair, place)[index] for place in places])
