"""What passes from one stage to the next, as frozen values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headwater.space import Config
from headwater.trials.html import write_facts
from headwater.trials.parting import Question


class Status(StrEnum):
    """Where a trial stands."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether the trial will never train again."""
        return self in (Status.COMPLETED, Status.STOPPED, Status.FAILED)


class Decision(StrEnum):
    """What becomes of a trial at a report."""

    CONTINUE = "continue"
    PAUSE = "pause"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of one trial's training, as a searcher asks for it: from where it stands to `until`."""

    number: int
    config: Config
    until: int | None = None
    """The epoch to reach; None leaves the end to the training function."""
    parent: int | None = None
    """A paused trial whose weights and optimizer state a new trial starts from, at that trial's epoch."""


@dataclass(frozen=True, kw_only=True)  # without slots: there are many of them in a message, and they are read faster
class Lane:
    """One trial as it rides in a group."""

    number: int
    config: Config
    seed: int
    start_epoch: int = 0
    until: int | None = None
    codes: Mapping[str, int | float] = field(default_factory=dict, compare=False, repr=False)
    """The configuration as the space encodes it, where that was done already; another process is sent no more of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialGroup:
    """Lanes that run as one: one call of the training function trains them all."""

    lanes: tuple[Lane, ...]

    def __len__(self) -> int:
        return len(self.lanes)

    @property
    def key(self) -> int:
        """What tells the group from all others that train at the same time: its first trial."""
        return self.lanes[0].number

    @property
    def numbers(self) -> tuple[int, ...]:
        """Its trials."""
        return tuple(lane.number for lane in self.lanes)


@dataclass(frozen=True, kw_only=True)  # without slots, as lanes
class Report:
    """What one trial reported at the end of one epoch."""

    number: int
    epoch: int
    """How many epochs the trial had trained when it reported, counted from 1."""
    metrics: Mapping[str, float]
    attributes: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON values
    """What the function has noted of the trial since its last report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The end of a segment, as the searcher was told of it: the trial, how long it had trained, and how it ended."""

    number: int
    epoch: int
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """Everything the record holds of one trial."""

    number: int
    config: Config
    status: Status
    history: tuple[Report, ...] = ()
    error: str | None = None
    """The traceback of a failed trial."""
    notes: tuple[str, ...] = ()
    """Why the trial ran as it did, for instance why it could not share a group."""
    seconds: float = field(default=0.0)
    """Its share of the time that its groups ran."""
    attributes: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON values
    """What its function has noted by `trial.note`."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """What the trial reported last."""
        return self.history[-1].metrics if self.history else {}

    @property
    def epochs(self) -> int:
        """How many epochs the trial has trained and reported."""
        return self.history[-1].epoch if self.history else 0

    def value(self, metric: str) -> float:
        """Return the last value of `metric`, NaN where there is none."""
        return float(self.metrics.get(metric, math.nan))

    def _repr_html_(self) -> str:
        """Show it in a notebook."""
        facts: dict[str, object] = {"status": self.status.value, "epochs": self.epochs, **self.metrics, **self.config}
        error = {"error": self.error.rstrip().rpartition("\n")[2]} if self.error else {}
        return write_facts(f"trial {self.number}", {**facts, **error})


NOT_BEGUN = "not begun"
"""What is said of trials that were opened, and have reported nothing."""


STOPPED_EARLY = "stopped early"
"""Shown for a trial that its search left paused. The record still says "paused": a study with more trials may go on."""


def show_status(status: Status, *, is_over: bool) -> str:
    """Return a status as people read it; `is_over` says whether the search has come to its end."""
    return STOPPED_EARLY if is_over and status is Status.PAUSED else status.value


def count_statuses(trials: Iterable[TrialRecord], *, is_over: bool = False) -> dict[str, int]:
    """Return how many trials there are of each status, in the order of these, those that have not begun apart."""
    counts = Counter(
        NOT_BEGUN if one.status is Status.RUNNING and not one.history else show_status(one.status, is_over=is_over)
        for one in trials
    )
    names = (NOT_BEGUN, *(show_status(status, is_over=is_over) for status in Status))
    return {name: counts[name] for name in names if counts[name]}


class Outcome(StrEnum):
    """How one call of the training function for a group ended."""

    DONE = "done"
    """It came to its end for every lane that had not left before."""
    PARTED = "parted"
    """The code asked for one value of something in which the configurations differ."""
    APART = "apart"
    """These lanes cannot run as one."""
    RAISED = "raised"
    """The training function raised."""
    REFUSED = "refused"
    """It must not take turns with others."""
    OUT_OF_MEMORY = "out of memory"
    """The group took more memory than there is; fewer lanes may fit."""
    LOST = "lost"
    """A process that it needs is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What came of running a group once; `lanes` are those that were still in it."""

    outcome: Outcome
    lanes: tuple[Lane, ...]
    question: Question | None = None
    was_fused: bool = False
    """Whether the lanes trained as one, if only until all but one had left: the error need not be one of a trial."""
    error: str = ""
    """The traceback, where the function raised or ran out of memory."""
    num_lane_steps: int = 0
    """Optimizer steps, counted once per lane."""
    num_steps_foreseen: int | None = None
    """How many steps a whole call takes, by its epochs and its data loader; None where these do not tell."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """Sentences for the user on how the work was divided between devices, and on the model."""
    attributes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # Any: JSON values
    """What the function has noted of trials after their last reports."""

    @property
    def failure(self) -> str:
        """What a trial that failed so, alone, is told."""
        if self.outcome is not Outcome.OUT_OF_MEMORY:
            return self.error
        return (
            f"{self.error.rstrip()}\n"
            "Out of memory: this trial does not fit even in a group of its own; make its model or batches smaller, "
            "train fewer at a time (workers), or give it a machine or a limit with more memory"
        )
