"""A few real steps at 1, 2, 4, … lanes, to see how many lanes pay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from headwater.errors import LanesLeave
from headwater.fuse.strategies import NUM_LAPS, read_clock
from headwater.plan import MAX_LANES, USUAL_LANES, choose_num_lanes, count_wanted, is_worth_trying
from headwater.plan.speeds import count_fitting_lanes
from headwater.train.engines import LaneState
from headwater.train.memory import available_bytes, watch_peak
from headwater.train.packing import time_switch
from headwater.train.running import Workshop, run_group
from headwater.train.streams import Meter
from headwater.trials import (
    Decision,
    Ending,
    Lane,
    LoadingCost,
    Measurement,
    Outcome,
    Profile,
    Report,
    TrainingTime,
    TrialGroup,
    UnitCost,
)

_Again: TypeAlias = Callable[[int, int], Measurement | None]
"""Measures a size again, after so many steps of warm-up; None where it does not run so far."""

MEMORY_SHARE = 0.7
"""How much of the free memory a group may take."""
NUM_PATIENT = 3
"""So many sizes in a row that are no faster per step than the best before them end the search."""

NUM_WARM_UP = 2
"""So many steps of a run do not count."""
NUM_RACING = 2 * NUM_LAPS + NUM_WARM_UP
"""The same where two ways of computing race: none is gone for good before."""
IN_REACH = 1.2
"""A size this many times slower than the best may still be the best when measured again."""
DOUBTFUL = 1.5
"""Where groups gain less than this, or lose less, one lane is measured again beside them."""
NUM_FINALS = 3
"""How often the sizes in reach of the best are measured again at most, until the best one stays the best: the machine
may have been slow or fast meanwhile."""
MANY = 16
"""For fewer lanes than this, once again is enough: little depends on the choice."""
LONG_S = 5.0
"""When measuring groups would have taken so long, a larger size must be promising."""
MOST_S = 15.0
"""When it would have taken so long, no larger size is tried: each costs twice as much as the one before."""
FINAL_S = 3.0
"""How long it may take to measure sizes again; those that would take longer are left out, and no round begins later."""
BUDGET_SHARE = 0.25
"""How much of the time that a run has left one profile may take."""
PROMISING = 1.03
"""So much faster must each size then be than those before it for a larger one to be tried."""


def profile_lanes(
    workshop: Workshop, lanes: Sequence[Lane], states: Sequence[LaneState] | None = None, max_lanes: int = MAX_LANES
) -> tuple[Profile, Ending | None]:
    """Run the function for a few steps with ever more of these lanes, and choose the group size.

    The lanes are those of one bucket. The ending is that of the first group that could not run as one, for whoever
    must sort the lanes anew; None where all went well. Where the run has a deadline, measuring takes a part of the time
    left, and the choice is among what was measured by then.
    """
    workshop = _hurry(workshop)
    memory = available_bytes(workshop.device)
    limit = None if memory is None else int(memory * MEMORY_SHARE / workshop.num_workers)
    measured: dict[int, Measurement] = {}

    def again(num_lanes: int, num_warm_up: int) -> Measurement | None:
        return _measure(workshop, lanes[:num_lanes], states, num_warm_up)[0]

    spent_s = last_s = last_wall_s = 0.0
    for num_lanes in _sizes(min(count_wanted(math.ceil(len(lanes) / workshop.num_workers)), max_lanes)):
        is_worth = is_worth_trying(num_lanes, [*measured.values()])
        is_worth = is_worth and not _would_not_fit(measured, num_lanes, limit)
        if not is_worth or _ends(measured, spent_s + 2 * last_s, again):
            break
        if workshop.deadline.seconds_left <= 2 * last_wall_s:
            return _explain_hurry(_conclude(workshop, measured, limit)), None
        start, start_wall_s = read_clock(), workshop.deadline.clock()
        num_warm_up = NUM_RACING if num_lanes == 2 else NUM_WARM_UP  # to see, where steps are short, whether ways race
        measurement, ending = _measure(workshop, lanes[:num_lanes], states, num_warm_up)
        if measurement is None and ending.outcome is Outcome.DONE:
            return _explain_hurry(_conclude(workshop, measured, limit)), None
        if measurement is None:
            return _explain(_conclude(workshop, measured, limit), ending), ending
        measured[num_lanes] = measurement
        if num_lanes > 1:  # a function that runs for the first time may have to look at its model first
            last_s, last_wall_s = read_clock() - start, workshop.deadline.clock() - start_wall_s
            spent_s += last_s
    num_rounds = NUM_FINALS if len(lanes) >= MANY else 1
    finalists = _hold_finals(
        measured, num_rounds, workshop.strategies.have_raced, again, lambda: workshop.deadline.is_over
    )
    return _conclude(workshop, measured, limit, finalists), None


def measure_alone(
    workshop: Workshop, lanes: Sequence[Lane], states: Sequence[LaneState] | None = None
) -> Measurement | None:
    """Measure a few steps of the first of these lanes in a group of one; None where it does not run so far."""
    return _measure(_hurry(workshop), lanes[:1], states)[0]


def foresee_training(workshop: Workshop, lane: Lane) -> TrainingTime | None:
    """Time a few steps of a trial by the clock of the run, and see how many it takes; None where it has no steps."""
    workshop = _hurry(workshop)
    clock = workshop.deadline.clock
    begin = clock()
    stopwatch = _Stopwatch(clock, is_over=lambda: workshop.deadline.is_over)
    ending = run_group(replace(workshop, is_measuring=True), TrialGroup(lanes=(lane,)), stopwatch)
    seconds = clock() - begin if stopwatch.was_cut else None
    seconds = seconds if stopwatch.seconds_per_step is None else stopwatch.seconds_per_step
    if ending.outcome is not Outcome.DONE or seconds is None:
        return None
    return TrainingTime(seconds_per_step=seconds, num_epochs=stopwatch.num_epochs, num_steps=ending.num_steps_foreseen)


def measure_loading(
    workshop: Workshop, group: TrialGroup, states: Sequence[LaneState] | None
) -> tuple[LoadingCost | None, Ending]:
    """Measure what a group computes and loads for each example that it reads; None where it could not be measured."""
    meter = Meter()
    measurement, ending = _measure(replace(_hurry(workshop), seat=meter), group.lanes, states)
    if measurement is None:
        return None, ending
    if not measurement.loading_s:
        return LoadingCost(unit=None), ending
    examples_per_step = measurement.loading_s / meter.load_s
    compute_s = measurement.computing_s * len(group) / examples_per_step
    unit = UnitCost(compute_s=compute_s, load_s=meter.load_s, memory_bytes=measurement.peak_bytes)
    return LoadingCost(unit=unit, switch_s=time_switch(), room_bytes=_find_room(workshop)), ending


def _find_room(workshop: Workshop) -> float:
    """Return how many bytes what trains on one device may take now."""
    memory = available_bytes(workshop.device)
    return math.inf if memory is None else memory * MEMORY_SHARE / workshop.num_workers


def _hurry(workshop: Workshop) -> Workshop:
    """Let measuring take a part of the time that the run has left."""
    return replace(workshop, deadline=workshop.deadline.share(BUDGET_SHARE))


def _sizes(most: int) -> list[int]:
    powers = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    return powers if powers[-1] == most else [*powers, most]


def _conclude(
    workshop: Workshop, measured: dict[int, Measurement], limit: int | None, finalists: Sequence[int] = ()
) -> Profile:
    """Choose a size; where there were finals, one of those that took part, or one lane."""
    num_lanes, reason = choose_num_lanes(
        [item for size, item in measured.items() if not finalists or size in (1, *finalists)],
        limit,
        shares_loading=workshop.shares_loading,
        num_workers=workshop.num_workers,
    )
    return Profile(num_lanes=num_lanes, reason=reason, measurements=tuple(measured.values()))


def _explain(profile: Profile, ending: Ending) -> Profile:
    """Say why no larger group was tried, where it raised or ran out of memory."""
    if ending.outcome is Outcome.OUT_OF_MEMORY:
        return replace(profile, reason=f"{profile.reason}; {len(ending.lanes)} lanes ran out of memory")
    if ending.outcome not in (Outcome.RAISED, Outcome.LOST):
        return profile
    together = f"the function raised in a larger group: {ending.error.rstrip().splitlines()[-1]}"
    return replace(profile, reason=together if profile.num_lanes == 1 else f"{profile.reason}; {together}")


def _explain_hurry(profile: Profile) -> Profile:
    """Say that larger groups were not tried for want of time."""
    return replace(profile, reason=f"{profile.reason}; the time budget leaves no time to measure more")


def _would_not_fit(measured: dict[int, Measurement], num_lanes: int, limit: int | None) -> bool:
    """Tell whether so many lanes are too many: in proportion to the last size, or by a line through the last two."""
    known = [(item.num_lanes, item.peak_bytes) for item in measured.values() if item.peak_bytes is not None]
    if not known or limit is None:
        return False
    last, last_bytes = known[-1]
    before, before_bytes = known[max(len(known) - 2, 0)]
    if num_lanes <= USUAL_LANES or before_bytes >= last_bytes:  # the memory of small groups says little of each lane
        return last_bytes * num_lanes / last > limit
    lane_bytes = (last_bytes - before_bytes) / (last - before)
    one_bytes = last_bytes - (last - 1) * lane_bytes
    return num_lanes > count_fitting_lanes(one_bytes, one_bytes + lane_bytes, limit)


def _gains_no_more(measured: dict[int, Measurement], seconds_spent: float) -> bool:
    """Tell whether the last sizes were no faster per step than the best before them, or the next would take too long.

    Small groups may be slow, so a few sizes are measured before that is said.
    """
    seconds = [item.computing_s for item in measured.values()]
    if seconds_spent > MOST_S:
        return True
    if len(seconds) <= NUM_PATIENT + 1:
        return False
    if seconds_spent > LONG_S:
        return seconds[-1] * PROMISING > min(seconds[:-1])
    return min(seconds[-NUM_PATIENT:]) >= min(seconds[:-NUM_PATIENT])


def _ends(measured: dict[int, Measurement], seconds_spent: float, again: _Again) -> bool:
    """Tell whether no larger size is worth trying; where there is time, the last ones get a second chance."""
    if not _gains_no_more(measured, seconds_spent):
        return False
    if seconds_spent > LONG_S / 2:
        return True
    for size in list(measured)[-NUM_PATIENT:]:
        found = again(size, NUM_WARM_UP)
        if found is not None and found.computing_s < measured[size].computing_s:
            measured[size] = found
    return _gains_no_more(measured, seconds_spent)


def _hold_finals(
    measured: dict[int, Measurement],
    num_rounds: int,
    ways_race: bool,
    again: _Again,
    is_over: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Measure the sizes near the best again, in turns, and go by that alone; return them.

    Before, the machine may have been faster for some of them than for others. The rounds end when a size was the best
    twice in a row, or when they have taken too long. Where ways race, the first round goes on until they are chosen, if
    there is time: steps are slower meanwhile, the more so the more lanes.
    """
    begin = read_clock()
    is_short = _foresee(measured[_fastest(measured)], NUM_RACING) < FINAL_S
    num_warm_up = NUM_RACING if ways_race and is_short else NUM_WARM_UP
    finalists = _finalists(measured, num_warm_up + _Stopwatch.MIN_STEPS + 1)
    rounds: list[dict[int, Measurement]] = []
    while finalists and len(rounds) < num_rounds and not is_over():
        order = finalists[::-1] if len(rounds) % 2 else finalists
        rounds.append({size: again(size, num_warm_up) or measured[size] for size in order})
        is_settled = len(rounds) > 1 and _fastest(rounds[-1]) == _fastest(rounds[-2])
        if is_settled or read_clock() - begin > FINAL_S:
            break
        num_warm_up = NUM_WARM_UP
    for size in finalists if rounds else ():
        found = sorted((one[size] for one in rounds), key=lambda item: item.computing_s)
        measured[size] = found[(len(found) - 1) // 2]
    return finalists if rounds else []


def _foresee(measurement: Measurement, num_steps: int) -> float:
    return num_steps * measurement.num_lanes * measurement.seconds_per_lane_step


def _fastest(measured: dict[int, Measurement]) -> int:
    return min(measured.values(), key=lambda item: item.computing_s).num_lanes


def _finalists(measured: dict[int, Measurement], num_steps: int) -> list[int]:
    """Return the sizes near the best, between which the choice is, and one lane where groups gain little.

    The slower ones are left out where so many steps of all of them would take too long.
    """
    best, *others = sorted(measured.values(), key=lambda item: item.computing_s)
    alone = [item for item in others if item.num_lanes == 1 and item.computing_s < best.computing_s * DOUBTFUL]
    reach = DOUBTFUL if best.num_lanes == 1 else IN_REACH
    near = [item for item in others if item.computing_s <= best.computing_s * reach and item.num_lanes > 1][:3]
    finalists = [best, *alone]
    for item in near:
        if sum(_foresee(one, num_steps) for one in (*finalists, item)) <= FINAL_S:
            finalists.append(item)
    return [item.num_lanes for item in finalists] if len(finalists) > 1 else []


def _measure(
    workshop: Workshop, lanes: Sequence[Lane], states: Sequence[LaneState] | None, num_warm_up: int = NUM_WARM_UP
) -> tuple[Measurement | None, Ending]:
    meter = workshop.seat if isinstance(workshop.seat, Meter) else Meter()
    choices = workshop.strategies.choices
    stopwatch = _Stopwatch(
        lambda: read_clock() - meter.seconds,  # loading is told apart
        lambda: len(choices),
        num_warm_up,
        workshop.strategies.have_raced,
        lambda: workshop.deadline.is_over,
    )
    num_read = meter.num_read
    peak = watch_peak(workshop.device)
    workshop = replace(workshop, is_measuring=True, seat=meter)
    states = None if states is None else states[: len(lanes)]
    ending = run_group(workshop, TrialGroup(lanes=tuple(lanes)), stopwatch, states)
    if ending.outcome is not Outcome.DONE or (stopwatch.was_cut and stopwatch.seconds_per_step is None):
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
    """Times the steps of one run and ends it when it has seen enough; a run without steps ends at its first report.

    Steps in which a way of computing was chosen do not count, for no later step has to choose it again.
    """

    MIN_STEPS = 3
    MAX_STEPS = 40
    ENOUGH_S = 0.15
    LONG_STEP_S = 0.1
    """Two steps in a row that take so long are enough, and need no warm-up, unless ways race: what noise adds hardly
    counts."""

    def __init__(
        self,
        clock: Callable[[], float] = read_clock,
        count_choices: Callable[[], int] = lambda: 0,
        num_warm_up: int = NUM_WARM_UP,
        ways_race: bool = False,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.was_cut = False
        """Whether the time was over before enough was seen."""
        self.num_epochs = 0
        """How many epochs the function said it would train."""
        self._is_over = is_over
        self._clock = clock
        self._count_choices = count_choices
        self._ways_race = ways_race
        self._num_warm_up = num_warm_up
        self._times: list[float] = []
        self._num_choices: list[int] = []

    @property
    def seconds_per_step(self) -> float | None:
        """The lower quartile of the steps that count, or of all where none does: noise only ever adds time."""
        laps = self._laps() or [later - earlier for earlier, later in pairwise(self._times)]
        return sorted(laps)[len(laps) // 4] if laps else None

    def expect(self, num_epochs: int) -> None:
        """Note it for whoever asks; a few steps are enough."""
        self.num_epochs = num_epochs

    def step(self, num_lanes: int) -> None:
        """Note the time of a step, and end the run when enough were seen."""
        self._times.append(self._clock())
        self._num_choices.append(self._count_choices())
        laps = self._laps()
        enough = len(laps) >= self.MIN_STEPS and sum(laps) > self.ENOUGH_S
        if enough or self._are_long(laps[-2:]) or len(self._times) > self._num_warm_up + self.MAX_STEPS:
            raise LanesLeave
        if self._is_over():
            self.was_cut = True
            raise LanesLeave

    def report(self, reports: Sequence[Report], capture: Callable[[int], LaneState | None]) -> Sequence[Decision]:
        """Go on, unless the function takes no steps at all."""
        return [Decision.CONTINUE if self._times else Decision.STOP] * len(reports)

    def _laps(self) -> list[float]:
        """Return the seconds of the steps after the warm-up in which nothing was chosen."""
        laps = [later - earlier for earlier, later in pairwise(self._times)]
        are_settled = [before == after for before, after in pairwise(self._num_choices)]
        if all(are_settled[-2:]) and self._are_long(laps[-2:]):
            return laps[-2:]
        return [lap for lap, is_settled in list(zip(laps, are_settled, strict=True))[self._num_warm_up :] if is_settled]

    def _are_long(self, laps: Sequence[float]) -> bool:
        return len(laps) == 2 and min(laps) > self.LONG_STEP_S and not self._ways_race
