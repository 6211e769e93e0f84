"""Reading a study back from its record, without the space or the function that it was made of."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headwater.errors import StoreError
from headwater.store import Note, Store, StudyInfo, read_shown
from headwater.store.checking import read_real, read_text, read_whole
from headwater.trials import START, Measurement, Profile, Result, StartCheck, average_replicas

_PROFILE = "lanes: "


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStudy:
    """What the record holds of one study; the configurations of its trials are those that people can read."""

    info: StudyInfo
    result: Result
    profiles: Mapping[str, Profile]
    """What was measured, by the trials that it holds for."""
    notes: tuple[Note, ...] = ()
    target_study: str | None = None
    """Where trials were of surrogates: the study that trained the target."""
    damaged: tuple[str, ...] = ()
    """What could not be read and is left out, a line each."""


def read_result(store: Store, info: StudyInfo, storage: str, damaged: list[str] | None = None) -> Result:
    """Read the trials of a study; `damaged` takes a line about each that cannot be read, which is left out."""
    trials = average_replicas(store.trials(info.id, read_shown, damaged), info.num_seeds)
    return Result(study=info.name, metric=info.metric, mode=info.mode, trials=trials, storage=storage)


def read_profiles(facts: Mapping[str, Any], damaged: list[str]) -> dict[str, Profile]:  # Any: JSON values
    """Read how many lanes were chosen, and the measurements behind it."""
    profiles = {}
    for key, fact in facts.items():
        if key.startswith(_PROFILE):
            try:
                profiles[key.removeprefix(_PROFILE)] = _read_profile(fact)
            except StoreError as error:
                damaged.append(f"the fact {key!r:.60} is left out: {error}")
    return profiles


def read_study(store: Store, name: str | None, storage: str) -> StoredStudy:
    """Read all there is on the study called `name`, or on the newest one.

    Raises:
        StoreError: There is no such study, or it cannot be read.
    """
    info = store.study(name)
    damaged: list[str] = []
    facts = store.facts(info.id, damaged)
    result = read_result(store, info, storage, damaged)
    if START in facts:
        result = replace(result, start=StartCheck.read(facts[START]))
    target_study = facts.get("target")
    if target_study is not None and target_study not in [other.name for other in store.studies(damaged)]:
        damaged.append(f"the target is left out: there is no study {target_study!r:.60}")
        target_study = None
    if target_study is not None:
        ranked = read_result(store, store.study(target_study), storage, damaged).ranked
        result = replace(result, target=ranked[0] if ranked else None)
    return StoredStudy(
        info=info,
        result=result,
        target_study=target_study,
        profiles=read_profiles(facts, damaged),
        notes=tuple(store.notes(info.id, damaged)),
        damaged=tuple(damaged),
    )


def show_storage(storage: str) -> str:
    """Say where a record lies, without the password in a URL."""
    return re.sub(r"(?<=://)([^:/@]*):.*@", r"\1:***@", storage)


def make_strict(value: Any) -> Any:  # Any: JSON values
    """Return a value as strict JSON can hold it: NaN and the infinities become None."""
    if isinstance(value, Mapping):
        return {key: make_strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [make_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read_profile(fact: Any) -> Profile:  # Any: a JSON value
    """Read what was measured, if it is that."""
    try:
        measurements = tuple(Measurement(**item) for item in fact["measurements"])
        profile = Profile(num_lanes=fact["num_lanes"], reason=fact["reason"], measurements=measurements)
    except (LookupError, TypeError) as error:
        raise StoreError("it is no measurement of lanes") from error
    read_whole("number of lanes", profile.num_lanes, 1)
    read_text("reason", profile.reason)
    for item in measurements:
        read_whole("number of lanes", item.num_lanes, 1)
        read_whole("memory", item.peak_bytes or 0)
        if read_real("time", item.seconds_per_lane_step) <= 0 or read_real("time", item.loading_s) < 0:
            raise StoreError("its time is no time")
    return profile
