"""Running a study in a service: its source file goes there, and its record comes back."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headwater.conduct.identity import require_same
from headwater.conduct.limits import Limits
from headwater.errors import StudyError
from headwater.execute.service import Json, Service
from headwater.remote.bundling import find_source, find_variable, pack_files
from headwater.remote.fetching import fetch_study
from headwater.report.reading import read_study
from headwater.report.record_views import StoredViews
from headwater.space import Space
from headwater.stage import load_best
from headwater.store import Recorder, Store, find_states, open_store
from headwater.trials import Pulse, Result, StatesPlace, Status, TrialRecord, Watcher, average_replicas

if TYPE_CHECKING:
    from headwater.study import Study

OVER = ("done", "failed", "stopped", "paused")
FURTHER = ("seed", "search", "order", "max_epochs", "lanes", "allocation", "packing")
"""Settings that a study may have been given after its file was loaded."""


def run_remotely(study: Study, service: Service, limits: Limits, watcher: Watcher, *, is_new: bool) -> Result:
    """Submit a study, or resume the one of its name, follow it to its end and return what came of it.

    Ctrl-C stops it there after its next report.

    Raises:
        StudyError: It has no source file, or has failed there before any trial began.
        ServiceError: The service refuses it, or is not there any more.
    """
    begin_s = time.perf_counter()
    asked = {**_pack(study, limits), "share_lanes": service.share_lanes} if is_new else {}
    submitted = service.submit(asked) if is_new else _resume(study, service)
    name = str(submitted["id"])
    watcher.start(name, str(study.metric), limits.num_trials)
    watcher.tell(f"submitted to {service.shown} as {name}; headwater logs {name} -f --server {service.url} follows it")
    try:
        ended = _follow(service, submitted, watcher, begin_s)
    except KeyboardInterrupt:
        watcher.tell(f"asked {name} to stop after its next report")
        ended = _follow(service, service.change(name, "stop"), watcher, begin_s)
    finally:
        watcher.end()
    if not any(ended["progress"].get("statuses", {}).values()):
        raise StudyError(f"study {name} is {ended['state']}, and no trial of it has begun: {ended['reason']}")
    result = _fetch(study, service, name)
    is_done = ended["state"] == "done"
    return replace(
        result,
        seconds=time.perf_counter() - begin_s,
        was_interrupted=ended["state"] in ("stopped", "paused"),
        ended_early=None if is_done else ended["reason"],
    )


def _pack(study: Study, limits: Limits) -> Json:
    file, module = find_source(study.train)
    name, files = pack_files(file)
    options: dict[str, Any] = {key: getattr(study, key) for key in FURTHER}  # Any: settings of a study
    options["packing"] = study.packing or "none"
    options |= {"trials": limits.num_trials, "time_budget": limits.deadline.seconds, "target": limits.target}
    options["study"] = find_variable(module, study)
    sendable = {key: value for key, value in options.items() if isinstance(value, str | int | float)}
    called = re.sub(r"[^A-Za-z0-9_-]+", "-", study.name or file.stem).strip("-")[:40] or "study"
    return {"file": name, "files": files, "options": sendable, "name": called, "max_devices": study.devices}


def _resume(study: Study, service: Service) -> Json:
    if study.name is None:
        raise StudyError("to resume a study of a service, give the study name= with what `headwater queue` calls it")
    return service.change(study.name, "resume")


def _follow(service: Service, submitted: Json, watcher: Watcher, begin_s: float) -> Json:
    """Return the study when it has ended."""
    state = ""
    while True:
        if submitted["state"] != state:
            state = submitted["state"]
            watcher.tell(": ".join(part for part in (f"{submitted['id']} is {state}", submitted["reason"]) if part))
        if state in OVER:
            return submitted
        if submitted["progress"]:
            watcher.pulse(_as_pulse(submitted["progress"], time.perf_counter() - begin_s))
        submitted = service.show(submitted["id"], submitted["version"])


def _as_pulse(progress: Json, seconds: float) -> Pulse:
    counts, best = progress["statuses"], progress["best"]
    num_running = counts[Status.RUNNING.value]
    num_done, total = sum(counts.values()) - num_running, progress["num_trials"]
    return Pulse(
        num_done=num_done,
        num_failed=counts[Status.FAILED.value],
        num_total=total,
        num_lanes=num_running,
        num_lane_steps=0,
        seconds=seconds,
        share_done=num_done / total if total else 0.0,
        best_number=None if best is None else best["number"],
        best_value=None if best is None else best["value"],
    )


def _fetch(study: Study, service: Service, name: str) -> Result:
    """Return what the record of a study says.

    It lies beside this study's own from now on; where that is in memory, it is gone with the result.
    """
    folder = TemporaryDirectory(prefix="headwater-") if study.storage is None else None
    record = (_find_home(study) if folder is None else Path(folder.name)) / f"{name}.db"
    fetch_study(service, name, record, with_weights=True)
    with open_store(record, create=False) as store:
        stored = read_study(store, name, str(record))
        require_same(replace(study, name=name), stored.info)
        result = replace(stored.result, trials=_read_trials(store, name, study))
        place = find_states(store, store.study(stored.target_study or name))
        kept = result
        if stored.target_study is not None and result.target is not None:
            number = result.target.number
            targets = _read_trials(store, stored.target_study, study)
            result = replace(result, target=next(one for one in targets if one.number == number))
            kept = replace(result, trials=targets)
    return replace(
        result,
        loader=partial(_load, study, kept, place, folder),
        views=StoredViews(str(record), name),
    )


def _find_home(study: Study) -> Path:
    """Return the folder of the record that this study names, or this one where it is on a server."""
    is_server = "://" in str(study.storage) and not str(study.storage).startswith("sqlite")
    path = str(study.storage).removeprefix("sqlite:///")
    return Path.cwd() if is_server else Path(path).absolute().parent


def _load(study: Study, result: Result, place: StatesPlace, folder: object) -> Any:  # Any: the user's module
    """Rebuild the model of the best trial; the folder is there for as long as somebody may ask."""
    del folder
    return load_best(study, result, place, None)


def _read_trials(store: Store, name: str, study: Study) -> tuple[TrialRecord, ...]:
    assert isinstance(study.space, Space)
    info = store.study(name)
    return average_replicas(Recorder(store, info, study.space).trials(), info.num_seeds)
