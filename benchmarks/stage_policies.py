"""Policies of allocating devices to the trials of a stage, simulated from beginning to end and compared with bounds.

A trial has whole devices of its own, or shares one with others; what it has may change while it trains, at a cost.
`find_level` is a lower bound of any schedule, `find_optimum` the best schedule in which no trial's devices change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from headwater.plan.allocation import Policy
from headwater.plan.speeds import Speeds
from headwater.plan.waterfill import share_statically

NUM_LEVELS = 16
"""So many levels above the lowest conceivable one are tried as the time by which all trials are to end."""
HIGHEST_LEVEL = 2.0
"""The highest level that is tried, as a multiple of the lowest."""
LEVEL_STEPS = 60
"""Halvings of the interval in which the water level lies: to the last digit of a float."""
TINY = 1e-9
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Trials to be trained, on so many devices."""

    seconds: tuple[float, ...]
    """How long each takes on one device."""
    num_devices: int
    speeds: Speeds = field(default_factory=Speeds)
    change_s: float = 0.0
    """How long a trial stands still when what it has is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a stage went."""

    seconds: float
    """When the last trial ended."""
    ends: tuple[float, ...]
    num_changes: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """What trials get when they start."""

    order: tuple[int, ...]
    widths: tuple[int, ...]
    """Whole devices for each trial; 0 for those that may share one."""
    max_sharing: int = 1


@dataclass(slots=True)
class _State:
    """A stage under way."""

    left: list[float]
    """Seconds on one device that are left of each trial."""
    now: float = 0.0
    own: dict[int, int] = field(default_factory=dict)
    """Devices of the trials that have their own."""
    shared: list[list[int]] = field(default_factory=list)
    """The trials on each device that several may share."""
    paused_until: dict[int, float] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    num_changes: int = 0

    def copy(self) -> _State:
        return replace(
            self,
            left=list(self.left),
            own=dict(self.own),
            shared=[list(members) for members in self.shared],
            paused_until=dict(self.paused_until),
            ends=dict(self.ends),
        )

    def count_idle(self, stage: Stage) -> int:
        return stage.num_devices - sum(self.own.values()) - len(self.shared)

    def share_of(self, trial: int) -> float:
        if trial in self.own:
            return self.own[trial]
        return 1 / next(len(members) for members in self.shared if trial in members)

    def list_running(self) -> list[int]:
        return [*self.own, *(trial for members in self.shared for trial in members)]

    def list_waiting(self, plan: _Plan) -> list[int]:
        running = set(self.list_running())
        return [trial for trial in plan.order if trial not in self.ends and trial not in running]


def run_stage(stage: Stage, policy: Policy = Policy.OURS) -> Outcome:
    """Play a stage out under a policy, and say when each trial ends."""
    state = _State(left=list(stage.seconds))
    plan = _PLANNERS[policy](stage, state)
    revise = _REVISIONS.get(policy)
    _start_waiting(stage, state, plan)
    for has_idle in _advance(stage, state, plan):
        if revise is not None and has_idle:
            plan = revise(stage, state, plan)
    ends = tuple(state.ends[trial] for trial in range(len(stage.seconds)))
    return Outcome(seconds=max(ends, default=0.0), ends=ends, num_changes=state.num_changes)


def _advance(stage: Stage, state: _State, plan: _Plan) -> Iterator[bool]:
    """Go from one end of a trial to the next; after each, tell whether a device is idle and nothing waits for it."""
    while state.list_running():
        _go_on(stage, state)
        _start_waiting(stage, state, plan)
        nothing_waits = len(state.ends) + len(state.list_running()) == len(state.left)
        yield nothing_waits and bool(state.list_running()) and state.count_idle(stage) > 0


def _go_on(stage: Stage, state: _State) -> None:
    """Train until the next trial ends, or the next one that stands still goes on."""
    factors = {trial: stage.speeds.factor(state.share_of(trial)) for trial in state.list_running()}
    pauses = {trial: until for trial, until in state.paused_until.items() if until > state.now and trial in factors}
    ends = {trial: pauses.get(trial, state.now) + state.left[trial] * factor for trial, factor in factors.items()}
    until = min([*ends.values(), *pauses.values()])
    for trial, factor in factors.items():
        trained = max(0.0, until - pauses.get(trial, state.now))
        state.left[trial] -= trained / factor
    state.now = until
    for trial in [trial for trial, end in ends.items() if end <= until * (1 + TINY)]:
        state.left[trial] = 0.0
        state.ends[trial] = until
        _take_away(state, trial)


