"""An `if` that lanes answer differently, where both sides do no more than assign, copy, count, show and save.

Both sides run one after the other, each with a *mask* of the lanes that it is for; what they assign is then selected
for each lane. Whatever else a side does, in a function that it calls too, makes the lanes part, as an `if` always can:
what has happened by then is gone with the run.
"""

from __future__ import annotations

import builtins
import copy
import operator
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from headwater.errors import LanesPart
from headwater.fuse.apart import split
from headwater.fuse.functorch import is_lane_tensor, lanes_of, num_holders, stack_of
from headwater.fuse.lifting import ROSTER, is_stand_in, plain
from headwater.fuse.mode import current_mode
from headwater.fuse.per_lane import PerLane, PerLaneText, gather, same
from headwater.fuse.roster import Roster
from headwater.fuse.targets import widen

read_locals = builtins.locals
"""Reads the variables of whoever calls it."""
_NOTHING = object()
_CALLER = "headwater.train.running"
"""The module that calls training functions."""
PENDING = object()
"""What a variable holds that only one side has assigned so far: nothing that the other could use."""
MANY_WATCHED = 64
"""When so many things are watched, those that nobody holds any more are forgotten."""
NUM_OWN_HOLDERS = 6
"""How many hold what nobody but `check_watched` knows any more, at most: its entry, its variables, the count."""
_PLAIN = (int, float, complex, bool, str, bytes, type(None), tuple, frozenset)


class Branch:
    """The lanes' different answers to the condition of an `if`, and what its variables were before."""

    def __init__(self, roster: Roster, answers: Sequence[bool]) -> None:
        self.roster = roster
        self.outer, self._outer_branch = roster.mask, roster.branch
        outer = roster.mask or (True,) * len(answers)
        self.masks = tuple(
            tuple(is_in and answer is side for is_in, answer in zip(outer, answers, strict=True))
            for side in (True, False)
        )
        self.answers = tuple(answers)
        self.before: Mapping[str, Any] = {}
        self.pending: dict[str, Any] = {}
        """What the first side has assigned for the first time."""
        self._dice = _read_dice()

    def part(self, reason: str) -> LanesPart:
        """Return the signal that the lanes part by their answers after all."""
        return self.roster.part(None, f"the code branches on what lanes computed: {reason}", self.answers)

    def end(self) -> None:
        """Let what follows be for those lanes that all of this was for."""
        self.roster.mask, self.roster.branch = self.outer, self._outer_branch
        self.before = {}  # nothing is to live longer for this

    def require_same_dice(self) -> None:
        """Make the lanes part where random numbers were drawn: only some of them would have."""
        if self._dice != _read_dice():
            raise self.part("one side draws random numbers")


def branch(test: Any) -> Any:
    """Return the condition of an `if` that only assigns, or a Branch where lanes answer differently."""
    if isinstance(test, Tensor) and is_lane_tensor(test) and test.numel() == 1:
        test = test.item()
    if type(test) is not PerLane or test.recipe is not None or test.roster.place is not None:
        return test
    if test.roster.has_threads:
        return test  # they would see the mask too
    answers = [bool(value) for value in test.values]
    wanted = {answer for answer, is_in in zip(answers, _mask_of(test.roster), strict=True) if is_in}
    return wanted.pop() if len(wanted) == 1 else Branch(test.roster, answers)


def is_split(answer: Any) -> bool:
    """Tell whether lanes answer differently."""
    return type(answer) is Branch


def begin(split_branch: Branch, variables: dict[str, Any]) -> bool:
    """Let what follows be for the lanes whose answer is yes."""
    return _enter(split_branch, variables, side=0)


def turn(split_branch: Branch, variables: dict[str, Any]) -> bool:
    """Let what follows be for the lanes whose answer is no."""
    return _enter(split_branch, variables, side=1)


def _enter(split_branch: Branch, variables: dict[str, Any], *, side: int) -> bool:
    split_branch.before = dict(variables)
    variables.clear()  # Python keeps it with the frame, and all that is in it
    split_branch.roster.mask = split_branch.masks[side]
    split_branch.roster.branch = split_branch
    return True


def select(
    split_branch: Branch, variables: dict[str, Any], names: Sequence[str], others: Sequence[str], side: int
) -> tuple[Any, ...]:
    """End one side: return for each variable what lanes of this side have assigned, and what the others had before.

    A variable that is new has to be assigned by the other side too, which comes next.
    """
    roster = split_branch.roster
    mask = split_branch.masks[side]
    found = []
    for name in names:
        new, old = variables.get(name, _NOTHING), split_branch.before.get(name, _NOTHING)
        is_first = new is _NOTHING or old is _NOTHING
        if new is PENDING or (is_first and (name not in others or new is _NOTHING)):
            raise split_branch.part(f"one side assigns `{name}` for the first time")
        if is_first:
            split_branch.pending[name] = new
            found.append(PENDING)
            continue
        old = split_branch.pending.pop(name) if old is PENDING else old
        found.append(new if new is old else choose(roster, mask, new, old))
    variables.clear()
    split_branch.require_same_dice()
    split_branch.end()
    return tuple(found)


