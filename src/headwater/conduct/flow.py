"""How devices flow: those that nothing waits for go to groups that train, and come back when something does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from headwater.conduct.grouping import Grouper, Tell
from headwater.conduct.running import Regrouping, RunningGroup, RunningPlacement, RunningPlacements
from headwater.conduct.setup import StudySetup
from headwater.conduct.waiting import Work
from headwater.plan import cut_groups
from headwater.plan.allocation import Policy
from headwater.plan.moves import SAFE_DEVICES, GroupTime, Move, choose_moves, choose_narrowed, share_new
from headwater.plan.speeds import Speeds
from headwater.plan.surface import Shape, Surface, cut_evenly
from headwater.trials import DeviceGains, Lane, Placement, Purpose, TrialGroup


@dataclass(slots=True)
class _Change:
    """A change that was ordered, until it is seen what it cost and gained."""

    text: str
    lanes: tuple[Lane, ...]
    num_more: int
    """How many devices it takes that were idle when it was ordered."""
    since_s: float
    epoch: int
    seconds_before: float
    """How long an epoch took before."""
    first_s: float | None = None
    """When the first epoch after it was reported."""
    cost_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """Groups that wait until the devices that they had are idle."""

    devices: frozenset[str]
    groups: tuple[TrialGroup, ...]
    num_more: int


class Flow:
    """Decides at a group's report whether it goes on as it is.

    A group can be cut into parts, one for each device; a trial alone can have several devices, or give them back. Then
    its lanes leave, with their states saved, and wait until the device that they had is idle.
    """

    def __init__(
        self, policy: Policy, grouper: Grouper, tell: Tell, clock: Callable[[], float], *, can_widen: bool = True
    ) -> None:
        self.surface = Surface()
        self.gains: DeviceGains | None = None
        self._policy = policy
        self._grouper = grouper
        self._tell = tell
        self._clock = clock
        self._can_widen = can_widen
        self._idle: Sequence[str] = ()
        self._gone: set[str] = set()
        self._held: dict[int, _Held] = {}
        """By the placement that they leave."""
        self._widths: dict[int, int] = {}
        self._epoch_s: dict[int, dict[int, float]] = {}
        """By trial and number of devices: how long its last epoch took, where it trained alone."""
        self._ordered: dict[int, _Change] = {}
        self._changes: dict[int, _Change] = {}
        self._is_stuck = False

    def release(self, idle: Sequence[str], *, is_running: bool) -> list[TrialGroup]:
        """Return the groups that waited for these devices to be idle.

        Where nothing runs, the device of a group that has just ended is idle the next time this is asked. If it is not,
        it is gone, and its groups need not wait for it.
        """
        if self._gone:
            self._gone.difference_update(idle)
        was_stuck, self._is_stuck = self._is_stuck, bool(self._held) and not is_running
        is_free = was_stuck and self._is_stuck
        keys = [
            key
            for key, held in self._held.items()
            if is_free or held.devices <= self._gone or not held.devices.isdisjoint(idle)
        ]
        return [group for key in keys for group in self._held.pop(key).groups]

    def give_up(self, devices: Collection[str]) -> None:
        """Take in that devices are about to go, or gone: nothing waits for them."""
        self._gone |= set(devices)
        self._idle = [name for name in self._idle if name not in self._gone]

    def lose(self, key: int) -> Sequence[TrialGroup]:
        """Return the groups that waited for the devices of a placement, which are gone."""
        held = self._held.pop(key, None)
        return () if held is None else held.groups

    def forget(self, key: int) -> None:
        """Take in that a group is over, whatever was ordered for it."""
        self._ordered.pop(key, None)

    def find_width(self, work: Work) -> int:
        """Return how many devices were decided on for a work."""
        is_one = work.purpose is Purpose.TRAIN and len(work.groups) == 1
        return self._widths.get(work.groups[0].key, 1) if is_one else 1

    def share(self, works: Sequence[Work], num_devices: int) -> list[int]:
        """Return how many devices each of these gets, of so many that are idle."""
        widths = [self.find_width(work) for work in works]
        widths = [max(1, min(width, num_devices - len(works) + 1)) for width in widths]
        num_left = num_devices - sum(widths)
        lone = [place for place, work in enumerate(works) if self._is_lone(work)]
        if num_left > 0 and lone:
            lanes = [works[place].groups[0].lanes[0] for place in lone]
            seconds = [self._foresee(lane) for lane in lanes]
            is_safe = self._policy is not Policy.OURS or bool(self.surface.shares)
            most = num_left + 1 if is_safe else min(num_left + 1, SAFE_DEVICES)
            speeds = self.surface.speeds(self._grouper.kind_of(lanes[0]), most)
            shares = share_new(seconds, num_left + len(lone), speeds, self._policy)
            for place, width in zip(lone, shares, strict=True):
                widths[place] = width
            self._explain_start(lanes, shares, speeds)
        for work in works:
            self._widths.pop(work.groups[0].key, None)
        return widths

    def note_idle(self, names: Iterable[str]) -> None:
        """Take in which devices nothing was found for."""
        self._idle = list(names)

    def decide(self, running: RunningGroup, placements: RunningPlacements, num_waiting: int) -> Regrouping | None:
        """Return what a group that has reported, and could go on, is to be cut into; None: it goes on."""
        num_idle = self._count_free()
        is_wide = any(running.group.key in one.groups and len(one.placement.devices) > 1 for one in placements)
        if self._policy not in (Policy.OURS, Policy.FLUID) or not (num_waiting or num_idle > 0 or is_wide):
            return None
        times = {time.key: time for placement in placements if (time := self._time(placement)) is not None}
        mine = times.get(running.group.key)
        if mine is None:
            return None
        if num_waiting:
            moves = choose_narrowed([*times.values()], num_waiting, self.surface)
        else:
            moves = choose_moves([*times.values()], num_idle, self.surface, self._policy)
        move = next((move for move in moves if move.key == mine.key), None)
        return None if move is None else self._order(running, mine, move)

    def hold(self, placement: Placement, key: int, lanes: Sequence[Lane], regrouping: Regrouping) -> None:
        """Let the lanes of a group wait, cut as was decided, until the device that they had is idle."""
        change = self._ordered.pop(key, None)
        sizes = cut_evenly(len(lanes), regrouping.num_parts or 1)
        groups = cut_groups(lanes, max(sizes))
        num_more = 0 if change is None else change.num_more
        self._held[placement.key] = _Held(devices=frozenset(placement.devices), groups=tuple(groups), num_more=num_more)
        self._widths |= {group.key: regrouping.num_devices for group in groups}
        if change is not None:
            self._changes[groups[0].key] = replace(change, lanes=groups[0].lanes)

    def see(self, placement: RunningPlacement, running: RunningGroup, seconds: float) -> None:
        """Learn from an epoch that was trained, and from what the last change has cost."""
        if placement.is_pack or not running.numbers or not seconds:
            return
        running.epoch_s = seconds
        kind, shape = self._kind(running), _shape_of(placement, running)
        if not self.surface.steps.get(kind):
            self.surface.steps[kind] = self._grouper.time_steps(running.group.lanes[0])
        is_first = running.epoch == running.group.lanes[0].start_epoch + 1  # it has the function's own beginning in it
        if not is_first or shape not in self.surface.epochs.get(kind, {}):
            self.surface.add_epoch(kind, shape, seconds)
        earlier = self._epoch_s.setdefault(running.group.key, {}) if shape.num_lanes == 1 else {}
        if shape.num_lanes == 1 and not (is_first and earlier):
            self.surface.add_lone(kind, shape.num_devices, seconds, earlier)
            earlier[shape.num_devices] = seconds
        change = self._changes.get(running.group.key)
        if change is not None:
            self._follow(change, running, seconds)

    def _explain_start(self, lanes: Sequence[Lane], widths: Sequence[int], speeds: Speeds) -> None:
        """Say why trials start on several devices, once for all that get as many."""
        basis = "by what trials had of them" if self.surface.shares else "a guess, until a trial has had both"
        for width in sorted({width for width in widths if width > 1}):
            chosen = [lane for lane, count in zip(lanes, widths, strict=True) if count == width]
            share = f"{speeds.factor(width):.0%} of the time on one in prediction, {basis}"
            reason = f"starts on {width} devices, for nothing else waited for them"
            self._tell(f"{self._say_when()} {reason}; {share}", chosen)

    def _say_when(self) -> str:
        return f"at {self._clock():.1f} s"

    def _follow(self, change: _Change, running: RunningGroup, seconds: float) -> None:
        now = self._clock()
        if running.epoch == change.epoch + 1:
            change.first_s = now
        elif change.first_s is not None and change.cost_s is None:
            change.cost_s = max(change.first_s - change.since_s - seconds, 0.0)
            self.surface.add_change(change.cost_s)
        if running.epoch >= _find_end(running):
            num_epochs = running.epoch - change.epoch
            gained_s = num_epochs * change.seconds_before - (now - change.since_s)
            epochs = "1 epoch" if num_epochs == 1 else f"{num_epochs} epochs"
            gained = f"{change.text}, from epoch {change.epoch}: {_say_gain(gained_s)} over {epochs}"
            self._tell(f"{self._say_when()} {gained}", change.lanes)
            whose = f"trial {change.lanes[0].number}" if len(change.lanes) == 1 else f"{len(change.lanes)} trials"
            before = self.gains or DeviceGains(num_changes=0, seconds=0.0, last="")
            self.gains = DeviceGains(
                num_changes=before.num_changes + 1, seconds=before.seconds + gained_s, last=f"{whose} {gained}"
            )
            del self._changes[running.group.key]

    def _count_free(self) -> int:
        """Return how many idle devices are not meant for a group that is on its way to them."""
        num_ordered = sum(change.num_more for change in self._ordered.values())
        return len(self._idle) - num_ordered - sum(held.num_more for held in self._held.values())

    def _order(self, running: RunningGroup, time: GroupTime, move: Move) -> Regrouping:
        lanes = running.lanes
        if move.num_parts > 1:
            text = f"cut into {move.num_parts} groups, for devices were idle"
        elif move.num_devices > 1:
            is_more = move.num_devices > time.shape.num_devices
            reason = "nothing else waited for them" if is_more else "more were of no use"
            text = f"on {move.num_devices} devices, for {reason}"
        else:
            text = f"on one device, for {'others waited' if move.gain_s <= 0 else 'more were of no use'}"
        predicted = f"; {time.seconds_left:.1f} s left become {move.seconds_left:.1f} s in prediction"
        self._tell(f"{self._say_when()}, after epoch {running.epoch}: {text}{predicted}", lanes)
        regrouping = Regrouping(num_parts=move.num_parts, num_devices=move.num_devices)
        num_more = max(move.num_taken - time.shape.num_devices, 0)
        change = _Change(text, lanes, num_more, self._clock(), running.epoch, time.epoch_s)
        self._ordered[running.group.key] = change
        return regrouping

    def _time(self, placement: RunningPlacement) -> GroupTime | None:
        """Return how long the group of a placement trains yet; None where nobody can tell."""
        is_training = placement.placement.purpose is Purpose.TRAIN
        if not is_training or placement.is_pack or len(placement.groups) != 1:
            return None
        running = next(iter(placement.groups.values()))
        epochs_left = _find_end(running) - running.epoch
        shape = _shape_of(placement, running)
        if epochs_left <= 0 or not running.epoch_s or running.regrouping is not None:
            return None
        return GroupTime(
            key=running.group.key,
            kind=self._kind(running),
            shape=shape,
            epochs_left=epochs_left,
            epoch_s=running.epoch_s,
            can_widen=self._can_widen,
        )

    def _foresee(self, lane: Lane) -> float:
        """Return how long a trial that starts now takes alone; in epochs of a usual length where nobody knows."""
        num_epochs = (lane.until or lane.start_epoch + 1) - lane.start_epoch
        kind, earlier = self._grouper.kind_of(lane), self._epoch_s.get(lane.number)
        if not earlier:
            return num_epochs * self.surface.epochs.get(kind, {}).get(Shape(1), 1.0)
        count = min(earlier)
        return num_epochs * earlier[count] * self.surface.compare(kind, Shape(1, count), Shape(1))

    def _is_lone(self, work: Work) -> bool:
        is_one = len(work.groups) == 1 and len(work.groups[0]) == 1
        is_free = work.groups[0].key not in self._widths
        return self._can_widen and work.purpose is Purpose.TRAIN and is_one and is_free

    def _kind(self, running: RunningGroup) -> tuple[object, ...]:
        return self._grouper.kind_of(running.group.lanes[0])


def open_flow(setup: StudySetup, grouper: Grouper, tell: Tell) -> Flow:
    """Return what lets devices flow in a study."""
    clock = setup.limits.deadline.clock
    flow = Flow(setup.allocation, grouper, tell, lambda: clock() - setup.origin_s, can_widen=setup.can_widen)
    flow.surface.recall(setup.learnt)
    return flow


def _shape_of(placement: RunningPlacement, running: RunningGroup) -> Shape:
    return Shape(len(running.numbers), len(placement.placement.devices))


def _find_end(running: RunningGroup) -> int:
    """Return the epoch at which a group ends, or pauses."""
    ends = [lane.until for lane in running.lanes if lane.until is not None]
    return min([*ends, running.num_epochs or running.epoch]) if ends or running.num_epochs else running.epoch


def _say_gain(seconds: float) -> str:
    return f"gained {seconds:.1f} s" if seconds >= 0 else f"lost {-seconds:.1f} s"