def _take_away(state: _State, trial: int) -> None:
    state.own.pop(trial, None)
    state.shared = [left for members in state.shared if (left := [one for one in members if one != trial])]


def _start_waiting(stage: Stage, state: _State, plan: _Plan) -> None:
    """Start what waits, in order, where there is room: whole devices that are idle, or a device that can be shared."""
    for trial in state.list_waiting(plan):
        num_idle = state.count_idle(stage)
        width = plan.widths[trial]
        if width and num_idle >= width:
            state.own[trial] = width
        elif not width and num_idle:
            state.shared.append([trial])
        elif not width:
            open_devices = [members for members in state.shared if len(members) < plan.max_sharing]
            if open_devices:
                min(open_devices, key=lambda members: sum(state.left[one] for one in members)).append(trial)
        if not num_idle and plan.max_sharing == 1:
            return


def _plan_fifo(stage: Stage, state: _State) -> _Plan:
    return _Plan(tuple(range(len(stage.seconds))), (1,) * len(stage.seconds))


def _plan_evenly(stage: Stage, state: _State) -> _Plan:
    width = max(1, min(stage.num_devices // max(len(stage.seconds), 1), stage.speeds.max_devices))
    return _Plan(tuple(range(len(stage.seconds))), (width,) * len(stage.seconds))


def _plan_statically(stage: Stage, state: _State) -> _Plan:
    shares = _share(stage, stage.seconds)
    widths = tuple(int(share) if share >= 1 else 0 for share in shares)
    return _Plan(_longest_first(stage.seconds), widths, stage.speeds.max_sharing)


def _plan_best(stage: Stage, state: _State) -> _Plan:
    """Try several times by which all trials are to end, and take what ends first in prediction."""
    plans = [_plan_fifo(stage, state), _plan_statically(stage, state), *_list_plans(stage, state)]
    return min(plans, key=lambda plan: _predict(stage, state, plan))


def _list_plans(stage: Stage, state: _State) -> Iterator[_Plan]:
    order = _longest_first(state.left)
    lowest = find_level(state.left, stage.num_devices, stage.speeds)
    levels = [lowest * HIGHEST_LEVEL ** (step / NUM_LEVELS) for step in range(NUM_LEVELS + 1)]
    widths_tried = {widths for level in levels if (widths := _widen(stage, state.left, level)) is not None}
    for widths in widths_tried:
        for max_sharing in {1, stage.speeds.best_sharing, stage.speeds.max_sharing}:
            yield _Plan(order, widths, max_sharing)


def _widen(stage: Stage, left: Sequence[float], level: float) -> tuple[int, ...] | None:
    """Give each trial that one device would not bring to its end by then as many as do; None where none would."""
    counts = range(1, min(stage.speeds.most_devices, stage.num_devices) + 1)
    needed = [
        next((count for count in counts if time * stage.speeds.factor(count) <= level * (1 + TINY)), 0) for time in left
    ]
    return tuple(count if count != 1 else 0 for count in needed) if all(needed) else None


def _predict(stage: Stage, state: _State, plan: _Plan) -> float:
    """Return when the last trial ends if nothing more is changed."""
    ahead = state.copy()
    _start_waiting(stage, ahead, plan)
    for _ in _advance(stage, ahead, plan):
        pass
    return ahead.now


def _revise_by_paper(stage: Stage, state: _State, plan: _Plan) -> _Plan:
    """Share all devices anew: those that get less first, then those that get more, where each gains by it."""
    running = state.list_running()
    wanted = dict(zip(running, _share(stage, [state.left[trial] for trial in running]), strict=True))
    for trial in running:
        new, old = max(wanted[trial], 1.0), state.share_of(trial)
        took = stage.speeds.factor(new) * state.left[trial] + stage.change_s
        if new < old and new * took < old * stage.speeds.factor(old) * state.left[trial]:
            _change(stage, state, trial, int(new))
    for trial in sorted(running, key=lambda one: -state.left[one]):
        old = state.share_of(trial)
        new = min(int(wanted[trial]), state.count_idle(stage) + (int(old) if old >= 1 else 0))
        took = stage.speeds.factor(max(new, 1)) * state.left[trial] + stage.change_s
        if new > old and took < stage.speeds.factor(old) * state.left[trial] - TINY:
            _change(stage, state, trial, new)
    return plan


def _revise(stage: Stage, state: _State, plan: _Plan) -> _Plan:
    """Make the change that ends the stage earliest, its own cost counted, as long as one gains anything."""
    present = _predict(stage, state, plan)
    while True:
        tries = []
        for widths in _list_revisions(stage, state):
            ahead = state.copy()
            for trial, count in widths.items():
                _change(stage, ahead, trial, count)
            tries.append((_predict(stage, ahead, plan), ahead))
        best, ahead = min(tries, key=lambda one: one[0], default=(math.inf, state))
        if best >= present * (1 - TINY) or ahead.num_changes == state.num_changes:
            return plan
        state.own, state.shared, state.paused_until = ahead.own, ahead.shared, ahead.paused_until
        state.num_changes, present = ahead.num_changes, best


def _list_revisions(stage: Stage, state: _State) -> Iterator[dict[int, int]]:
    """Propose changes: what brings all to their end by a level, and single steps for the one that ends last."""
    running = state.list_running()
    left = [state.left[trial] for trial in running]
    lowest = find_level(left, stage.num_devices, stage.speeds)
    for step in range(NUM_LEVELS + 1):
        widths = _widen(stage, left, lowest * HIGHEST_LEVEL ** (step / NUM_LEVELS))
        if widths is None:
            continue
        wanted = {trial: max(count, 1) for trial, count in zip(running, widths, strict=True)}
        changes = {trial: count for trial, count in wanted.items() if count != state.share_of(trial)}
        if sum(wanted.values()) <= stage.num_devices and changes:
            yield changes
    num_idle = state.count_idle(stage)
    for trial in sorted(running, key=lambda one: -state.left[one])[: num_idle + 1]:
        have = state.own.get(trial, 1 if state.share_of(trial) == 1 else 0)
        most = min(have + num_idle, stage.speeds.most_devices)
        yield from ({trial: count} for count in range(have + 1, most + 1))


def _change(stage: Stage, state: _State, trial: int, count: int) -> None:
    """Give a running trial so many devices of its own; it stands still for as long as that takes."""
    is_moved = state.share_of(trial) != count
    _take_away(state, trial)
    state.own[trial] = count
    if is_moved:
        state.num_changes += 1
        if stage.change_s:
            state.paused_until[trial] = max(state.paused_until.get(trial, 0.0), state.now) + stage.change_s


def _share(stage: Stage, seconds: Sequence[float]) -> list[float]:
    return share_statically(
        seconds,
        num_devices=stage.num_devices,
        max_sharing=stage.speeds.max_sharing,
        max_devices=stage.speeds.max_devices,
        hands_out_rest=False,
    )


def _longest_first(seconds: Sequence[float]) -> tuple[int, ...]:
    return tuple(sorted(range(len(seconds)), key=lambda trial: -seconds[trial]))


_PLANNERS: dict[Policy, Callable[[Stage, _State], _Plan]] = {
    Policy.FIFO: _plan_fifo,
    Policy.EVEN: _plan_evenly,
    Policy.STATIC: _plan_statically,
    Policy.FLUID: _plan_statically,
    Policy.OURS: _plan_best,
}
_REVISIONS: dict[Policy, Callable[[Stage, _State, _Plan], _Plan]] = {
    Policy.FLUID: _revise_by_paper,
    Policy.OURS: _revise,
}


def share_by_batch(batch_sizes: Sequence[int], num_lanes: Sequence[int], num_devices: int) -> list[int]:
    """Share devices as the paper on Hydro does, by batch size times number of trials: for comparison.

    Each bucket gets one, and what is left goes out in proportion, the largest remainders first.
    """
    weights = [size * count for size, count in zip(batch_sizes, num_lanes, strict=True)]
    num_left = max(num_devices - len(weights), 0)
    ideal = [num_left * weight / sum(weights) for weight in weights]
    counts = [math.floor(share) for share in ideal]
    by_rest = sorted(range(len(weights)), key=lambda place: counts[place] - ideal[place])
    for place in by_rest[: num_left - sum(counts)]:
        counts[place] += 1
    return [1 + count for count in counts]


def find_level(seconds: Sequence[float], num_devices: int, speeds: Speeds) -> float:
    """Return the time before which no schedule can end all trials, however often it moves them.

    Water-filling: at this level the shares that bring each trial to its end in time fill the devices exactly. Speed
    grows with the share along a concave curve, so no trial gains from having more now and less later.
    """
    longest = max(seconds, default=0.0)
    if not longest:
        return 0.0
    curve = _trace_curve(speeds)
    low, high = longest / curve[-1][1], sum(seconds)
    if _need(seconds, low, curve) <= num_devices:
        return low
    for _ in range(LEVEL_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _need(seconds, middle, curve) <= num_devices else (middle, high)
    return high


def _trace_curve(speeds: Speeds) -> list[tuple[float, float]]:
    """Return corners of the least concave curve over what a share can do: pairs of share and speed, rising."""
    points = [(1 / count, 1 / speeds.factor(1 / count)) for count in range(speeds.max_sharing, 1, -1)]
    points += [(float(count), 1 / speeds.factor(count)) for count in range(1, speeds.most_devices + 1)]
    hull = [(0.0, 0.0)]
    for point in points:
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return [corner for place, corner in enumerate(hull) if place == 0 or corner[1] > hull[place - 1][1]]


def _turns_up(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    before = (middle[1] - first[1]) * (last[0] - middle[0])
    after = (last[1] - middle[1]) * (middle[0] - first[0])
    return after >= before


def _need(seconds: Sequence[float], level: float, curve: Sequence[tuple[float, float]]) -> float:
    """Return the share of all trials together that brings each to its end at this level."""
    return sum(_share_for(time / level, curve) for time in seconds)


def _share_for(speed: float, curve: Sequence[tuple[float, float]]) -> float:
    for (left, slow), (right, fast) in pairwise(curve):
        if speed <= fast:
            return left + (right - left) * (speed - slow) / (fast - slow)
    return math.inf if speed > curve[-1][1] * (1 + 1e-12) else curve[-1][0]


def find_optimum(stage: Stage, known: float = math.inf) -> float:
    """Return when the last trial ends at the earliest, if each keeps the devices that it starts with and shares none.

    `known` is an end that can be had, so that nothing later is looked for. The time that this takes grows beyond all
    measure with the number of trials; six are quickly done.
    """
    search = _Search(stage, known)
    search.place(tuple(range(len(stage.seconds))), (0.0,) * stage.num_devices)
    return search.best


class _Search:
    """Starts trials one after the other, each as soon as the devices it is given are free, in every order."""

    def __init__(self, stage: Stage, known: float) -> None:
        self.best = known
        self._seconds = stage.seconds
        counts = range(1, min(stage.speeds.most_devices, stage.num_devices) + 1)
        self._factors = {count: stage.speeds.factor(count) for count in counts}
        self._least_area = min(count * factor for count, factor in self._factors.items())
        self._seen: set[tuple[tuple[int, ...], tuple[float, ...]]] = set()

    def place(self, waiting: tuple[int, ...], free_at: tuple[float, ...]) -> None:
        """Go on from here in every way that may end earlier than the best so far."""
        if not waiting:
            self.best = min(self.best, free_at[-1])
            return
        if self._bound(waiting, free_at) >= self.best * (1 - ROUNDING) or (waiting, free_at) in self._seen:
            return
        self._seen.add((waiting, free_at))
        for trial in waiting:
            rest = tuple(one for one in waiting if one != trial)
            for count, factor in self._factors.items():
                begin = free_at[count - 1]
                end = begin + self._seconds[trial] * factor
                if end < self.best:  # devices that were free before it began can serve nothing else by now
                    later = (max(time, begin) for time in free_at[count:])
                    self.place(rest, tuple(sorted((*later, *(end,) * count))))

    def _bound(self, waiting: Sequence[int], free_at: Sequence[float]) -> float:
        """Return an end that nothing from here on can come before."""
        fastest = min(self._factors.values())
        longest = max(self._seconds[trial] for trial in waiting) * fastest + free_at[0]
        area = sum(self._seconds[trial] for trial in waiting) * self._least_area
        return max(free_at[-1], longest, (sum(free_at) + area) / len(free_at))
