"""The configuration of a group: a plain value where all lanes agree, else numbers that differ by lane."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from numbers import Number
from typing import Any

from headwater.fuse.per_lane import PerLaneMapping, PerLaneText, PerLaneThing, lane_value
from headwater.fuse.roster import Roster
from headwater.space import Config
from headwater.trials import Recipe
from headwater.trials.functions import name_type, read_section
from headwater.trials.recipes import Call, Constant, Key


class LaneConfig(PerLaneMapping):
    """Reads like one trial's configuration: a mapping that nobody changes.

    Numbers of one type may differ by lane. Whatever else differs makes the lanes part where it is read, and so do keys
    that only some of them have; for Python asks of text, truths, None and classes what no stand-in can answer. Only
    where they go straight to a place that takes them by lane are they handed out (`keeping`).

    Code that runs for one lane by itself, such as the factory of its model, reads that lane's keys, words and things;
    numbers that differ stay PerLane, so that a dropout layer can keep its lanes' probabilities.
    """

    def __init__(self, roster: Roster, path: tuple[str, ...] = (), keeps: bool = False) -> None:
        self.roster = roster
        self._path = path
        self._keeps = keeps

    def keeping(self) -> LaneConfig:
        """Return one that hands out whatever differs by lane."""
        return LaneConfig(self.roster, self._path, keeps=True)

    @property
    def recipe(self) -> Recipe:
        """What a trial of a configuration has in the place of this one."""
        return Recipe("config", Call(read_section, (Key(self._path),)))

    def __getitem__(self, key: str) -> Any:
        path = (*self._path, key)
        if not all(_has(config, path) for config in self._configs()) and key not in self:
            raise KeyError(key)
        recipe = Recipe(".".join(path), Key(path))
        own = self.roster.place
        values = [_look_up(config, path) for config in self._configs() if own is None or _has(config, path)]
        if all(isinstance(value, Mapping) for value in values):
            return LaneConfig(self.roster, path, self._keeps)
        if own is not None and len(values) < len(self.roster):
            self.roster.note(recipe)
            return _look_up(self._configs()[own], path)
        return self._stand_in(values, recipe)

    def _stand_in(self, values: list[Any], recipe: Recipe) -> Any:
        """Return what stands for the values of all lanes, or for that of the lane that code runs for; or part."""
        value = lane_value(values, self.roster, recipe)
        kinds = {type(each) for each in values}
        is_number = len(kinds) == 1 and isinstance(values[0], Number) and kinds != {bool}
        if self._keeps or is_number or type(value) is kinds.copy().pop():
            return value.one() if self.roster.place is not None and _is_thing(value) else value
        if len(kinds) > 1 and self.roster.place is None:
            kind = Recipe(f"type({recipe.label})", Call(name_type, (recipe.source,)))
            raise self.roster.part(kind, f"values of `{recipe.label}` are of different types")
        return value.one()

    def __contains__(self, key: object) -> bool:
        recipe = Recipe(f"{key!r} in config", Call(operator.contains, (Key(self._path), Constant(key))))
        return bool(self._agreed(recipe, f"the code asks whether a trial has {key!r}, and only some do"))

    def __iter__(self) -> Iterator[str]:
        recipe = Recipe("keys of config", Call(tuple, (Key(self._path),)))
        reason = "the code lists the keys of the configuration, and lanes have different ones"
        return iter(self._agreed(recipe, reason))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __reversed__(self) -> Iterator[str]:
        return iter([*self][::-1])

    def __or__(self, other: Any) -> Any:
        return {**self, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return {**other, **self} if isinstance(other, Mapping) else NotImplemented

    def copy(self) -> dict[str, Any]:
        """Return a dictionary of its own."""
        return dict(self)

    def __reduce_ex__(self, protocol: object) -> Any:
        return dict, ({**self},)  # as of a trial alone

    def __str__(self) -> str:
        return self._text(str)

    def __repr__(self) -> str:
        return self._text(repr)

    def _text(self, write: Callable[[Any], str]) -> str:
        if self.roster.shows:
            return write(dict(self.keeping()))
        recipe = Recipe(f"{write.__name__}(config)", Call(write, (self.recipe.source,)))
        return str(self._agreed(recipe, "the code makes text of the configuration"))

    def _agreed(self, recipe: Recipe, reason: str) -> Any:
        """Return what the recipe gives for all lanes, or for the one that code runs for; else the lanes part."""
        own = self.roster.place
        has_section = [own is None or _has(config, self._path) for config in self._configs()]
        answers = [
            recipe.evaluate(config) if has else None for config, has in zip(self._configs(), has_section, strict=True)
        ]
        if all(answer == answers[0] for answer in answers):
            return answers[0]
        if own is None:
            raise self.roster.part(recipe, reason)
        self.roster.note(recipe)
        return answers[own]

    def _configs(self) -> list[Config]:
        return [self.roster.configs[member] for member in self.roster.members]


def _is_thing(value: Any) -> bool:
    return type(value) in (PerLaneText, PerLaneThing)


def _has(config: Config, path: tuple[str, ...]) -> bool:
    try:
        _look_up(config, path)
    except (LookupError, TypeError):
        return False
    return True


def _look_up(config: Config, path: tuple[str, ...]) -> Any:
    value: Any = config
    for key in path:
        value = value[key]
    return value
