"""The executor of no machine: nothing trains, metrics come from a function, and the clock jumps from event to event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from headwater.conduct.protocol import Conductor
from headwater.errors import StudyError
from headwater.execute.simulated_placement import Curve, Script, SimulatedPlacement
from headwater.execute.simulated_times import SimulatedTimes
from headwater.store import Folder
from headwater.trials import Device, DevicePool, Event, Lost, Noted, Order, Placement, Started, Stepped

QUIET = (Noted, Started, Stepped)
"""Events after which nothing else could be placed."""
FIXED = "it trains on devices that are simulated, and come and go when the simulation says so"
"""Why nobody can wish for others."""


class SimulatedClock:
    """Stands still until something happens."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        """Tell how many seconds have passed."""
        return self._now

    def jump_to(self, time_s: float) -> None:
        """Let it be so late; it never goes back."""
        self._now = max(self._now, time_s)


@dataclass(frozen=True, slots=True)
class DeviceJoin:
    """A device comes."""

    time_s: float
    device: Device


@dataclass(frozen=True, slots=True)
class DeviceLoss:
    """A device is gone from one moment to the next, with what it trains."""

    time_s: float
    name: str


@dataclass(frozen=True, slots=True)
class DeviceLeave:
    """A device is to go: it is given nothing new, and what it trains leaves at its next report."""

    time_s: float
    name: str


Change: TypeAlias = DeviceJoin | DeviceLeave | DeviceLoss


@dataclass(slots=True, eq=False)
class _Running:
    """A placement on its devices; one that was lost does nothing more."""

    placement: Placement
    script: Script
    is_lost: bool = field(default=False)


class SimulatedExecutor:
    """Runs placements on devices that are not there, as fast as the conductor decides.

    ```python
    times = SimulatedTimes(epoch_s=lambda config, num_lanes, kind: 10.0 + num_lanes)
    devices = [Device(name=f"gpu:{place}", kind="gpu") for place in range(64)]
    executor = SimulatedExecutor(devices, lambda config, epoch: {"loss": config["lr"] / epoch}, times)
    result = hw.Study(train, space=space, metric="loss", storage=None, executor=executor).run(100)
    ```

    The conductor cannot tell it from any other executor, so what a study would do on a cluster is seen in seconds. All
    seconds, deadlines and spans of such a study are those of the simulated clock.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        curve: Curve,
        times: SimulatedTimes,
        clock: SimulatedClock | None = None,
        changes: Sequence[Change] = (),
    ) -> None:
        self.clock = clock or SimulatedClock()
        self._curve = curve
        self._times = times
        self._idle = {device.name: device for device in devices}
        self._idle_now: tuple[Device, ...] | None = None
        """The idle devices as they are shown to the conductor; None after they have changed."""
        self._folders: dict[str, Folder] = {}
        self._busy: dict[str, tuple[Device, _Running]] = {}
        self._leaving: set[str] = set()
        self._order = count()
        self._agenda: list[tuple[float, int, _Running | Change]] = []
        self._num_joins = sum(isinstance(change, DeviceJoin) for change in changes)
        for change in changes:
            self._schedule(change.time_s, change)

    def list_devices(self) -> Sequence[Device]:
        """Return the devices that are there now."""
        return [*self._idle.values(), *(device for device, _ in self._busy.values())]

    def run(self, conductor: Conductor) -> None:
        """Run until the conductor has nothing more to place and nothing is under way.

        Raises:
            StudyError: All devices are lost, and none will join.
        """
        self._show(conductor)
        self._place(conductor)
        while self._busy or not self._idle:
            if not self._busy and not self._num_joins:
                raise StudyError(
                    f"no device is left after {self.clock():g} s of the simulation, and none joins later; add a "
                    "DeviceJoin to the changes, or resume the study on other devices"
                )
            time_s, _, item = heappop(self._agenda)
            self.clock.jump_to(time_s)
            if isinstance(item, _Running):
                self._advance(item, conductor)
            else:
                self._change(item, conductor)

    def close(self) -> None:
        """Do nothing: there was nothing."""

    def _schedule(self, time_s: float, item: _Running | Change) -> None:
        heappush(self._agenda, (time_s, next(self._order), item))

    def _place(self, conductor: Conductor) -> None:
        if self._idle_now is None:
            self._idle_now = tuple(self._idle.values())
        for placement in conductor.place(self._idle_now) if self._idle else ():
            brief, kind = conductor.brief(placement.study), self._idle[placement.devices[0]].kind
            url = brief.states.url
            if url not in self._folders:
                self._folders[url] = Folder(url)
            plan = SimulatedPlacement(placement, brief, kind, self._curve, self._times, self._folders[url])
            running = _Running(placement, plan.play(self.clock))
            self._idle_now = None
            for name in placement.devices:
                self._busy[name] = self._idle.pop(name), running
            self._schedule(self.clock(), running)

    def _advance(self, running: _Running, conductor: Conductor) -> None:
        """Go on with a placement until it takes time, or is over."""
        answer: Order | None = None
        while not running.is_lost:
            try:
                wanted = running.script.send(answer)
            except StopIteration:
                if self._free(running.placement.devices):
                    self._show(conductor)
                self._place(conductor)
                return
            if not isinstance(wanted, Event):
                self._schedule(self.clock() + wanted, running)
                return
            answer = self._tell(wanted, conductor)

    def _tell(self, event: Event, conductor: Conductor) -> Order | None:
        order = conductor.hear(event)
        if not isinstance(event, QUIET):
            self._place(conductor)
        return order

    def _change(self, change: Change, conductor: Conductor) -> None:
        if isinstance(change, DeviceJoin):
            self._num_joins -= 1
            self._join(change.device)
        else:
            self._part(change, conductor)
        self._show(conductor)
        self._place(conductor)

    def _show(self, conductor: Conductor) -> None:
        """Show which devices there are; which come and go is settled."""
        there = [device.name for device in self.list_devices()]
        names = tuple(name for name in there if name not in self._leaving)
        conductor.want_devices(DevicePool(names=names, leaving=tuple(self._leaving), kind="simulated", fixed=FIXED))

    def _join(self, device: Device) -> None:
        self._leaving.discard(device.name)
        if device.name not in self._busy:
            self._idle[device.name] = device
            self._idle_now = None

    def _part(self, change: DeviceLeave | DeviceLoss, conductor: Conductor) -> None:
        self._idle.pop(change.name, None)
        self._idle_now = None
        self._leaving |= {change.name} & self._busy.keys()
        conductor.regroup({change.name} | self._leaving)
        if change.name in self._busy and isinstance(change, DeviceLoss):
            running = self._busy[change.name][1]
            running.is_lost = True
            placement, reason = running.placement, f"the device {change.name} is gone"
            self._free(placement.devices)
            lost = Lost(key=placement.key, device=placement.devices[0], time_s=self.clock(), reason=reason)
            self._tell(lost, conductor)

    def _free(self, names: Sequence[str]) -> bool:
        """Have devices be idle again, but for those that are to go; tell whether there are any of these."""
        num_leaving = len(self._leaving)
        devices = {name: self._busy.pop(name)[0] for name in names}
        self._idle_now = None
        self._idle |= {name: device for name, device in devices.items() if name not in self._leaving}
        self._leaving.difference_update(names)
        return len(self._leaving) < num_leaving
