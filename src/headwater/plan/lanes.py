"""How many lanes a group should have."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.trials import Measurement

USUAL_LANES = 128
"""Larger groups are tried only where each size before was clearly faster than those before it."""
MAX_LANES = 512
"""The largest group that is tried."""
CLEAR_GAIN = 1.1
"""So many times faster per lane must the last size then have been."""
WORTHWHILE = 1.03
"""A group must train this many times faster than its lanes alone; less is within the noise of measuring."""
NEAR_BEST = 1.02
"""Of sizes this close to the fastest, the smallest is taken: it needs less memory."""
NEAR_BEST_BESIDE_OTHERS = 1.15
"""The same where groups train side by side: large ones are in each other's way in the caches."""


def count_wanted(num_lanes: int) -> int:
    """Return how large a group is to be tried for so many lanes: beyond the usual, whole doublings only."""
    return num_lanes if num_lanes <= USUAL_LANES else min(1 << (num_lanes.bit_length() - 1), MAX_LANES)


def is_worth_trying(num_lanes: int, measured: Sequence[Measurement]) -> bool:
    """Tell whether so many lanes may pay, by the smaller sizes that were measured: large ones take long to measure."""
    if num_lanes <= USUAL_LANES:
        return True
    *smaller, last = (item.computing_s for item in measured)
    return bool(smaller) and CLEAR_GAIN * last <= min(smaller)


def choose_num_lanes(
    measurements: Sequence[Measurement],
    memory_bytes: int | None = None,
    *,
    shares_loading: bool = False,
    num_workers: int = 1,
) -> tuple[int, str]:
    """Choose the group size with the least time per lane-step that fits in memory, and say why.

    Where groups share what they load, it takes no lanes to do so, and only computing counts.
    """
    fitting = [item for item in measurements if _fits(item, memory_bytes)]
    alone = next((item for item in measurements if item.num_lanes == 1), None)
    if not fitting or alone is None:
        return 1, "nothing larger was measured"
    least = min(_cost(item, shares_loading) for item in fitting)
    margin = NEAR_BEST if num_workers == 1 else NEAR_BEST_BESIDE_OTHERS
    near = [item for item in fitting if _cost(item, shares_loading) <= least * margin]
    chosen = min(near, key=lambda item: item.num_lanes)
    gain = _cost(alone, shares_loading) / _cost(chosen, shares_loading)
    if chosen.num_lanes == 1 or gain < WORTHWHILE:
        return 1, "no group was faster than separate training"
    gain = alone.seconds_per_lane_step / chosen.seconds_per_lane_step
    limited = " that fits in memory" if len(fitting) < len(measurements) else ""
    return chosen.num_lanes, f"{gain:.1f} times as fast per step as separate training, the best size{limited}"


def know_sizes(measurements: Sequence[Measurement], num_lanes: int) -> list[Measurement]:
    """Return what is known of groups of at most so many lanes: what was measured, and of that many what lies between.

    A step of a whole group is taken to cost more with each lane, evenly from one size that was measured to the next.
    """
    smaller = [item for item in measurements if item.num_lanes <= num_lanes]
    larger = [item for item in measurements if item.num_lanes > num_lanes]
    if not smaller or not larger:
        return smaller
    below = max(smaller, key=lambda item: item.num_lanes)
    above = min(larger, key=lambda item: item.num_lanes)
    return smaller if below.num_lanes == num_lanes else [*smaller, _interpolate(below, above, num_lanes)]


def _interpolate(below: Measurement, above: Measurement, num_lanes: int) -> Measurement:
    share = (num_lanes - below.num_lanes) / (above.num_lanes - below.num_lanes)
    steps = [item.num_lanes * item.seconds_per_lane_step for item in (below, above)]
    return Measurement(
        num_lanes=num_lanes,
        seconds_per_lane_step=(steps[0] + share * (steps[1] - steps[0])) / num_lanes,
        peak_bytes=above.peak_bytes,
        loading_s=below.loading_s + share * (above.loading_s - below.loading_s),
    )


def _cost(measurement: Measurement, shares_loading: bool) -> float:
    return max(measurement.computing_s, 1e-9) if shares_loading else measurement.seconds_per_lane_step


def _fits(measurement: Measurement, memory_bytes: int | None) -> bool:
    return memory_bytes is None or measurement.peak_bytes is None or measurement.peak_bytes <= memory_bytes
