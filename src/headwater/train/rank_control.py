"""Who decides at the reports of a trial that several processes train."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import LanesLeave, TrialError
from headwater.train.ranks import RankGroup
from headwater.train.trial import Capture, Control
from headwater.trials import Decision, Report


class RankControl:
    """A control for all ranks: rank 0 asks the real one, the others hear what it has decided."""

    def __init__(self, control: Control, group: RankGroup) -> None:
        self._control = control
        self._group = group

    def report(self, reports: Sequence[Report], capture: Capture) -> Sequence[Decision]:
        """Hand in rank 0's numbers, which are the same everywhere, and its state.

        Raises:
            TrialError: The ranks have come to different epochs.
            LanesLeave: The run ends at rank 0, with an exception there.
        """
        epochs = [int(epoch) for (epoch,) in self._group.gather_numbers(reports[0].epoch)]
        if len(set(epochs)) > 1:
            raise TrialError(
                f"the ranks of a trial report for different epochs, {epochs}; the function must do the same in each of "
                "them: let it not depend on the clock, the process or unseeded random numbers"
            )
        if self._group.rank == 0:
            return self._ask(reports, capture)
        code = int(self._group.gather_numbers(-1)[0][0])
        if code < 0:
            raise LanesLeave
        return [list(Decision)[code]]

    def _ask(self, reports: Sequence[Report], capture: Capture) -> Sequence[Decision]:
        code = -1
        try:
            decisions = self._control.report(reports, capture)
            code = list(Decision).index(decisions[0])
            return decisions
        finally:
            self._group.gather_numbers(code)

    def hinder(self, obstacle: str) -> None:
        """Tell it once."""
        if self._group.rank == 0:
            self._control.hinder(obstacle)

    def expect(self, num_epochs: int) -> None:
        """Tell it once."""
        if self._group.rank == 0:
            self._control.expect(num_epochs)

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        """Tell it once; weights are the same everywhere."""
        if self._group.rank == 0:
            self._control.finish(reports, capture, goes_on=goes_on)

    def step(self, num_lanes: int) -> None:
        """Count it once."""
        if self._group.rank == 0:
            self._control.step(num_lanes)
