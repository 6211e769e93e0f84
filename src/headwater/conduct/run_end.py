"""When a run ends, and why: its limits, the time it has, and the wishes of whoever may end it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from headwater.conduct.limits import Limits
from headwater.conduct.tally import Tally
from headwater.store import Lease
from headwater.trials import TrialGroup


class RunEnd:
    """Knows whether a run is to end now; what is under way then can be resumed."""

    def __init__(self, limits: Limits, tally: Tally, lease: Lease | None) -> None:
        self.stop_reason: str | None = None
        """Set it to end the run after the next report, with everything saved."""
        self.steps_of_trial = 0.0
        """How many steps a whole trial takes, once that is known."""
        self.epochs = EpochTimes(limits.deadline.clock)
        self._limits = limits
        self._tally = tally
        self._lease = lease

    def listen(self) -> None:
        """Take note if another process asks this one to stop."""
        asker = None if self._lease is None else self._lease.hear_asker()
        if asker is not None and self.stop_reason is None:
            self.stop_reason = f"{asker} asked to stop; what was under way can be resumed"

    def find_before(self, groups: Sequence[TrialGroup]) -> str | None:
        """Return why the run is to end now, or before these groups would come to their first reports."""
        epoch_s = max(self.epochs.foresee(len(group)) for group in groups)
        deadline = self._limits.deadline
        reason = self.find()
        if reason is None and deadline.seconds_left - self._reserve < epoch_s:
            reason = (
                f"the time budget of {deadline.seconds:g} s has no room for another group, whose epochs take about "
                f"{epoch_s:.1f} s{self._explain_reserve()}"
            )
        return reason

    def find(self, key: Hashable = None) -> str | None:
        """Return why the run is to end now, or the group of this key with its latest report; None where it is not.

        A group goes on past the deadline to its next report. Where time is kept for what comes after the run it does
        not: then it ends with the last report that is in time.
        """
        limits, reason = self._limits, self.stop_reason
        reserve = self._reserve
        next_s = self.epochs.last(key) if reserve and key is not None else 0.0
        if limits.deadline.seconds_left <= reserve + next_s:
            reason = f"the time budget of {limits.deadline.seconds:g} s is used up{self._explain_reserve()}"
        if limits.target is not None and self._tally.standings.has_reached(limits.target):
            reason = f"trial {self._tally.pulse().best_number} reached the target of {limits.target:g}"
        return reason

    @property
    def _reserve(self) -> float:
        return self._limits.reserve(self.steps_of_trial) if self._limits.reserve else 0.0

    def _explain_reserve(self) -> str:
        return f" but for the {self._reserve:.0f} s that the target needs" if self._reserve else ""


class EpochTimes:
    """How long groups take from one report to the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[Hashable, float] = {}
        self._last: dict[Hashable, float] = {}
        self._shortest: dict[int, float] = {}

    def begin(self, key: Hashable) -> None:
        """Take in that a group begins."""
        self._since[key] = self._clock()

    def report(self, key: Hashable, num_lanes: int) -> None:
        """Take in that a group of so many lanes has reported."""
        now = self._clock()
        self._last[key] = now - self._since.get(key, now)
        self._since[key] = now
        self._shortest[num_lanes] = min(self._last[key], self._shortest.get(num_lanes, self._last[key]))

    def end(self, key: Hashable) -> None:
        """Take in that a group has ended."""
        self._since.pop(key, None)
        self._last.pop(key, None)

    @property
    def are_known(self) -> bool:
        """Whether any group has reported."""
        return bool(self._shortest)

    @property
    def have_begun(self) -> bool:
        """Whether any group has reported, or is on its way to a report."""
        return bool(self._shortest or self._since)

    def last(self, key: Hashable) -> float:
        """Return how long the last epoch of a group took; 0 where there was none."""
        return self._last.get(key, 0.0)

    def foresee(self, num_lanes: int) -> float:
        """Return how long an epoch of so many lanes takes at least, as far as that is known: larger groups take longer.

        It is 0 while no group has reported.
        """
        known = [seconds * max(1.0, num_lanes / size) for size, seconds in self._shortest.items()]
        return min(known, default=0.0)
