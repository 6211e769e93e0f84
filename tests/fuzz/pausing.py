"""A search that pauses every trial after every epoch, and proposes it again with other trials beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.trials import Decision, Report, Segment, Status


class PausingSearch:
    """Trains a list of configurations, each in segments of one epoch.

    Trials of one epoch are proposed in waves, and a wave is proposed when the one before it has ended. The first epoch
    is one wave. Every later epoch has the trials in another order and in waves of other sizes, so that a group has other
    lanes than the one before.
    """

    def __init__(self, configs: Sequence[Mapping[str, Any]], leavers: frozenset[int]) -> None:
        self._configs = configs
        self._leavers = leavers
        self._until = 1
        self._wave = list(range(len(configs)))
        """Trials of the present wave that were not proposed yet."""
        self._later: deque[list[int]] = deque()
        """The waves of this epoch that come after the present one."""
        self._under_way: set[int] = set()
        self._paused: list[int] = []

    def propose(self, count: int) -> Sequence[Segment]:
        """Return trials of the present wave."""
        if not self._wave and not self._under_way:
            self._open_wave()
        numbers, self._wave = self._wave[:count], self._wave[count:]
        self._under_way.update(numbers)
        return [Segment(number=number, config=self._configs[number], until=self._until) for number in numbers]

    def _open_wave(self) -> None:
        """Go on to the next wave, or to the next epoch of the trials that are paused."""
        if not self._later and self._paused:
            self._until += 1
            self._later.extend(cut_waves(sorted(self._paused), self._until))
            self._paused = []
        if self._later:
            self._wave = self._later.popleft()

    def observe(self, report: Report) -> Decision:
        """End the trials that leave."""
        return Decision.STOP if report.number in self._leavers else Decision.CONTINUE

    def finish(self, number: int, status: Status) -> None:
        """Note the trials that can go on."""
        self._under_way.discard(number)
        if status is Status.PAUSED:
            self._paused.append(number)


def cut_waves(numbers: Sequence[int], epoch: int) -> list[list[int]]:
    """Return the trials of an epoch in the order and in the waves in which they are proposed."""
    turn = epoch % len(numbers)
    turned = [*numbers[turn:], *numbers[:turn]]
    if epoch % 2:
        return [turned]
    return [wave for wave in (turned[:2], turned[2:]) if wave]
