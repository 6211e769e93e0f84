"""Ways to call functions that keep something of each lane: in a file, in a log for TensorBoard."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.fuse import files
from headwater.fuse.apart import split
from headwater.fuse.effects import KEEPING
from headwater.fuse.lifting import Function, call_unknown, differs, find_stand_ins, lift_arrays
from headwater.fuse.per_lane import PerLaneText
from headwater.fuse.roster import ROSTER


def keep(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function that writes values into a file: once per lane where a value or the path differs by lane."""
    roster = ROSTER.get()
    if roster is None or roster.place is not None:
        return function(*args, **kwargs)
    stream = getattr(function, "__self__", None)
    if hasattr(stream, "write"):
        return _write(function, stream, *args, **kwargs)
    place, name = _target_of(function)
    if name not in kwargs and len(args) <= place:
        return call_unknown(function, *args, **kwargs)
    target = kwargs[name] if name in kwargs else args[place]
    values = ([each for each in args if each is not target], {key: kwargs[key] for key in kwargs if key != name})
    is_own = roster.mask is not None or type(target) is PerLaneText or files.has_copies(roster, target)
    if not is_own and not files.differs_inside(values):
        return function(*args, **kwargs)

    def write(target_of_lane: Any, args_of_lane: Any, kwargs_of_lane: Any) -> None:
        if name in kwargs:
            function(*args_of_lane, **kwargs_of_lane, **{name: target_of_lane})
        else:
            function(*args_of_lane[:place], target_of_lane, *args_of_lane[place:], **kwargs_of_lane)

    return files.write_by_lane(roster, write, target, values)


def _target_of(function: Any) -> tuple[int, str]:
    """Return the position and the name of the argument that says where a function writes."""
    if function is builtins.print:
        return KEEPING["builtins"]["print"]  # Ray, for one, has its own
    return next(table[function.__name__] for table in _find_tables(function))


def _find_tables(function: Any) -> Sequence[Mapping[str, tuple[int, str]]]:
    name = function.__name__
    home = function.__module__ or ""
    return [KEEPING[home]] if name in KEEPING.get(home, {}) else [table for table in KEEPING.values() if name in table]


def _write(function: Function, stream: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a method that writes into an open file."""
    roster = ROSTER.get()
    assert roster is not None, "`keep` has asked"
    is_text = hasattr(stream, "encoding") and function.__name__ == "write" and len(args) == 1
    if is_text and type(args[0]) is PerLaneText:
        return files.write_text(roster, stream, args[0])
    if is_text and type(args[0]) is str and roster.mask is not None:
        return files.write_text(roster, stream, PerLaneText([args[0]] * len(roster), roster))
    if is_text and type(args[0]) is str:
        files.write_along(roster, stream, args[0])
    elif files.has_copies(roster, stream):
        raise files.refusal(roster, f"{function.__name__} writes into a file that each trial has a copy of")
    return call_unknown(function, *args, **kwargs)


def on_files(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function that reads or moves files: once per lane where a file is one of each trial, or its path is."""
    roster = ROSTER.get()
    if roster is None or roster.place is not None:
        return function(*args, **kwargs)
    owner = getattr(function, "__self__", None)
    given = (owner, *args, *kwargs.values())
    is_about = any(files.is_kept(roster, value) or type(value) is PerLaneText for value in given)
    if not is_about and roster.mask is None:
        return lift_arrays(function, *args, **kwargs) if differs(given) else _call_on_shared(function, args, kwargs)
    if _opens_to_write(function, args, kwargs) and not differs(given):
        return function(*args, **kwargs)
    return files.call_on_files(roster, function, args, kwargs)


def _call_on_shared(function: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return call_unknown(function, *args, **kwargs) if find_stand_ins((args, kwargs)) else function(*args, **kwargs)


def _opens_to_write(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a file is opened anew or to be written on: that shows which lanes have their own part of it."""
    if getattr(function, "__name__", "") != "open":
        return False
    place = 0 if isinstance(getattr(function, "__self__", None), Path) else 1
    mode = kwargs.get("mode", args[place] if len(args) > place else "r")
    return isinstance(mode, str) and mode[:1] in "wa" and "+" not in mode


def summarise(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a method of a SummaryWriter; what differs by lane goes to a writer of each trial, in a folder of its own."""
    roster, owner = ROSTER.get(), getattr(function, "__self__", None)
    if roster is None or owner is None or isinstance(owner, type):
        return function(*args, **kwargs)
    writers = roster.kept.writers.setdefault(id(owner), (owner, {}))[1]
    if function.__name__ in ("close", "flush"):
        for writer in writers.values():
            getattr(writer, function.__name__)()
        return function(*args, **kwargs)
    if not files.differs_inside((args, kwargs)) or roster.place is not None:
        return function(*args, **kwargs)
    rows = zip(split(list(args), len(roster)), split(dict(kwargs), len(roster)), strict=True)
    for place, (lane_args, lane_kwargs) in enumerate(rows):
        number = roster.numbers[roster.members[place]]
        if not roster.includes(place):
            continue
        if number not in writers:
            writers[number] = type(owner)(str(Path(owner.log_dir) / f"trial_{number}"))
        getattr(writers[number], function.__name__)(*lane_args, **lane_kwargs)
    return None
