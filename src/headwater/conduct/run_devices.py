"""The devices of a run: those that its executor has, but for what others wish while it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter

from headwater.conduct.absences import Absence
from headwater.conduct.running import RunningPlacements
from headwater.conduct.setup import StudySetup
from headwater.store.device_wishes import DeviceWork, ShownDevices, show_devices
from headwater.trials import Device, DevicePool, DeviceWish, Span, SpanPurpose

NAME = attrgetter("name")
"""Of a device; this is asked for all that are idle after every event."""
SHOW_S = 5.0
"""No more often than this does a run write down what each of its devices does."""


class RunDevices:
    """Knows which devices a run has and when they were away, hears what others wish, and shows what each does."""

    def __init__(self, setup: StudySetup, tell: Callable[[str], None]) -> None:
        self.names: set[str] = set()
        """Those that were idle once, and are not to go."""
        self.kinds: dict[str, str] = {}
        """Of which kind each is."""
        self.idle: Sequence[str] = ()
        """Those that are idle now."""
        self.lent: dict[str, Device] = {}
        """Those that are lent, as they were when they were idle last."""
        self.most = 0
        """How many there were at most."""
        self._last_idle: Sequence[Device] | None = None
        self._there: tuple[str, ...] = ()
        """Those that the executor has, idle or not, for this study or another."""
        self._recorder = recorder = setup.recorder
        self._absences = setup.absences
        self._origin_s = setup.origin_s
        self._lease = recorder.lease if recorder.store.is_shared else None  # else nobody could ask, or look
        self._tell = tell
        self._clock = setup.limits.deadline.clock
        self._shown: ShownDevices | None = None
        self._show_s = 0.0

    def see_idle(self, idle: Sequence[Device]) -> bool:
        """Take in which devices are idle; tell whether one of them is new. The same tuple has nothing new."""
        if idle is self._last_idle and isinstance(idle, tuple):
            return False
        self._last_idle, self.idle = idle, list(map(NAME, idle))
        is_known = self.names.issuperset(self.idle)
        if self.lent or not is_known:
            self.lent |= {device.name: device for device in idle if device.is_ephemeral}
        if is_known:
            return False
        self.names.update(self.idle)
        self.kinds |= {device.name: device.kind for device in idle}
        self.most = max(self.most, len(self.names))
        return True

    def remove(self, names: Collection[str]) -> None:
        """Take in that these are to go."""
        self.names.difference_update(names)
        self._there = tuple(name for name in self._there if name not in names)
        self.lent = {name: device for name, device in self.lent.items() if name not in names}
        self._last_idle = None

    @property
    def has_own(self) -> bool:
        """Whether any of them is the study's own."""
        return any(name not in self.lent for name in (*self.names, *self._there))

    @property
    def num_sharing(self) -> int:
        """Among how many lanes that wait are shared out: those of the study's own, where it has any.

        Lent ones are slow, and smaller groups would lose more than they give.
        """
        return max(len(self.names - self.lent.keys()) or len(self.names), 1)

    def split_idle(self) -> tuple[Sequence[str], list[Device]]:
        """Return which idle devices are the study's own, and those that are lent."""
        if not self.lent:
            return self.idle, []
        lent = [self.lent[name] for name in self.idle if name in self.lent]
        return [name for name in self.idle if name not in self.lent], lent

    def choose(self, pool: DevicePool, running: RunningPlacements) -> tuple[str, ...]:
        """Return which devices are wanted: those of the pool, where nobody wishes others."""
        self._there = pool.names
        self._record(self._absences.see((*pool.names, *pool.leaving), self._clock()))
        if self._lease is None:
            return pool.names
        for wish in self._lease.hear_wishes():
            changed = pool.change(wish)
            self._tell(_describe(pool, changed, wish))
            pool = changed
        self._show(pool, running)
        return pool.names

    def end(self) -> None:
        """Record which devices are away as the run ends."""
        self._record(self._absences.report(self._clock()))

    def _record(self, absences: Sequence[Absence]) -> None:
        for one in absences:
            self._recorder.add_span(
                Span(
                    study=self._recorder.info.name,
                    device=one.device,
                    purpose=SpanPurpose.ABSENCE,
                    trials=(),
                    begin_s=one.begin_s - self._origin_s,
                    end_s=one.end_s - self._origin_s,
                )
            )

    def _show(self, pool: DevicePool, running: RunningPlacements) -> None:
        """Write down which devices there are, at once where these have changed."""
        assert self._lease is not None
        before, now = self._shown, self._clock()
        is_known = before is not None and (before.pool, before.num_heard) == (pool, self._lease.num_heard)
        if is_known and now < self._show_s:
            return
        self._show_s = now + SHOW_S
        work = {
            name: DeviceWork(purpose=one.placement.purpose, trials=one.numbers)
            for one in running
            for name in one.placement.devices
        }
        self._shown = ShownDevices(pool=pool, work=work, num_heard=self._lease.num_heard)
        if self._shown != before:
            show_devices(self._recorder.store, self._recorder.info.id, self._shown, self._lease.fence)


def _describe(pool: DevicePool, changed: DevicePool, wish: DeviceWish) -> str:
    come = ", ".join(name for name in changed.names if name not in pool.names)
    gone = ", ".join(name for name in pool.names if name not in changed.names)
    done = "; ".join([*([f"{come} may train from now on"] if come else []), *([f"{gone} is to go"] if gone else [])])
    return f"{wish.asker} asked for other devices: {done or pool.fixed or 'they stay as they are'}"
