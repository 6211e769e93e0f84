"""Random numbers that are drawn with values which differ by lane, such as mixup's `beta(alpha, alpha)`.

How many numbers such a draw takes from its stream may depend on the values. So each lane draws from where it stands
itself: as long as lanes stand in different places, every further draw is made once per lane, until whatever they draw
from is seeded anew. Whoever draws without being seen in between moves what the streams rest at, and is noticed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from headwater.fuse.apart import split
from headwater.fuse.functorch import saves_elsewhere
from headwater.fuse.lifting import ROSTER, Function, differs, guard, lift_arrays, name_function
from headwater.fuse.per_lane import gather, run_by_lane
from headwater.fuse.roster import Roster

GLOBAL = np.random.mtrand._rand
"""What the functions of `numpy.random` draw from."""
SHARED_DICE = (GLOBAL, random._inst, torch.default_generator)
"""Streams that the study seeds."""
_SEEDING = frozenset({"seed", "set_state", "setstate"})
_LOOKING = frozenset({"get_state", "getstate", "shuffle", "spawn", "jumped"})
"""What tells where a stream stands, or changes what is given: lanes that stand apart cannot do it as one."""
_SAMPLERS = frozenset({torch._sample_dirichlet, torch._standard_gamma, torch.poisson, torch.binomial})
"""Functions of torch that draw as many numbers as it takes."""
IN_PLACE = frozenset({
    torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.random_, torch.Tensor.bernoulli_,
    torch.Tensor.exponential_, torch.Tensor.cauchy_, torch.Tensor.log_normal_, torch.Tensor.geometric_,
})  # fmt: skip
"""Methods of a tensor that fill it with random numbers."""


@dataclass(slots=True)
class LaneDice:
    """Where each lane stands in one stream of random numbers."""

    owner: Any
    states: list[Any]
    rest: Any
    """Where the stream itself stands meanwhile."""

    ends: list[Any] = field(default_factory=list)
    """Where those lanes stand that have drawn just now."""

    def begin(self, roster: Roster) -> None:
        """Let the lanes that are still there draw, one after the other."""
        self.ends = []
        if len(self.states) != len(roster):
            self.states = [self.states[place] for place in roster.places_since(len(self.states))]

    def begin_lane(self) -> None:
        """Go to where the next lane stands."""
        _write(self.owner, self.states[len(self.ends)])

    def end_lane(self) -> None:
        """Note where it stands now."""
        self.ends.append(_read(self.owner))

    def end(self, roster: Roster) -> None:
        """Let the stream rest; forget all of this where lanes stand in one place."""
        assert roster.dice is not None
        self.states, self.rest = self.ends, self.ends[0]
        _write(self.owner, self.rest)
        if all(_are_alike(self.rest, end) for end in self.ends):
            roster.dice.pop(id(self.owner), None)
        else:
            roster.dice[id(self.owner)] = self

    @property
    def is_resting(self) -> bool:
        """Whether the stream stands where it was left."""
        return _are_alike(self.rest, _read(self.owner))


def draw(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function that draws from a stream of NumPy or Python."""
    name = name_function(function)
    is_global = name in _SEEDING | _LOOKING and (function.__module__ or "").startswith("numpy.random")
    owner = getattr(function, "__self__", None) or (GLOBAL if is_global else None)
    roster = ROSTER.get()
    is_known = isinstance(owner, np.random.RandomState | np.random.Generator | random.Random)
    if roster is None or roster.dice is None or roster.place is not None or roster.has_threads or not is_known:
        return guard(function, *args, **kwargs)
    if name in _SEEDING and not differs(args) and not differs(kwargs.values()):
        check_dice(roster)
        roster.dice.pop(id(owner), None)
        return function(*args, **kwargs)
    return _draw(function, args, kwargs, roster, owner)


