"""How many lanes fit into the memory that the stages of a pipeline leave."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headwater.plan.speeds import count_fitting_lanes
from headwater.trials import Measurement

GIB = 1 << 30


def fit_lanes(measurements: Sequence[Measurement], room_bytes: int | None) -> float:
    """Return how many lanes fit into so much memory, by what one and a few took; inf where nobody knows.

    A group needs what it shares and the same again for each lane, so two points tell all sizes; where only one was
    measured, each lane is taken to need as much as the first.
    """
    known = {item.num_lanes: item.peak_bytes for item in measurements if item.peak_bytes}
    if room_bytes is None or 1 not in known:
        return math.inf
    one, most = known[1], max(known)
    each = (known[most] - one) / (most - 1) if most > 1 else 0.0
    return count_fitting_lanes(one, one + each if each > 0 else 2 * one, room_bytes)


def explain_refusal(needed_bytes: int, rooms_bytes: Sequence[int]) -> str:
    """Say why a trial cannot train in bubbles that leave so much memory each."""
    most = max(rooms_bytes, default=0)
    return (
        f"a trial needs {needed_bytes / GIB:.2f} GiB, but the bubbles leave {most / GIB:.2f} GiB "
        "at most; give the study a device of its own, a smaller batch or a surrogate, or lend a stage with more room"
    )
