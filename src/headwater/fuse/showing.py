"""Calls that only people read the effect of: they are made once, with the values of all lanes."""

from __future__ import annotations

import builtins
import io
import logging
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

from headwater.errors import CannotFuseError
from headwater.fuse.keeping import keep
from headwater.fuse.lifting import Function, call_unknown, lift, name_function, roster_of
from headwater.fuse.per_lane import PerLaneText
from headwater.fuse.shown import PLAIN, shows_only
from headwater.fuse.spelling import spell
from headwater.fuse.users_code import is_users_module
from headwater.trials.functions import fill_in

_LOGGING = frozenset({"debug", "info", "warning", "warn", "error", "critical", "exception", "log"})


def show(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call what only people read, once, with the values of all lanes."""
    roster = roster_of((args, kwargs))
    if roster is None or roster.place is not None:
        return function(*args, **kwargs)
    if (kwargs.get("file") or sys.stdout) not in roster.streams:
        is_print = function is builtins.print or name_function(function) == "print"
        return (keep if is_print else call_unknown)(function, *map(spell, args), **kwargs)
    args = (*map(spell, args),)
    with roster.showing():
        return function(*map(_legible, args), **{key: _legible(value) for key, value in kwargs.items()})


def show_text(function: FunctionType, *args: Any, **kwargs: Any) -> Any:
    """Call a function of the user's own, with the text of all lanes if it does nothing but show it."""
    if not any(type(arg) is PerLaneText for arg in args) or kwargs:
        return function(*args, **kwargs)
    roster, code = roster_of(args), function.__code__
    is_plain = all(type(arg) is PerLaneText or type(arg) in PLAIN for arg in args) and len(args) <= code.co_argcount
    if roster is None or roster.place is not None or not is_plain or sys.stdout not in roster.streams:
        return function(*args)
    names = (name for name, arg in zip(code.co_varnames, args, strict=False) if type(arg) is PerLaneText)
    if not shows_only(function, frozenset(names)):
        return function(*args)
    with roster.showing():
        return function(*map(_legible, args))


def _legible(value: Any) -> Any:
    return str(value) if type(value) is PerLaneText else value


def log(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function that may note which line has called it."""
    if name_function(function) not in _LOGGING:
        return function(*args, **kwargs)
    is_kept = any(_keeps_text(handler) for handler in _handlers_of(function))
    kwargs = {**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 2}
    return call_unknown(function, *args, **kwargs) if is_kept else show(function, *_fill_in(function, args), **kwargs)


def _fill_in(function: Function, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a message with its values written into its text, where that can be done."""
    level, rest = (args[:1], args[1:]) if name_function(function) == "log" else ((), args)
    if len(rest) < 2 or type(rest[0]) is not str or roster_of(rest) is None:
        return args
    text, *values = rest
    try:
        is_named = len(values) == 1 and isinstance(values[0], Mapping) and values[0]
        return (*level, "%s", lift(fill_in, text, values[0] if is_named else tuple(map(spell, values))))
    except CannotFuseError:
        raise
    except (TypeError, ValueError, KeyError):  # logging says so itself, and goes on
        return args


def _handlers_of(function: Function) -> Iterator[logging.Handler]:
    """Find who hears of a message, if the function writes into a log."""
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", "")
    logger: Any = owner if owner is not None else logging.root if module == "logging" else None
    while isinstance(logger, logging.LoggerAdapter):
        logger = logger.logger
    while isinstance(logger, logging.Logger):
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _keeps_text(handler: logging.Handler) -> bool:
    """Tell whether the user's code can read what a handler was given."""
    is_in_memory = type(handler) is logging.StreamHandler and isinstance(handler.stream, io.StringIO)
    return is_in_memory or is_users_module(type(handler).__module__)