def masked(owner: Any, name: str, value: Any) -> Any:
    """Return what an attribute is to hold: for lanes outside of the mask, what it held."""
    roster = ROSTER.get()
    if roster is not None and _is_own(roster, owner):
        return plain(value)
    if roster is None or roster.mask is None:
        return value
    old = getattr(owner, name, _NOTHING)
    if old is _NOTHING or isinstance(value, nn.Module | nn.Parameter) or isinstance(owner, Tensor):
        refuse(roster, f"one side assigns `{name}` for the first time")
    return value if value is old else choose(roster, roster.mask, value, old)


def set_item(value: Any, owner: Any, key: Any) -> None:
    """Do `owner[key] = value`."""
    roster = ROSTER.get()
    if roster is not None and _is_own(roster, owner):
        value = plain(value)
    elif roster is not None and roster.mask is not None:
        is_known = (type(owner) is dict and key in owner) or (type(owner) is list and type(key) is int)
        if not is_known:
            refuse(roster, "one side writes an item")
        value = choose(roster, roster.mask, value, owner[key])
    owner[key] = value


def augment(operation: str, old: Any, value: Any) -> Any:
    """Do `old += value` and its like."""
    require_unchangeable(old)
    roster = ROSTER.get()
    return getattr(operator, operation)(old, value if roster is None or roster.turn is None else plain(value))


class Place:
    """An attribute or an item that `+=` and its like work on."""

    def __init__(self, owner: Any, key: Any, *, is_item: bool) -> None:
        self._owner, self._key, self._is_item = owner, key, is_item

    @property
    def value(self) -> Any:
        """What is there."""
        value = self._owner[self._key] if self._is_item else getattr(self._owner, self._key)
        require_unchangeable(value)
        return value

    @value.setter
    def value(self, value: Any) -> None:
        if self._is_item:
            set_item(value, self._owner, self._key)
        else:
            setattr(self._owner, self._key, masked(self._owner, self._key, value))


def attribute(owner: Any, name: str) -> Place:
    """Return an attribute to be changed."""
    return Place(owner, name, is_item=False)


def element(owner: Any, key: Any) -> Place:
    """Return an item to be changed."""
    return Place(owner, key, is_item=True)


def require_unchangeable(value: Any) -> None:
    """Make lanes part where a branch that only some take would change something in place."""
    roster = ROSTER.get()
    if roster is None or (roster.mask is None and roster.turn is None):
        return
    is_plain = isinstance(value, (*_PLAIN, np.generic)) or type(value) in (PerLane, PerLaneText)
    if not is_plain and not _is_own(roster, value):
        refuse(roster, f"one side changes a {type(value).__name__} in place")


def _is_own(roster: Roster, owner: Any) -> bool:
    """Tell whether a lane has its turn, and note then that it changes something."""
    if roster.turn is not None:
        roster.turn.write(owner)
    return roster.turn is not None


def require_all(value: Any = None) -> Any:
    """Make lanes part where this happens in a branch that only some take; else return the value."""
    roster = ROSTER.get()
    if roster is not None and (roster.mask is not None or roster.turn is not None):
        refuse(roster, "one side does more than assign")
    return value


def require_own(owner: Any, value: Any) -> Any:
    """Make lanes part where a branch that only some take writes into a part of something; else return the value."""
    roster = ROSTER.get()
    return plain(value) if roster is not None and _is_own(roster, owner) else require_all(value)


def require_joint() -> None:
    """Make lanes part where an exception is raised or caught in a branch that only some take."""
    roster = ROSTER.get()
    if roster is not None and roster.mask is not None:
        refuse(roster, "one side does more than assign")


def require_whole(*answers: Any) -> None:
    """Make lanes part where a `break` or `return` is in a branch that only some of them take."""
    for answer in answers:
        if type(answer) is Branch:
            raise answer.part("one side leaves a loop or a function")


def may_leave(*answers: Any) -> bool:
    """Tell whether all lanes leave the last loop of a training function; some alone are let go after this branch."""
    if not any(map(is_split, answers)):
        return True
    caller = sys._getframe(1).f_back
    if caller is None or caller.f_globals.get("__name__") != _CALLER:
        require_whole(*answers)
    roster = ROSTER.get()
    assert roster is not None, "only lanes answer differently"
    assert roster.mask is not None, "this is in a branch"
    roster.leavers |= {place for place, is_in in enumerate(roster.mask) if is_in}
    return False


def settle() -> None:
    """Let lanes go that have left the last loop."""
    roster = ROSTER.get()
    if roster is not None:
        roster.let_leavers_go()


def each(items: Any) -> Any:
    """Return what a `for` goes through; in a branch that only some lanes take, nothing that would be used up."""
    roster = ROSTER.get()
    if roster is None or isinstance(items, _REPEATABLE):
        return items
    if roster.turn is not None and hasattr(type(items), "__next__"):
        roster.turn.write(items)
    if roster.mask is not None:
        refuse(roster, f"one side goes through a {type(items).__name__}")
    return items


