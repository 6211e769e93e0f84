"""When a run ends, and why: its limits, and the wishes of whoever may end it."""

from __future__ import annotations

from headwater.errors import StudyEnds
from headwater.limits import Limits
from headwater.report import Tally
from headwater.store import Lease


class RunEnd:
    """Knows whether a run is to end now; what is under way then can be resumed."""

    def __init__(self, limits: Limits, tally: Tally, lease: Lease | None) -> None:
        self.stop_reason: str | None = None
        """Set it to end the run after the next report, with everything saved."""
        self.steps_of_trial = 0.0
        """How many steps a whole trial takes, once that is known."""
        self._limits = limits
        self._tally = tally
        self._lease = lease

    def listen(self) -> None:
        """Take note if another process asks this one to stop."""
        asker = None if self._lease is None else self._lease.hear_asker()
        if asker is not None and self.stop_reason is None:
            self.stop_reason = f"{asker} asked to stop; what was under way can be resumed"

    def check(self) -> None:
        """End the run if it is to end now.

        Raises:
            StudyEnds: It is; the message says why.
        """
        if reason := self.find():
            raise StudyEnds(reason)

    def find(self) -> str | None:
        """Return why the run is to end now; None where it is not."""
        limits = self._limits
        reason = self.stop_reason
        left_over = limits.reserve(self.steps_of_trial) if limits.reserve else 0.0
        if limits.seconds is not None and self._tally.seconds + left_over >= limits.seconds:
            rest = f" but for the {left_over:.0f} s that the target needs" if left_over else ""
            reason = f"the time budget of {limits.seconds:g} s is used up{rest}"
        if limits.target is not None and self._tally.standings.has_reached(limits.target):
            reason = f"trial {self._tally.pulse().best_number} reached the target of {limits.target:g}"
        return reason
