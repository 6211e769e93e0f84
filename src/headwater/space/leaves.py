"""What a key of a space holds: a domain, a constant, or a condition, which is a function of the configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headwater.errors import SpaceError
from headwater.space.configuration import Config, freeze, nest
from headwater.space.domains import Domain, is_domain, require_text, show_value

MOST_LEVELS = 50
"""How deep dictionaries may be nested in a space."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A plain value, the same in every configuration."""

    value: Any  # Any: as for Config


@dataclass(frozen=True, slots=True)
class Condition:
    """A value, or a domain to draw it from, that follows from the other keys."""

    function: Callable[[Config], Any]  # Any: a constant or a domain

    def evaluate(self, key: str, values: Mapping[str, Any]) -> Any:  # Any: as above
        """Ask the function for a constant or a valid domain, given the values by dotted key."""
        try:
            outcome = self.function(freeze(nest(values)))
        except Exception as error:
            known = ", ".join(f"{name}={show_value(value)}" for name, value in values.items())
            raise SpaceError(
                f"space key {key!r}: its condition {show_value(self.function)} raised {type(error).__name__}: {error}; "
                f"it can read the domains, the constants and the conditions above it, here {known or 'none at all'}; "
                f"a function that is itself the value goes into choice([...])"
            ) from error
        if isinstance(outcome, Mapping):
            raise SpaceError(
                f"space key {key!r}: its condition returned the dictionary {dict(outcome)!r}; "
                f"write a nested dictionary with a condition for each key instead"
            )
        if is_domain(outcome):
            _check_domain(key, outcome)
        else:
            _check_constant(key, outcome)
        return outcome


Leaf: TypeAlias = Domain | Constant | Condition


def find_leaves(definition: object, parent: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield each key, dotted, with what it holds, and refuse whatever is malformed."""
    if parent.count(".") >= MOST_LEVELS:
        raise SpaceError(
            f"space key {parent[:40]!r}... is nested more than {MOST_LEVELS} levels deep; use fewer levels, and no "
            "dictionary that contains itself"
        )
    where = f"space key {parent!r}" if parent else "the space"
    if not isinstance(definition, Mapping):
        raise SpaceError(f"{where} is {definition!r}; give a dictionary such as {{'lr': loguniform(1e-4, 1)}}")
    if not definition:
        raise SpaceError(f"{where} is an empty dictionary; give it at least one key or leave it out")
    for name, value in definition.items():
        if not isinstance(name, str) or not name or "." in name:
            raise SpaceError(f"{where} has the key {name!r}; use a name without dots, and nest dictionaries instead")
        key = f"{parent}.{name}" if parent else name
        if isinstance(value, Mapping):
            yield from find_leaves(value, key)
        else:
            yield key, _make_leaf(key, value)


def _make_leaf(key: str, value: object) -> Leaf:
    if isinstance(value, type):
        raise SpaceError(
            f"space key {key!r} is the class {show_value(value)}, which would be called with the configuration; "
            f"write choice([{show_value(value)}]) if the class itself is the value"
        )
    if is_domain(value):
        _check_domain(key, value)
        return value
    if callable(value):
        _check_takes_config(key, value)
        return Condition(value)
    _check_constant(key, value)
    return Constant(value)


def _check_domain(key: str, domain: Domain) -> None:
    try:
        domain.validate()
    except SpaceError as error:
        raise SpaceError(f"space key {key!r}: {error}") from None


def _check_takes_config(key: str, function: Callable[..., object]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions do not tell; calling them will
        return
    try:
        signature.bind({})
    except TypeError:
        raise SpaceError(
            f"space key {key!r} is the function {show_value(function)}{signature}, but a condition is called with one "
            f"argument, the configuration; write lambda config: ..., or choice([...]) if the function is the value"
        ) from None


def _check_constant(key: str, value: object) -> None:
    try:
        require_text(value)
    except SpaceError as error:
        raise SpaceError(f"space key {key!r}: {error}") from None
    if _hides_domain(value):
        raise SpaceError(
            f"space key {key!r} is {value!r}, and a domain in there would not be drawn from; "
            f"nest dictionaries, or give each domain a key of its own"
        )


def _hides_domain(value: object) -> bool:
    if isinstance(value, Mapping):
        return _hides_domain(list(value.values()))
    return isinstance(value, list | tuple) and any(is_domain(item) or _hides_domain(item) for item in value)
