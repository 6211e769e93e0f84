"""Files that the user's code writes with values that differ by lane: one for each trial.

A trial alone writes `folder/best.pt`. Trials of a group write `folder/trial_3/best.pt`, each its own; where the path
itself differs by lane, each writes where it says. What reads or moves such a file then goes to that of each trial.
"""

from __future__ import annotations

import io
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from headwater.errors import CannotFuseError
from headwater.fuse.apart import split, tensors, touches
from headwater.fuse.functorch import is_lane_tensor, lanes_of, stack_of
from headwater.fuse.per_lane import PerLane, PerLaneText, gather, run_by_lane
from headwater.fuse.roster import Roster

Function: TypeAlias = Callable[..., Any]


def save_by_lane(roster: Roster, function: Function, value: Any, target: Any, *rest: Any, **options: Any) -> Any:
    """Do what `torch.save` does once for each lane, with what the lane alone would have."""
    paths = _paths_of(roster, target)
    for place, path in enumerate(paths):
        if not roster.includes(place):
            continue
        with roster.answering_for(place):
            function(own_value(value, place), path, *rest, **options)


def load_by_lane(roster: Roster, function: Function, source: Any, *rest: Any, **options: Any) -> Any:
    """Read the file of each lane with `torch.load`, and put what they hold together."""
    rows = [(path,) for path in _paths_of(roster, source)]
    return together(run_by_lane(lambda path: function(path, *rest, **options), rows, roster), roster)


def call_on_files(roster: Roster, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function that works on files once for each lane, with the lane's own file in the place of a kept one."""
    moves = (getattr(function, "__module__", "") or "").partition(".")[0] in ("shutil", "posix", "nt", "os")
    owner, rows = getattr(function, "__self__", None), []
    for place in range(len(roster)):

        def own(value: Any, place: int = place) -> Any:
            is_path = isinstance(value, str | Path) and (moves or is_kept(roster, value))
            return trial_path(roster, value, place) if is_path else value

        lane_args, lane_kwargs = split(list(args), len(roster))[place], split(dict(kwargs), len(roster))[place]
        rows.append((list(map(own, lane_args)), {key: own(value) for key, value in lane_kwargs.items()}))
    if moves:
        roster.kept.files.update(_key(value) for value in args if isinstance(value, str | Path))
    calls = [function] * len(roster)
    if isinstance(owner, Path):
        calls = [getattr(Path(trial_path(roster, owner, place)), function.__name__) for place in range(len(roster))]
    by_lane = [(call, *row) for call, row in zip(calls, rows, strict=True)]
    return gather(run_by_lane(lambda call, args, kwargs: call(*args, **kwargs), by_lane, roster), roster, None)


def write_arrays(roster: Roster, function: Function, target: Any, *args: Any, **kwargs: Any) -> Any:
    """Do what `numpy.save` does once for each lane."""
    rows = zip(_paths_of(roster, target), split(list(args), len(roster)), split(dict(kwargs), len(roster)), strict=True)
    for place, (path, lane_args, lane_kwargs) in enumerate(rows):
        if roster.includes(place):
            function(path, *lane_args, **lane_kwargs)


def write_text(roster: Roster, stream: Any, text: Any) -> int:
    """Write a text that differs by lane into the lanes' own copies of an open file."""
    if stream not in [each for each, _ in roster.kept.streams]:
        roster.kept.streams.append((stream, _begin_copies(roster, stream)))
    _append(roster, stream, text)
    return len(str(text.values[0]))


def write_along(roster: Roster, stream: Any, text: str) -> None:
    """Write a text that all lanes share also into their own copies of an open file, if there are such."""
    if any(each is stream for each, _ in roster.kept.streams):
        _append(roster, stream, text)


def dump_json(roster: Roster, value: Any, stream: Any, **options: Any) -> None:
    """Do what `json.dump` does once for each lane."""
    texts = [json.dumps(own_value(value, place), **options) for place in range(len(roster))]
    write_text(roster, stream, PerLaneText(texts, roster))


def is_kept(roster: Roster, path: Any) -> bool:
    """Tell whether this is the path of a file that each lane has its own of."""
    return bool(roster.kept.files) and isinstance(path, str | Path) and _key(path) in roster.kept.files


def own_value(value: Any, place: int) -> Any:
    """Return a value as the lane at this place alone would keep it, in memory of its own."""
    if isinstance(value, Tensor):
        return stack_of(value)[place].detach().clone() if is_lane_tensor(value) else value
    if isinstance(value, PerLane):
        return value.values[place]
    if isinstance(value, nn.Module) and touches([*value.parameters(), *value.buffers()]):
        raise CannotFuseError("the code saves a model that differs by lane as an object; save its state_dict()")
    if isinstance(value, dict):
        if value.keys() >= {"members"} and "lanes" in (state := value.get("state", value)):
            return state["lanes"][place]
        kind = OrderedDict if isinstance(value, OrderedDict) else dict
        return kind((key, own_value(item, place)) for key, item in value.items())
    if type(value) in (list, tuple):
        return type(value)(own_value(item, place) for item in value)
    return value


def together(values: Sequence[Any], roster: Roster) -> Any:
    """Put the values of all lanes together: tensors as lane tensors, numbers as PerLane."""
    first = values[0]
    if isinstance(first, Tensor):
        if any(value.shape != first.shape or value.dtype != first.dtype for value in values):
            raise CannotFuseError("a file that was saved for each lane holds tensors of different shapes")
        return lanes_of(torch.stack([*values]))
    if isinstance(first, dict) and all([*value] == [*first] for value in values):
        return type(first)((key, together([value[key] for value in values], roster)) for key in first)
    if type(first) in (list, tuple) and all(len(value) == len(first) for value in values) and _has_tensors(first):
        return type(first)(together(items, roster) for items in zip(*values, strict=True))
    return gather(values, roster, None)


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
    path = target if isinstance(target, str | Path) else _name_of(target)
    roster.kept.files.add(_key(path))
    paths = [trial_path(roster, path, place) for place in range(len(roster))]
    for each in paths:
        Path(each).parent.mkdir(parents=True, exist_ok=True)
    return paths


def _name_of(stream: Any) -> str:
    """Return the path of a file that is open for writing, and still empty."""
    is_file = isinstance(stream, io.BufferedWriter | io.TextIOWrapper) and isinstance(stream.name, str | os.PathLike)
    if not is_file or stream.tell() != 0:
        raise CannotFuseError(
            "the code writes values that differ by lane into a stream; give a path, so that each trial has its own file"
        )
    return str(stream.name)


def _begin_copies(roster: Roster, stream: Any) -> list[Path]:
    """Give each lane a copy of what was written so far; a file that is written on keeps what its copies have."""
    mode = getattr(stream, "mode", "")
    if mode not in ("w", "wt", "a", "at") or not isinstance(stream.name, str | os.PathLike):
        raise CannotFuseError("the code writes text that differs by lane into a stream that is no file opened to write")
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
