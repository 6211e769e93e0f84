"""The space: which keys a configuration has and what each may hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from types import MappingProxyType, NoneType
from typing import Any, TypeAlias

from headwater.errors import SpaceError
from headwater.space.configuration import Config, find_values, nest, show_plain
from headwater.space.domains import Choice, Domain, Grid, as_plain, is_domain, same_value, show_value
from headwater.space.leaves import Condition, Constant, Leaf, find_leaves

Draw: TypeAlias = Callable[[str, Domain], Any]  # Any: as for Config
"""Answers with a value for a dotted key and its domain."""

_NUM_PROBES = 16
_MOST_COUNTED = 10_000
_COMPARABLE = (bool, int, float, str, bytes, tuple, list, NoneType)


class Kind(StrEnum):
    """Where the value of a key comes from."""

    DOMAIN = "domain"
    CONSTANT = "constant"
    CONDITION = "condition"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceRow:
    """One key of a space, for a table."""

    key: str
    kind: Kind
    text: str
    num_values: int | None
    """How many values the key may take; None if there is no end of them or a condition decides."""


class Space:
    """What may vary: domains, constants and conditions under the keys of nested dictionaries.

    A condition is a function of the configuration. It is called when all domains are drawn, in the order of
    definition, reads the domains, the constants and the conditions above it, and gives a constant or a domain to draw
    from. It must depend on the configuration alone, for it is asked again whenever a configuration is restored.

    Raises:
        SpaceError: Something in `definition` is malformed; the message names the key, the value and the cure.
    """

    def __init__(self, definition: Mapping[str, Any] | Space) -> None:  # Any: checked here
        leaves = definition._leaves if isinstance(definition, Space) else dict(find_leaves(definition))
        self._leaves: dict[str, Leaf] = leaves
        self._domains = {key: leaf for key, leaf in leaves.items() if is_domain(leaf)}
        self._shape = nest(dict.fromkeys(leaves))
        self._constants = {key: leaf.value for key, leaf in leaves.items() if isinstance(leaf, Constant)}
        self._conditions = {key: leaf for key, leaf in leaves.items() if isinstance(leaf, Condition)}
        self._grids = {key: leaf for key, leaf in leaves.items() if isinstance(leaf, Grid)}
        for key, value in self._constants.items():
            if isinstance(value, Space):
                raise SpaceError(f"space key {key!r} is {value!r}; nest the dictionary that it was made of instead")
        if self._conditions:
            for seed in range(_NUM_PROBES):
                self.sample(Random(seed))

    def __repr__(self) -> str:
        return f"Space({', '.join(f'{row.key}: {row.text}' for row in self.describe())})"

    @property
    def domains(self) -> Mapping[str, Domain]:
        """The domains by dotted key, without those that conditions return."""
        return MappingProxyType(self._domains)

    @property
    def options(self) -> Mapping[str, Sequence[Any]]:  # Any: as for Config
        """The values that can be told by their place: constants and those of choices and grids, by dotted key."""
        listed = {key: domain.options for key, domain in self._domains.items() if isinstance(domain, Choice | Grid)}
        return {key: (value,) for key, value in self._constants.items()} | listed

    @property
    def conditions(self) -> Mapping[str, Callable[[Config], Any]]:  # Any: a constant or a domain
        """The functions of other keys that values follow from, by dotted key."""
        return {key: condition.function for key, condition in self._conditions.items()}

    @property
    def size(self) -> int | None:
        """How many configurations there are; None if there is no end of them.

        Also None where conditions would have to be asked for more than 10 000 configurations.
        """
        size = 1
        for domain in self._domains.values():
            num_values = domain.num_values()
            if num_values is None:
                return None
            size *= num_values
        return self._count_configurations() if self._conditions else size

    @property
    def grid_size(self) -> int:
        """How many combinations the grids of the space have; 1 where there are no grids."""
        return math.prod(grid.num_values() for grid in self._grids.values())

    def resolve(self, draw: Draw) -> Config:
        """Build the configuration in which every domain, a condition's too, holds what `draw` answers for it.

        Domains are asked for in the order of definition, those of conditions last.
        """
        return nest(self._resolve_flat(draw))

    def _resolve_flat(self, draw: Draw) -> dict[str, Any]:  # Any: as for Config
        """Resolve, and leave the values under their dotted keys."""
        values = dict(self._constants)
        for key, domain in self._domains.items():
            values[key] = draw(key, domain)
        for key, condition in self._conditions.items():
            outcome = condition.evaluate(key, values)
            values[key] = draw(key, outcome) if is_domain(outcome) else outcome
        return {key: values[key] for key in self._leaves}

    def sample(self, rng: Random, number: int | None = None) -> Config:
        """Draw a configuration; trial `number` takes that cell of the grids, counted round and round.

        Without a number, and where a condition returns a grid, grids are drawn from like any choice.
        """
        cell = {} if number is None else self._find_grid_cell(number)
        return self.resolve(lambda key, domain: cell[key] if key in cell else domain.sample(rng))

    def configurations(self) -> Iterator[Config]:
        """Walk through all configurations, the last domain changing fastest.

        Raises:
            SpaceError: A key has no end of values.
        """
        listed = {key: _list_values(key, domain) for key, domain in self._domains.items()}
        return self._walk(lambda key, domain: listed[key] if key in listed else _list_values(key, domain))

    def encode(self, config: Config) -> dict[str, int | float]:
        """Turn a configuration into numbers that JSON can hold: what was drawn, for a choice its index.

        Constants and what conditions computed are left out: the space knows them.

        Raises:
            SpaceError: The configuration is not one of this space.
        """
        given = self.flatten(config)
        codes: dict[str, int | float] = {}

        def note(key: str, domain: Domain) -> Any:  # Any: as for Draw
            codes[key] = _encode_value(key, domain, given[key])
            return given[key]

        for key, expected in self._resolve_flat(note).items():
            _check_unchanged(key, expected, given[key])
        return codes

    def decode(self, codes: Mapping[str, int | float]) -> Config:
        """Turn what `encode` gave back into the configuration.

        Raises:
            SpaceError: The codes come from another space.
        """
        unused = dict(codes)

        def recall(key: str, domain: Domain) -> Any:  # Any: as for Draw
            return _decode_value(key, domain, unused.pop(key, None))

        config = self.resolve(recall)
        for key, code in unused.items():
            raise SpaceError(
                f"record key {key!r} holds {code!r}, but this space draws nothing there; use the space of that study"
            )
        return config

    def flatten(self, config: Config) -> dict[str, Any]:  # Any: as for Config
        """Return the values by dotted key, in the order of definition.

        Raises:
            SpaceError: A key of the space is missing in the configuration, or one is there that the space lacks.
        """
        given = dict(find_values(config, self._shape))
        for key in [*given, *self._leaves] if given.keys() != self._leaves.keys() else ():
            if key not in self._leaves or key not in given:
                fault = "missing in the configuration" if key in self._leaves else "not in the space"
                raise SpaceError(
                    f"configuration key {key!r} is {fault}; the space has {_show_keys(self._leaves)}, "
                    f"and a configuration has exactly those"
                )
        return {key: given[key] for key in self._leaves}

    def show(self, config: Config) -> Config:
        """Return the configuration for people who lack the space: JSON values, classes and functions by name."""
        return nest({key: show_plain(value) for key, value in self.flatten(config).items()})

    def describe(self) -> tuple[SpaceRow, ...]:
        """Return one row for each key, in the order of definition."""
        return tuple(_describe_leaf(key, leaf) for key, leaf in self._leaves.items())

    def _find_grid_cell(self, number: int) -> dict[str, Any]:  # Any: as for Config
        cell = {}
        for key, grid in reversed(self._grids.items()):
            number, index = divmod(number, grid.num_values())
            cell[key] = grid.values()[index]
        return cell

    def _count_configurations(self) -> int | None:
        too_many: list[str] = []

        def list_few(key: str, domain: Domain) -> tuple[Any, ...]:  # Any: as for Draw
            if (domain.num_values() or math.inf) <= _MOST_COUNTED:
                return _list_values(key, domain)
            too_many.append(key)
            return (domain.sample(Random(0)),)

        size = 0
        for _ in self._walk(list_few):
            size += 1
            if too_many or size > _MOST_COUNTED:
                return None
        return size

    def _walk(self, list_values: Callable[[str, Domain], tuple[Any, ...]]) -> Iterator[Config]:  # Any: as for Draw
        """Resolve again and again, the index of each value turning like a wheel of an odometer."""
        wheels: list[int] = []
        while True:
            counts: list[int] = []

            def turn(key: str, domain: Domain, counts: list[int] = counts) -> Any:  # Any: as for Draw
                values = list_values(key, domain)
                if len(counts) == len(wheels):
                    wheels.append(0)
                counts.append(len(values))
                return values[wheels[len(counts) - 1]]

            yield self.resolve(turn)
            while wheels and wheels[-1] + 1 == counts[len(wheels) - 1]:
                wheels.pop()
            if not wheels:
                return
            wheels[-1] += 1


def _check_unchanged(key: str, expected: object, given: object) -> None:
    both = isinstance(expected, _COMPARABLE) and isinstance(given, _COMPARABLE)
    if both and not same_value(expected, given):
        raise SpaceError(
            f"configuration key {key!r} is {given!r}, but this space says {expected!r}; a constant does not vary, and "
            f"a condition must depend on the configuration alone: to draw a value, let it return a domain"
        )


def _list_values(key: str, domain: Domain) -> tuple[Any, ...]:  # Any: as for Config
    values = domain.values()
    if values is None:
        raise SpaceError(
            f"space key {key!r}: {domain} has no end of values to list; "
            f"use grid([...]), choice([...]) or quniform(low, high, q), or search at random"
        )
    return values


def _encode_value(key: str, domain: Domain, value: Any) -> int | float:  # Any: as for Config
    if not domain.contains(value):
        raise SpaceError(f"configuration key {key!r} is {show_value(value)}; choose a value in {domain}")
    if isinstance(domain, Choice | Grid):
        return next(index for index, option in enumerate(domain.options) if same_value(option, value))
    number: int | float = as_plain(value)
    return number


def _decode_value(key: str, domain: Domain, code: int | float | None) -> Any:  # Any: as for Config
    options = domain.options if isinstance(domain, Choice | Grid) else None
    if code is None or (options is not None and code not in range(len(options))):
        raise SpaceError(
            f"record key {key!r} holds {code!r}, but this space draws it from {domain}; use the space of that study"
        )
    return code if options is None else options[int(code)]


def _show_keys(keys: Iterable[str]) -> str:
    return ", ".join(repr(key) for key in keys)


def _describe_leaf(key: str, leaf: Leaf) -> SpaceRow:
    if isinstance(leaf, Constant):
        return SpaceRow(key=key, kind=Kind.CONSTANT, text=show_value(leaf.value), num_values=1)
    if isinstance(leaf, Condition):
        return SpaceRow(key=key, kind=Kind.CONDITION, text=show_value(leaf.function), num_values=None)
    return SpaceRow(key=key, kind=Kind.DOMAIN, text=str(leaf), num_values=leaf.num_values())
