"""What a study has learnt of its function on a kind of device: recorded, resumed, and handed on."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from headwater.trials.constants import NO_OPTIONS, Json, Options, name_option, read_constant, write_constant
from headwater.trials.measurements import Measurement, Profile
from headwater.trials.recipes import Recipe

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KindProfile:
    """How many lanes pay for trials of one kind."""

    kind: tuple[Hashable, ...]
    """What each of the recipes gives for them, in order."""
    num_asked: int
    """For how many lanes it was measured."""
    profile: Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTimes:
    """How long epochs of trials of one kind took, as they were trained."""

    kind: tuple[Hashable, ...]
    epochs: tuple[tuple[int, int, float], ...] = ()
    """A number of lanes, a number of devices, and the seconds of an epoch."""
    shares: tuple[tuple[int, float], ...] = ()
    """A number of devices, and what share of its time on one a trial takes on them."""


_OfKind = TypeVar("_OfKind", KindProfile, KindTimes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenWay:
    """Which of several ways to compute a call was fastest."""

    key: str
    """What is computed, of which shapes and types."""
    magnitude: int
    """The binary logarithm of its size."""
    way: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What parts lanes, whether they train apart, how many of them pay, the fastest ways to compute, and times."""

    recipes: tuple[Recipe, ...] = ()
    apart: str | None = None
    """Why lanes of this function cannot train as one."""
    profiles: tuple[KindProfile, ...] = ()
    strategies: tuple[ChosenWay, ...] = ()
    times: tuple[KindTimes, ...] = ()
    change_s: float | None = None
    """How long lanes stand still when what they have is changed; None where nothing was."""

    def merge(self, newer: Learnt) -> Learnt:
        """Return what both know together; where they disagree, what was measured for more lanes, or is newer.

        Profiles and times are for kinds, and kinds are told by all recipes: those of one that lacked some are left out.
        """
        recipes = tuple({recipe.label: recipe for recipe in (*self.recipes, *newer.recipes)}.values())
        profiles: dict[Hashable, KindProfile] = {}
        for item in (*_align(self, self.profiles, recipes), *_align(newer, newer.profiles, recipes)):
            if item.kind not in profiles or profiles[item.kind].num_asked <= item.num_asked:
                profiles[item.kind] = item
        ways = {(item.key, item.magnitude): item for item in (*self.strategies, *newer.strategies)}
        times = (*_align(self, self.times, recipes), *_align(newer, newer.times, recipes))
        return Learnt(
            recipes=recipes,
            apart=newer.apart or self.apart,
            profiles=tuple(profiles.values()),
            strategies=tuple(ways.values()),
            times=tuple({item.kind: item for item in times}.values()),
            change_s=self.change_s if newer.change_s is None else newer.change_s,
        )

    def to_json(self, options: Options = NO_OPTIONS) -> str:
        """Return it as text; what cannot be data, in a study whose space has these options, is left out."""
        recipes = [recipe.to_json(options) for recipe in self.recipes]
        profiles = [] if None in recipes else [_write_profile(item, options) for item in self.profiles]
        times = [] if None in recipes else [_write_times(item, options) for item in self.times]
        return json.dumps({
            "version": VERSION,
            "recipes": [item for item in recipes if item is not None],
            "apart": self.apart,
            "profiles": [item for item in profiles if item is not None],
            "strategies": [[item.key, item.magnitude, item.way] for item in self.strategies],
            "times": [item for item in times if item is not None],
            "change_s": self.change_s,
        })  # fmt: skip

    @classmethod
    def from_json(cls, text: str, options: Options = NO_OPTIONS) -> Learnt:
        """Return what `to_json` wrote; of anything else, nothing is learnt. Nothing of it is run."""
        try:
            data: Json = json.loads(text)
            match data:
                case {
                    "version": int(version),
                    "recipes": list(recipes),
                    "apart": str() | None as apart,
                    "profiles": list(profiles),
                    "strategies": list(ways),
                } if version == VERSION:
                    return cls(
                        recipes=tuple(_read_recipe(item, options) for item in recipes),
                        apart=apart,
                        profiles=tuple(_read_profile(item, len(recipes), options) for item in profiles),
                        strategies=tuple(map(_read_way, ways)),
                        times=tuple(_read_times(item, len(recipes), options) for item in data.get("times", [])),
                        change_s=_read_change(data.get("change_s")),
                    )
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
            pass
        return cls()


