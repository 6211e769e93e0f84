"""What the first steps of a training function show before its study with surrogates begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from headwater.errors import CannotScaleError
from headwater.train.coordinates import take_first_steps
from headwater.train.pretrained import require_fresh
from headwater.train.running import TrainingSetup
from headwater.train.scaling import Scaling
from headwater.trials import AUTO_SCALES, Deadline, Drift, Lane, Slope, StartCheck, Surrogate

FLAT = 0.2
"""A size that goes with the width by a lower power than this is flat."""
FLAT_PER_START = 0.05
"""With few starts, it must be as low as this for each of them."""
FEWEST_STARTS = 5
"""So many are needed to say that a size drifts."""
EPOCH_S = 0.15
"""So long is the end of the first epoch waited for, which tells how much of the data a loop goes through."""
MOST_S = 60.0
"""After so long no other start is looked at."""
TIME_SHARE = 0.1
"""How much of the time that a run has left this may take."""


def check_start(setup: TrainingSetup, surrogate: Surrogate, lanes: Sequence[Lane]) -> StartCheck:
    """Take first steps at three widths, and say what they show.

    One start is enough where all sizes are flat at once; the output of few units goes up and down by chance, so that
    others are looked at until the mean tells.

    Raises:
        CannotScaleError: The model has no surrogate, starts with pretrained weights, or sizes go with the width and the
            surrogate is to be refused then.
    """
    setup = replace(setup, scaling=None, deadline=_hurry(setup.deadline))
    if not surrogate.allow_pretrained:
        require_fresh(setup, lanes[0], lanes[1].seed)
    if surrogate.on_drift is None:
        return StartCheck()
    check = _look(setup, surrogate, lanes)
    if surrogate.on_drift == "refuse" and check.drift is not None and check.drift.drifting:
        raise CannotScaleError(check.describe()[0])
    return check


def list_possible_scales(setup: TrainingSetup, surrogate: Surrogate, lane: Lane) -> tuple[int, ...]:
    """Return at which of the scales that "auto" tries the models of a study have surrogates.

    Raises:
        CannotScaleError: At none of them.
    """
    possible: list[int] = []
    for scale in AUTO_SCALES:
        try:
            take_first_steps(replace(setup, scaling=Scaling(surrogate, scale)), lane)
            possible.append(scale)
        except CannotScaleError:
            if not possible and scale == AUTO_SCALES[-1]:
                raise
    return tuple(possible)


def choose_scales(scale: int) -> tuple[int, ...]:
    """Return three scales, the narrowest first: that of the search and wider ones, as far as there are any."""
    wider = sorted({scale, max(scale // 2, 1), max(scale // 4, 1)}, reverse=True)
    return tuple(wider if len(wider) == 3 else [2 * scale, *wider][:3])


def _hurry(deadline: Deadline) -> Deadline:
    part = deadline.share(TIME_SHARE)
    return replace(part, end_s=min(part.end_s, part.clock() + MOST_S))


def _look(setup: TrainingSetup, surrogate: Surrogate, lanes: Sequence[Lane]) -> StartCheck:
    assert isinstance(surrogate.scale, int)
    scales = choose_scales(surrogate.scale)
    setups = [replace(setup, scaling=Scaling(surrogate, scale)) for scale in scales]
    slopes: dict[str, list[float]] = {}
    num_starts, num_passes = 0, None
    for lane in lanes:
        waits_s = [0.0 if num_starts else EPOCH_S, 0.0, 0.0]
        pairs = zip(setups, waits_s, strict=True)
        steps = [take_first_steps(one, lane, epoch_s) for one, epoch_s in pairs if not setup.deadline.is_over]
        if setup.deadline.is_over or any(step.error for step in steps):
            break  # what the function raises will be told by its trials
        num_starts, num_passes = num_starts + 1, steps[0].num_passes if num_passes is None else num_passes
        for name, slope in _slopes(scales, [step.sizes for step in steps]).items():
            slopes.setdefault(name, []).append(slope)
        if _is_settled(slopes, num_starts):
            break
    drift = Drift(scales=scales, num_starts=num_starts, slopes={name: _mean(them) for name, them in slopes.items()})
    return StartCheck(drift=drift if slopes else None, num_passes=num_passes)


def _slopes(scales: Sequence[int], sizes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The power of the width that each size goes with, by least squares."""
    widths = [-math.log(scale) for scale in scales]
    middle = fmean(widths)
    total = sum((width - middle) ** 2 for width in widths)
    columns = {name: [by_name.get(name, 0.0) for by_name in sizes] for name in sizes[0]}
    return {
        name: sum((width - middle) * math.log(size) for width, size in zip(widths, column, strict=True)) / total
        for name, column in columns.items()
        if all(math.isfinite(size) and size > 0 for size in column)
    }


def _is_settled(slopes: Mapping[str, Sequence[float]], num_starts: int) -> bool:
    """Whether more starts would tell nothing new: every size is flat, or drifts clearly."""
    limit = min(FLAT, FLAT_PER_START * num_starts)
    means = [_mean(them) for them in slopes.values()]
    return all(abs(slope.mean) < limit or (num_starts >= FEWEST_STARTS and slope.is_clear) for slope in means)


def _mean(slopes: Sequence[float]) -> Slope:
    return Slope(mean=fmean(slopes), error=stdev(slopes) / len(slopes) ** 0.5 if len(slopes) > 1 else math.inf)
