"""A study in MLflow: a run for the study, and in it one for each trial."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from headwater.errors import StudyError
from headwater.report.callbacks import Callback
from headwater.report.pacing import LEAST_S, Pace
from headwater.store import Store, StudyInfo, read_shown
from headwater.trials import Report, Result, Status, TrialRecord, average_replicas
from headwater.trials.flat_rows import describe_error, flatten

if TYPE_CHECKING:
    from mlflow import MlflowClient

STUDY, TRIAL, STATUS, EPOCHS = "headwater.study", "headwater.trial", "headwater.status", "headwater.epochs"
"""Tags by which a resumed study finds its runs, and knows what they hold."""
PARENT = "mlflow.parentRunId"
MOST_METRICS, MOST_PARAMS, MOST_CHARACTERS = 1000, 100, 500
"""What MLflow takes in one call, and as one value."""


class MLflowCallback(Callback):
    """Logs a study to MLflow: a run for the study and, nested in it, one for each trial, with metrics by epoch.

    ```python
    callback = hw.MLflowCallback("sqlite:///mlflow.db", "digits")
    study = hw.Study(train, space=space, metric="loss", callbacks=[callback])
    ```

    Without a tracking URI, MLflow's own setting counts. Logging follows a few seconds behind; at the end it has
    everything. A resumed study goes on in the same runs.
    """

    def __init__(
        self, tracking_uri: str | None = None, experiment: str = "headwater", *, every_s: float = LEAST_S
    ) -> None:
        if find_spec("mlflow") is None:
            raise StudyError("MLflowCallback needs mlflow; pip install 'headwater[mlflow]'")
        self._uri = tracking_uri
        self._experiment = experiment
        self._every_s = every_s

    def on_study(self, info: StudyInfo, store: Store) -> None:
        """Find or make the run of the study."""
        from mlflow import MlflowClient

        self._log = _StudyLog(MlflowClient(tracking_uri=self._uri), self._experiment, info)
        self._read: Callable[[], Sequence[TrialRecord]] = lambda: average_replicas(
            store.trials(info.id, read_shown), info.num_seeds
        )
        self._pace = Pace(self._every_s)

    def on_reports(self, reports: Sequence[Report]) -> None:
        """Log what is new if it is time to."""
        if self._pace.is_due:
            with self._pace.measured(), _putting_off():
                self._log.log_trials(self._read())

    def on_result(self, result: Result) -> None:
        """Log the rest, and close the runs."""
        with _putting_off():
            self._log.log_trials(self._read())
            self._log.close(result)


@dataclass
class _Run:
    """A trial's run, and what it holds already."""

    id: str
    epochs: int = 0
    status: Status = Status.RUNNING
    is_open: bool = True


class _StudyLog:
    """The runs of one study."""

    def __init__(self, client: MlflowClient, experiment: str, info: StudyInfo) -> None:
        self._client = client
        self._info = info
        found = client.get_experiment_by_name(experiment)
        self._experiment = client.create_experiment(experiment) if found is None else found.experiment_id
        self._parent = self._find_parent()
        self._runs = {int(run.data.tags[TRIAL]): _as_run(run) for run in self._search(f"tags.`{PARENT}`", self._parent)}

    def log_trials(self, records: Sequence[TrialRecord]) -> None:
        """Log what is new of each trial that has begun."""
        for record in records:
            has_begun = bool(record.history) or record.status is not Status.RUNNING
            if record.number not in self._runs and has_begun:
                self._runs[record.number] = self._begin(record)
            run = self._runs.get(record.number)
            if run is not None and (run.epochs, run.status) != (record.epochs, record.status):
                self._log_trial(run, record)

    def close(self, result: Result) -> None:
        """Log what the study found, and end its run; trials under way are marked as interrupted, for they may go on."""
        was_cut = result.ended_early is not None
        for run in self._runs.values():
            if run.is_open:
                self._end(run, "KILLED" if was_cut else "FINISHED")
        if result.ranked:
            best = result.best
            self._client.log_metric(self._parent, _clean(result.metric), result.objective.value_of(best))
            self._client.set_tag(self._parent, "headwater.best_trial", str(best.number))
        self._client.set_terminated(self._parent, "KILLED" if was_cut else "FINISHED")

    def _find_parent(self) -> str:
        identity = f"{_clean(self._info.name)} {self._info.created!r}"
        for run in self._search(f"tags.`{STUDY}`", identity):
            self._client.update_run(run.info.run_id, status="RUNNING")
            return str(run.info.run_id)
        tags = {STUDY: identity, "headwater.metric": self._info.metric, "headwater.mode": self._info.mode}
        created = self._client.create_run(self._experiment, run_name=self._info.name, tags=tags)
        return str(created.info.run_id)

    def _begin(self, record: TrialRecord) -> _Run:
        from mlflow.entities import Param

        tags = {PARENT: self._parent, TRIAL: str(record.number)}
        created = self._client.create_run(self._experiment, run_name=f"trial {record.number}", tags=tags)
        run = _Run(str(created.info.run_id))
        params = [Param(_clean(key), str(value)[:MOST_CHARACTERS]) for key, value in flatten(record.config)]
        for start in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(run.id, params=params[start : start + MOST_PARAMS])
        return run

    def _log_trial(self, run: _Run, record: TrialRecord) -> None:
        from mlflow.entities import Metric, RunTag

        if not run.is_open:
            self._client.update_run(run.id, status="RUNNING")
        now_ms = int(time.time() * 1000)
        metrics = [
            Metric(_clean(name), value, now_ms, report.epoch)
            for report in record.history
            if report.epoch > run.epochs
            for name, value in report.metrics.items()
        ]
        tags = [RunTag(EPOCHS, str(record.epochs)), RunTag(STATUS, record.status.value)]
        if record.error:
            tags.append(RunTag("headwater.error", (describe_error(record.error) or "")[:MOST_CHARACTERS]))
        for start in range(0, len(metrics) or 1, MOST_METRICS):
            self._client.log_batch(run.id, metrics=metrics[start : start + MOST_METRICS], tags=tags)
        run.epochs, run.status, run.is_open = record.epochs, record.status, True
        if record.status.is_final:
            self._end(run, "FAILED" if record.status is Status.FAILED else "FINISHED")

    def _end(self, run: _Run, status: str) -> None:
        self._client.set_terminated(run.id, status)
        run.is_open = False

    def _search(self, tag: str, value: str) -> Iterator[Any]:  # Any: MLflow's runs
        """Find the runs of the experiment that have this tag, page by page."""
        token = None
        while True:
            page = self._client.search_runs([self._experiment], f"{tag} = '{value}'", page_token=token)
            yield from page
            token = page.token
            if not token:
                return


def _as_run(run: Any) -> _Run:  # Any: MLflow's run
    tags = run.data.tags
    status = Status(tags.get(STATUS, Status.RUNNING.value))
    return _Run(run.info.run_id, int(tags.get(EPOCHS, 0)), status, is_open=run.info.status == "RUNNING")


@contextmanager
def _putting_off() -> Iterator[None]:
    """Leave for later what MLflow cannot take now: a view that fails must not end the study."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        reason = str(error).partition("\n")[0]
        warnings.warn(f"MLflow could not be brought up to date: {reason}; the record has everything", stacklevel=2)


def _clean(name: str) -> str:
    """Replace what MLflow refuses in names."""
    return re.sub(r"[^\w\-. /]", "_", name)
