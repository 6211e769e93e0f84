"""Reading a study back from its record, without the space or the function that it was made of."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwater.errors import StoreError
from headwater.report.record_views import StoredViews
from headwater.settings import find_storage
from headwater.space import Config
from headwater.store import ATTRIBUTE, Note, Runner, Store, StudyInfo, find_runner, open_store, read_shown
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
    TrialRecord,
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


def read_listed(store: Store, info: StudyInfo, storage: str, damaged: list[str]) -> Result:
    """Read the trials of a study and, where these are of surrogates, its target."""
    result = read_result(store, info, storage, damaged)
    if info.settings.get("surrogate") is None:
        return result
    _, target = read_target(store, store.facts(info.id, damaged).get("target"), storage, damaged)
    return replace(result, target=target)


def load_study(name: str | None = None, storage: str | Path | None = None) -> Result:
    """Read the result of a study from its record, as far as the study has come, also while it runs.

    Nothing runs: no trial, and no code from the record. Configurations are those that people can read: a value that
    JSON cannot hold is its text.

    Args:
        name: What the record calls the study; by default the newest one.
        storage: The record, a path or a database URL; by default what the variable HEADWATER_STORAGE names, and
            headwater.db without it.

    Raises:
        StoreError: There is no such record or no such study, or it cannot be read.
    """
    place = find_storage() if storage is None else str(storage)
    with open_store(place, create=False) as store:
        stored = read_study(store, name, place)
    if stored.damaged:
        more = f", and {len(stored.damaged) - 1} more rows" if len(stored.damaged) > 1 else ""
        warnings.warn(f"the record is damaged: {stored.damaged[0]}{more}", stacklevel=2)
    views = StoredViews(place, stored.info.name)
    return replace(stored.result, profiles=tuple(stored.profiles.values()), views=views)


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
    target_study, target = read_target(store, facts.get("target"), storage, damaged)
    run = facts.get("run")
    is_running = any(trial.status is Status.RUNNING for trial in result.trials)
    result = replace(
        result,
        target=target,
        ended_early=read_ended_early(run),
        is_over=is_search_over(run, is_running=is_running or _find_holder(store, info) is not None),
    )
    return StoredStudy(
        info=info,
        result=result,
        target_study=target_study,
        profiles=read_profiles(facts, damaged),
        notes=tuple(note for note in store.notes(info.id, damaged) if note.kind != ATTRIBUTE),
        damaged=tuple(damaged),
    )


def read_target(store: Store, name: object, storage: str, damaged: list[str]) -> tuple[str | None, TrialRecord | None]:
    """Read the target of a study with surrogates: the study that trained it, by `name`, and the trial."""
    if name is None:
        return None, None
    found = next((info for info in store.studies(damaged) if info.name == name), None)
    if found is None:
        damaged.append(f"the target is left out: there is no study {name!r:.60}")
        return None, None
    ranked = read_result(store, found, storage, damaged).ranked
    return found.name, ranked[0] if ranked else None


def read_ended_early(run: object) -> str | None:
    """Return why the last run ended early, by the fact that it left; None where it did not, or did not say."""
    reason = run.get("ended_early") if isinstance(run, Mapping) else None
    return reason if isinstance(reason, str) else None


def is_search_over(run: object, *, is_running: bool) -> bool:
    """Tell whether a search came to its end, by the fact that its last run left: no trial will train again.

    `is_running` is whether a process holds the study, or one of its trials is recorded as running.
    """
    return not is_running and isinstance(run, Mapping) and run.get("ended_early") is None


def _find_holder(store: Store, info: StudyInfo) -> Runner | None:
    try:
        return find_runner(store, info.id)
    except StoreError:  # its lease is damaged, which find_state says
        return None


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