def draw_from_global(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function of SciPy or its like for each lane, which may draw from NumPy's own stream."""
    roster = ROSTER.get()
    if roster is None or roster.dice is None or roster.place is not None or roster.has_threads:
        return lift_arrays(function, *args, **kwargs)
    begin = _read(GLOBAL)
    if id(GLOBAL) not in roster.dice:
        answer = lift_arrays(function, *args, **kwargs)
        if _are_alike(begin, _read(GLOBAL)) or not (differs(args) or differs(kwargs.values())):
            return answer
        _write(GLOBAL, begin)
    return _draw(function, args, kwargs, roster, GLOBAL)


def _draw(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], roster: Roster, owner: Any) -> Any:
    assert roster.dice is not None
    if id(owner) not in roster.dice and not differs(args) and not differs(kwargs.values()):
        return function(*args, **kwargs)
    if name_function(function) in _LOOKING:
        return _part(roster, f"{name_function(function)} is called where lanes stand apart in their random numbers")
    check_dice(roster)
    dice = _find_dice(roster, owner)

    def draw_lane(lane_args: Any, lane_kwargs: Any) -> Any:
        dice.begin_lane()
        try:
            return function(*lane_args, **lane_kwargs)
        finally:
            dice.end_lane()

    draw_lane.__name__ = name_function(function)
    rows = zip(split([*args], len(roster)), split({**kwargs}, len(roster)), strict=True)
    try:
        values = run_by_lane(draw_lane, rows, roster)
    finally:
        dice.end(roster)
    return gather(values, roster, None)


def _find_dice(roster: Roster, owner: Any) -> LaneDice:
    """Return where lanes stand in a stream."""
    assert roster.dice is not None
    now = _read(owner)
    dice: LaneDice = roster.dice.get(id(owner)) or LaneDice(owner, [now] * len(roster), now)
    dice.begin(roster)
    return dice


def find_torch_dice(roster: Roster, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> LaneDice | None:
    """Return where lanes stand in torch's stream, if a call may draw for each of them from there."""
    if any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values())):
        return None
    if not are_astray(roster) and (func not in _SAMPLERS or not _may_stray(roster)):
        return None
    return _find_dice(roster, torch.default_generator)


def _may_stray(roster: Roster) -> bool:
    is_busy = roster.has_threads or roster.place is not None or roster.mask is not None
    return roster.dice is not None and not is_busy and not torch.cuda.is_initialized() and not saves_elsewhere()


def are_astray(roster: Roster) -> bool:
    """Tell whether lanes stand in different places of torch's stream."""
    return bool(roster.dice) and id(torch.default_generator) in (roster.dice or {})


def check_dice(roster: Roster) -> None:
    """Make lanes train apart where something was drawn unseen while they stood in different places."""
    for dice in (roster.dice or {}).values():
        if not dice.is_resting:
            _part(roster, "random numbers are drawn out of sight after lanes have drawn differently many")


def rests(roster: Roster) -> bool:
    """Tell whether torch's stream stands where it was left."""
    return bool((roster.dice or {})[id(torch.default_generator)].is_resting)


def reset_dice() -> None:
    """Let lanes stand where the streams do, which are about to be seeded."""
    roster = ROSTER.get()
    if roster is not None and roster.dice:
        check_dice(roster)
        roster.dice = {
            key: dice for key, dice in roster.dice.items() if not any(dice.owner is each for each in SHARED_DICE)
        }


@contextmanager
def other_dice() -> Iterator[None]:
    """Let random numbers come from elsewhere for a while, where no lane may draw more than another."""
    roster = ROSTER.get()
    if roster is None:
        yield
        return
    before, roster.dice = roster.dice, None
    try:
        yield
    finally:
        roster.dice = before


def _part(roster: Roster, reason: str) -> Any:
    raise roster.part(None, reason, [*map(str, range(len(roster)))])


def _read(owner: Any) -> Any:
    if isinstance(owner, random.Random):
        return owner.getstate()
    return owner.bit_generator.state if isinstance(owner, np.random.Generator) else owner.get_state()


def _write(owner: Any, state: Any) -> None:
    if isinstance(owner, random.Random):
        owner.setstate(state)
    elif isinstance(owner, np.random.Generator):
        owner.bit_generator.state = state
    else:
        owner.set_state(state)


def _are_alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_are_alike(one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, tuple) and one and isinstance(one[0], str):
        return all(map(_are_alike, one, other))
    return bool(one == other)
