"""Files that the user's code writes with values that differ by lane: one for each trial.

A trial alone writes `folder/best.pt`. Trials of a group write `folder/trial_3/best.pt`, each its own; where the path
itself differs by lane, each writes where it says. What reads or moves such a file then goes to that of each trial.
"""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from headwater.errors import LanesPart
from headwater.fuse.apart import is_per_lane, reach_all, tensors
from headwater.fuse.per_lane import PerLane, PerLaneText, gather, run_by_lane
from headwater.fuse.roster import Roster
from headwater.torch_private import DisableTorchFunction, is_lane_tensor, lanes_of, stack_of

Function: TypeAlias = Callable[..., Any]


def write_by_lane(roster: Roster, write: Function, target: Any, values: Any) -> None:
    """Call a function once for each lane, with the file of the lane and the values that the lane alone would have."""
    if isinstance(target, io.TextIOBase):
        texts = []
        for place in range(len(roster)):
            write(stream := io.StringIO(), *own_value(roster, values, place))
            texts.append(stream.getvalue())
        write_text(roster, target, PerLaneText(texts, roster))
        return
    for place, path in enumerate(_paths_of(roster, target)):
        if not roster.includes(place):
            continue
        own = own_value(roster, values, place)
        if isinstance(target, io.BufferedWriter):
            with Path(path).open("wb") as file:
                write(file, *own)
        else:
            write(path, *own)