def _align(learnt: Learnt, items: Sequence[_OfKind], recipes: Sequence[Recipe]) -> list[_OfKind]:
    """Return profiles or times with their kinds told by these recipes, if they are the same but for their order."""
    places = {recipe.label: place for place, recipe in enumerate(learnt.recipes)}
    if places.keys() != {recipe.label for recipe in recipes}:
        return []
    order = [places[recipe.label] for recipe in recipes]
    whole = [item for item in items if len(item.kind) == len(order)]
    return [replace(item, kind=tuple(item.kind[place] for place in order)) for item in whole]


def _write_profile(item: KindProfile, options: Options) -> Json:
    kind = _write_kind(item.kind, options)
    return None if kind is None else {"kind": kind, "num_asked": item.num_asked, "profile": asdict(item.profile)}


def _write_times(item: KindTimes, options: Options) -> Json:
    kind = _write_kind(item.kind, options)
    return None if kind is None else {"kind": kind, "epochs": item.epochs, "shares": item.shares}


def _write_kind(kind: Sequence[Hashable], options: Options) -> Json:
    try:
        return [write_constant(value, name_option(options)) for value in kind]
    except (ValueError, RecursionError):  # no other process could tell which trials it is for
        return None


def _read_recipe(data: Json, options: Options) -> Recipe:
    recipe = Recipe.from_json(data, options)
    if recipe is None:
        raise ValueError("it is no recipe")
    return recipe


def _read_profile(data: Json, num_recipes: int, options: Options) -> KindProfile:
    match data:
        case {
            "kind": list(kind),
            "num_asked": int(num_asked),
            "profile": {
                "num_lanes": int(num_lanes), "reason": str(reason), "label": str(label), "measurements": list(measured)
            },
        } if num_lanes >= 1:  # fmt: skip
            values = _read_kind(kind, num_recipes, options)
            measurements = tuple(map(_read_measurement, measured))
            profile = Profile(num_lanes=num_lanes, reason=reason, label=label, measurements=measurements)
            return KindProfile(kind=values, num_asked=num_asked, profile=profile)
    raise ValueError("it is no profile")


def _read_kind(kind: Sequence[Json], num_recipes: int, options: Options) -> tuple[Hashable, ...]:
    if len(kind) != num_recipes:
        raise ValueError("it is no kind that these recipes tell")
    values = tuple(read_constant(value, options) for value in kind)
    hash(values)
    return values


def _read_times(data: Json, num_recipes: int, options: Options) -> KindTimes:
    match data:
        case {"kind": list(kind), "epochs": list(epochs), "shares": list(shares)}:
            return KindTimes(
                kind=_read_kind(kind, num_recipes, options),
                epochs=tuple(map(_read_epoch, epochs)),
                shares=tuple(map(_read_share, shares)),
            )
    raise ValueError("it is no times of a kind")


def _read_epoch(data: Json) -> tuple[int, int, float]:
    match data:
        case [int(num_lanes), int(num_devices), seconds] if num_lanes >= 1 and num_devices >= 1:
            return num_lanes, num_devices, _read_positive(seconds)
    raise ValueError("it is no time of an epoch")


def _read_share(data: Json) -> tuple[int, float]:
    match data:
        case [int(num_devices), share] if num_devices > 1:
            return num_devices, _read_positive(share)
    raise ValueError("it is no share of a time")


def _read_positive(data: Json) -> float:
    if isinstance(data, int | float) and 0 < data < math.inf:
        return float(data)
    raise ValueError("it is no time")


def _read_change(data: Json) -> float | None:
    return None if data is None else 0.0 if data == 0 else _read_positive(data)


def _read_measurement(data: Json) -> Measurement:
    match data:
        case {
            "num_lanes": int(num_lanes),
            "seconds_per_lane_step": int() | float() as seconds,
            "peak_bytes": int() | None as peak_bytes,
            "loading_s": int() | float() as loading_s,
        } if num_lanes >= 1 and seconds > 0:
            return Measurement(
                num_lanes=num_lanes, seconds_per_lane_step=seconds, peak_bytes=peak_bytes, loading_s=loading_s
            )
    raise ValueError("it is no measurement")


def _read_way(data: Any) -> ChosenWay:
    match data:
        case [str(key), int(magnitude), str(way)]:
            return ChosenWay(key=key, magnitude=magnitude, way=way)
    raise ValueError("it is no way that was chosen")
