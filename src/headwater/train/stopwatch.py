"""The time that a few steps of a run take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Self

from headwater.errors import LanesLeave
from headwater.fuse.strategies import read_clock
from headwater.train.trial import Capture
from headwater.trials import Decision, Report

NUM_WARM_UP = 2
"""So many steps of a run do not count."""
ENOUGH_S = 0.15
"""When those that count have taken so long together, there were enough."""


class Stopwatch:
    """Times the steps of one run and ends it when it has seen enough; a run without steps ends at its first report.

    Steps in which a way of computing was chosen do not count, for no later step has to choose it again.
    """

    MIN_STEPS = 3
    MAX_STEPS = 40
    MOST_UNSETTLED = 20
    """So many steps are waited for one in which no way of computing is chosen: the others say little."""
    LONG_STEP_S = 0.1
    """Two steps in a row that take so long are enough, and need no warm-up, unless ways race: what noise adds hardly
    counts."""

    def __init__(  # noqa: PLR0913 - each has its default, and says when enough was seen
        self,
        clock: Callable[[], float] = read_clock,
        count_choices: Callable[[], int] = lambda: 0,
        num_warm_up: int = NUM_WARM_UP,
        ways_race: bool = False,
        is_over: Callable[[], bool] = lambda: False,
        enough_s: float = ENOUGH_S,
        max_steps: int = MAX_STEPS,
        epoch_s: float = 0.0,
    ) -> None:
        self.was_cut = False
        """Whether the time was over before enough was seen."""
        self.num_epochs = 0
        """How many epochs the function said it would train."""
        self._is_over = is_over
        self._enough_s = enough_s
        self._max_steps = max_steps
        self._epoch_s = epoch_s
        """So long are the steps of the first epoch counted, whether or not they are enough: a loop may end before its
        data loader does."""
        self._has_reported = False
        self._clock = clock
        self._count_choices = count_choices
        self._ways_race = ways_race
        self._num_warm_up = num_warm_up
        self._times: list[float] = []
        self._num_choices: list[int] = []

    @property
    def seconds_per_step(self) -> float | None:
        """The lower quartile of the steps that count, or of all where none does: noise only ever adds time."""
        laps = self._laps() or [later - earlier for earlier, later in pairwise(self._times)]
        return sorted(laps)[len(laps) // 4] if laps else None

    @property
    def num_steps(self) -> int:
        """How many steps were seen."""
        return len(self._times)

    def restart(self) -> Self:
        """Forget what was seen, for another run."""
        self._times.clear()
        self._num_choices.clear()
        self._has_reported = False
        return self

    def hinder(self, obstacle: str) -> None:
        """Take no interest."""

    def expect(self, num_epochs: int) -> None:
        """Note it for whoever asks; a few steps are enough."""
        self.num_epochs = num_epochs

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        """Take no interest."""

    def step(self, num_lanes: int) -> None:
        """Note the time of a step, and end the run when enough were seen."""
        self._times.append(self._clock())
        self._num_choices.append(self._count_choices())
        laps = self._laps()
        enough = len(laps) >= self.MIN_STEPS and sum(laps) > self._enough_s
        most_steps = self._num_warm_up + (self._max_steps if laps else max(self._max_steps, self.MOST_UNSETTLED))
        if (enough or self._are_long(laps[-2:]) or len(self._times) > most_steps) and not self._awaits_report:
            raise LanesLeave
        if self._is_over():
            self.was_cut = True
            raise LanesLeave

    def report(self, reports: Sequence[Report], capture: Capture) -> Sequence[Decision]:
        """Go on, unless the function takes no steps at all."""
        self._has_reported = True
        return [Decision.CONTINUE if self._times else Decision.STOP] * len(reports)

    @property
    def _awaits_report(self) -> bool:
        return not self._has_reported and self._times[-1] - self._times[0] < self._epoch_s

    def _laps(self) -> list[float]:
        """Return the seconds of the steps after the warm-up in which nothing was chosen."""
        laps = [later - earlier for earlier, later in pairwise(self._times)]
        are_settled = [before == after for before, after in pairwise(self._num_choices)]
        if all(are_settled[-2:]) and self._are_long(laps[-2:]):
            return laps[-2:]
        return [lap for lap, is_settled in list(zip(laps, are_settled, strict=True))[self._num_warm_up :] if is_settled]

    def _are_long(self, laps: Sequence[float]) -> bool:
        return len(laps) == 2 and min(laps) > self.LONG_STEP_S and not self._ways_race
