"""The code that asks something of a value."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Container
from types import CodeType, FrameType

from headwater.fuse.effects import CONTAINER_MODULES
from headwater.fuse.users_code import is_library

_DEBUGGERS = frozenset({"pdb", "bdb", "pydevd", "_pydevd_bundle"})
_PRINTERS = frozenset({"pprint", "reprlib"})
"""Modules that debuggers show values by, and other code too."""
_KNOWN = frozenset({"torch", "headwater"}) | CONTAINER_MODULES | _DEBUGGERS

_known_codes: dict[int, CodeType] = {}
"""Code of known packages, by `id`: it may stand on the stack when a value that differs by lane is made."""


def find_base() -> FrameType | None:
    """Return the frame whose `with` statement entered the context manager that asks, maybe through others."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_globals.get("__name__") == "contextlib"
    ):
        frame = frame.f_back
    return frame


def find_stranger(base: FrameType | None, variants: Container[int]) -> str:
    """Return the name of code on the stack that is neither the user's variant nor known.

    The search ends at the base, or where this package trains: that code calls the user's functions, and saves lanes.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame is not base:
        code = frame.f_code
        place = id(code)
        if place not in _known_codes and place not in variants:
            if frame.f_globals.get("__name__", "").startswith("headwater.train"):
                return ""
            if not _is_known(code, frame):
                return f"{frame.f_globals.get('__name__')}.{code.co_qualname}"
            _known_codes[place] = code
        frame = frame.f_back
    return ""


def _is_known(code: CodeType, frame: FrameType) -> bool:
    if code.co_filename.startswith(
        "<"
    ):  # methods that a dataclass or a named tuple has, and lines typed into a debugger
        is_method = code.co_name.startswith("__") and code.co_name.endswith("__")
        return is_method or code.co_filename in ("<stdin>", "<frozen abc>")
    return package_of(frame) in _KNOWN and is_library(code.co_filename)


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
