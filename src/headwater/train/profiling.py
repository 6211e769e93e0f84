"""A few real steps at 1, 2, 4, … lanes, to see how many lanes pay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from headwater.errors import LanesLeave
from headwater.fuse.strategies import read_clock
from headwater.plan import UnitCost, choose_num_lanes
from headwater.train.engines import LaneState
from headwater.train.memory import available_bytes, watch_peak
from headwater.train.running import Workshop, run_group
from headwater.train.streams import Meter
from headwater.trials import Decision, Ending, Lane, Measurement, Outcome, Profile, Report, TrialGroup

MEMORY_SHARE = 0.7
"""How much of the free memory a group may take."""
MAX_LANES = 128
"""The largest group that is tried."""
NUM_PATIENT = 3
"""So many sizes in a row that are no faster per step than the best before them end the search."""

IN_REACH = 1.2
"""A size this many times slower than the best may still be the best when measured again."""
DOUBTFUL = 1.5
"""Where groups gain less than this, one lane is measured again too."""
NUM_FINALS = 3
"""How often the sizes in reach of the best are measured again at most, until the best one stays the best: the machine
may have been slow meanwhile."""
MANY = 16
"""For fewer lanes than this, once again is enough: little depends on the choice."""
LONG_S = 8.0
"""When measuring has taken so long, only what is in doubt is measured again, and a larger size must be promising."""
PROMISING = 1.1
"""So much faster must each size then be than those before it for a larger one to be tried."""


def profile_lanes(
    workshop: Workshop, lanes: Sequence[Lane], states: Sequence[LaneState] | None = None, max_lanes: int = MAX_LANES
) -> tuple[Profile, Ending | None]:
    """Run the function for a few steps with ever more of these lanes, and choose the group size.

    The lanes are those of one bucket. The ending is that of the first group that could not run as one, for whoever
    must sort the lanes anew; None where all went well.
    """
    memory = available_bytes(workshop.device)
    limit = None if memory is None else int(memory * MEMORY_SHARE / workshop.num_workers)
    measured: dict[int, Measurement] = {}
    begin = read_clock()
    for num_lanes in _sizes(min(math.ceil(len(lanes) / workshop.num_workers), max_lanes)):
        if _would_not_fit(measured, num_lanes, limit) or _gains_no_more(measured, read_clock() - begin):
            break
        measurement, ending = _measure(workshop, lanes[:num_lanes], states)
        if measurement is None:
            return _explain(_conclude(workshop, measured, limit), ending), ending
        measured[num_lanes] = measurement
    is_long = read_clock() - begin > LONG_S
    for _ in range(NUM_FINALS if len(lanes) >= MANY and not is_long else 1):
        before = _fastest(measured)
        for num_lanes in _finalists(measured, 1.0 if is_long else IN_REACH):
            again, _ = _measure(workshop, lanes[:num_lanes], states)
            if again is not None and again.computing_s < measured[num_lanes].computing_s:
                measured[num_lanes] = again
        if _fastest(measured) == before:
            break
    return _conclude(workshop, measured, limit), None


def measure_alone(
    workshop: Workshop, lanes: Sequence[Lane], states: Sequence[LaneState] | None = None
) -> Measurement | None:
    """Measure a few steps of the first of these lanes in a group of one; None where it does not run so far."""
    return _measure(workshop, lanes[:1], states)[0]


def measure_unit(
    workshop: Workshop, group: TrialGroup, states: Sequence[LaneState] | None
) -> tuple[UnitCost | None, Ending]:
    """Measure what a group computes and loads for each example that it reads; None where it reads no stream of ours."""
    meter = Meter()
    measurement, ending = _measure(replace(workshop, seat=meter), group.lanes, states)
    if measurement is None or not measurement.loading_s:
        return None, ending
    examples_per_step = measurement.loading_s / meter.load_s
    compute_s = measurement.computing_s * len(group) / examples_per_step
    return UnitCost(compute_s=compute_s, load_s=meter.load_s, memory_bytes=measurement.peak_bytes), ending


def _sizes(most: int) -> list[int]:
    powers = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    return powers if powers[-1] == most else [*powers, most]


def _conclude(workshop: Workshop, measured: dict[int, Measurement], limit: int | None) -> Profile:
    measurements = tuple(measured.values())
    num_lanes, reason = choose_num_lanes(
        measurements, limit, shares_loading=workshop.shares_loading, num_workers=workshop.num_workers
    )
    return Profile(num_lanes=num_lanes, reason=reason, measurements=measurements)


def _explain(profile: Profile, ending: Ending) -> Profile:
    """Say why no larger group was tried, where it raised."""
    if ending.outcome is not Outcome.RAISED:
        return profile
    together = f"the function raised in a larger group: {ending.error.rstrip().splitlines()[-1]}"
    return replace(profile, reason=together if profile.num_lanes == 1 else f"{profile.reason}; {together}")


def _would_not_fit(measured: dict[int, Measurement], num_lanes: int, limit: int | None) -> bool:
    if not measured or limit is None:
        return False
    last = list(measured.values())[-1]
    return last.peak_bytes is not None and last.peak_bytes * num_lanes / last.num_lanes > limit


def _gains_no_more(measured: dict[int, Measurement], seconds_spent: float) -> bool:
    """Tell whether the last sizes were no faster per step than the best before them; small groups may be slow."""
    seconds = [item.computing_s for item in measured.values()]
    if len(seconds) <= NUM_PATIENT + 1:
        return False
    if seconds_spent > LONG_S:
        return seconds[-1] * PROMISING > min(seconds[:-1])
    return min(seconds[-NUM_PATIENT:]) >= min(seconds[:-NUM_PATIENT])


def _fastest(measured: dict[int, Measurement]) -> int:
    return min(measured.values(), key=lambda item: item.computing_s).num_lanes


def _finalists(measured: dict[int, Measurement], in_reach: float) -> list[int]:
    """Return the sizes near the best, between which the choice is, and one lane where groups gain little."""
    by_speed = sorted(measured.values(), key=lambda item: item.computing_s)
    near = [item for item in by_speed if item.computing_s <= by_speed[0].computing_s * in_reach][:4]
    near += [item for item in by_speed if item.num_lanes == 1 and item.computing_s < by_speed[0].computing_s * DOUBTFUL]
    sizes = list(dict.fromkeys(item.num_lanes for item in near))
    return sizes if len(sizes) > 1 else []


def _measure(
    workshop: Workshop, lanes: Sequence[Lane], states: Sequence[LaneState] | None
) -> tuple[Measurement | None, Ending]:
    meter = workshop.seat if isinstance(workshop.seat, Meter) else Meter()
    stopwatch = _Stopwatch(lambda: read_clock() - meter.seconds)  # loading is told apart
    num_read = meter.num_read
    peak = watch_peak(workshop.device)
    workshop = replace(workshop, is_measuring=True, seat=meter)
    states = None if states is None else states[: len(lanes)]
    ending = run_group(workshop, TrialGroup(lanes=tuple(lanes)), stopwatch, states)
    if ending.outcome is not Outcome.DONE:
        return None, ending
    num_steps = ending.num_lane_steps / len(lanes)
    loading_s = meter.load_s * (meter.num_read - num_read) / num_steps if num_steps else 0.0
    computing_s = ending.seconds if stopwatch.seconds_per_step is None else stopwatch.seconds_per_step
    measurement = Measurement(
        num_lanes=len(lanes),
        seconds_per_lane_step=(computing_s + loading_s) / len(lanes),
        peak_bytes=peak(),
        loading_s=loading_s,
    )
    return measurement, ending


class _Stopwatch:
    """Times the steps of one run and ends it when it has seen enough; a run without steps ends at its first report."""

    NUM_WARM_UP = 2
    MIN_STEPS = 3
    MAX_STEPS = 40
    ENOUGH_SECONDS = 0.06

    def __init__(self, clock: Callable[[], float] = read_clock) -> None:
        self._clock = clock
        self._times: list[float] = []

    @property
    def seconds_per_step(self) -> float | None:
        """The lower quartile of the steps after the warm-up: noise only ever adds time."""
        laps = sorted(later - earlier for earlier, later in zip(self._laps(), self._laps()[1:], strict=False))
        return laps[len(laps) // 4] if laps else None

    def expect(self, num_epochs: int) -> None:
        """Take no interest: a few steps are enough."""

    def step(self, num_lanes: int) -> None:
        """Note the time of a step, and end the run when enough were seen."""
        self._times.append(self._clock())
        laps = self._laps()
        enough = len(laps) > self.MIN_STEPS and laps[-1] - laps[0] > self.ENOUGH_SECONDS
        if enough or len(laps) > self.MAX_STEPS:
            raise LanesLeave

    def report(self, reports: Sequence[Report], capture: Callable[[int], LaneState | None]) -> Sequence[Decision]:
        """Go on, unless the function takes no steps at all."""
        return [Decision.CONTINUE if self._times else Decision.STOP] * len(reports)

    def _laps(self) -> list[float]:
        return self._times[self.NUM_WARM_UP :] if len(self._times) > self.NUM_WARM_UP + 1 else self._times
