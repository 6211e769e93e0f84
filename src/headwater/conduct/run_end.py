"""When a run ends, and why: its limits, the time it has, and the wishes of whoever may end it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headwater.conduct.limits import Limits
from headwater.conduct.run_progress import RunProgress
from headwater.conduct.running import RunningGroup
from headwater.store import Lease
from headwater.trials import TrialGroup


class RunEnd:
    """Knows whether a run is to end now; what is under way then can be resumed."""

    def __init__(self, limits: Limits, progress: RunProgress, lease: Lease | None) -> None:
        self.stop_reason: str | None = None
        """Set it to end the run after the next report, with everything saved."""
        self.steps_of_trial = 0.0
        """How many steps a whole trial takes, once that is known."""
        self._limits = limits
        self._progress = progress
        self._lease = lease
        self._shortest_s: dict[int, float] = {}
        """How long an epoch took at least, by the number of lanes."""

    def listen(self) -> None:
        """Take note if another process asks this one to stop."""
        asker = None if self._lease is None else self._lease.hear_asker()
        if asker is not None and self.stop_reason is None:
            self.stop_reason = f"{asker} asked to stop; what was under way can be resumed"

    @property
    def seconds_left(self) -> float | None:
        """How many seconds the run has left but for what comes after it; None where they are not counted."""
        seconds = self._limits.deadline.seconds_left - self._reserve
        return None if math.isinf(seconds) else seconds

    @property
    def knows_epochs(self) -> bool:
        """Whether any group has reported."""
        return bool(self._shortest_s)

    def see_epoch(self, num_lanes: int, seconds: float) -> None:
        """Take in how long an epoch of so many lanes took."""
        self._shortest_s[num_lanes] = min(seconds, self._shortest_s.get(num_lanes, seconds))

    def foresee_epoch(self, num_lanes: int) -> float:
        """Return how long an epoch of so many lanes takes at least, as far as that is known: larger groups take longer.

        It is 0 while no group has reported.
        """
        known = [seconds * max(1.0, num_lanes / size) for size, seconds in self._shortest_s.items()]
        return min(known, default=0.0)

    def find_before(self, groups: Sequence[TrialGroup]) -> str | None:
        """Return why the run is to end now, or before these groups would come to their first reports."""
        epoch_s = max(self.foresee_epoch(len(group)) for group in groups)
        deadline = self._limits.deadline
        reason = self.find()
        if reason is None and deadline.seconds_left - self._reserve < epoch_s:
            reason = (
                f"the time budget of {deadline.seconds:g} s has no room for another group, whose epochs take about "
                f"{epoch_s:.1f} s{self._explain_reserve()}"
            )
        return reason

    def find(self, group: RunningGroup | None = None) -> str | None:
        """Return why the run is to end now, or this group with its latest report; None where it is not.

        A group goes on past the deadline to its next report. Where time is kept for what comes after the run it does
        not: then it ends with the last report that is in time.
        """
        limits, reason = self._limits, self.stop_reason or self._progress.first_failures.reason
        reserve = self._reserve
        next_s = group.epoch_s if reserve and group is not None else 0.0
        if limits.deadline.seconds_left <= reserve + next_s:
            reason = f"the time budget of {limits.deadline.seconds:g} s is used up{self._explain_reserve()}"
        if limits.halt is not None and (halted := limits.halt()) is not None:
            reason = halted
        if limits.target is not None and self._progress.standings.has_reached(limits.target):
            reason = f"trial {self._progress.pulse().best_number} reached the target of {limits.target:g}"
        return reason

    @property
    def _reserve(self) -> float:
        return self._limits.reserve(self.steps_of_trial) if self._limits.reserve else 0.0

    def _explain_reserve(self) -> str:
        return f" but for the {self._reserve:.0f} s that the target needs" if self._reserve else ""