_REPEATABLE: tuple[type, ...] = (
    list,
    tuple,
    dict,
    range,
    str,
    set,
    frozenset,
    type({}.items()),
    type({}.keys()),
    type({}.values()),
)


def refuse(roster: Roster, reason: str) -> NoReturn:
    """Raise the signal that the lanes part by the answers that led here."""
    raise roster.part_by_branch(reason)


def choose(roster: Roster, mask: Sequence[bool], new: Any, old: Any) -> Any:
    """Return a value that is the new one for lanes of the mask, and the old one for the others."""
    if new is old:
        return new
    if len(roster.watched) > MANY_WATCHED:
        check_watched(roster)
    chosen = _choose(roster, mask, new, old)
    if chosen is not new and isinstance(new, Tensor | list | dict):
        roster.watched.append(tuple((value, _look(value)) for value in (new, old, chosen)))
    return chosen


def _choose(roster: Roster, mask: Sequence[bool], new: Any, old: Any) -> Any:
    if isinstance(new, Tensor) and isinstance(old, Tensor):
        return _choose_tensor(roster, mask, new, old)
    if type(new) is type(old) and isinstance(new, dict) and [*new] == [*old]:
        chosen = copy.copy(new)
        for key in chosen:
            chosen[key] = choose(roster, mask, new[key], old[key])
        return chosen
    if type(new) is type(old) and type(new) in (list, tuple) and len(new) == len(old) and _holds_tensors(new):
        return type(new)(choose(roster, mask, a, b) for a, b in zip(new, old, strict=True))
    if _is_simple(new) and _is_simple(old):
        news, olds = split(new, len(roster)), split(old, len(roster))
        return gather([a if is_in else b for a, b, is_in in zip(news, olds, mask, strict=True)], roster, None)
    if same(new, old) and not isinstance(new, list | dict):
        return new
    refuse(roster, f"one side assigns a {type(new).__name__} in the place of another")


def _choose_tensor(roster: Roster, mask: Sequence[bool], new: Tensor, old: Tensor) -> Tensor:
    mode = current_mode()
    if new.shape != old.shape or new.dtype != old.dtype or new.device != old.device or type(new) is not type(old):
        refuse(roster, "one side assigns a tensor of another shape or type")
    with torch._C.DisableTorchFunction():
        stacks = [stack_of(each) if is_lane_tensor(each) else widen(each, len(mask)) for each in (new, old)]
        if stacks[0].data_ptr() == stacks[1].data_ptr() and stacks[0].stride() == stacks[1].stride():
            return new  # the same memory, as two state dicts of a model have
        if mode is not None and any(mode.swaps.shares_memory(stack) for stack in stacks):
            refuse(roster, "one side keeps weights themselves, not a copy of them")
        if any(stack.is_inference() for stack in stacks):
            refuse(roster, "one side keeps a tensor of torch.inference_mode")
        where = torch.tensor(mask, device=new.device).view(-1, *(1,) * new.dim())
        return lanes_of(torch.where(where, stacks[0], stacks[1]))


def _look(value: Any) -> Any:
    """Return what shows whether a tensor, a list or a dictionary was changed in place."""
    if isinstance(value, Tensor):
        return (stack_of(value) if is_lane_tensor(value) else value)._version
    if isinstance(value, list | dict):
        return tuple(map(id, value.values() if isinstance(value, dict) else value))
    return None


def check_watched(roster: Roster) -> None:
    """Make lanes train apart where something was changed in place that is one for a trial alone, and chosen here.

    What nobody else holds can be changed by nobody, and is forgotten.
    """
    watched, roster.watched = roster.watched, []
    while watched:
        entry = watched.pop()
        if any(_look(value) != before for value, before in entry):
            roster.refuse("what lanes have kept of different sides of an `if` is changed in place; keep a copy of it")
        (new, _), (old, _), _ = entry
        if any(sys.getrefcount(value) > NUM_OWN_HOLDERS or _is_seen(value) for value in (new, old)):
            roster.watched.append(entry)


def _is_seen(value: Any) -> bool:
    """Tell whether other tensors see the memory of this one."""
    if not isinstance(value, Tensor):
        return False
    with torch._C.DisableTorchFunction():
        return num_holders(stack_of(value) if is_lane_tensor(value) else value) > 1


def _is_simple(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(map(_is_simple, value))
    if isinstance(value, dict):
        return type(value) is dict and all(map(_is_simple, value.values()))
    return isinstance(value, _PLAIN) or is_stand_in(value) or isinstance(value, np.generic)


def _holds_tensors(values: Sequence[Any]) -> bool:
    return any(isinstance(value, Tensor | dict) for value in values)


def _mask_of(roster: Roster) -> Sequence[bool]:
    return roster.mask if roster.mask is not None else (True,) * len(roster)


def _read_dice() -> Any:
    """Return where the streams of random numbers stand."""
    legacy: Any = np.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), legacy[2], legacy[1].tobytes(), legacy[3:], random.getstate()
