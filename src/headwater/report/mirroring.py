"""A study in an Optuna storage, kept up to date, so that optuna-dashboard and `optuna.visualization` can show it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from headwater.errors import StoreError, StudyError
from headwater.report.callbacks import Callback
from headwater.report.pacing import LEAST_S, Pace
from headwater.report.parameters import UNSOUND, Parameters, quietly
from headwater.report.reading import make_strict, show_storage
from headwater.store import Store, StudyInfo
from headwater.store.schema import VERSIONS
from headwater.trials import Report, Result, Status, TrialRecord, average_replicas
from headwater.trials.flat_rows import describe_error, flatten

NUMBER, ORIGIN = "number", "headwater"
"""Attributes that tie an Optuna trial to ours, and an Optuna study to ours."""


class OptunaMirror(Callback):
    """Keeps an Optuna storage up to date while a study runs.

    ```python
    study = hw.Study(train, space=space, metric="loss", callbacks=[hw.OptunaMirror("sqlite:///optuna.db")])
    ```

    Optuna takes milliseconds for each value, so the storage follows a few seconds behind; at the end it has everything.
    """

    def __init__(self, storage: str | Path | BaseStorage, *, every_s: float = LEAST_S) -> None:
        """Take a path, a database URL or a storage of Optuna's; it is opened when the study runs."""
        self._target = storage
        self._every_s = every_s
        if not isinstance(storage, BaseStorage):
            as_url(storage)

    def on_study(self, info: StudyInfo, store: Store) -> None:
        """Bring the storage up to what the record has already."""
        self._mirror = Mirror(open_storage(self._target), info, store)
        self._mirror.sync(is_over=False)
        self._pace = Pace(self._every_s)

    def on_reports(self, reports: Sequence[Report]) -> None:
        """Bring the storage up to date if it is time to."""
        if self._pace.is_due:
            with self._pace.measured():
                self._sync(is_over=False)

    def on_result(self, result: Result) -> None:
        """Bring the storage up to the end."""
        self._sync(is_over=result.ended_early is None)
        self._mirror.close()

    def _sync(self, *, is_over: bool) -> None:
        """Bring the storage up to date, or put it off: a view that fails must not end the study."""
        try:
            self._mirror.sync(is_over=is_over)
        except StorageInternalError as error:
            reason = str(error.__cause__ or error).partition("\n")[0]
            cure = "`headwater mirror` makes up for it later"
            warnings.warn(f"the Optuna storage could not be brought up to date: {reason}; {cure}", stacklevel=2)


class Mirror:
    """One study of ours in an Optuna storage: written from the record, never read back into it.

    Raises:
        StudyError: The storage has another study of that name.
    """

    def __init__(self, storage: BaseStorage, info: StudyInfo, store: Store) -> None:
        self._storage = storage
        self._info = info
        self._store = store
        self._done: set[int] = set()
        self._parameters = Parameters(info.space)
        with quietly():
            self._id = self._open()

    def sync(self, *, is_over: bool) -> int:
        """Bring the storage up to date and return how many trials it has; paused trials are pruned if all is over.

        A finished trial of Optuna's never changes. Should ours have gone on after all, because a study that was over
        was resumed, the mirrored study is written anew.
        """
        records = average_replicas(self._store.trials(self._info.id), self._info.num_seeds)
        there = self._list_there()
        if any(self._went_on(record, there.get(record.number)) for record in records):
            with quietly():
                self._storage.delete_study(self._id)
                self._id = self._open()
            there, self._done = {}, set()
        begun = [record.number for record in records if record.history or record.status is not Status.RUNNING]
        # Optuna numbers trials as they come, so that none may be left out.
        wanted = [record for record in records if begun and record.number <= begun[-1]]
        times = self._store.times(self._info.id)
        for record in wanted:
            if record.number not in self._done:
                self._put(self._draw_sound(record, is_over, times), there.get(record.number))
        return len(wanted)

    def close(self) -> None:
        """Let go of the storage."""
        self._storage.remove_session()
        if isinstance(self._storage, RDBStorage):
            self._storage.engine.dispose()

    def _open(self) -> int:
        """Find the study, or create it."""
        info = self._info
        origin = {"created": info.created, "seed": info.seed}
        try:
            found = self._storage.get_study_id_from_name(info.name)
        except KeyError:
            direction = StudyDirection.MAXIMIZE if info.mode == "max" else StudyDirection.MINIMIZE
            new = self._storage.create_new_study([direction], info.name)
            self._storage.set_study_user_attr(new, ORIGIN, origin)
            self._storage.set_study_user_attr(new, "metric", info.metric)
            return new
        if self._storage.get_study_user_attrs(found).get(ORIGIN) != origin:
            raise StudyError(
                f"the Optuna storage has another study named {info.name!r} already; mirror into a new file, "
                f"give this study a name of its own, or remove the other with optuna.delete_study"
            )
        return found

    def _list_there(self) -> dict[int, FrozenTrial]:
        """Read what the storage has, by our numbers."""
        there: dict[int, FrozenTrial] = {}
        for trial in self._storage.get_all_trials(self._id, deepcopy=False):
            self._parameters.names.see(trial.distributions)
            if NUMBER in trial.user_attrs:
                there[trial.user_attrs[NUMBER]] = trial
        return there

    def _went_on(self, record: TrialRecord, there: FrozenTrial | None) -> bool:
        if there is None or not there.state.is_finished():
            return False
        has_other_end = record.status.is_final and there.state is not find_state(record, self._info.metric, True)
        return has_other_end or len(record.history) != len(there.intermediate_values)

    def _draw_sound(self, record: TrialRecord, is_over: bool, times: Mapping[int, tuple[float, float]]) -> FrozenTrial:
        """Return the trial as Optuna should have it, or say why Optuna could not.

        Raises:
            StudyError: The record holds something else than was drawn and measured.
        """
        try:
            return self._draw(record, is_over, times)
        except (*UNSOUND, StoreError, OSError) as error:  # OSError: a date that the system cannot write
            raise StudyError(
                f"trial {record.number} of study {self._info.name!r:.60} cannot be mirrored: {error!s:.200}; "
                "headwater show and export leave out what is damaged"
            ) from error

    def _draw(self, record: TrialRecord, is_over: bool, times: Mapping[int, tuple[float, float]]) -> FrozenTrial:
        """Return the trial as Optuna should have it."""
        metric = self._info.metric
        state = find_state(record, metric, is_over)
        parameters, distributions = self._parameters.locate(record.config)
        trial = create_trial(
            state=state,
            value=self._info.objective.value_of(record) if state in (TrialState.COMPLETE, TrialState.PRUNED) else None,
            params=parameters,
            distributions=distributions,
            user_attrs=_list_attributes(record, metric, parameters),
            intermediate_values={report.epoch: report.metrics[metric] for report in record.history},
        )
        first = record.number * self._info.num_seeds
        replicas = [times[number] for number in range(first, first + self._info.num_seeds) if number in times]
        created, changed = min(time[0] for time in replicas), max(time[1] for time in replicas)
        is_finished = state.is_finished()
        trial.datetime_start = datetime.fromtimestamp(changed - record.seconds if is_finished else created)
        trial.datetime_complete = datetime.fromtimestamp(changed) if is_finished else None
        return trial

    def _put(self, trial: FrozenTrial, there: FrozenTrial | None) -> None:
        """Have the storage hold the trial; one that is not there yet takes a single transaction."""
        if there is None:
            self._storage.create_new_trial(self._id, template_trial=trial)
        elif not there.state.is_finished():
            self._update(trial, there)
        if trial.state.is_finished():
            self._done.add(trial.user_attrs[NUMBER])

    def _update(self, trial: FrozenTrial, there: FrozenTrial) -> None:
        number = self._storage.get_trial_id_from_study_id_trial_number(self._id, there.number)
        for step, value in trial.intermediate_values.items():
            if step not in there.intermediate_values:
                self._storage.set_trial_intermediate_value(number, step, value)
        if trial.state.is_finished():
            for key, value in trial.user_attrs.items():
                if there.user_attrs.get(key) != value:
                    self._storage.set_trial_user_attr(number, key, value)
            self._storage.set_trial_state_values(number, trial.state, trial.values)


