"""Which group sizes are tried, and which are measured again before one is chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from headwater.fuse.strategies import NUM_LAPS, read_clock
from headwater.train.stopwatch import ENOUGH_S, NUM_WARM_UP, Stopwatch
from headwater.trials import Measurement

Again: TypeAlias = Callable[[int, int], Measurement | None]
"""Measures a size again, after so many steps of warm-up; None where it does not run so far."""

NUM_PATIENT = 3
"""So many sizes in a row that are no faster per step than the best before them end the search."""
NUM_RACING = 2 * NUM_LAPS + NUM_WARM_UP
"""So many steps do not count where two ways of computing race: none is gone for good before."""
IN_REACH = 1.2
"""A size this many times slower than the best may still be the best when measured again."""
DOUBTFUL = 1.5
"""Where groups gain less than this, or lose less, one lane is measured again beside them."""
LONG_S = 5.0
"""When measuring groups would have taken so long, a larger size must be promising."""
MOST_S = 15.0
"""When it would have taken so long, no larger size is tried: each costs twice as much as the one before."""
FINAL_S = 3.0
"""How long it may take to measure sizes again; those that would take longer are left out, and no round begins later."""
SAVED_SHARE = 0.5
"""So much of what a larger size may save can be spent on measuring it."""
LEAST_SAVED = 0.05
"""A larger size is taken to save at least this share of what is left to train, for small groups may be slow."""
FINAL_SHARE = 0.02
"""So much of what is left to train may measuring again take."""
LANE_COST = 0.4
"""What a lane more costs in a step, at most, as a part of a step alone; if it costs more, groups do not pay."""
PROMISING = 1.03
"""So much faster must each size then be than those before it for a larger one to be tried."""


def foresee_search(sizes: Sequence[int], step_s: float, start_s: float) -> float:
    """Return about how long it takes to measure all these sizes, by what a step and a start take alone."""
    seconds = 0.0
    for size in sizes:
        lap_s = foresee_step(size, step_s)
        num_warm_up = NUM_RACING if size == 2 else NUM_WARM_UP
        num_warm_up = 0 if lap_s > Stopwatch.LONG_STEP_S else num_warm_up
        seconds += start_s + num_warm_up * lap_s + max(ENOUGH_S, Stopwatch.MIN_STEPS * lap_s)
    return min(seconds, MOST_S) + min(seconds / 2, FINAL_S)


def foresee_step(num_lanes: int, step_s: float) -> float:
    """Return what a step of so many lanes takes where groups pay, by what it takes alone."""
    return step_s * (1 + num_lanes * LANE_COST)


def ends(measured: dict[int, Measurement], seconds_spent: float, again: Again) -> bool:
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


def is_worth_its_time(measured: dict[int, Measurement], seconds: float, num_lane_steps: float) -> bool:
    """Tell whether a larger size, which takes so long to measure, may save more: as a rule half as much as the last.

    What is left to train is so many steps of a lane.
    """
    costs = [item.seconds_per_lane_step for item in measured.values()]
    gain = math.sqrt(costs[-2] / max(costs[-1], 1e-9)) if len(costs) > 1 else math.inf
    saved = max(1 - 1 / gain, LEAST_SAVED)
    return seconds <= SAVED_SHARE * saved * min(costs) * num_lane_steps


def find_final_s(measured: dict[int, Measurement], num_lane_steps: float) -> float:
    """Return how long it may take to measure sizes again, where so many steps of a lane are left to train."""
    return min(FINAL_S, FINAL_SHARE * min(item.seconds_per_lane_step for item in measured.values()) * num_lane_steps)


def hold_finals(
    measured: dict[int, Measurement],
    num_rounds: int,
    ways_race: bool,
    again: Again,
    is_over: Callable[[], bool] = lambda: False,
    most_s: float = FINAL_S,
) -> list[int]:
    """Measure the sizes near the best again, in turns, and go by that alone; return them.

    Before, the machine may have been faster for some of them than for others. The rounds end when a size was the best
    twice in a row, or when they have taken too long. Where ways race, the first round goes on until they are chosen, if
    there is time: steps are slower meanwhile, the more so the more lanes.
    """
    begin = read_clock()
    is_short = _foresee(measured[_fastest(measured)], NUM_RACING) < most_s
    num_warm_up = NUM_RACING if ways_race and is_short else NUM_WARM_UP
    finalists = find_finalists(measured, num_warm_up + Stopwatch.MIN_STEPS + 1, most_s)
    rounds: list[dict[int, Measurement]] = []
    while finalists and len(rounds) < num_rounds and not is_over():
        order = finalists[::-1] if len(rounds) % 2 else finalists
        rounds.append({size: again(size, num_warm_up) or measured[size] for size in order})
        is_settled = len(rounds) > 1 and _fastest(rounds[-1]) == _fastest(rounds[-2])
        if is_settled or read_clock() - begin > most_s:
            break
        num_warm_up = NUM_WARM_UP
    for size in finalists if rounds else ():
        found = sorted((one[size] for one in rounds), key=lambda item: item.computing_s)
        measured[size] = found[(len(found) - 1) // 2]
    return finalists if rounds else []


def find_finalists(measured: dict[int, Measurement], num_steps: int, most_s: float = FINAL_S) -> list[int]:
    """Return the sizes near the best, between which the choice is, and one lane where groups gain little.

    The slower ones are left out where so many steps of all of them would take too long.
    """
    best, *others = sorted(measured.values(), key=lambda item: item.computing_s)
    alone = [item for item in others if item.num_lanes == 1 and item.computing_s < best.computing_s * DOUBTFUL]
    reach = DOUBTFUL if best.num_lanes == 1 else IN_REACH
    near = [item for item in others if item.computing_s <= best.computing_s * reach and item.num_lanes > 1][:3]
    finalists = [best, *alone]
    for item in near:
        if sum(_foresee(one, num_steps) for one in (*finalists, item)) <= most_s:
            finalists.append(item)
    return [item.num_lanes for item in finalists] if len(finalists) > 1 else []


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


def _foresee(measurement: Measurement, num_steps: int) -> float:
    return num_steps * measurement.num_lanes * measurement.seconds_per_lane_step


def _fastest(measured: dict[int, Measurement]) -> int:
    return min(measured.values(), key=lambda item: item.computing_s).num_lanes
