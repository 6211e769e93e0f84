"""What a study hands back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import StudyError
from headwater.trials.constraints import Constraint
from headwater.trials.failures import read_failure
from headwater.trials.flat_rows import to_records
from headwater.trials.front import Candidate, find_front
from headwater.trials.html import write_facts, write_table
from headwater.trials.measurements import Profile
from headwater.trials.objective import INFEASIBLE, Objective
from headwater.trials.records import Status, TrialRecord, count_statuses
from headwater.trials.spending import Spending
from headwater.trials.surrogate import StartCheck, Trust
from headwater.trials.text_table import show_result

if TYPE_CHECKING:
    import pandas

    from headwater.report.figures import Figure


class RecordViews(Protocol):
    """Views of a study that are made of its record."""

    def write_report(self, path: Path) -> int:
        """Write the study as one HTML file, and return its size in bytes."""

    def draw(self, kind: str, key: str | None) -> Figure:
        """Draw one of the figures that `headwater plot` draws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGains:
    """What trials and groups gained by devices that nothing waited for, as far as that was seen."""

    num_changes: int
    seconds: float
    """By how much earlier they ended, all taken together; less than 0 where they lost."""
    last: str
    """The last of the changes, and what it gained."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """Every trial of a study, and which of them is best."""

    study: str
    metric: str
    mode: str
    trials: tuple[TrialRecord, ...]
    storage: str
    """Where the record lies."""
    judge: str = "last"
    """Which value of the metric counts: the "last" that a trial reported, or the "best"."""
    profiles: tuple[Profile, ...] = ()
    also: Mapping[str, str] = field(default_factory=dict)
    """The further metrics that count, with their modes."""
    constraints: tuple[Constraint, ...] = ()
    """What trials must keep to."""
    ended_early: str | None = None
    """Why the run ended before its trials did; None where it did not."""
    is_over: bool = False
    """Whether the search came to its end: trials that are paused then will never train again, and are shown as stopped
    early."""
    was_interrupted: bool = False
    """Whether that was somebody's wish, by Ctrl-C or `headwater stop`."""
    num_lane_steps: int = 0
    """Optimizer steps in this run, counted once per lane."""
    seconds: float = 0.0
    """How long this run took."""
    seconds_busy: float | None = None
    """How long it computed, by the clock that groups are measured with: on shared cores, waiting does not count."""
    seconds_one_by_one: float | None = None
    """How long the same steps take in groups of one, as measured by this study or the one whose group sizes it knows;
    None where that was not measured."""
    device_gains: DeviceGains | None = None
    """What changes of devices gained in this run; None where nothing was changed."""
    spending: Spending | None = None
    """What nodes that are paid for took and cost, beside the plan; None where there were none."""
    target: TrialRecord | None = None
    """Where trials were of surrogates: the target, trained with the best configuration."""
    trust: Trust | None = None
    """Where trials were of surrogates: how far their ranking can be trusted; None where that was not checked."""
    start: StartCheck | None = None
    """Where trials were of surrogates: what first steps showed before; None where that was not looked at."""
    loader: Callable[[], Any] | None = field(default=None, compare=False, repr=False)
    """Rebuilds the best trial's model."""
    views: RecordViews | None = field(default=None, compare=False, repr=False)
    """Makes reports and figures of the record; None where the study was kept in memory."""

    def __repr__(self) -> str:
        """Show it on one screen: where the trials stand, and the best of them."""
        return show_result(self)

    @property
    def ranked(self) -> tuple[TrialRecord, ...]:
        """The trials that did not fail and have a finite value of the metric, best first; equals by number.

        Trials that keep to the constraints come before those that do not.
        """
        return self.objective.rank(trial for trial in self.trials if trial.status is not Status.FAILED)

    @property
    def has_only_failures(self) -> bool:
        """Whether trials have failed, and no other trial has reported anything."""
        failed = [trial for trial in self.trials if trial.status is Status.FAILED]
        return bool(failed) and not any(trial.history for trial in self.trials if trial.status is not Status.FAILED)

    def explain_failures(self) -> str:
        """Say that all trials failed, with the first failure, its file and its line.

        Raises:
            StudyError: No trial has failed.
        """
        failed = [trial for trial in self.trials if trial.status is Status.FAILED]
        if not failed:
            raise StudyError(f"no trial of study {self.study!r} has failed")
        first = failed[0]
        count = f"all {len(failed)} trials" if len(failed) > 1 else "the only trial"
        return f"{count} of study {self.study!r} failed; trial {first.number}: {read_failure(first.error or 'unknown')}"

    @property
    def objective(self) -> Objective:
        """What trials are compared by."""
        return Objective(self.metric, self.mode, self.judge, self.constraints)

    @property
    def feasible(self) -> tuple[TrialRecord, ...]:
        """The ranked trials that keep to the constraints, best first; all of them where there are none."""
        return tuple(filter(self.objective.is_kept, self.ranked))

    @property
    def best(self) -> TrialRecord:
        """The target where there is one, else the best trial by the last value of the metric, or as `judge` says.

        That is the best of those that keep to the constraints; where none does, the one that comes nearest.

        Raises:
            StudyError: No trial has reported a finite value.
        """
        if self.target is not None:
            return self.target
        if not self.ranked:
            raise StudyError(
                f"none of the {len(self.trials)} trials of study {self.study!r} has a finite {self.metric!r}; "
                "`headwater show` prints what became of each"
            )
        return self.ranked[0]

    def front(self, **modes: str) -> tuple[TrialRecord, ...]:
        """Return the trials that no other beats in every metric of these, by their last values; "min" or "max" each.

        `result.front(loss="min", latency="min")` are the best trade-offs of the two, by number; without any, those of
        the metrics that the study has. Trials that failed or lack a finite value of one of them are left out, and so
        are those that break a constraint; where all do, those that come nearest are compared.

        Raises:
            StudyError: A mode is neither.
        """
        modes = modes or {self.metric: self.mode, **self.also}
        if any(mode not in ("min", "max") for mode in modes.values()):
            raise StudyError(f"front got {modes}; give each metric its mode, as in front(loss='min', accuracy='max')")
        objectives = [Objective(name, mode) for name, mode in modes.items()]
        candidates = []
        for trial in self.trials:
            scores = tuple(one.score(trial.value(one.metric)) for one in objectives)
            if trial.status is not Status.FAILED and INFEASIBLE not in scores:
                candidates.append(Candidate(trial.number, scores, self.objective.violation(trial.metrics)))
        chosen = set(find_front(candidates))
        return tuple(trial for trial in self.trials if trial.number in chosen)

    def to_dataframe(self, *, history: bool = False) -> pandas.DataFrame:
        """Return the trials as a pandas.DataFrame, one row for each; with `history`, one row for each report.

        The columns are those of `headwater export`: number, status, epochs, seconds, `config.` and each hyperparameter,
        `metrics.` and each metric, `note.` and each attribute, error.

        Raises:
            StudyError: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError:
            raise StudyError("to_dataframe needs pandas; pip install 'headwater[pandas]'") from None
        return pandas.DataFrame(to_records(self, history=history))

    def plot(self, kind: str | None = None, *, key: str | None = None) -> Figure:
        """Draw a figure of the study, which a notebook shows at the end of a cell; `save(path)` writes it into a file.

        Args:
            kind: One of those that `headwater plot` draws, such as "curves", "parallel" or "importance". By default
                "front" for a study with several metrics, and "best" for any other.
            key: Of a slice, the hyperparameter; of a front, the metric to compare with.

        Raises:
            StudyError: The study was kept in memory only, or there is no such figure, or nothing to draw yet.
        """
        return self._require_views("a figure").draw(kind or ("front" if self.also else "best"), key)

    def load_best_model(self) -> Any:  # Any: the user's own torch.nn.Module, or a list of them
        """Return the best trial's trained model, an ordinary PyTorch module in evaluation mode.

        Of a function that prepares several models, the list of them. The training function is run up to where it has
        prepared its models, to build them.

        Raises:
            StudyError: This result was read from a record, without its training function.
            StoreError: The weights were not kept.
        """
        if self.loader is None:
            raise StudyError(
                f"the result of study {self.study!r} has no training function to build the model with; "
                "call study.resume() to get it, or take the weights by `headwater best --save FILE`"
            )
        return self.loader()

    def save_report(self, path: str | Path) -> None:
        """Write the study as one HTML file with all views of the dashboard, as `headwater report` does.

        Raises:
            StudyError: The study was kept in memory only, or the file cannot be written.
        """
        self._require_views("a report").write_report(Path(path))

    def _require_views(self, what: str) -> RecordViews:
        if self.views is None:
            raise StudyError(
                f"study {self.study!r} has no record that {what} can be made of; run it with a storage, such as "
                "storage='headwater.db', or load one that has by headwater.load_study"
            )
        return self.views

    def _repr_html_(self) -> str:
        """Show it in a notebook: where the trials stand, and the best of them."""
        counts = count_statuses(self.trials, is_over=self.is_over)
        stand = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"
        facts: dict[str, object] = {"wanted": f"{self.mode} {self.metric}"}
        if self.target is not None:
            facts["target"] = self.target.value(self.metric)
        facts["trials"] = stand
        best = self.ranked[:5]
        keys = list(dict.fromkeys(key for trial in best for key in trial.config))
        value_of = self.objective.value_of
        rows = [[trial.number, value_of(trial), *(trial.config.get(key, "") for key in keys)] for trial in best]
        return write_facts(f"study {self.study}", facts) + write_table(["trial", self.metric, *keys], rows)

    @property
    def speedup(self) -> float | None:
        """How many times faster this run was than training its trials one by one."""
        seconds = self.seconds_busy or self.seconds
        return None if self.seconds_one_by_one is None or not seconds else self.seconds_one_by_one / seconds
