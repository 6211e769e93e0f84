"""Domains for draws of another kind: whole numbers over orders of magnitude, and functions of one's own."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from random import Random
from typing import Any

from headwater.errors import SpaceError
from headwater.space.domains import RandInt, as_plain, show_value


def lograndint(low: int, high: int) -> LogRandInt:
    """A whole number from `low` up to, but without, `high`, all orders of magnitude equally likely."""
    return LogRandInt(low=as_plain(low), high=as_plain(high))


def sample_from(function: Callable[[Random], Any]) -> SampleFrom:  # Any: a number, which is checked when it is drawn
    """A number that `function` draws with the `random.Random` it is given, and with nothing else.

    What follows from other keys needs no draw: write a function of the configuration in its place in the space.
    """
    return SampleFrom(function=function)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRandInt(RandInt):
    """Whole numbers from `low` up to, but without, `high`, whose logarithms are equally likely."""

    def __str__(self) -> str:
        return f"lograndint({self.low!r}, {self.high!r})"

    def validate(self) -> None:
        """Refuse what `RandInt` refuses, and bounds without a logarithm."""
        RandInt.validate(self)
        if self.low < 1:
            raise SpaceError(f"{self}: low is {self.low!r}, which has no logarithm; raise it to 1, or use randint")

    def sample(self, rng: Random) -> int:
        """Draw a number."""
        drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return min(max(math.floor(drawn), self.low), self.high - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFrom:
    """Numbers that a function of the user's own draws."""

    function: Callable[[Random], Any]  # Any: as for sample_from

    def __str__(self) -> str:
        return f"sample_from({show_value(self.function)})"

    def validate(self) -> None:
        """Refuse what cannot be called with a generator of random numbers."""
        if not callable(self.function):
            raise SpaceError(f"{self}: {self.function!r} is no function; give one that draws, as in lambda rng: ...")
        try:
            inspect.signature(self.function).bind(Random(0))
        except ValueError:  # one written in C may have no signature
            return
        except TypeError:
            raise SpaceError(f"{self}: it must take one argument, the random.Random to draw with") from None

    def sample(self, rng: Random) -> float:
        """Draw a number, and refuse anything else: other values belong into a choice."""
        try:
            value = as_plain(self.function(rng))
        except Exception as error:  # of the user's function
            raise SpaceError(
                f"{self} raised {type(error).__name__}: {error}; it is given a random.Random, and no configuration: "
                "write a plain function of the configuration for what follows from other keys"
            ) from error
        if not self.contains(value):
            raise SpaceError(f"{self} drew {value!r}; it must draw finite numbers: use choice([...]) for other values")
        return value  # type: ignore[no-any-return]  # it is a number, as was just seen

    def contains(self, value: object) -> bool:
        """Whether it is a number: which of them the function draws, nobody knows."""
        is_number = isinstance(value, Real | Integral) and not isinstance(value, bool)
        return is_number and math.isfinite(float(value))  # type: ignore[arg-type]  # a number

    def num_values(self) -> None:
        """There is no counting them."""

    def values(self) -> None:
        """There is no listing them."""
