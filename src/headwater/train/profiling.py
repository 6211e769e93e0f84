"""A few real steps at 1, 2, 4, … lanes, to see how many lanes pay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from headwater.fuse.strategies import read_clock
from headwater.plan import MAX_LANES, USUAL_LANES, choose_num_lanes, count_wanted, is_worth_trying
from headwater.plan.lanes import WORTHWHILE
from headwater.plan.speeds import count_fitting_lanes
from headwater.train.engines import LaneState
from headwater.train.group_sizes import (
    DOUBTFUL,
    NUM_RACING,
    ends,
    find_final_s,
    foresee_search,
    foresee_step,
    hold_finals,
    is_worth_its_time,
)
from headwater.train.memory import available_bytes, watch_peak
from headwater.train.packing import time_switch
from headwater.train.running import TrainingSetup, run_group
from headwater.train.stopwatch import ENOUGH_S, NUM_WARM_UP, Stopwatch
from headwater.train.streams import TimedAccess
from headwater.train.traceless import TRACE
from headwater.trials import (
    Ending,
    Lane,
    LoadingCost,
    Measurement,
    Outcome,
    Profile,
    TrainingTime,
    TrialGroup,
    UnitCost,
)

MEMORY_SHARE = 0.7
"""How much of the free memory a group may take."""

NUM_FINALS = 3
"""How often the sizes in reach of the best are measured again at most, until the best one stays the best: the machine
may have been slow or fast meanwhile."""
MANY = 16
"""For fewer lanes than this, once again is enough: little depends on the choice."""
WARM_S = 5.0
"""Where a function takes no two steps that could be timed, its calls are; one that takes no longer is called again, for
the first call of a process may take seconds that no other takes."""
BUDGET_SHARE = 0.25
"""How much of the time that a run has left one profile may take."""
MEASURING_SHARE = 0.05
"""How much of what the lanes would take alone may go into measuring how many pay."""
FULL_S = 2.0
"""About as long takes measuring all sizes at least; where less is allowed, a glance at one of them must do."""
GLANCE_S = 0.03
"""So long are the first steps looked at,"""
EPOCH_S = 0.15
"""and so long at most is the end of their epoch waited for, which tells how many steps there are to train."""
MIN_FORESEEN = 8
"""So many steps are foreseen at least, and so many calls where nothing tells how many epochs there are."""
NUM_GLANCED = 5
"""So many steps after the warm-up are enough for a glance, whether or not ways race."""
NUM_CHOOSING = 10
"""Choosing how to compute with so many lanes takes about as long as so many steps, and is of no use for more lanes."""
NUM_MORE = NUM_WARM_UP + Stopwatch.MIN_STEPS + 1
"""Measuring more lanes takes longer by so many of their steps: no more are timed where steps are long."""
USUAL_GAIN = 8.0
"""So many times faster are groups of short steps; where measuring each doubling took more than its share of that, each
size is four times the one before."""
FEW = 4
"""The smallest group that is glanced at."""
SHORT_STEP_S = 0.03
"""Steps shorter than this are mostly the overhead of calls, which lanes share."""
CLEAR = 1.5
"""Where a size at a glance is so many times faster than one lane, larger ones are taken for better."""
REACH = 8
"""So many times larger ones at most,"""
MOST_UNSEEN = 64
"""and no more lanes than this that were not measured."""
STARTED = 32
"""What is too short to measure simply starts with so many lanes at most."""


def profile_lanes(
    setup: TrainingSetup,
    lanes: Sequence[Lane],
    states: Sequence[LaneState] | None = None,
    max_lanes: int = MAX_LANES,
    share: float = MEASURING_SHARE,
    foresee: Callable[[float], None] = lambda seconds: None,
) -> tuple[Profile, Ending | None]:
    """Run the function for a few steps with ever more of these lanes, and choose the group size.

    The lanes are those of one bucket. The ending is that of the first group that could not run as one, for whoever
    must sort the lanes anew; None where all went well. Where the run has a deadline, measuring takes a part of the time
    left, and the choice is among what was measured by then. Where measuring all sizes would take more than a share of
    what the lanes take alone, one is measured, or none. `foresee` is told about how many seconds there are to come,
    once steps alone have shown it, where that is more than a glance.
    """
    setup = _hurry(setup)
    limit = _find_limit(setup)
    if setup.deadline.is_over:
        return _explain_hurry(_conclude(setup, {}, limit)), None
    most = min(count_wanted(math.ceil(len(lanes) / setup.num_workers)), max_lanes)
    is_glance = most > 1 and share < math.inf
    enough_s, epoch_s = (GLANCE_S, EPOCH_S) if is_glance else (ENOUGH_S, 0.0)
    alone, ending = _measure(setup, lanes[:1], states, enough_s=enough_s, epoch_s=epoch_s)
    if alone is None:
        return _give_up(setup, {}, limit, ending)
    num_lane_steps = len(lanes) * (ending.num_steps_foreseen or MIN_FORESEEN)
    allowed_s = share * alone.seconds_per_lane_step * num_lane_steps
    if most > 1 and allowed_s < FULL_S:
        return _glance(setup, lanes[:most], states, alone, allowed_s)
    sizes = _sizes(most)
    if most > 1:
        start_s = max(ending.seconds - ending.num_lane_steps * alone.seconds_per_lane_step, 0.0)
        foreseen_s = foresee_search(sizes[1:], alone.seconds_per_lane_step, start_s)
        if allowed_s < USUAL_GAIN * foreseen_s and alone.computing_s < SHORT_STEP_S:
            sizes = _sizes(most, 4)
            foreseen_s = foresee_search(sizes[1:], alone.seconds_per_lane_step, start_s)
        foresee(min(foreseen_s, setup.deadline.seconds_left))
    num_left = num_lane_steps if share < math.inf else math.inf
    return _measure_all(setup, lanes[:most], states, sizes, {1: alone}, num_left)


def _glance(
    setup: TrainingSetup,
    lanes: Sequence[Lane],
    states: Sequence[LaneState] | None,
    alone: Measurement,
    allowed_s: float,
) -> tuple[Profile, Ending | None]:
    """Choose a size by a glance at one that can be afforded; where none can, groups of short steps simply start."""
    step_s = alone.seconds_per_lane_step
    size = max((size for size in _sizes(len(lanes)) if _glance_s(size, step_s) <= allowed_s), default=1)
    if size < min(FEW, len(lanes)):
        is_short = step_s < SHORT_STEP_S
        reason = "too short to measure; steps this short are faster in groups" if is_short else "too short to measure"
        num_lanes = min(STARTED, len(lanes)) if is_short else 1
        return Profile(num_lanes=num_lanes, reason=reason, measurements=(alone,)), None
    found, ending = _measure(setup, lanes[:size], states, enough_s=0.0, max_steps=NUM_GLANCED)
    if found is None:
        return _give_up(setup, {1: alone}, None, ending)
    if found.computing_s > alone.computing_s * (DOUBTFUL if step_s < SHORT_STEP_S else 1 / WORTHWHILE):
        alone, found = _look_again(setup, lanes[:size], states, alone, found)
    is_near = alone.computing_s <= found.computing_s < alone.computing_s * DOUBTFUL
    if is_near and step_s < SHORT_STEP_S:
        reason = "steps this short are faster in groups, once ways to compute them are chosen"
        return Profile(num_lanes=min(len(lanes), REACH * size), reason=reason, measurements=(alone, found)), None
    profile = _conclude(setup, {1: alone, size: found}, None)
    is_clear = profile.num_lanes > 1 and found.computing_s * CLEAR <= alone.computing_s
    most = max(size, min(REACH * size, MOST_UNSEEN))
    return replace(profile, num_lanes=min(len(lanes), most) if is_clear else profile.num_lanes), None


def _look_again(
    setup: TrainingSetup,
    lanes: Sequence[Lane],
    states: Sequence[LaneState] | None,
    alone: Measurement,
    found: Measurement,
) -> tuple[Measurement, Measurement]:
    """Measure a group and one lane once more before lanes train one by one; of each, the faster counts.

    Whatever else the machine does only ever adds time, and so do ways of computing that are tried.
    """
    glanced = partial(_measure, setup, states=states, enough_s=0.0, max_steps=NUM_GLANCED)
    pairs = [(glanced(lanes)[0], found), (glanced(lanes[:1])[0], alone)]
    found, alone = (min(again or before, before, key=lambda one: one.computing_s) for again, before in pairs)
    return alone, found


def _glance_s(size: int, step_s: float) -> float:
    """Foresee how long a glance at a size takes, by what a step takes alone."""
    return (NUM_CHOOSING + NUM_MORE) * foresee_step(size, step_s)


def _find_limit(setup: TrainingSetup) -> int | None:
    memory = available_bytes(setup.device)
    return None if memory is None else int(memory * MEMORY_SHARE / setup.num_workers)


def _give_up(
    setup: TrainingSetup, measured: dict[int, Measurement], limit: int | None, ending: Ending
) -> tuple[Profile, Ending | None]:
    """Conclude from what was measured before a group did not run as far."""
    profile = _conclude(setup, measured, limit)
    if ending.outcome is not Outcome.DONE:
        return _explain(profile, ending), ending
    if ending.notes:
        advice = "it is not measured further; set lanes, or write after the first epoch"
        return replace(profile, reason=f"{profile.reason}; {ending.notes[0]}, so {advice}"), None
    return _explain_hurry(profile), None


def _measure_all(
    setup: TrainingSetup,
    lanes: Sequence[Lane],
    states: Sequence[LaneState] | None,
    sizes: Sequence[int],
    measured: dict[int, Measurement],
    num_lane_steps: float,
) -> tuple[Profile, Ending | None]:
    """Measure ever larger groups as long as that may pay, where so many steps of a lane are left to train.

    All devices wait for it.
    """
    limit = _find_limit(setup)

    def again(num_lanes: int, num_warm_up: int) -> Measurement | None:
        return _measure(setup, lanes[:num_lanes], states, num_warm_up)[0]

    spent_s = last_s = last_wall_s = 0.0
    for last, num_lanes in pairwise(sizes):
        next_s = last_s and last_s + NUM_MORE * (num_lanes - last) * measured[last].seconds_per_lane_step
        is_worth = is_worth_trying(num_lanes, [*measured.values()])
        is_worth = is_worth and is_worth_its_time(measured, next_s, num_lane_steps / setup.num_workers)
        is_worth = is_worth and not _would_not_fit(measured, num_lanes, limit)
        if not is_worth or ends(measured, spent_s + next_s, again):
            break
        if setup.deadline.seconds_left <= 2 * last_wall_s:
            return _explain_hurry(_conclude(setup, measured, limit)), None
        start, start_wall_s = read_clock(), setup.deadline.clock()
        num_warm_up = NUM_RACING if last == 1 else NUM_WARM_UP  # to see, where steps are short, whether ways race
        measurement, ending = _measure(setup, lanes[:num_lanes], states, num_warm_up)
        if measurement is None:
            return _give_up(setup, measured, limit, ending)
        measured[num_lanes] = measurement
        last_s, last_wall_s = read_clock() - start, setup.deadline.clock() - start_wall_s
        spent_s += last_s
    num_rounds = NUM_FINALS if len(lanes) >= MANY else 1
    finalists = hold_finals(
        measured,
        num_rounds,
        setup.strategies.have_raced,
        again,
        lambda: setup.deadline.is_over,
        find_final_s(measured, num_lane_steps / setup.num_workers),
    )
    return _conclude(setup, measured, limit, finalists), None


def measure_alone(
    setup: TrainingSetup, lanes: Sequence[Lane], states: Sequence[LaneState] | None = None
) -> Measurement | None:
    """Measure a few steps of the first of these lanes in a group of one; None where it does not run so far."""
    return _measure(_hurry(setup), lanes[:1], states)[0]


def foresee_training(setup: TrainingSetup, lane: Lane) -> TrainingTime | None:
    """Time a few steps of a trial by the clock of the run, and see how many it takes; None where it has no steps."""
    setup = _hurry(setup)
    clock = setup.deadline.clock
    begin = clock()
    stopwatch = Stopwatch(clock, is_over=lambda: setup.deadline.is_over)
    ending = run_group(replace(setup, is_measuring=True), TrialGroup(lanes=(lane,)), stopwatch)
    seconds = clock() - begin if stopwatch.was_cut else None
    seconds = seconds if stopwatch.seconds_per_step is None else stopwatch.seconds_per_step
    if ending.outcome is not Outcome.DONE or seconds is None:
        return None
    return TrainingTime(seconds_per_step=seconds, num_epochs=stopwatch.num_epochs, num_steps=ending.num_steps_foreseen)


def measure_loading(
    setup: TrainingSetup, group: TrialGroup, states: Sequence[LaneState] | None
) -> tuple[LoadingCost | None, Ending]:
    """Measure what a group computes and loads for each example that it reads; None where it could not be measured."""
    access = TimedAccess()
    measurement, ending = _measure(replace(_hurry(setup), access=access), group.lanes, states)
    if measurement is None:
        return None, ending
    if not measurement.loading_s:
        return LoadingCost(unit=None), ending
    examples_per_step = measurement.loading_s / access.load_s
    compute_s = measurement.computing_s * len(group) / examples_per_step
    unit = UnitCost(compute_s=compute_s, load_s=access.load_s, memory_bytes=measurement.peak_bytes)
    return LoadingCost(unit=unit, switch_s=time_switch(), room_bytes=_find_room(setup)), ending


def _find_room(setup: TrainingSetup) -> float:
    """Return how many bytes what trains on one device may take now."""
    memory = available_bytes(setup.device)
    return math.inf if memory is None else memory * MEMORY_SHARE / setup.num_workers


def _hurry(setup: TrainingSetup) -> TrainingSetup:
    """Let measuring take a part of the time that the run has left."""
    return replace(setup, deadline=setup.deadline.share(BUDGET_SHARE))


def _sizes(most: int, stride: int = 2) -> list[int]:
    powers = [1 << power for power in range(0, most.bit_length(), stride.bit_length() - 1) if 1 << power <= most]
    return powers if powers[-1] == most else [*powers, most]


def _conclude(
    setup: TrainingSetup, measured: dict[int, Measurement], limit: int | None, finalists: Sequence[int] = ()
) -> Profile:
    """Choose a size; where there were finals, one of those that took part, or one lane."""
    num_lanes, reason = choose_num_lanes(
        [item for size, item in measured.items() if not finalists or size in (1, *finalists)],
        limit,
        shares_loading=setup.shares_loading,
        num_workers=setup.num_workers,
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
    return replace(profile, reason=f"{profile.reason}; the time budget leaves no time to measure more", is_cut=True)


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


def _measure(  # noqa: PLR0913 - each has its default, and says when enough was seen
    setup: TrainingSetup,
    lanes: Sequence[Lane],
    states: Sequence[LaneState] | None,
    num_warm_up: int = NUM_WARM_UP,
    enough_s: float = ENOUGH_S,
    max_steps: int = Stopwatch.MAX_STEPS,
    epoch_s: float = 0.0,
) -> tuple[Measurement | None, Ending]:
    access = setup.access if isinstance(setup.access, TimedAccess) else TimedAccess()
    choices = setup.strategies.choices
    stopwatch = Stopwatch(
        lambda: read_clock() - access.seconds,  # loading is told apart
        lambda: len(choices),
        num_warm_up,
        setup.strategies.have_raced,
        lambda: setup.deadline.is_over,
        enough_s,
        max_steps,
        epoch_s,
    )
    num_read = access.num_read
    peak = watch_peak(setup.device)
    setup = replace(setup, is_measuring=True, access=access)
    states = None if states is None else states[: len(lanes)]
    group = TrialGroup(lanes=tuple(lanes))
    ending, call_s = _time_call(setup, group, stopwatch, states)
    is_short = call_s < WARM_S and not (stopwatch.was_cut or setup.deadline.is_over or ending.notes)
    if stopwatch.seconds_per_step is None and is_short:  # a call as a whole, with torch's own warm-up
        again, again_s = _time_call(setup, group, stopwatch.restart(), states)
        call_s = min(call_s, again_s) if again.outcome is ending.outcome else again_s
        ending = again
    was_cut = stopwatch.was_cut or bool(ending.notes)
    if ending.outcome is not Outcome.DONE or (was_cut and stopwatch.seconds_per_step is None):
        return None, ending
    num_steps = ending.num_lane_steps / len(lanes)
    examples_per_step = (access.num_read - num_read) / num_steps if num_steps else 0.0
    loading_s = access.load_s * examples_per_step
    computing_s = call_s if stopwatch.seconds_per_step is None else stopwatch.seconds_per_step
    measurement = Measurement(
        num_lanes=len(lanes),
        seconds_per_lane_step=(computing_s + loading_s) / len(lanes),
        peak_bytes=peak(),
        loading_s=loading_s,
    )
    return measurement, replace(ending, num_steps_foreseen=_count_foreseen(stopwatch, ending))


def _time_call(
    setup: TrainingSetup, group: TrialGroup, stopwatch: Stopwatch, states: Sequence[LaneState] | None
) -> tuple[Ending, float]:
    """Run a group, and time that by the clock that its steps are timed by."""
    begin = read_clock()
    ending = run_group(setup, group, stopwatch, states)
    seconds = read_clock() - begin
    trace = TRACE.get()
    reason = "" if trace is None else trace.take_reason()
    return replace(ending, notes=(reason,) if reason else ()), seconds


def _count_foreseen(stopwatch: Stopwatch, ending: Ending) -> int:
    """Return how many of what was timed a trial takes: steps; or calls, each of which went to the first report."""
    if stopwatch.seconds_per_step is not None:
        return max(ending.num_steps_foreseen or 0, MIN_FORESEEN)
    return 1 if stopwatch.num_steps else stopwatch.num_epochs or MIN_FORESEEN
