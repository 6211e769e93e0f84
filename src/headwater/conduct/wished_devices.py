"""Which devices a run is to have: those that its executor has, but for what others wish while it runs."""

from __future__ import annotations

from collections.abc import Callable

from headwater.conduct.running import RunningPlacements
from headwater.store import Recorder
from headwater.store.device_wishes import PRESENT, DeviceWork, ShownDevices
from headwater.trials import DevicePool, DeviceWish

SHOW_S = 5.0
"""No more often than this does a run write down what each of its devices does."""


class WishedDevices:
    """Hears what others wish of the devices of a run, and shows them which it has and what each does."""

    def __init__(self, recorder: Recorder, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._lease = recorder.lease if recorder.store.is_shared else None  # else nobody could ask, or look
        self._tell = tell
        self._clock = clock
        self._shown: ShownDevices | None = None
        self._show_s = 0.0

    def choose(self, pool: DevicePool, running: RunningPlacements) -> tuple[str, ...]:
        """Return which devices are wanted: those of the pool, where nobody wishes others."""
        if self._lease is None:
            return pool.names
        for wish in self._lease.hear_wishes():
            changed = pool.change(wish)
            self._tell(_describe(pool, changed, wish))
            pool = changed
        self._show(pool, running)
        return pool.names

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
            self._recorder.add_fact(PRESENT, self._shown.as_json(self._lease.fence))


def _describe(pool: DevicePool, changed: DevicePool, wish: DeviceWish) -> str:
    come = ", ".join(name for name in changed.names if name not in pool.names)
    gone = ", ".join(name for name in pool.names if name not in changed.names)
    done = "; ".join([*([f"{come} may train from now on"] if come else []), *([f"{gone} is to go"] if gone else [])])
    return f"{wish.asker} asked for other devices: {done or pool.fixed or 'they stay as they are'}"
