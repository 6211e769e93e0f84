"""How far the ranking of a search by surrogates can be trusted, and how far its target is: by its stages' records."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from headwater.report.page.followed import FollowedStudy, FollowedTrial
from headwater.report.reading import read_result
from headwater.store import Store, StudyInfo
from headwater.trials import Result

Json: TypeAlias = dict[str, Any]  # Any: JSON values


def describe_surrogates(store: Store, search: FollowedStudy, settled: object) -> Json:
    """Return the checks of the ranking, a pair of values for each trial that was trained again, and the targets."""
    checks, targets = [], []
    for stage in search.stages:
        result = read_result(store, stage, "", [])
        scale = _read_scale(stage)
        if scale == 1:
            targets.append(_describe_target(stage, result, is_settled=stage.name == settled))
        elif scale is not None:
            checks.append({"id": stage.id, "study": stage.name, "scale": scale, "pairs": _pair(search, result)})
    return {"scale": _read_scale(search.info), "checks": checks, "targets": targets}


def _read_scale(info: StudyInfo) -> int | None:
    """Return by how much the models of a stage are narrower."""
    found = re.match(r"1/(\d{1,6}) ", str(info.settings.get("surrogate")))
    return int(found.group(1)) if found else None


def _pair(search: FollowedStudy, check: Result) -> list[Json]:
    """Return what each configuration reached in the search and at the other width."""
    by_config: dict[str, FollowedTrial] = {repr(trial.config): trial for trial in search.trials.values()}
    pairs = []
    for trial in check.trials:
        first = by_config.get(repr(trial.config))
        if first is not None:
            values = [first.value(check.metric), trial.value(check.metric)]
            pairs.append({"number": first.number, "values": values, "epochs": trial.epochs})
    return pairs


def _describe_target(stage: StudyInfo, result: Result, *, is_settled: bool) -> Json:
    trial = result.trials[0] if result.trials else None
    return {
        "id": stage.id,
        "study": stage.name,
        "is_settled": is_settled,
        "status": None if trial is None else trial.status.value,
        "epochs": 0 if trial is None else trial.epochs,
        "value": None if trial is None else trial.value(result.metric),
        "seconds": 0.0 if trial is None else trial.seconds,
        "curve": [] if trial is None else [[one.epoch, one.metrics.get(result.metric)] for one in trial.history],
    }
