"""How much each user may ask of the service: so often, and so much at the same time, that others are heard too."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.errors import ServiceError

PER_SECOND = 50.0
AT_ONCE = 200
"""So many requests may come at once; after that, so many a second."""
MOST_WAITING = 100
"""So many requests of one user may wait for news at the same time, event streams among them."""
MOST_UPLOADS = 8
"""So many submissions of one user may be on their way at the same time: the service holds each in memory."""


class RequestRates:
    """Counts what each user asks, and refuses what is too much."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}
        """How many requests a user may make at once, and when that was so."""
        self._waiting: Counter[str] = Counter()
        self._uploading: Counter[str] = Counter()

    def count(self, user: str) -> None:
        """Take in that a user asks something.

        Raises:
            ServiceError: That is too often.
        """
        now_s = self._clock()
        left, since_s = self._left.get(user, (float(AT_ONCE), now_s))
        left = min(left + (now_s - since_s) * PER_SECOND, AT_ONCE)
        self._left[user] = max(left - 1, 0.0), now_s
        if left < 1:
            raise ServiceError(
                f"user {user} asks more than {PER_SECOND:.0f} times a second; ask less often: with ?wait= an answer "
                "comes when there is news, and /v1/events tells all changes",
                429,
            )

    @contextmanager
    def waiting(self, user: str) -> Iterator[None]:
        """Count a request that waits for news, for as long as it does.

        Raises:
            ServiceError: Too many of this user's wait already.
        """
        if self._waiting[user] >= MOST_WAITING:
            raise ServiceError(
                f"{MOST_WAITING} requests of user {user} wait for news already; let some of them end, or follow all "
                "studies by one /v1/events",
                429,
            )
        with _counting(self._waiting, user):
            yield

    @contextmanager
    def uploading(self, user: str) -> Iterator[None]:
        """Count a submission that is being sent, until all of it is there.

        Raises:
            ServiceError: Too many of this user's are being sent already.
        """
        if self._uploading[user] >= MOST_UPLOADS:
            raise ServiceError(
                f"{MOST_UPLOADS} submissions of user {user} are being sent already; send fewer at once", 429
            )
        with _counting(self._uploading, user):
            yield


@contextmanager
def _counting(counter: Counter[str], user: str) -> Iterator[None]:
    counter[user] += 1
    try:
        yield
    finally:
        counter[user] -= 1
        if not counter[user]:
            del counter[user]
