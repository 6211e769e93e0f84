"""How long a target takes, and whether it fits into the time of its study."""

from __future__ import annotations

import math
from collections.abc import Callable

from headwater.trials import Deadline, TrainingTime

MARGIN = 1.2
"""How much longer than its steps the target is expected to take, for evaluation and the unforeseen."""
START_S = 2.0
"""What it takes besides: to be opened and placed, to build its model, to save and keep what it has become."""
TARGETS_SHARE = 0.5
"""So much of a study's time may go into targets where only that ends it: more trials gain less and less, and what one
target comes to is partly chance."""
MOST_ROUNDS = 4
"""So many targets train one after the other on a device at most."""


class TargetTime:
    """Foresees the time of a target by a few measured steps, and keeps so much of the study's time for it.

    How many steps it takes is told by its data loader, and better by trials of the search, which take as many.
    """

    def __init__(
        self, deadline: Deadline, training: TrainingTime | None, share_left: float, tell: Callable[[str], None]
    ) -> None:
        self.fits = True
        """Whether it fits into the time there is, as far as is known."""
        self._deadline = deadline
        self._training = training
        self._share_left = share_left
        self._tell = tell
        self._num_steps: float = training.num_steps or 0 if training else 0
        self._is_decided = False
        self._decide()

    @property
    def num_steps(self) -> float:
        """How many steps a whole training takes; 0 while that is not known."""
        return self._num_steps

    @property
    def seconds(self) -> float:
        """How long its steps take; 0 where that is not known."""
        return self._training.seconds_per_step * self._num_steps * self._share_left if self._training else 0.0

    @property
    def epoch_s(self) -> float:
        """How long one of its epochs takes; 0 where that is not known."""
        return self.seconds / self._training.num_epochs if self._training and self._training.num_epochs else 0.0

    def reserve(self, num_steps: float) -> float:
        """Return how many seconds to keep for the target: none where it does not fit; that is said once.

        `num_steps` is how many steps a trial has turned out to take, 0 while none has shown it. Where it takes others
        than its data loader tells of, whether the target fits is decided anew.
        """
        is_new = num_steps not in (0, self._num_steps)
        self._num_steps = num_steps or self._num_steps
        if num_steps and not self._is_decided:
            self._is_decided = True
            if is_new:
                self._decide()
            if not self.fits:
                self._tell(self.explain())
        return MARGIN * self.seconds + START_S if self.fits and self.seconds else 0.0

    def reserve_several(self, num_steps: float) -> float:
        """Return how many seconds to keep for targets, where a search goes on until its time is over."""
        one_s = self.reserve(num_steps)
        share_s = TARGETS_SHARE * (self._deadline.seconds or 0.0)
        return max(1, min(MOST_ROUNDS, int(share_s / one_s))) * one_s if one_s else 0.0

    def count_beside(self, num_devices: int) -> int:
        """Return how many targets fit into the time left if each has a device of its own, at least one."""
        return num_devices * self.count_fitting(MOST_ROUNDS)

    def _decide(self) -> None:
        self.fits = self.seconds <= self._deadline.seconds_left

    def count_fitting(self, most: int) -> int:
        """Return how many targets fit into the time left, at least one and `most` at most."""
        if not self.seconds or math.isinf(self._deadline.seconds_left):
            return most
        return max(1, min(most, int(self._deadline.seconds_left / (MARGIN * self.seconds))))

    def explain(self) -> str:
        """Say that the target does not fit, and what to do."""
        step_s = self._training.seconds_per_step if self._training else 0.0
        return (
            f"the target is not trained: its {self._num_steps * self._share_left:,.0f} steps of {1000 * step_s:.3g} ms "
            f"take about {self.seconds:.0f} s, more than the {max(self._deadline.seconds_left, 0.0):.0f} s left of the "
            f"time budget of {self._deadline.seconds:g} s; resume with a larger time_budget, or without one, trains it"
        )
