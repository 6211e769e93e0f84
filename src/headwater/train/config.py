"""The configuration of a group: a plain value where all lanes agree, else one value per lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.fuse.per_lane import lane_value
from headwater.fuse.roster import Roster
from headwater.space import Config
from headwater.trials import Recipe


class LaneConfig(Mapping[str, Any]):
    """Reads like one trial's configuration. Lanes part where the code asks for keys that only some of them have."""

    def __init__(self, roster: Roster, path: tuple[str, ...] = ()) -> None:
        self._roster = roster
        self._path = path

    def __getitem__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        path = (*self._path, key)
        values = [_look_up(config, path) for config in self._configs()]
        if all(isinstance(value, Mapping) for value in values):
            return LaneConfig(self._roster, path)
        recipe = Recipe(".".join(path), lambda config: _look_up(config, path))
        return lane_value(values, self._roster, recipe)

    def __contains__(self, key: object) -> bool:
        present = [key in self._section(config) for config in self._configs()]
        if any(present) and not all(present):
            recipe = Recipe(f"{key!r} in config", lambda config: key in self._section(config))
            raise self._roster.part(recipe, f"the code asks whether a trial has {key!r}, and only some do")
        return present[0]

    def __iter__(self) -> Iterator[str]:
        first, *others = (list(self._section(config)) for config in self._configs())
        if any(keys != first for keys in others):
            recipe = Recipe("keys of config", lambda config: tuple(self._section(config)))
            raise self._roster.part(
                recipe, "the code lists the keys of the configuration, and lanes have different ones"
            )
        return iter(first)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return repr(dict(self))

    def _configs(self) -> list[Config]:
        return [self._roster.configs[member] for member in self._roster.members]

    def _section(self, config: Config) -> Mapping[str, Any]:
        section: Mapping[str, Any] = _look_up(config, self._path)
        return section


def _look_up(config: Config, path: tuple[str, ...]) -> Any:
    value: Any = config
    for key in path:
        value = value[key]
    return value
