"""What a study hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import StudyError
from headwater.trials.measurements import Profile
from headwater.trials.objective import Objective
from headwater.trials.records import Status, TrialRecord
from headwater.trials.surrogate import StartCheck, Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGains:
    """What trials and groups gained by devices that nothing waited for, as far as that was seen."""

    num_changes: int
    seconds: float
    """By how much earlier they ended, all taken together; less than 0 where they lost."""
    last: str
    """The last of the changes, and what it gained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Every trial of a study, and which of them is best."""

    study: str
    metric: str
    mode: str
    trials: tuple[TrialRecord, ...]
    storage: str
    """Where the record lies."""
    profiles: tuple[Profile, ...] = ()
    ended_early: str | None = None
    """Why the run ended before its trials did; None where it did not."""
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
    target: TrialRecord | None = None
    """Where trials were of surrogates: the target, trained with the best configuration."""
    trust: Trust | None = None
    """Where trials were of surrogates: how far their ranking can be trusted; None where that was not checked."""
    start: StartCheck | None = None
    """Where trials were of surrogates: what first steps showed before; None where that was not looked at."""
    loader: Callable[[], Any] | None = field(default=None, compare=False, repr=False)
    """Rebuilds the best trial's model."""

    @property
    def ranked(self) -> tuple[TrialRecord, ...]:
        """The trials that did not fail and have a finite value of the metric, best first; equals by number."""
        return self.objective.rank(trial for trial in self.trials if trial.status is not Status.FAILED)

    @property
    def objective(self) -> Objective:
        """What trials are compared by."""
        return Objective(self.metric, self.mode)

    @property
    def best(self) -> TrialRecord:
        """The target where there is one, else the best trial by the last value of the metric.

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

    @property
    def speedup(self) -> float | None:
        """How many times faster this run was than training its trials one by one."""
        seconds = self.seconds_busy or self.seconds
        return None if self.seconds_one_by_one is None or not seconds else self.seconds_one_by_one / seconds
