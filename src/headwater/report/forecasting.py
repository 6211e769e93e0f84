"""How fast a run is, and when it will be over."""

from __future__ import annotations

from collections import deque

RATE_WINDOW_S = 5.0
"""The speed shown is that of the last few seconds."""
SLOWEST_TURN = 0.3
"""A new stride moves what is foreseen by this share of the way to what it says alone; the first few by more."""


class Speed:
    """The speed over the last few seconds, from how far things were at each moment."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, seconds: float, count: int) -> None:
        """Take in how far things are."""
        self._seen.append((seconds, count))
        while seconds - self._seen[0][0] > RATE_WINDOW_S:
            self._seen.popleft()

    @property
    def rate(self) -> float:
        """How much was done per second."""
        if not self._seen:
            return 0.0
        (earlier_s, earlier), (later_s, later) = self._seen[0], self._seen[-1]
        return (later - earlier) / (later_s - earlier_s) if later_s > earlier_s else 0.0


class Forecast:
    """When the work will be done, if it goes on as it has gone since the first group began to train.

    Work is reported in strides, an epoch of a group at a time. Between two of them the time left counts down; asked
    anew at every moment, it would rise and fall. Strides are unlike, so each one turns the forecast only in part.
    """

    WAIT_S = 2.0

    def __init__(self) -> None:
        self._begin_s = 0.0
        self._begin_share = 0.0
        self._pause_s: float | None = None
        self._share: float | None = None
        self._end_s: float | None = None
        self._num_strides = 0

    def begin(self, seconds: float) -> None:
        """Take in that training begins: what was measured before tells nothing of how long the rest takes.

        Nor does what was trained before a pause, since others go on after it: that only counts until more is known.
        """
        if not self._num_strides:
            self._begin_s = seconds
        elif self._pause_s is not None and self._end_s is not None:
            self._begin_s, self._begin_share = seconds, self._share or 0.0
            self._end_s += seconds - self._pause_s
        self._pause_s = None

    def pause(self, seconds: float) -> None:
        """Take in that nothing is done until training begins again."""
        if self._pause_s is None:
            self._pause_s = seconds

    def see(self, seconds: float, share: float | None) -> None:
        """Take in how much is done; None where nobody can tell."""
        if share == self._share or seconds < self.WAIT_S:
            return
        self._share = share
        self._pause_s = None  # something is done all the same
        if not share:
            self._end_s, self._num_strides, self._begin_share = None, 0, 0.0
            return
        self._num_strides += 1
        found = seconds + (seconds - self._begin_s) * (1 - share) / max(share - self._begin_share, 1e-9)
        earlier = found if self._end_s is None else self._end_s
        self._end_s = earlier + max(SLOWEST_TURN, 1 / self._num_strides) * (found - earlier)

    def left(self, seconds: float) -> float | None:
        """Return the time left; None while that is open."""
        now_s = seconds if self._pause_s is None else self._pause_s
        return None if self._end_s is None else max(self._end_s - now_s, 0.0)
