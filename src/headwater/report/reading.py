"""Reading a study back from its record, without the space or the function that it was made of."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headwater.errors import StoreError
from headwater.space import Config
from headwater.store import ATTRIBUTE, Note, Store, StudyInfo, find_runner, open_store, read_shown
from headwater.store.checking import read_real, read_text, read_whole
from headwater.trials import (
    NODE_STAYS,
    PRICES,
    SPENDING,
    START,
    Measurement,
    Profile,
    Result,
    Spending,
    StartCheck,
    Status,
    average_replicas,
)

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
    return Result(
        study=info.name,
        metric=info.metric,
        mode=info.mode,
        judge=info.objective.judge,
        also=info.also,
        constraints=info.constraints,
        trials=trials,
        storage=storage,
    )


def find_state(store: Store, info: StudyInfo, result: Result) -> str:
    """Say where a study stands: running, killed, done, unfinished, or empty; unknown where its lease is damaged."""
    try:
        runner = find_runner(store, info.id)
    except StoreError:
        return "unknown"
    if runner is not None:
        return "running" if runner.may_live() else "killed"
    if not result.trials:
        return "empty"
    wanted = info.settings.get("num_trials")
    is_cut = any(trial.status is Status.RUNNING for trial in result.trials)
    return "unfinished" if is_cut or (wanted is not None and len(result.trials) < wanted) else "done"


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
        result = replace(result, start=read_start(facts, damaged))
    if SPENDING in facts:
        result = replace(result, spending=read_spending(facts, damaged))
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
        notes=tuple(note for note in store.notes(info.id, damaged) if note.kind != ATTRIBUTE),
        damaged=tuple(damaged),
    )


def read_start(facts: Mapping[str, Any], damaged: list[str]) -> StartCheck | None:  # Any: JSON values
    """Read what the first steps showed, if it is that."""
    try:
        return StartCheck.read(facts[START])
    except StoreError as error:
        damaged.append(f"the fact {START!r} is left out: {error}")
        return None


def read_spending(facts: Mapping[str, Any], damaged: list[str]) -> Spending | None:  # Any: JSON values
    """Read what nodes cost, if it is that."""
    try:
        spending = Spending.from_json(facts[SPENDING], facts.get(NODE_STAYS, ()), facts.get(PRICES, ()))
        ends = [stay.begin_s if stay.end_s is None else stay.end_s for stay in spending.stays]
        prices = [stay.dollars_per_hour for stay in spending.stays]
        points = [number for point in spending.prices for number in point]
        for number in (spending.seconds, spending.cost_dollars, *ends, *prices, *points):
            read_real("cost or time", number)
    except (TypeError, ValueError, AttributeError, StoreError) as error:
        damaged.append(f"the fact {SPENDING!r} is left out: {error}")
        return None
    return spending


def read_best(name: str, storage: str, count: int) -> list[Config]:
    """Read the configurations of a study's best trials, as they can be shown."""
    with open_store(storage, create=False) as store:
        ranked = read_result(store, store.study(name), storage).ranked
    if not ranked:
        raise StoreError(f"study {name!r} has no trial with a finite metric to begin with; name another")
    return [trial.config for trial in ranked[:count]]


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
        read_whole("memory", 0 if item.peak_bytes is None else item.peak_bytes)
        if read_real("time", item.seconds_per_lane_step) <= 0 or read_real("time", item.loading_s) < 0:
            raise StoreError("its time is no time")
    return profile
