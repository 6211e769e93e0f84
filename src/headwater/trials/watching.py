"""What a running study tells whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from headwater.trials.spending import Spending


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """Where a study stands."""

    num_done: int
    num_failed: int
    num_total: int | None
    """How many trials there will be; None while that is open."""
    num_lanes: int
    """How many lanes train now."""
    num_lane_steps: int
    seconds: float
    share_done: float
    """How much of the work of the trials at hand is done, by epochs, between 0 and 1."""
    share_foreseen: float | None = None
    """How much of the work of this run is done, by how long trials train; None while that is open."""
    best_number: int | None = None
    """The trial with the best last value of the metric, as a result ranks them."""
    best_value: float | None = None
    spending: Spending | None = None
    """What is spent on nodes; None where there are none that cost anything."""


@runtime_checkable
class Watcher(Protocol):
    """Shows a study while it runs. Every call must return at once."""

    def start(self, study: str, metric: str, num_trials: int | None) -> None:
        """The study begins."""

    def pulse(self, pulse: Pulse) -> None:
        """Lanes took a step or reported; called a few times a second at most, and when the study ends."""

    def tell(self, text: str) -> None:
        """Something worth a line happened: lanes parted, a group size was chosen."""

    def end(self) -> None:
        """The study is over, or was interrupted."""


@runtime_checkable
class PhaseWatcher(Protocol):
    """What a watcher may offer besides: it shows what is done that is not training."""

    def phase(self, text: str | None) -> None:
        """What is done now, such as measuring group sizes; None: it trains."""


class Silence:
    """Shows nothing; `study.run(watcher=Silence())` is quiet on a terminal too."""

    study: str | None = None
    """The name of the study, once it has begun."""

    def start(self, study: str, metric: str, num_trials: int | None) -> None:
        """Note the name."""
        self.study = study

    def pulse(self, pulse: Pulse) -> None:
        """Show nothing."""

    def tell(self, text: str) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Show nothing."""