def call_on_files(roster: Roster, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function that works on files once for each lane, with the lane's own file in the place of a kept one."""
    is_move = function.__module__ == "shutil" or function.__name__ in ("rename", "replace")
    given = [getattr(function, "__self__", None), *args, *kwargs.values()]
    if is_move and any(is_kept(roster, value) for value in given):
        roster.kept.files.update(_key(value) for value in given if isinstance(value, str | Path))

    def own(value: Any, place: int) -> Any:
        if isinstance(value, PerLaneText):
            return value.values[place]
        return type(value)(trial_path(roster, value, place)) if is_kept(roster, value) else value

    def call(place: int) -> Any:
        owner = getattr(function, "__self__", None)
        is_path = isinstance(owner, Path)
        method = getattr(own(owner, place), function.__name__) if is_path else function
        lane_args = [own(arg, place) for arg in args]
        answer = method(*lane_args, **{key: own(value, place) for key, value in kwargs.items()})
        return next((arg for arg, mine in zip(args, lane_args, strict=True) if answer == mine), answer)

    call.__name__ = function.__name__
    places = [place for place in range(len(roster)) if roster.includes(place)]
    return together(run_by_lane(call, [(place,) for place in places], roster), roster)


def write_text(roster: Roster, stream: Any, text: Any) -> int:
    """Write a text that differs by lane into the lanes' own copies of an open file."""
    if not has_copies(roster, stream):
        roster.kept.streams.append((stream, _begin_copies(roster, stream)))
    _append(roster, stream, text)
    return len(str(text.values[0]))


def write_along(roster: Roster, stream: Any, text: str) -> None:
    """Write a text that all lanes share also into their own copies of an open file, if there are such."""
    if has_copies(roster, stream):
        _append(roster, stream, text)


def has_copies(roster: Roster, stream: Any) -> bool:
    """Tell whether lanes have their own copies of an open file."""
    return any(each is stream for each, _ in roster.kept.streams)


def is_kept(roster: Roster, path: Any) -> bool:
    """Tell whether this is the path of a file that each lane has its own of."""
    return bool(roster.kept.files) and isinstance(path, str | Path) and _key(path) in roster.kept.files


def reaches_kept(roster: Roster, path: Any) -> bool:
    """Tell whether a path leads to a file that each lane has its own of: to itself, its folder, or by a pattern."""
    if not isinstance(path, str | Path) or not str(path):
        return False
    key = _key(path)
    return any(each == key or each.startswith(f"{key}{os.sep}") or fnmatch(each, key) for each in roster.kept.files)


def own_value(roster: Roster, value: Any, place: int) -> Any:
    """Return a value as the lane at this place alone would keep it: a copy in which all that differs is the lane's.

    Raises:
        LanesPart: There is something in the value that lanes have in common, such as an optimizer.
    """
    memo, clones = dict[int, Any](), dict[Any, Tensor]()
    with DisableTorchFunction():
        for each in reach_all(value):
            if isinstance(each, Tensor):
                memo[id(each)] = _own_tensor(each, place, clones)
            elif is_per_lane(each):
                memo[id(each)] = each.values[place] if isinstance(each, PerLane) else each.by_lane()[place]
            elif _is_lane_state(each):
                memo[id(each)] = each.get("state", each)["lanes"][place]
            elif hasattr(type(each), "for_lane"):
                memo[id(each)] = each.for_lane(place)
            elif type(each).__module__.startswith("headwater.fuse"):
                raise refusal(roster, f"the code saves a {type(each).__name__} of several lanes; save its state_dict()")
        return copy.deepcopy(value, memo)


def differs_inside(value: Any) -> bool:
    """Tell whether something in a value differs by lane, whatever holds it."""
    return any(
        is_lane_tensor(each) if isinstance(each, Tensor) else is_per_lane(each) or _is_lane_state(each)
        for each in reach_all(value)
    )


def _is_lane_state(value: Any) -> bool:
    """Tell whether a value is the state of an optimizer or scheduler of several lanes."""
    return isinstance(value, dict) and "members" in value and "lanes" in value.get("state", value)


def _own_tensor(tensor: Tensor, place: int, clones: dict[Any, Tensor]) -> Tensor:
    """Return the lane's part of a tensor; parts of the same memory share memory again."""
    if not is_lane_tensor(tensor):
        return tensor
    stack = stack_of(tensor)
    key = stack.data_ptr(), stack.shape, stack.stride(), stack.dtype
    own = clones.setdefault(key, stack[place].detach().clone()).detach()
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(own, requires_grad=stack.requires_grad)
    return own.requires_grad_(stack.requires_grad and stack.is_leaf)


def together(values: Sequence[Any], roster: Roster) -> Any:
    """Put the values of all lanes together: tensors as lane tensors, numbers as PerLane."""
    first = values[0]
    if isinstance(first, Tensor):
        if any(value.shape != first.shape or value.dtype != first.dtype for value in values):
            raise refusal(roster, "a file that was saved for each lane holds tensors of different shapes")
        return lanes_of(torch.stack([*values]))
    if isinstance(first, dict) and all([*value] == [*first] for value in values):
        return type(first)((key, together([value[key] for value in values], roster)) for key in first)
    if type(first) in (list, tuple) and all(len(value) == len(first) for value in values) and _has_tensors(first):
        return type(first)(together(items, roster) for items in zip(*values, strict=True))
    return gather(values, roster, None)


def refusal(roster: Roster, reason: str) -> LanesPart:
    """Note that the lanes train separately, and return the signal to raise; no handler of the user's can swallow it."""
    roster.refuse(reason)
    return LanesPart(reason)


def trial_path(roster: Roster, path: Any, place: int) -> str:
    """Return where a lane keeps its own file of this name."""
    where = Path(path)
    return str(where.parent / f"trial_{roster.numbers[roster.members[place]]}" / where.name)


def _has_tensors(value: Any) -> bool:
    return any(True for _ in tensors([value]))


def _key(path: Any) -> str:
    return str(Path(path).absolute())


def _paths_of(roster: Roster, target: Any) -> list[str]:
    """Return the file of each lane, and remember that there is one for each."""
    if isinstance(target, PerLaneText):
        return [*target.values]
    path = target if isinstance(target, str | Path) else _name_of(roster, target)
    roster.kept.files.add(_key(path))
    paths = [trial_path(roster, path, place) for place in range(len(roster))]
    for each in paths:
        Path(each).parent.mkdir(parents=True, exist_ok=True)
    return paths


def _name_of(roster: Roster, stream: Any) -> str:
    """Return the path of a file that is open for writing, and still empty."""
    is_file = isinstance(stream, io.BufferedWriter | io.TextIOWrapper) and isinstance(stream.name, str | os.PathLike)
    if not is_file or stream.tell() != 0:
        raise refusal(
            roster, "the code writes values that differ by lane into a stream; give a path for a file of each trial"
        )
    return str(stream.name)


def _begin_copies(roster: Roster, stream: Any) -> list[Path]:
    """Give each lane a copy of what was written so far; a file that is written on keeps what its copies have."""
    mode = getattr(stream, "mode", "")
    if mode not in ("w", "wt", "a", "at") or not isinstance(stream.name, str | os.PathLike):
        raise refusal(roster, "the code writes text that differs by lane into a stream that is no file opened to write")
    stream.flush()
    was_kept, path = is_kept(roster, str(stream.name)), Path(stream.name)
    roster.kept.files.add(_key(path))
    copies = [Path(trial_path(roster, path, place)) for place in range(len(roster))]
    for each in copies:
        each.parent.mkdir(parents=True, exist_ok=True)
        if not (was_kept and mode.startswith("a")):
            each.write_bytes(path.read_bytes())
    return copies


def _append(roster: Roster, stream: Any, text: Any) -> None:
    for each, copies in roster.kept.streams:
        if each is stream:
            texts = text.values if isinstance(text, PerLaneText) else [text] * len(roster)
            mine = [copies[place] for place in roster.places_since(len(copies))]
            for place, (copy, own) in enumerate(zip(mine, texts, strict=True)):
                if roster.includes(place):
                    with copy.open("a", encoding=stream.encoding, newline="") as file:
                        file.write(own)
