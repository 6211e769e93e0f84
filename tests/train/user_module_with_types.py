"""Stands for a user's module that needs the real `float`, since it asks whether things are floats."""

from typing import Any


def is_float(x: Any) -> bool:
    return isinstance(x, float)


def to_float(x: Any) -> Any:
    return float(x)


def to_int(x: Any) -> Any:
    return int(x)


def annotate(x: int) -> int:
    y: int = x
    return y
