"""Whose code asks something of a value."""

from __future__ import annotations

import sys
from types import FrameType

_DEBUGGERS = frozenset({"pdb", "bdb", "pydevd", "_pydevd_bundle"})
_PRINTERS = frozenset({"pprint", "reprlib"})
"""What debuggers show values by, and others too."""


def is_debugging() -> bool:
    """Tell whether a debugger asks for the text, to show it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and package_of(frame) in _PRINTERS:
        frame = frame.f_back
    return package_of(frame) in _DEBUGGERS


def package_of(frame: FrameType | None) -> str:
    """Return the package whose code asks; that of the standard library's abstract classes asks for another."""
    while frame is not None and frame.f_globals.get("__name__") == "abc":
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", "")).partition(".")[0]
