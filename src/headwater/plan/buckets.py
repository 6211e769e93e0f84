"""How devices are divided among kinds of trials that cannot train as one."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.plan.grouping import share_lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Lanes that may share groups, with none of another bucket."""

    num_lanes: int
    most_lanes: int
    """How many of them a group may have: as many as pay and fit in memory."""
    seconds: Callable[[int], float]
    """How long a group of so many lanes trains yet on one device; inf: nobody knows."""

    def time_groups(self, num_devices: int) -> list[float]:
        """Return how long each of its groups trains, where lanes are cut for so many devices; the smaller one last."""
        size = share_lanes(self.num_lanes, self.most_lanes, num_devices)
        num_full, rest = divmod(self.num_lanes, size)
        return [self.seconds(size)] * num_full + ([self.seconds(rest)] if rest else [])

    def find_end(self, num_devices: int) -> float:
        """Return how long it takes to train them all on so many devices of its own."""
        return _find_end(self.time_groups(num_devices), num_devices)


def choose_cuts(buckets: Sequence[Bucket], num_devices: int) -> list[int]:
    """Return for how many devices each bucket is to be cut, so that all of them end early.

    Each for a share of its own, so that its groups are large and kinds train side by side; or each for all devices, so
    that kinds follow one another, where that ends no later in prediction, or where nobody can tell.
    """
    everywhere = [num_devices] * len(buckets)
    if len(buckets) < 2 or num_devices < 2:
        return everywhere
    end_s = predict_end(buckets, everywhere, num_devices)
    if end_s == math.inf:
        return everywhere
    shares = share_devices(buckets, num_devices)
    return shares if predict_end(buckets, shares, num_devices) < end_s else everywhere


def share_devices(buckets: Sequence[Bucket], num_devices: int) -> list[int]:
    """Return how many devices each bucket gets, so that the last of them ends first.

    Each gets one, and every further one goes to the bucket that would end last, as long as it has lanes for it. With
    fewer devices than buckets, each is for one device, and they take turns.
    """
    counts = [1] * len(buckets)
    queue = [(-bucket.find_end(1), place) for place, bucket in enumerate(buckets)]
    heapq.heapify(queue)
    num_left = num_devices - len(buckets)
    while num_left > 0 and queue:
        _, place = heapq.heappop(queue)
        if counts[place] < buckets[place].num_lanes:
            counts[place] += 1
            num_left -= 1
            heapq.heappush(queue, (-buckets[place].find_end(counts[place]), place))
    return counts


def predict_end(buckets: Sequence[Bucket], counts: Sequence[int], num_devices: int) -> float:
    """Return when all buckets have ended that are cut for so many devices each, if the longest groups go first."""
    groups = [second for bucket, count in zip(buckets, counts, strict=True) for second in bucket.time_groups(count)]
    return _find_end(sorted(groups, reverse=True), num_devices)


def _find_end(seconds: Sequence[float], num_devices: int) -> float:
    """Return when groups have ended that go, in this order, to whichever device is idle first."""
    ends = [0.0] * min(num_devices, max(len(seconds), 1))
    for second in seconds:
        heapq.heapreplace(ends, ends[0] + second)
    return max(ends)
