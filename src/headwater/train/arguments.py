"""Arguments that were given by position, as people write them, by their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwater.errors import TrialError
from headwater.fuse.per_lane import PerLane


def name_arguments(
    kind: Any, home: Any, given: Sequence[Any], named: Mapping[str, Any], num_first: int = 1
) -> dict[str, Any]:
    """Return the arguments of a class or function, all by name, but for the first ones.

    Args:
        kind: The class, its name in `home`, a function, or a PerLane of these.
        home: Where names are looked up.
        given: Arguments by position, after the first ones.
        named: Arguments by name.
        num_first: How many arguments come before.

    Raises:
        TrialError: The class has no so many arguments, or one was given twice.
    """
    if not given:
        return dict(named)
    kinds = kind.values if isinstance(kind, PerLane) else [kind]
    found = [getattr(home, each, None) if isinstance(each, str) else each for each in kinds]
    lists = {_names(each)[num_first:] for each in found if callable(each)} or {()}
    names = lists.pop()[: len(given)]
    if any(other[: len(given)] != names for other in lists) or len(names) < len(given):
        raise TrialError(f"{kind!r} was given {len(given)} arguments by position, and not all have a name; name them")
    if twice := {*names} & {*named}:
        raise TrialError(f"{kind!r} was given {', '.join(sorted(twice))} by position and by name")
    return {**dict(zip(names, given, strict=True)), **named}


def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD,)
    return tuple(name for name, each in inspect.signature(function).parameters.items() if each.kind in kinds)