def open_storage(target: str | Path | BaseStorage) -> BaseStorage:
    """Open an Optuna storage, and create it if it is not there.

    Raises:
        StudyError: It cannot be opened, or is a record of Headwater's own.
    """
    if isinstance(target, BaseStorage):
        return target
    url = as_url(target)
    name = show_storage(url)
    try:
        engine = create_engine(url)
        is_ours = inspect(engine).has_table(VERSIONS.name)
        engine.dispose()
        if not is_ours:
            with quietly():
                return RDBStorage(url)
    except (SQLAlchemyError, StorageInternalError, ImportError, RuntimeError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise StudyError(f"the Optuna storage {name} cannot be opened: {reason}; check the path or the URL") from error
    raise StudyError(f"{name} is a record of Headwater's own; mirror into another file, such as sqlite:///optuna.db")


def as_url(target: str | Path) -> str:
    """Return the URL of an Optuna storage; a path is one of SQLite's."""
    text = str(target) if "://" in str(target) else f"sqlite:///{target}"
    try:
        make_url(text)
    except ArgumentError:
        raise StudyError(f"{text!r} is no URL of a database; give one such as sqlite:///optuna.db") from None
    return text


def find_state(record: TrialRecord, metric: str, is_over: bool) -> TrialState:
    """Return where a trial stands in Optuna's words."""
    if record.status is Status.RUNNING or (record.status is Status.PAUSED and not is_over):
        return TrialState.RUNNING
    if record.status is Status.FAILED or not math.isfinite(record.value(metric)):
        return TrialState.FAIL
    return TrialState.COMPLETE if record.status is Status.COMPLETED else TrialState.PRUNED


def _list_attributes(record: TrialRecord, metric: str, parameters: Mapping[str, object]) -> dict[str, Any]:  # Any: JSON
    """Return what Optuna has no other place for: constants, further metrics, notes, the error."""
    constants = {key: value for key, value in flatten(record.config["shown"]) if key not in parameters}
    others = {f"metrics.{name}": value for name, value in record.metrics.items() if name != metric}
    given = {"notes": list(dict.fromkeys(record.notes)), "error": describe_error(record.error)}
    attributes = {
        NUMBER: record.number,
        "status": record.status.value,
        "epochs": record.epochs,
        "seconds": record.seconds,
        **{f"config.{key}": value for key, value in constants.items()},
        **others,
        **{f"note.{name}": value for name, value in record.attributes.items()},
        **{key: value for key, value in given.items() if value},
    }
    strict: dict[str, Any] = make_strict(attributes)
    return strict
