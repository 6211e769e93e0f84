"""Failures of trials: the exception and its place, read from the traceback that the record keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FRAME = re.compile(r'^ +File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
_HEADING = "Traceback (most recent call last):"
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", f"{Path(__file__).parents[1]}/")


@dataclass(frozen=True, slots=True)
class Failure:
    """The exception that a trial failed with."""

    text: str
    """Its type and message."""
    place: str
    """File, line and function of the user's innermost frame; empty where there is no traceback."""

    def __str__(self) -> str:
        line = self.text.partition("\n")[0]
        return f"{line} ({self.place})" if self.place else line


def read_failure(error: str) -> Failure:
    """Read the exception and its place from a traceback, or take a text without one as it is."""
    block = error[max(error.rfind(_HEADING), 0) :]
    frames = list(_FRAME.finditer(block))
    if not frames:
        return Failure(text=error.strip(), place="")
    tail = block[frames[-1].end() :].splitlines()
    start = next((index for index, line in enumerate(tail) if line and not line.startswith(" ")), 0)
    own = [frame for frame in frames if not any(name in frame["file"] for name in _LIBRARIES)] or frames
    place = f"{own[-1]['file']}, line {own[-1]['line']}, in {own[-1]['function']}"
    return Failure(text="\n".join(tail[start:]).strip(), place=place)
