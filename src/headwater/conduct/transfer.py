"""The conductor of a study with surrogates: its stages one after the other, and the target beside them.

Each stage is a study of its own in the record, under the name of the whole: `NAME` is the search, `NAME.at-4` trains
some of its configurations at 1/4 of the width, `NAME.target-12` trains the target with what trial 12 was. What follows
what is in `transfer_steps.py`; here it is run on devices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from headwater.conduct.protocol import Conductor
from headwater.conduct.running import require_idle
from headwater.conduct.stages import Measuring, Stage, StageSpec
from headwater.conduct.transfer_steps import TransferSteps
from headwater.plan.jobs import Part
from headwater.trials import (
    Brief,
    Device,
    DevicePool,
    Ended,
    Event,
    Lane,
    Learnt,
    Lost,
    Measured,
    Noted,
    Order,
    Placement,
    Reported,
    Result,
    Spending,
    Spent,
)

OpenStage: TypeAlias = Callable[[StageSpec], Stage]
"""Opens a stage in the record, or goes on with it."""

MOST_STARTS = 3
"""So often does the target start before it is settled: what better trials replace is wasted."""
REPLACED = "another trial is the target's by now"


class TransferConductor:
    """Runs the stages of one study; a device that they leave idle may train the target ahead of time."""

    def __init__(self, steps: TransferSteps, open_stage: OpenStage) -> None:
        self.result: Result | None = None
        """What came of it all, at the end."""
        self.spending: Spending | None = None
        """What the nodes cost that it ran on; None where nobody counts that."""
        self._steps = steps
        self._open_stage = open_stage
        self._script = steps.run()
        self._active: Stage | Measuring | None = None
        self._spec: StageSpec | None = None
        self._target: Stage | None = None
        self._leaving: list[Stage] = []
        self._awaited: frozenset[str] = frozenset()
        """What the target waits for, as all devices are its: where it trains already, and where one has just ended."""
        self._parting = ""
        """The device of what has just ended, which is not idle yet."""
        self._known: set[str] = set()
        """The devices that there are, as far as they were idle before."""
        self._owners: dict[int, Conductor] = {}
        self._briefs: dict[str, Conductor] = {}
        self._num_starts = 0
        self._learnt = Learnt()
        self._stop_reason: str | None = None
        self._unheard: list[Noted] = []

    @property
    def stop_reason(self) -> str | None:
        """Why everything is to end after its next report; set it to have that."""
        return self._stop_reason

    @stop_reason.setter
    def stop_reason(self, reason: str | None) -> None:
        self._stop_reason = reason
        for stage in self._stages:
            stage.conductor.end.stop_reason = reason

    def begin(self) -> None:
        """Go to the first stage."""
        self._go_on(None)

    def brief(self, study: str) -> Brief:
        """Return what a worker must know of a stage."""
        return self._briefs[study].brief(study)

    def place(self, idle: Sequence[Device]) -> list[Placement]:
        """Return what these devices are to do now; what the stage at hand leaves idle trains the target."""
        placements: list[Placement] = []
        left = list(idle)
        self._take_in({device.name for device in idle})
        if not self._awaited <= {device.name for device in idle}:
            return []
        self._awaited = frozenset()
        while left and self._active is not None:
            start = self._place_start(left)
            start += self._place_ahead(left[len(start) :])
            placements, left = placements + start, left[len(start) :]
            if not left:  # lanes may wait that no device is left for: the stage is not over
                break
            found = self._place_one(self._conductor_of(self._active), left)
            placements += found
            used = {name for placement in found for name in placement.devices}
            left = [device for device in left if device.name not in used]
            if found or self._conductor_of(self._active).is_running or self._awaits_start:
                break
            self._go_on(self._close_active())
            if not self._awaited <= {device.name for device in idle}:
                return placements
        return placements + self._place_target(left)

    def hear(self, event: Event) -> Order | None:
        """Pass on what happened to whose it is; what nodes cost and do is told of the first study that is open."""
        if isinstance(event, Spent):
            self._hear_spending(event)
            return None
        if isinstance(event, Noted) and event.key not in self._owners:
            self._unheard.append(event)
            self._pass_on()
            return None
        owner = self._owners[event.key]
        if owner is self._steps.start_measuring:
            order = owner.hear(event)
            if not owner.is_running:
                self._steps.take_start()
            return order
        self._parting = event.device if isinstance(event, Ended | Measured) else ""
        if isinstance(event, Lost):
            self._awaited = frozenset()
        if self._target is not None and owner is self._target.conductor and isinstance(event, Reported):
            self._reconsider(self._target)
        return owner.hear(event)

    def _hear_spending(self, event: Spent) -> None:
        """Have what nodes cost written down with the search, whichever part it is spent on."""
        self.spending = event.spending
        if self._stages:
            self._stages[0].conductor.hear(event)
        self._pass_on()
        if not (self._is_searching and self._stages):
            self._steps.record_spending(event.spending)

    def _pass_on(self) -> None:
        """Have a stage note what belongs to none, as soon as one is open."""
        while self._stages and self._unheard:
            self._stages[0].conductor.hear(self._unheard.pop(0))

    def refuse(self) -> None:
        """Take stages out of the record again that are refused before a trial has reported."""
        for stage in self._stages:
            stage.refuse()

    @property
    def name(self) -> str:
        """What the record calls the whole."""
        return str(self._steps.name)

    def list_lanes(self) -> list[Lane] | None:
        """Return the lanes of the part at hand; nothing while it is measured what comes, or it is about to.

        A part that has no lane left is concluded when a device is idle, so until then devices are still needed.
        """
        if self._active is None:
            return []
        lanes = self._active.conductor.list_lanes() if isinstance(self._active, Stage) else None
        return lanes or None

    def is_to_end(self) -> bool:
        """Tell whether the run is to end now, without a device; stages that are to end are closed."""
        while isinstance(self._active, Stage) and self._active.conductor.is_to_end():
            self._go_on(self._close_active())
        return self._active is None

    @property
    def part(self) -> Part:
        """Which part the lanes belong to, or those that come next where none are left."""
        if self._is_target:
            return Part.TARGET
        present = Part.SEARCH if self._spec is None or self._is_searching else Part.CHECK
        is_done = isinstance(self._active, Stage) and not self._active.conductor.list_lanes()
        return Part(present + 1) if is_done else present

    def foresee(self) -> float | None:
        """Return nothing: how long the target takes is open."""
        return None

    def want_devices(self, pool: DevicePool) -> tuple[str, ...]:
        """Return which devices are wanted, by those who wish anything of one of its stages."""
        for stage in self._stages:
            pool = replace(pool, names=stage.conductor.want_devices(pool))
        return pool.names

    def regroup(self, devices: Collection[str] | None = None) -> None:
        """Have what trains now, or trains on one of these devices, be placed anew after its next report."""
        for stage in self._stages:
            stage.conductor.regroup(devices)
        if devices is not None:
            self._known.difference_update(devices)
            self._awaited -= frozenset(devices)

    def close(self) -> None:
        """Let go of every stage, however it ended."""
        for stage in self._stages:
            stage.conductor.close()
            stage.close()
        self._active, self._target, self._leaving = None, None, []

    @property
    def _stages(self) -> list[Stage]:
        one = [] if self._active is None or isinstance(self._active, Measuring) else [self._active]
        return [*one, *([self._target] if self._target is not None else []), *self._leaving]

    @property
    def _is_searching(self) -> bool:
        return self._spec is not None and self._spec.configs is None

    @property
    def _is_target(self) -> bool:
        """Whether the stage at hand is the target, which has all devices."""
        name = None if self._spec is None else self._spec.name
        return name is not None and name.startswith(f"{self._steps.name}.target-")

    @property
    def _active_runs(self) -> bool:
        return isinstance(self._active, Stage) and self._active.conductor.is_running

    @property
    def _active_waits(self) -> bool:
        return isinstance(self._active, Stage) and self._active.conductor.waiting.num_lanes > 0

    @property
    def _awaits_start(self) -> bool:
        """Whether what comes after the search must wait for the look at first steps beside it."""
        return self._steps.start_measuring is not None and self._stop_reason is None

    def _place_start(self, idle: Sequence[Device]) -> list[Placement]:
        """Have first steps looked at, once; the search has the other devices meanwhile."""
        measuring = self._steps.start_measuring
        return [] if measuring is None else self._place_one(measuring, idle)

    def _take_in(self, names: set[str]) -> None:
        """Have the target, once it is settled, be placed anew when devices come."""
        has_more, self._known = bool(self._known) and not names <= self._known, self._known | names
        if has_more and self._is_target and self._active_runs:
            self._spread_target()

    def _spread_target(self) -> None:
        """Have the target leave where it trains, to be placed on all devices."""
        assert isinstance(self._active, Stage)
        self._awaited = self._active.conductor.devices & self._known
        self._active.conductor.regroup()

    def _conductor_of(self, active: Stage | Measuring) -> Any:  # Any: both kinds have place, hear and is_running
        return active if isinstance(active, Measuring) else active.conductor

    def _place_one(self, conductor: Any, idle: Sequence[Device]) -> list[Placement]:  # Any: as above
        num_known = len(self._known)
        placements: list[Placement] = [
            replace(one, num_devices=max(one.num_devices, num_known)) for one in conductor.place(idle)
        ]
        others = [stage.conductor.devices for stage in self._stages if stage.conductor is not conductor]
        for one in placements:
            require_idle(one, frozenset().union(*others))
        self._owners |= {placement.key: conductor for placement in placements}
        self._briefs |= {placement.study: conductor for placement in placements}
        return placements

    def _close_active(self) -> object:
        """Conclude the stage at hand, and return what came of it."""
        active, self._active = self._active, None
        if isinstance(active, Measuring):
            return active.finding
        assert active is not None
        try:
            active.conductor.close()
            learnt = active.conductor.learnt  # how many lanes, and devices, pay depends on the width
            self._learnt = self._learnt.merge(replace(learnt, profiles=(), times=()))
            return active.finish()
        finally:
            active.close()

    def _go_on(self, answer: object) -> None:
        """Tell the script what came of a stage, and open the one that it wants next."""
        try:
            wanted = self._script.send(answer)
        except StopIteration as end:
            self.result = end.value
            self._give_up_target()
            return
        self._spec = wanted if isinstance(wanted, StageSpec) else self._spec
        if isinstance(wanted, Measuring):
            self._active = wanted
        elif self._target is not None and self._target.name == wanted.name:
            self._active, self._target = self._target, None
            self._spread_target()
        else:
            if self._is_target:
                self._give_up_target()
                self._awaited = frozenset({self._parting} & self._known)
            self._active = self._open(wanted)

    def _open(self, spec: StageSpec) -> Stage:
        stage = self._open_stage(replace(spec, learnt=self._learnt))
        if self._stop_reason is not None:
            stage.conductor.end.stop_reason = self._stop_reason
        stage.conductor.begin()
        return stage

    def _place_target(self, idle: Sequence[Device]) -> list[Placement]:
        """Start the target ahead of time, or start it again where there is a better trial now."""
        self._sweep()
        if not idle or self._stop_reason is not None or self._active is None:
            return []
        wanted = self._steps.find_eager_target()
        is_new = wanted is not None and (self._target is None or self._target.name != wanted.name)
        if wanted is not None and is_new and self._num_starts < MOST_STARTS:
            self._give_up_target()
            self._num_starts += 1
            self._target = self._open(wanted)
        return self._place_one(self._target.conductor, self._choose_one(idle)) if self._target is not None else []

    def _place_ahead(self, idle: Sequence[Device]) -> list[Placement]:
        """Have the target go before lanes that wait where it is most likely settled: nothing else takes so long."""
        is_due = self._is_searching and self._steps.eager.is_likely and len(self._known) > 1
        return self._place_target(idle[:1]) if is_due else []

    def _choose_one(self, idle: Sequence[Device]) -> Sequence[Device]:
        """Return the device that the target is to have ahead of time: the fastest, or the slowest if others wait."""
        if not isinstance(self._active, Stage) or len(idle) < 2:
            return idle[:1]
        order = self._active.conductor.order_devices(idle)
        return order[-1:] if self._active_waits else order[:1]

    def _reconsider(self, target: Stage) -> None:
        """Have a target that trains ahead of time leave where lanes wait for its device, or where another is wanted."""
        if self._is_searching and self._active_waits and not self._steps.eager.is_likely:
            target.conductor.regroup()
        elif self._num_starts < MOST_STARTS:
            wanted = self._steps.find_eager_target()
            if wanted is not None and wanted.name != target.name:
                self._give_up_target()

    def _give_up_target(self) -> None:
        """Have the target that was started ahead of time end with its next report: it is another trial's."""
        if self._target is not None:
            self._target.conductor.end.stop_reason = REPLACED
            self._leaving.append(self._target)
            self._target = None
        self._sweep()

    def _sweep(self) -> None:
        """Close what has left its device; a target that has come to its end stays for the script to find."""
        for stage in list(self._leaving):
            if not stage.conductor.is_running:
                self._leaving.remove(stage)
                stage.conductor.write_spans()
                stage.conductor.close()
                stage.close()
