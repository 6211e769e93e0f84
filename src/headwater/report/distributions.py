"""Domains as the record describes them, in Optuna's words: what a reader without the space can make of it.

The record holds the call that builds a domain, `loguniform(0.0001, 1.0)`, and of each trial the number that was drawn,
for a choice its index. The calls are parsed, never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    check_distribution_compatibility,
)

from headwater.space import QLogUniform, QUniform

Label: TypeAlias = bool | int | float | str | None
"""What Optuna takes as a category."""

MAX_NAME = 200
"""Names of parameters are cut to this many characters."""
MAX_TEXT, MAX_OPTIONS = 20_000, 10_000
"""A domain with more is left out: Optuna compares options pairwise."""


def read_distribution(text: str, num_values: int | None) -> BaseDistribution | None:
    """Return the distribution for the call that builds a domain; None for one that is not ours, or is too large."""
    if len(text) > MAX_TEXT or (num_values or 0) > MAX_OPTIONS:
        return None
    name, arguments = _parse(re.sub(r" at 0x[0-9a-fA-F]+", "", text))
    if name in ("choice", "grid"):
        labels = [_find_label(text, option) for text, option in arguments]
        if num_values is not None and len(labels) != num_values:
            labels = [f"option {index}" for index in range(num_values)]
        return CategoricalDistribution(_make_unlike(labels)) if labels else None
    if name not in _NUMBERS:
        return None
    return _NUMBERS[name](*(ast.literal_eval(number) for _, number in arguments))


def find_parameter(distribution: BaseDistribution, code: int | float) -> Any:  # Any: a label or a number
    """Return the parameter that stands for a drawn value, given as the record has it."""
    return distribution.choices[int(code)] if isinstance(distribution, CategoricalDistribution) else code


class Names:
    """Names parameters by their keys.

    A condition may choose unlike domains for one key, which Optuna does not allow under one name: those that do not go
    together with the first are named with their domains.
    """

    def __init__(self) -> None:
        self._known: dict[str, BaseDistribution] = {}

    def see(self, distributions: Mapping[str, BaseDistribution]) -> None:
        """Learn which names are in use already."""
        self._known = {**distributions, **self._known}

    def choose(self, key: str, text: str, distribution: BaseDistribution) -> str:
        """Name a parameter."""
        known = self._known.setdefault(key, distribution)
        try:
            check_distribution_compatibility(known, distribution)
        except ValueError:
            return f"{key} in {text}"[:MAX_NAME]
        return key


Argument: TypeAlias = tuple[str, ast.expr]
"""How it is written, and what it is."""


def _parse(text: str) -> tuple[str, list[Argument]]:
    """Return the name of a call and its arguments, for a choice the options; no arguments where they are unreadable."""
    # A function without a name or an object is written in angle brackets, which Python cannot read.
    for readable in (text, re.sub(r"<[^<>]*>", lambda match: repr(match.group()), text)):
        try:
            call = ast.parse(readable, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: it is nested too deeply
            continue
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            parts = call.args
            if len(parts) == 1 and isinstance(parts[0], ast.List):
                parts = parts[0].elts
            return call.func.id, [(ast.get_source_segment(readable, part) or "", part) for part in parts]
    return text.partition("(")[0], []


def _find_label(text: str, option: ast.expr) -> Label:
    """Return a plain value as it is, a number of numpy's as Python's, and anything else as it is written."""
    if isinstance(option, ast.Call) and text.startswith("np.") and len(option.args) == 1:
        option = option.args[0]
    try:
        value = ast.literal_eval(option)
    except (ValueError, TypeError):
        return text
    return value if value is None or isinstance(value, bool | int | float | str) else text


def _make_unlike(labels: Sequence[Label]) -> tuple[Label, ...]:
    """Number labels that Optuna could not tell apart, such as two functions without a name, or 1 and True."""
    unlike: list[Label] = []
    for index, label in enumerate(labels):
        unlike.append(f"{label} ({index})" if label in unlike else label)
    return tuple(unlike)


def _read_quantised(low: float, high: float, q: float) -> BaseDistribution:
    domain = QUniform(low=low, high=high, q=q)
    first, last = domain.nearest(low), domain.nearest(high)
    if isinstance(first, int) and isinstance(last, int):
        return IntDistribution(first, last, step=int(q))
    return FloatDistribution(first, last, step=q)


def _read_quantised_log(low: float, high: float, q: float) -> BaseDistribution:
    """Leave out the step: Optuna has none on a logarithmic scale."""
    domain = QLogUniform(low=low, high=high, q=q)
    first, last = domain.nearest(low), domain.nearest(high)
    if isinstance(first, int) and isinstance(last, int):
        return IntDistribution(first, last, log=True)
    return FloatDistribution(first, last, log=True)


_NUMBERS: Mapping[str, Callable[..., BaseDistribution]] = MappingProxyType(
    {
        "uniform": FloatDistribution,
        "loguniform": lambda low, high: FloatDistribution(low, high, log=True),
        "quniform": _read_quantised,
        "qloguniform": _read_quantised_log,
        "randint": lambda low, high: IntDistribution(low, high - 1),
        "lograndint": lambda low, high: IntDistribution(low, high - 1, log=True),
    }
)
