"""Domains: what one key of a space may hold.

The words on top build them and never refuse; `validate` does, so that a `Space` can name the key at fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from fractions import Fraction
from functools import partial
from numbers import Integral, Real
from random import Random
from typing import Any, Protocol, TypeGuard, runtime_checkable

from headwater.errors import SpaceError


def uniform(low: float, high: float) -> Uniform:
    """Any number from `low` to `high`, all equally likely."""
    return Uniform(low=as_plain(low), high=as_plain(high))


def loguniform(low: float, high: float) -> LogUniform:
    """Any number from `low` to `high`, all orders of magnitude equally likely."""
    return LogUniform(low=as_plain(low), high=as_plain(high))


def quniform(low: float, high: float, q: float) -> QUniform:
    """A multiple of `q` from `low` to `high`, all equally likely; an int if all three are."""
    return QUniform(low=as_plain(low), high=as_plain(high), q=as_plain(q))


def qloguniform(low: float, high: float, q: float) -> QLogUniform:
    """A multiple of `q` from `low` to `high`, all orders of magnitude equally likely; an int if all three are."""
    return QLogUniform(low=as_plain(low), high=as_plain(high), q=as_plain(q))


def randint(low: int, high: int) -> RandInt:
    """A whole number from `low` up to, but without, `high`."""
    return RandInt(low=as_plain(low), high=as_plain(high))


def choice(values: Iterable[Any]) -> Choice:
    """One of `values`, which may be anything: numbers, names, classes, functions, None."""
    return Choice(options=_as_options(values))


def grid(values: Iterable[Any]) -> Grid:
    """Each of `values` in turn: trials walk through all combinations of the grids of a space."""
    return Grid(options=_as_options(values))


@runtime_checkable
class Domain(Protocol):
    """What one key may hold: a frozen value whose text is the call that builds it."""

    def validate(self) -> None:
        """Raise a SpaceError, with the values and the cure, unless the domain makes sense."""

    def sample(self, rng: Random) -> Any:  # Any: a value is whatever the training function takes
        """Draw one value; the same state of `rng` gives the same value."""

    def contains(self, value: object) -> bool:
        """Whether `sample` could give `value`."""

    def num_values(self) -> int | None:
        """Count the values without listing them; None where there is no end of them."""

    def values(self) -> tuple[Any, ...] | None:  # Any: as for sample
        """List the values in order; None where there is no end of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interval:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float

    def __str__(self) -> str:
        return _show_call(self)

    def contains(self, value: object) -> bool:
        """Whether `value` is a number within the bounds."""
        return is_number(value) and self.low <= value <= self.high

    def num_values(self) -> None:
        """There is no counting them."""

    def values(self) -> None:
        """There is no listing them."""

    def nearest(self, value: float) -> float:
        """Return the number of the domain that is closest to `value`."""
        return float(min(max(value, self.low), self.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform(_Interval):
    """Numbers from `low` to `high`, all equally likely."""

    def validate(self) -> None:
        """Refuse bounds that are no finite numbers or in the wrong order."""
        _check_bounds(self)

    def sample(self, rng: Random) -> float:
        """Draw a number."""
        share = rng.random()
        return self.nearest(self.low * (1 - share) + self.high * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogUniform(_Interval):
    """Numbers from `low` to `high` whose logarithms are equally likely."""

    def validate(self) -> None:
        """Refuse what `Uniform` refuses, and bounds without a logarithm."""
        _check_bounds(self)
        _check_positive(self)

    def sample(self, rng: Random) -> float:
        """Draw a number."""
        return self.nearest(_sample_log(rng, self.low, self.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Multiples:
    """Multiples of `q` from `low` to `high`, each the float nearest to the decimal multiple: 0.3, never 3 * 0.1."""

    low: float
    high: float
    q: float

    def __str__(self) -> str:
        return _show_call(self)

    def contains(self, value: object) -> bool:
        """Whether `value` is exactly such a multiple."""
        return is_number(value) and value == self.nearest(value)

    def num_values(self) -> int:
        """Count the multiples."""
        return self._last - self._first + 1

    def values(self) -> tuple[float, ...]:
        """List the multiples from low to high."""
        return tuple(self._multiple(factor) for factor in range(self._first, self._last + 1))

    def nearest(self, value: float) -> float:
        """Return the multiple within the bounds that is closest to `value`."""
        factor = round(_as_written(value) / _as_written(self.q))
        return self._multiple(min(max(factor, self._first), self._last))

    @property
    def _first(self) -> int:
        return math.ceil(_as_written(self.low) / _as_written(self.q))

    @property
    def _last(self) -> int:
        return math.floor(_as_written(self.high) / _as_written(self.q))

    def _multiple(self, factor: int) -> float:
        exact = factor * _as_written(self.q)
        return int(exact) if all(isinstance(number, int) for number in astuple(self)) else float(exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class QUniform(_Multiples):
    """Multiples of `q` from `low` to `high`, all equally likely."""

    def validate(self) -> None:
        """Refuse what `Uniform` refuses, and a step that is not positive or larger than the range."""
        _check_bounds(self)
        _check_step(self)

    def sample(self, rng: Random) -> float:
        """Draw a multiple; those next to the bounds are as likely as the others."""
        return self._multiple(rng.randint(self._first, self._last))


@dataclass(frozen=True, slots=True, kw_only=True)
class QLogUniform(_Multiples):
    """Multiples of `q` from `low` to `high`, drawn evenly over the orders of magnitude."""

    def validate(self) -> None:
        """Refuse what `LogUniform` and `QUniform` refuse."""
        _check_bounds(self)
        _check_positive(self)
        _check_step(self)

    def sample(self, rng: Random) -> float:
        """Draw a multiple."""
        return self.nearest(_sample_log(rng, self.low, self.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class RandInt:
    """Whole numbers from `low` up to, but without, `high`, all equally likely."""

    low: int
    high: int

    def __str__(self) -> str:
        return _show_call(self)

    def validate(self) -> None:
        """Refuse bounds that are no whole numbers or in the wrong order."""
        _check_bounds(self)
        for name, bound in _named(self):
            if not isinstance(bound, int):
                raise SpaceError(f"{self}: {name} is {bound!r}, not a whole number; give an int, or use uniform")

    def sample(self, rng: Random) -> int:
        """Draw a number."""
        return rng.randrange(self.low, self.high)

    def contains(self, value: object) -> bool:
        """Whether `value` is a whole number within the bounds."""
        return isinstance(value, Integral) and is_number(value) and self.low <= value < self.high

    def num_values(self) -> int:
        """Count the numbers."""
        return self.high - self.low

    def values(self) -> tuple[int, ...]:
        """List the numbers from low to high."""
        return tuple(range(self.low, self.high))

    def nearest(self, value: float) -> int:
        """Return the number of the domain that is closest to `value`."""
        return min(max(round(value), self.low), self.high - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Values of any kind, one by one."""

    options: tuple[Any, ...]  # Any: a value is whatever the training function takes

    def __str__(self) -> str:
        return _show_call(self)

    def validate(self) -> None:
        """Refuse options that are no list, none at all, repeated, or domains themselves."""
        _check_is_list(self)
        _check_options(self)

    def sample(self, rng: Random) -> Any:  # Any: as for options
        """Draw an option."""
        return rng.choice(self.options)

    def contains(self, value: object) -> bool:
        """Whether `value` is one of the options."""
        return any(same_value(option, value) for option in self.options)

    def num_values(self) -> int:
        """Count the options."""
        return len(self.options)

    def values(self) -> tuple[Any, ...]:  # Any: as for options
        """Return the options in their order."""
        return self.options


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(_Options):
    """One of a few values of any kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid(_Options):
    """A few values of any kind, each to be tried in turn."""


def is_domain(value: object) -> TypeGuard[Domain]:
    """Whether `value` is a domain; the class of one is not."""
    return isinstance(value, Domain) and not isinstance(value, type)


def as_plain(number: Any) -> Any:  # Any: users pass what they like, and `validate` refuses it later
    """Turn numpy's numbers into Python's, and leave anything else alone."""
    if isinstance(number, bool) or not isinstance(number, Real):
        return number
    return int(number) if isinstance(number, Integral) else float(number)


def same_value(first: object, second: object) -> bool:
    """Whether two values are the same option: 1 and 1.0 are, 1 and True are not."""
    if first is second:
        return True
    if isinstance(first, bool) != isinstance(second, bool):
        return False
    try:
        return bool(first == second or (first != first and second != second))  # NaN is NaN
    except (TypeError, ValueError, RuntimeError):  # arrays and tensors give no single answer
        return False


def show_value(value: object) -> str:
    """Write a value as it would stand in code: a class or a function by its name."""
    if isinstance(value, partial):
        given = [*map(show_value, value.args), *(f"{key}={show_value(item)}" for key, item in value.keywords.items())]
        return f"{show_value(value.func)}({', '.join(given)})"
    try:
        return str(getattr(value, "__name__", None) or repr(value))
    except Exception:  # the user's own __repr__
        return f"<{type(value).__name__}>"


def require_text(value: object) -> None:
    """Refuse a value whose `repr` raises: trials are sorted, recorded and shown by the text of their values.

    Raises:
        SpaceError: The value has no text.
    """
    try:
        repr(value)
    except Exception as error:  # the user's own __repr__
        raise SpaceError(
            f"a value of class {type(value).__name__} has no text: its repr raised {type(error).__name__}: {error}; "
            "mend its __repr__, or give its name and build the value in the training function"
        ) from None


def _as_written(number: float) -> Fraction:
    """Return the decimal that the user wrote, not the binary number next to it."""
    return Fraction(repr(as_plain(number)))


def _as_options(values: Any) -> Any:  # Any: as for as_plain
    is_list = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping | set | frozenset)
    return tuple(values) if is_list else values


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a finite number, and no truth value."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


def _sample_log(rng: Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _named(domain: Any) -> list[tuple[str, Any]]:  # Any: one of the dataclasses above, and its unchecked fields
    return [(field.name, getattr(domain, field.name)) for field in fields(domain)]


def _show_call(domain: object) -> str:
    return f"{type(domain).__name__.lower()}({', '.join(_show_argument(value) for _, value in _named(domain))})"


def _show_argument(value: object) -> str:
    return f"[{', '.join(show_value(option) for option in value)}]" if isinstance(value, tuple) else show_value(value)


def _check_bounds(domain: Uniform | LogUniform | QUniform | QLogUniform | RandInt) -> None:
    for name, number in _named(domain):
        if isinstance(number, bool) or not isinstance(number, Real):
            raise SpaceError(f"{domain}: {name} is {show_value(number)}, a {type(number).__name__}; give a number")
        if not is_number(number):
            raise SpaceError(f"{domain}: {name} is {show_value(number)}; give a finite number")
    if domain.low >= domain.high:
        raise SpaceError(
            f"{domain}: low {domain.low!r} is not below high {domain.high!r}; "
            f"give the smaller number first, or write a plain value for a constant"
        )


def _check_positive(domain: LogUniform | QLogUniform) -> None:
    if domain.low <= 0:
        plain = type(domain).__name__.lower().replace("log", "")
        raise SpaceError(f"{domain}: low is {domain.low!r}, which has no logarithm; raise it above 0, or use {plain}")


def _check_step(domain: QUniform | QLogUniform) -> None:
    if domain.q <= 0:
        raise SpaceError(f"{domain}: q is {domain.q!r}; give a step above 0, or use a domain without q")
    if _as_written(domain.q) > _as_written(domain.high) - _as_written(domain.low):
        raise SpaceError(
            f"{domain}: q {domain.q!r} is larger than the range from {domain.low!r} to {domain.high!r}; "
            f"lower q or widen the range"
        )


def _check_is_list(domain: _Options) -> None:
    name, given = type(domain).__name__.lower(), domain.options
    if isinstance(given, tuple):
        return
    if isinstance(given, str | bytes):
        raise SpaceError(f"{domain}: a string would be tried letter by letter; write {name}([{given!r}])")
    if isinstance(given, set | frozenset):
        raise SpaceError(f"{domain}: a set has no order, so that no seed could repeat the study; give a list")
    raise SpaceError(f"{domain}: got a {type(given).__name__} where a list of values is needed; write {name}([...])")


def _check_options(domain: _Options) -> None:
    if not domain.options:
        raise SpaceError(f"{domain}: there is nothing to choose from; give at least one value")
    for index, option in enumerate(domain.options):
        require_text(option)
        if is_domain(option):
            raise SpaceError(
                f"{domain}: the domain {option} is a value here, and would not be drawn from; "
                f"use a function of the configuration that returns it"
            )
        if any(same_value(option, other) for other in domain.options[:index]):
            raise SpaceError(f"{domain}: {show_value(option)} is given twice; leave one out")
