"""Whether a device that is lent pays: it is slow, and what it takes may be done sooner where the study has its own.

How slow is seen from epochs of both. Until then, only what has not begun yet trains where devices are lent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headwater.conduct.running import RunningGroup, RunningPlacement, RunningPlacements
from headwater.trials import Purpose, TrialGroup


class LentPace:
    """Knows how long epochs take on the study's own devices, and how many times as long where devices are lent."""

    def __init__(self) -> None:
        self._own_s: dict[int, float] = {}
        """By number of lanes, how long an epoch took last."""
        self._slowdown: float | None = None
        """The least of what was seen; None while nothing was."""
        self._num_epochs = 0

    @property
    def is_known(self) -> bool:
        """Whether both have trained an epoch."""
        return self._slowdown is not None

    def see(self, placement: RunningPlacement, running: RunningGroup, num_lanes: int) -> None:
        """Learn from an epoch of so many lanes."""
        self._num_epochs = running.num_epochs or self._num_epochs
        if placement.is_pack or not running.train_s or len(placement.placement.devices) > 1:
            return
        if not placement.is_lent:
            self._own_s[num_lanes] = running.train_s
        elif self._own_s:
            slowdown = running.train_s / self._foresee_epoch(num_lanes)
            self._slowdown = slowdown if self._slowdown is None else min(self._slowdown, slowdown)

    def pays(self, group: TrialGroup, waiting: Sequence[TrialGroup], running: RunningPlacements, num_own: int) -> bool:
        """Tell whether a group comes to its next decision sooner where a device is lent.

        Else its turn comes on one of the study's own after all that trains there or waits now, this group included.
        """
        if self._slowdown is None:
            return not group.lanes[0].start_epoch
        here = [
            (one.num_epochs or self._num_epochs, len(one.numbers), one.epoch, one.group)
            for placement in running
            if not placement.is_lent and placement.placement.purpose is Purpose.TRAIN
            for one in placement.groups.values()
        ]
        left_s = [
            max(_find_until(part, num_epochs) - epoch, 0) * self._foresee_epoch(num_lanes)
            for num_epochs, num_lanes, epoch, part in here
        ]
        queue_s = math.fsum(left_s) + math.fsum(map(self._foresee, waiting))
        return self._slowdown * self._foresee(group) <= queue_s / num_own

    def _foresee(self, group: TrialGroup) -> float:
        """Return how long a group takes on a device of the study's own until something is decided of it."""
        num_epochs = _find_until(group, self._num_epochs) - group.lanes[0].start_epoch
        return max(num_epochs, 0) * self._foresee_epoch(len(group))

    def _foresee_epoch(self, num_lanes: int) -> float:
        """Return how long an epoch takes there; what fewer lanes took is scaled, for more are never faster."""
        known = [seconds * max(1.0, num_lanes / size) for size, seconds in self._own_s.items()]
        return min(known, default=0.0)


def _find_until(group: TrialGroup, num_epochs: int) -> int:
    return group.lanes[0].until or num_epochs
