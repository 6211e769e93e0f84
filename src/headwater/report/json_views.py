"""What the tables show, for programs: as values that strict JSON can hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeAlias

from headwater.report.reading import StoredStudy, make_strict
from headwater.space import show_plain
from headwater.store import Note, StudyInfo
from headwater.trials import Profile, Result, Spending, Status, TrialRecord

Json: TypeAlias = dict[str, Any]  # Any: JSON values


def list_best(result: Result, count: int) -> Json:
    """Return the best trials; what is not finite becomes None."""
    trials = [{"rank": rank, **_outline(trial, result)} for rank, trial in enumerate(result.ranked[:count], start=1)]
    answer = {"study": result.study, "metric": result.metric, "mode": result.mode, "trials": trials}
    if result.constraints:
        answer["constraints"] = list(map(str, result.constraints))
    if result.target is None:
        return answer
    target = {"value": result.target.value(result.metric), "config": show_plain(result.target.config)}
    return {**answer, "target": make_strict(target)}


def list_studies(studies: Sequence[tuple[StudyInfo, Result, str]]) -> Json:
    """Return the studies of a record, the oldest first, with the state that each is in."""
    return {"studies": [{**_describe_info(info, result), "state": state} for info, result, state in studies]}


def describe_run(result: Result, count: int = 10) -> Json:
    """Return what a run found and how fast: the best trials, and what of it is not in the record."""
    trust = None if result.trust is None else str(result.trust)
    figures = {
        "num_trials": len(result.trials),
        "statuses": _count_statuses(result),
        "seconds": result.seconds,
        "num_lane_steps": result.num_lane_steps,
        "seconds_one_by_one": result.seconds_one_by_one,
        "profiles": list(map(_describe_profile, result.profiles)),
        "device_gains": None if result.device_gains is None else asdict(result.device_gains),
        "spending": _describe_spending(result.spending),
        "trust": trust,
        "ended_early": result.ended_early,
        "was_interrupted": result.was_interrupted,
        "storage": result.storage,
    }
    return {**list_best(result, count), **make_strict(figures)}


def describe_study(study: StoredStudy) -> Json:
    """Return a study as the record has it: settings, space, where its trials stand, measurements, notes."""
    info, result = study.info, study.result
    more = {
        "seconds": sum(trial.seconds for trial in result.trials),
        "is_over": result.is_over,
        "ended_early": result.ended_early,
        "front": [trial.number for trial in result.front()] if result.also else None,
        "seed": info.seed,
        "settings": dict(info.settings),
        "space": info.space,
        "profiles": [_describe_profile(profile, label) for label, profile in study.profiles.items()],
        "notes": _gather_notes(study.notes),
        "spending": _describe_spending(result.spending),
        "start": None if result.start is None else list(result.start.describe()),
        "target": None if result.target is None else {"study": study.target_study, **_outline(result.target, result)},
    }
    return {**_describe_info(info, result), **make_strict(more)}


def describe_trial(record: TrialRecord, result: Result) -> Json:
    """Return everything about one trial: configuration, the whole history, notes and error."""
    history = [{"epoch": report.epoch, "metrics": dict(report.metrics)} for report in record.history]
    more = {"study": result.study, "notes": list(dict.fromkeys(record.notes)), "error": record.error}
    attributes = make_strict(record.attributes)
    return {**_outline(record, result), **more, "attributes": attributes, "history": make_strict(history)}


def _describe_info(info: StudyInfo, result: Result) -> Json:
    best = result.ranked[0] if result.ranked else None
    return {
        "study": info.name,
        "started": datetime.fromtimestamp(info.created).astimezone().isoformat(timespec="seconds"),
        "metric": info.metric,
        "mode": info.mode,
        "constraints": list(map(str, info.constraints)),
        "part_of": info.settings.get("part_of"),
        "num_trials": len(result.trials),
        "statuses": _count_statuses(result),
        "best": None if best is None else {"number": best.number, "value": result.objective.value_of(best)},
        "target": None if result.target is None else {"value": result.target.value(result.metric)},
    }


def _outline(trial: TrialRecord, result: Result) -> Json:
    outline = {
        "number": trial.number,
        "value": result.objective.value_of(trial),
        "metrics": dict(trial.metrics),
        "config": show_plain(trial.config),
        "epochs": trial.epochs,
        "status": trial.status.value,
        "seconds": trial.seconds,
    }
    if result.constraints:
        outline["feasible"] = result.objective.is_kept(trial)
    strict: Json = make_strict(outline)
    return strict


def _count_statuses(result: Result) -> dict[str, int]:
    counts = Counter(trial.status for trial in result.trials)
    return {status.value: counts[status] for status in Status}


def _describe_spending(spending: Spending | None) -> Json | None:
    return (
        None
        if spending is None
        else {**spending.as_json(), "stays": spending.list_stays(), "prices": list(spending.prices)}
    )


def _describe_profile(profile: Profile, label: str | None = None) -> Json:
    described: Json = asdict(profile)
    return {**described, "label": label or profile.label}


def _gather_notes(notes: Sequence[Note]) -> list[Json]:
    """Return each different note once, with the trials that it was made on."""
    trials: dict[tuple[str, str], set[int]] = {}
    for note in notes:
        trials.setdefault((note.kind, note.text), set()).update([] if note.number is None else [note.number])
    return [{"kind": kind, "text": text, "trials": sorted(numbers)} for (kind, text), numbers in trials.items()]
