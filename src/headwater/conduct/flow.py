"""How devices flow: those that nothing waits for go to groups that train, and come back when something does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from headwater.conduct.changes import Change, Held, Merge
from headwater.conduct.device_kinds import DeviceKinds, cut_names
from headwater.conduct.grouping import Grouper, Tell
from headwater.conduct.running import Regrouping, RunningGroup, RunningPlacement
from headwater.conduct.setup import StudySetup
from headwater.conduct.waiting import Work
from headwater.plan import cut_alike, cut_groups
from headwater.plan.allocation import Policy
from headwater.plan.moves import SAFE_DEVICES, GroupTime, Move, choose_narrowed, find_move, gain_by_merging, share_new
from headwater.plan.speeds import Speeds
from headwater.plan.surface import Shape, Surface, cut_evenly
from headwater.trials import DeviceGains, Lane, Placement, Purpose, TrialGroup


class Flow:
    """Decides at a group's report whether it goes on as it is.

    A group can be cut into parts, one for each device; a trial alone can have several devices, or give them back. Then
    its lanes leave, with their states saved, and wait until the device that they had is idle.
    """

    def __init__(
        self,
        policy: Policy,
        grouper: Grouper,
        tell: Tell,
        clock: Callable[[], float],
        *,
        kinds: Mapping[str, str],
        can_widen: bool = True,
    ) -> None:
        self.surface = Surface()
        self.kinds = DeviceKinds(kinds, grouper)
        self.gains: DeviceGains | None = None
        self._policy = policy
        self._grouper = grouper
        self._tell = tell
        self._clock = clock
        self._can_widen = can_widen
        self.idle: Sequence[str] = ()
        """The devices that nothing was found for."""
        self._gone: set[str] = set()
        self._held: dict[int, Held] = {}
        """By the placement that they leave."""
        self._merges: dict[int, Merge] = {}
        """By the placements that they leave."""
        self._widths: dict[int, int] = {}
        self._epoch_s: dict[int, dict[int, float]] = {}
        """By trial and number of devices: how long its last epoch took, where it trained alone."""
        self._first_s: dict[int, dict[int, float]] = {}  # and its first one, with the function's own beginning in it
        self._ordered: dict[int, Change] = {}
        self._changes: dict[int, Change] = {}
        self._is_stuck = False
        self._times: dict[int, tuple[RunningGroup, GroupTime, float]] = {}
        """By placement: how long its group trains yet, as of its last report, and when that was."""

    def release(self, idle: Sequence[str], *, is_running: bool) -> list[TrialGroup]:
        """Return the groups that waited for these devices to be idle.

        Where nothing runs, the device of a group that has just ended is idle the next time this is asked. If it is not,
        it is gone, and its groups need not wait for it.
        """
        if self._gone:
            self._gone.difference_update(idle)
        if not self._held:
            self._is_stuck = False
            return []
        names = frozenset(idle)
        was_stuck, self._is_stuck = self._is_stuck, not is_running
        is_free = was_stuck and self._is_stuck
        keys = [
            key
            for key, held in self._held.items()
            if is_free or held.devices <= self._gone or not held.devices.isdisjoint(names)
        ]
        return [group for key in keys for group in self._held.pop(key).groups]

    def give_up(self, devices: Collection[str]) -> None:
        """Take in that devices are about to go, or gone: nothing waits for them."""
        self._gone |= set(devices)
        self.idle = [name for name in self.idle if name not in self._gone]

    def lose(self, key: int) -> Sequence[TrialGroup]:
        """Return the groups that waited for the devices of a placement, which are gone."""
        self._leave_merge(key)
        held = self._held.pop(key, None)
        return () if held is None else held.groups

    def forget(self, placement: int, key: int) -> None:
        """Take in that a group of a placement is over, whatever was ordered for it."""
        self._ordered.pop(key, None)
        self._times.pop(placement, None)
        self._leave_merge(placement)

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
            is_known = self._policy is not Policy.OURS or bool(self.surface.shares)
            most = num_left + 1 if is_known else min(num_left + 1, SAFE_DEVICES)
            speeds = self.surface.speeds(self._grouper.kind_of(lanes[0]), most)
            seconds = [self._foresee(lane) for lane in lanes]
            shares = share_new(seconds, num_left + len(lone), speeds, self._policy)
            if not is_known and (place := self._choose_control(lanes, seconds)) is not None:
                shares[place] = 1
            for place, width in zip(lone, shares, strict=True):
                widths[place] = width
            self._explain_start(lanes, shares, speeds)
        for work in works:
            self._widths.pop(work.groups[0].key, None)
        return widths

    def _choose_control(self, lanes: Sequence[Lane], seconds: Sequence[float]) -> int | None:
        """Return which of the trials that start together is to have one device only, after it had several.

        It tells what these gain, while nobody knows. It is the shortest, so that the others need not wait for it.
        """
        tried = [self._epoch_s.get(lane.number) for lane in lanes]
        places = [place for place, known in enumerate(tried) if known and 1 not in known]
        return min(places, key=lambda place: seconds[place]) if places and len(lanes) > 1 else None

    def find_rank(self, names: Sequence[str]) -> Callable[[TrialGroup], float] | None:
        """Return what says which group is to be first on the idle devices; None where it is the first in line."""
        is_ours = self._policy is Policy.OURS
        return self.kinds.find_rank(names, num_epochs=self.surface.num_epochs) if is_ours else None

    def seat(self, works: Sequence[Work], names: Sequence[str], *, spreads: bool = False) -> list[tuple[str, ...]]:
        """Return which of the idle devices each of these gets, all if one spreads; the others are idle from now on."""
        widths = [len(names)] * len(works) if spreads else self.share(works, len(names))
        if self._policy is Policy.OURS and not spreads:
            seats = self.kinds.seat(works, widths, names, num_epochs=self.surface.num_epochs)
        else:
            seats = cut_names(names, widths)
        taken = {name for seat in seats for name in seat}
        self.idle = [name for name in names if name not in taken]
        return seats

    def decide(self, placement: RunningPlacement, running: RunningGroup, num_waiting: int) -> Regrouping | None:
        """Return what a group that has reported, and could go on, is to be cut into; None: it goes on."""
        num_idle = self._count_free()
        is_wide = len(placement.placement.devices) > 1
        if num_waiting and self._policy is Policy.OURS and running.has_shrunk:
            return self._merge(placement, running)
        is_asked = is_wide or (num_idle > 0 and not num_waiting)  # where others wait, only who has several gives back
        if self._policy not in (Policy.OURS, Policy.FLUID) or not is_asked:
            return None
        if (mine := self._time(placement)) is None:
            return None
        now_s = self._clock()
        self._times[placement.placement.key] = running, mine, now_s
        standing = (self._times[key] for key in sorted(self._times))
        times = [time.age(now_s - at_s) for other, time, at_s in standing if other.regrouping is None]
        if num_waiting:
            moves = choose_narrowed(times, num_waiting, self.surface)
            move = next((move for move in moves if move.key == mine.key), None)
        else:
            move = self._find_move(placement, mine, times, num_idle)
        return None if move is None else self._order(running, mine, move)

    def _find_move(
        self, placement: RunningPlacement, mine: GroupTime, times: Sequence[GroupTime], num_idle: int
    ) -> Move | None:
        """Return what a group gains most by: more devices of the kind of its own, or one that is faster."""
        devices = placement.placement.devices
        num_alike = min(num_idle, self.kinds.count_alike(devices, self.idle))
        move = find_move(mine, times, num_alike, self.surface, self._policy)
        faster = self.kinds.find_faster(mine, devices, self.idle, self.surface)
        if faster is None or num_idle < 1 or self._policy is not Policy.OURS:
            return move
        return move if move is not None and move.gain_s >= faster.gain_s else faster

    def _merge(self, placement: RunningPlacement, running: RunningGroup) -> Regrouping | None:
        """Have a group that has shrunk leave, and one of its kind at its next report, where they gain by being one.

        The other is an epoch behind: both leave at the same one. What waits has the device of this one meanwhile.
        """
        mine = self._time(placement)
        others = {
            key: gain_by_merging(mine, time, self.surface)
            for key, (other, time, _) in self._times.items()
            if mine is not None and _can_merge(running, other) and key not in self._merges
        }
        best = max(others, key=lambda key: others[key], default=None)
        if best is None or others[best] <= 0:
            return None
        other = self._times[best][0]
        other.regrouping = Regrouping(num_parts=1)
        self._merges |= dict.fromkeys((placement.placement.key, best), Merge({placement.placement.key, best}))
        lanes = (*running.lanes, *other.lanes)
        text = f"{len(lanes)} trials of two groups become one, for others waited"
        saved = f"{others[best]:.1f} s of a device are saved in prediction"
        self._tell(f"{self._say_when()}, after epoch {running.epoch}: {text}; {saved}", lanes)
        return Regrouping(num_parts=1)

    def _leave_merge(self, placement: int) -> None:
        """Let those that were to become one with a group that is over go on without it."""
        merge = self._merges.pop(placement, None)
        if merge is not None:
            merge.awaited.discard(placement)
            if merge.lanes and not merge.awaited:
                self._held[placement] = Held(devices=frozenset(), groups=tuple(cut_alike(merge.lanes)), num_more=0)

    def note_stand(self, placement: RunningPlacement, running: RunningGroup) -> None:
        """Take in where a group stands that has reported, once it is clear who stays in it."""
        time = self._time(placement) if self._policy in (Policy.OURS, Policy.FLUID) and running.numbers else None
        if time is None:
            self._times.pop(placement.placement.key, None)
        else:
            self._times[placement.placement.key] = running, time, self._clock()

    def hold(self, placement: Placement, key: int, lanes: Sequence[Lane], regrouping: Regrouping) -> None:
        """Let the lanes of a group wait, cut as was decided, until the device that they had is idle."""
        change = self._ordered.pop(key, None)
        merge = self._merges.pop(placement.key, None)
        if merge is not None:
            merge.awaited.discard(placement.key)
            merge.lanes += lanes
            if not merge.awaited:
                self._held[placement.key] = Held(
                    devices=frozenset(placement.devices), groups=tuple(cut_alike(merge.lanes)), num_more=0
                )
            return
        sizes = cut_evenly(len(lanes), regrouping.num_parts or 1)
        groups = cut_groups(lanes, max(sizes))
        num_more = 0 if change is None else change.num_more
        is_elsewhere = change is not None and change.is_elsewhere
        awaited = () if is_elsewhere else [regrouping.device] if regrouping.device else placement.devices
        self._held[placement.key] = Held(devices=frozenset(awaited), groups=tuple(groups), num_more=num_more)
        self._widths |= {group.key: regrouping.num_devices for group in groups}
        if change is not None:
            self._changes[groups[0].key] = replace(change, lanes=groups[0].lanes)

    def see(self, placement: RunningPlacement, running: RunningGroup) -> None:
        """Learn from an epoch that was trained, and from what the last change has cost."""
        if placement.is_pack or placement.is_lent or not running.numbers or not running.train_s:
            return
        self.surface.num_epochs = running.num_epochs or self.surface.num_epochs
        kind, shape = self._kind(running), _shape_of(placement, running)
        if not self.surface.steps.get(kind):
            self.surface.steps[kind] = self._grouper.time_steps(running.group.lanes[0])
        is_first = running.epoch == running.group.lanes[0].start_epoch + 1
        lane, names = running.group.lanes[0], placement.placement.devices
        usual_s = self.kinds.see(names, lane, shape, running.train_s, is_first=is_first)
        if not is_first or shape not in self.surface.epochs.get(kind, {}):
            self.surface.add_epoch(kind, shape, usual_s)
        if shape.num_lanes == 1:
            self._compare_devices(running, shape.num_devices, usual_s, is_first=is_first)
        change = self._changes.get(running.group.key)
        if change is not None:
            self._follow(change, running)

    def _compare_devices(self, running: RunningGroup, num_devices: int, seconds: float, *, is_first: bool) -> None:
        """Learn what several devices gain, from a trial that had another number of them before.

        First epochs are compared with first ones, and only for what later ones have not told.
        """
        kind, key = self._kind(running), running.group.key
        table = (self._first_s if is_first else self._epoch_s).setdefault(key, {})
        known = {1, *self.surface.shares.get(kind, ())} if is_first else set()
        earlier = {count: value for count, value in table.items() if not {count, num_devices} <= known}
        self.surface.add_lone(kind, num_devices, seconds, earlier)
        table[num_devices] = seconds
        self._epoch_s.setdefault(key, {num_devices: seconds})

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

    def _follow(self, change: Change, running: RunningGroup) -> None:
        now = self._clock()
        if running.epoch == change.epoch + 1:
            change.first_s = now
        elif change.first_s is not None and change.cost_s is None:
            change.cost_s = max(change.first_s - change.since_s - running.epoch_s, 0.0)
            self.surface.add_change(change.cost_s)
        if running.epoch >= running.end_epoch:
            num_epochs = running.epoch - change.epoch
            gained_s = num_epochs * change.seconds_before - (now - change.since_s)
            gained = f"{change.text}, from epoch {change.epoch}: {_say_gain(gained_s, num_epochs)}"
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
        return len(self.idle) - num_ordered - sum(held.num_more for held in self._held.values())

    def _order(self, running: RunningGroup, time: GroupTime, move: Move) -> Regrouping:
        lanes = running.lanes
        if move.is_elsewhere:
            text = "on a faster device, for one was idle"
        elif move.num_parts > 1:
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
        num_more = max(move.num_taken - time.shape.num_devices, int(move.is_elsewhere))
        change = Change(text, lanes, num_more, self._clock(), running.epoch, time.epoch_s, move.is_elsewhere)
        self._ordered[running.group.key] = change
        return regrouping

    def _time(self, placement: RunningPlacement) -> GroupTime | None:
        """Return how long the group of a placement trains yet; None where nobody can tell."""
        is_training = placement.placement.purpose is Purpose.TRAIN
        if not is_training or placement.is_pack or placement.is_lent or len(placement.groups) != 1:
            return None
        running = next(iter(placement.groups.values()))
        if not running.epoch_s or running.regrouping is not None:
            return None
        epochs_left = running.end_epoch - running.epoch
        if epochs_left <= 0:
            return None
        return GroupTime(
            key=running.group.key,
            kind=self._kind(running),
            shape=_shape_of(placement, running),
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


def open_flow(setup: StudySetup, grouper: Grouper, tell: Tell, kinds: Mapping[str, str]) -> Flow:
    """Return what lets devices flow in a study; kinds are those of devices by their names, as far as they were seen."""
    clock = setup.limits.deadline.clock
    flow = Flow(
        setup.allocation, grouper, tell, lambda: clock() - setup.origin_s, kinds=kinds, can_widen=setup.can_widen
    )
    flow.surface.recall(setup.learnt)
    if setup.allocation is Policy.OURS and setup.limits.deadline.seconds is None:  # else as many as can end are to
        grouper.time_by(flow.surface)
    return flow


def _shape_of(placement: RunningPlacement, running: RunningGroup) -> Shape:
    return Shape(len(running.numbers), len(placement.placement.devices))


def _can_merge(running: RunningGroup, other: RunningGroup) -> bool:
    """Tell whether another group comes to where this one is at its next report, and ends with it."""
    is_next = other.regrouping is None and other.epoch == running.epoch - 1 and other.has_shrunk
    is_alike = other.group.lanes[0].seed == running.group.lanes[0].seed
    return is_next and is_alike and other.end_epoch == running.end_epoch


def _say_gain(seconds: float, num_epochs: int) -> str:
    gained = f"gained {seconds:.1f} s" if seconds >= 0 else f"lost {-seconds:.1f} s"
    return f"{gained} over {num_epochs} epoch{'s'[: num_epochs > 1]}"
