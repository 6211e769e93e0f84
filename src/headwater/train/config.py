"""The configuration of a group: a plain value where all lanes agree, else one value per lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.fuse.per_lane import PerLaneText, PerLaneThing, lane_value
from headwater.fuse.roster import Roster
from headwater.space import Config
from headwater.trials import Recipe


class LaneConfig(Mapping[str, Any]):
    """Reads like one trial's configuration. Lanes part where the code asks for keys that only some of them have.

    Code that runs for one lane by itself, such as the factory of its model, reads that lane's keys, words and things;
    numbers that differ stay PerLane, so that a dropout layer can keep its lanes' probabilities.
    """

    def __init__(self, roster: Roster, path: tuple[str, ...] = ()) -> None:
        self._roster = roster
        self._path = path

    def __getitem__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        path = (*self._path, key)
        recipe = Recipe(".".join(path), lambda config: _look_up(config, path))
        own = self._roster.place
        values = [_look_up(config, path) for config in self._configs() if own is None or _has(config, path)]
        if all(isinstance(value, Mapping) for value in values):
            return LaneConfig(self._roster, path)
        if own is not None and len(values) < len(self._roster):
            self._roster.note(recipe)
            return _look_up(self._configs()[own], path)
        value = lane_value(values, self._roster, recipe)
        return value.one() if own is not None and isinstance(value, PerLaneText | PerLaneThing) else value

    def __contains__(self, key: object) -> bool:
        recipe = Recipe(f"{key!r} in config", lambda config: key in self._section(config))
        return bool(self._agreed(recipe, f"the code asks whether a trial has {key!r}, and only some do"))

    def __iter__(self) -> Iterator[str]:
        recipe = Recipe("keys of config", lambda config: tuple(self._section(config)))
        reason = "the code lists the keys of the configuration, and lanes have different ones"
        return iter(self._agreed(recipe, reason))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return repr(dict(self))

    def _agreed(self, recipe: Recipe, reason: str) -> Any:
        """Return what the recipe gives for all lanes, or for the one that code runs for; else the lanes part."""
        own = self._roster.place
        has_section = [own is None or _has(config, self._path) for config in self._configs()]
        answers = [
            recipe.evaluate(config) if has else None for config, has in zip(self._configs(), has_section, strict=True)
        ]
        if all(answer == answers[0] for answer in answers):
            return answers[0]
        if own is None:
            raise self._roster.part(recipe, reason)
        self._roster.note(recipe)
        return answers[own]

    def _configs(self) -> list[Config]:
        return [self._roster.configs[member] for member in self._roster.members]

    def _section(self, config: Config) -> Mapping[str, Any]:
        section: Mapping[str, Any] = _look_up(config, self._path)
        return section


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
