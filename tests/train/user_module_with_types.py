"""Stands for a user's module that asks whether things are floats, and does much else that Python can."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any


def is_float(x: Any) -> bool:
    return isinstance(x, float)


def to_float(x: Any) -> Any:
    return float(x)


def annotate(x: int) -> int:
    y: int = x
    return y


def twice(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(function)
    def call(x: Any) -> Any:
        return [function(x), function(x)]

    return call


@twice
def decorated(x: Any) -> Any:
    return int(x)


class Base:
    def __init__(self, x: Any) -> None:
        self.__hidden = x

    @property
    def hidden(self) -> Any:
        return float(self.__hidden)

    @classmethod
    def build(cls, x: Any) -> Base:
        return cls(int(x))

    @staticmethod
    def text(x: Any) -> Any:
        return f"<{x:.1f}>"


class Derived(Base):
    def __init__(self, x: Any) -> None:
        super().__init__(x)
        self.names = sorted(locals())


def closure(x: Any) -> Any:
    y = int(x)

    def inner(z: int = 2) -> Any:
        return float(y) * z

    return inner()


def generate(x: Any) -> Iterator[Any]:
    for place in range(2):
        yield float(x) + place


@dataclass
class Record:
    x: float = field(default=1.0)
    names: list[str] = field(default_factory=list)


def fail(x: Any) -> Any:
    return int(x) / 0
