"""Which lanes may share a group."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from headwater.trials import Lane, Recipe, TrialGroup

Key: TypeAlias = tuple[Hashable, ...]


def bucket_lanes(
    lanes: Sequence[Lane], recipes: Sequence[Recipe], pack_of: Callable[[Lane], Hashable] = lambda lane: None
) -> dict[Key, list[Lane]]:
    """Sort lanes into buckets that may share groups: same start, seed and pack, same value of every recipe."""
    buckets: dict[Key, list[Lane]] = {}
    for lane in lanes:
        key = (lane.seed, lane.start_epoch, pack_of(lane), *kind_of(lane, recipes))
        buckets.setdefault(key, []).append(lane)
    return buckets


def kind_of(lane: Lane, recipes: Sequence[Recipe]) -> Key:
    """Return the values of the recipes, by which lanes part; those of one kind cost the same, whenever they train."""
    return tuple([_evaluate(recipe, lane) for recipe in recipes])


def cut_groups(lanes: Sequence[Lane], num_lanes: int) -> list[TrialGroup]:
    """Cut a bucket into groups of at most `num_lanes`; lanes that differ in numbers only are neighbours.

    So those with the same optimizer or activation lie side by side in the stacks, and are computed without copies.
    """
    lanes = sorted(lanes, key=lambda lane: _names_in(lane.config))
    starts = range(0, len(lanes), num_lanes)
    return [TrialGroup(lanes=tuple(lanes[start : start + num_lanes])) for start in starts]


def cut_alike(lanes: Sequence[Lane]) -> list[TrialGroup]:
    """Return lanes in as few groups as they can start in: those of one group start at the same epoch."""
    return [TrialGroup(lanes=tuple(bucket)) for bucket in bucket_lanes(lanes, ()).values()]


def share_lanes(num_lanes: int, size: int, num_workers: int) -> int:
    """Return how large groups are to be so that all workers have as many of them, none larger than `size`."""
    if num_workers == 1:
        return size
    num_rounds = math.ceil(num_lanes / (size * num_workers))
    return math.ceil(num_lanes / (num_rounds * num_workers))


def halve_group(lanes: Sequence[Lane]) -> list[TrialGroup]:
    """Cut a group in two, to find out which half a failure belongs to."""
    return cut_groups(lanes, (len(lanes) + 1) // 2)


def describe_bucket(lane: Lane, recipes: Sequence[Recipe]) -> str:
    """Say what the lanes of a bucket have in common, by one of them."""
    return ", ".join(f"{recipe.label} = {recipe.evaluate(lane.config)}" for recipe in recipes) or "all trials"


def _names_in(config: Mapping[str, Any]) -> str:
    """Return all that is no number in a configuration."""
    parts = (
        f"{key}:{_names_in(value) if isinstance(value, Mapping) else value}"
        for key, value in config.items()
        if not isinstance(value, int | float)
    )
    return ",".join(parts)


def _evaluate(recipe: Recipe, lane: Lane) -> Hashable:
    """Return what the recipe gives, in a form that can be a key; a recipe that fails for a lane sorts it by how."""
    try:
        value = recipe.evaluate(lane.config)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        return repr(error)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return (type(value).__name__, value)
