"""Ways to call what keeps something of each lane: in a file, in a log for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from torch import Tensor

from headwater.fuse import files
from headwater.fuse.apart import split, touches
from headwater.fuse.functorch import is_lane_tensor
from headwater.fuse.lifting import ROSTER, Function, guard, is_stand_in, lift_arrays
from headwater.fuse.per_lane import PerLaneText

ARRAY_WRITERS = frozenset({"save", "savetxt", "savez", "savez_compressed"})


def serialize(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call `torch.save` or `torch.load`: once per lane where that is about values that lanes have of their own."""
    roster = ROSTER.get()
    if roster is None or roster.place is not None or function.__name__ not in ("save", "load") or len(args) < 1:
        return function(*args, **kwargs)
    if function.__name__ == "load":
        kept = files.is_kept(roster, args[0]) or type(args[0]) is PerLaneText
        return files.load_by_lane(roster, function, *args, **kwargs) if kept else function(*args, **kwargs)
    if len(args) > 1 and (_differs(args[0]) or type(args[1]) is PerLaneText or roster.mask is not None):
        return files.save_by_lane(roster, function, *args, **kwargs)
    return function(*args, **kwargs)


def write_stream(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a method of an open file."""
    roster = ROSTER.get()
    stream = getattr(function, "__self__", None)
    if stream is None or roster is None or roster.place is not None or function.__name__ != "write" or len(args) != 1:
        return guard(function, *args, **kwargs)
    if type(args[0]) is PerLaneText and hasattr(stream, "encoding"):
        return files.write_text(roster, stream, args[0])
    if type(args[0]) is str and roster.mask is not None and hasattr(stream, "encoding"):
        return files.write_text(roster, stream, PerLaneText([args[0]] * len(roster), roster))
    if type(args[0]) is str:
        files.write_along(roster, stream, args[0])
    return guard(function, *args, **kwargs)


def write_file(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call `json.dump`, `numpy.save` and their like."""
    roster = ROSTER.get()
    if roster is None or roster.place is not None or len(args) < 2 or not _differs(args):
        return function(*args, **kwargs)
    if function.__name__ == "dump" and _differs(args[0]):
        return files.dump_json(roster, *args, **kwargs)
    if function.__name__ in ARRAY_WRITERS and isinstance(args[0], str | Path | PerLaneText):
        return files.write_arrays(roster, function, *args, **kwargs)
    return lift_arrays(function, *args, **kwargs)


def on_files(way: Function, function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function that may work on a file which each lane has its own of."""
    roster = ROSTER.get()
    if roster is None or roster.place is not None:
        return way(function, *args, **kwargs)
    owner = getattr(function, "__self__", None)
    is_about = any(files.is_kept(roster, value) for value in (owner, *args, *kwargs.values()))
    if not is_about or _opens_to_write(function, args, kwargs):
        return way(function, *args, **kwargs)
    return files.call_on_files(roster, function, args, kwargs)


def reads_files(function: Any, *, is_known: bool) -> bool:
    """Tell whether a function may look at the file of a path; one that is known to compute only by its name."""
    owner = getattr(function, "__self__", None)
    if is_known or isinstance(owner, PurePath):
        return getattr(function, "__name__", "") in _FILE_READERS
    return not isinstance(function, type)


_FILE_READERS = frozenset({
    "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "exists", "isfile", "getsize", "getmtime", "samefile",
    "open", "read_text", "read_bytes", "write_text", "write_bytes", "is_file", "stat", "unlink", "rename", "replace",
    "touch",
})  # fmt: skip


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
    if not _differs((args, kwargs)) or roster.place is not None:
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


def _differs(value: Any) -> bool:
    """Tell whether something in a value differs by lane, however deep in lists and dictionaries."""
    if isinstance(value, Tensor):
        return bool(is_lane_tensor(value))
    if is_stand_in(value):
        return True
    if isinstance(value, Mapping):
        return ("members" in value and "lanes" in value.get("state", value)) or any(map(_differs, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_differs, value))
    return hasattr(value, "parameters") and touches([*value.parameters()])
