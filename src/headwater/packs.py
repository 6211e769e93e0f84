"""Packs by hand: train unlike units on one device together, load more while they train, and take some out.

```python
units = [hw.Unit(train, {"batch_size": size, "lr": 0.1}) for size in (20, 50, 100)]
pack = hw.pack(units, device="cpu")
for unit in pack.run():
    print(unit.name, unit.reports[0][-1].metrics)
```

A study packs by itself; this is for those who decide on their own what trains when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.conduct.grouping import Grouper
from headwater.errors import CannotPack, StudyError
from headwater.store import Folder
from headwater.trials import Decision, Ending, Lane, Outcome, Report, TrialGroup

if TYPE_CHECKING:
    from headwater.train.engines import LaneState
    from headwater.train.packing import PackUnit
    from headwater.train.trial import Capture, Trial


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that the lanes of a unit have learnt, in ordinary PyTorch state dicts; a unit can go on from it."""

    lanes: tuple[LaneState, ...]

    @property
    def epoch(self) -> int:
        """How many epochs all of them have trained; lanes that parted may be ahead."""
        return min(lane.epoch for lane in self.lanes)

    def save(self, folder: str | Path) -> None:
        """Write a file for each lane, instead of those that were saved there before."""
        from headwater.train.checkpoint import encode_state

        files = Folder(str(folder))
        for name in files.list_names():
            if name.endswith(".safetensors"):
                files.remove(name)
        for place, state in enumerate(self.lanes):
            files.write(f"{place}.safetensors", encode_state(state, "", place))
        files.flush()

    @classmethod
    def load(cls, folder: str | Path) -> Checkpoint:
        """Read back what was saved; that runs no code.

        Raises:
            StoreError: There is none in the folder, or a file of it is damaged.
        """
        from headwater.train.checkpoint import decode_state

        files = Folder(str(folder))
        num_lanes = max(1, sum(name.endswith(".safetensors") for name in files.list_names()))
        places = range(num_lanes)
        return cls(tuple(decode_state(files.read(f"{place}.safetensors"), "", place) for place in places))


@dataclass(eq=False)
class Unit:
    """A training function and a configuration, or several that train as lanes where they can.

    Raises:
        StudyError: There is no configuration, or the checkpoint has another number of lanes.
    """

    train: Callable[[Trial], Any]
    configs: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    seed: int = 0
    name: str = ""
    checkpoint: Checkpoint | None = None
    """Where it goes on from; while it trains, where it stood at its last report."""
    reports: list[list[Report]] = field(init=False)
    """What each of its lanes has reported."""
    errors: dict[int, str] = field(init=False, default_factory=dict)
    """The tracebacks of lanes that raised, by place."""
    pack: UnitPack | None = field(init=False, default=None)
    """The pack that it is or was in."""

    def __post_init__(self) -> None:
        if not callable(self.train):
            raise StudyError(f"train is {self.train!r}; it must be a function that takes a trial")
        given = [self.configs] if isinstance(self.configs, Mapping) else list(self.configs)
        if not all(isinstance(one, Mapping) for one in given):
            raise StudyError(f"configs is {self.configs!r}; give a dictionary, or several in a list")
        self._configs = given
        if not self._configs:
            raise StudyError("a unit needs at least one configuration, as in hw.Unit(train, {'lr': 0.1})")
        if self.checkpoint is not None and len(self.checkpoint.lanes) != len(self._configs):
            raise StudyError(
                f"the checkpoint has {len(self.checkpoint.lanes)} lanes, but the unit has {len(self._configs)} "
                "configurations; give one for each lane"
            )
        self.name = self.name or getattr(self.train, "__name__", "unit")
        self.reports = [[] for _ in self._configs]

    @property
    def lanes(self) -> list[Lane]:
        """Its trials, numbered by place."""
        starts = [0] * len(self._configs) if self.checkpoint is None else [lane.epoch for lane in self.checkpoint.lanes]
        return [
            Lane(number=place, config=dict(config), seed=self.seed, start_epoch=starts[place])
            for place, config in enumerate(self._configs)
        ]


class UnitPack:
    """Units that train on one device in turns and load their data once; each ends as it would have alone."""

    def __init__(self, units: Sequence[Unit], device: str) -> None:
        from headwater.train.packing import Pack
        from headwater.train.running import choose_device

        given: Any = units  # whatever a user may have passed
        if not isinstance(given, Iterable) or not all(isinstance(unit, Unit) for unit in given):
            raise StudyError(f"a pack is made of units, not of {given!r}; write hw.pack([hw.Unit(train, config), ...])")
        self.device = choose_device(device)
        self._pack: Pack[_Part, Ending] = Pack()
        self._jobs: dict[Unit, _Job] = {}
        for unit in units:
            self.load(unit)

    @property
    def units(self) -> tuple[Unit, ...]:
        """Those that are loaded."""
        return tuple(self._jobs)

    @property
    def num_loaded(self) -> int:
        """How many examples were loaded so far, for all units together."""
        return self._pack.num_loaded

    def load(self, unit: Unit) -> None:
        """Add a unit; it trains with the others from its first turn on.

        Raises:
            StudyError: It is or was in a pack already.
        """
        if unit.pack is not None:
            raise StudyError(f"unit {unit.name!r} is in a pack already; make another one to train it twice")
        unit.pack = self
        self._jobs[unit] = _Job(unit, self.device)
        self._add(self._jobs[unit], self._jobs[unit].groups)

    def run(self) -> Iterator[Unit]:
        """Train until every unit has ended, and yield each when it has; load and free others in between.

        Whoever breaks off can go on with another `run`, or end the units that are left with `close`.
        """
        try:
            for part, ending in self._pack.run():
                if self._conclude(part, ending):
                    yield part.job.unit
        except GeneratorExit:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all units where they are; what they had reported stays."""
        self._pack.close()
        self._jobs.clear()

    def free(self, unit: Unit) -> Checkpoint:
        """Let a unit train on to its next report, and take it out with what it has learnt.

        Raises:
            StudyError: It is not in the pack, or does not count its epochs by `trial.epochs`, so that nothing is kept.
        """
        if unit.pack is not self:
            raise StudyError(f"unit {unit.name!r} is not in this pack; load it first")
        if unit in self._jobs:
            job = self._jobs[unit]
            job.is_leaving = True
            while unit in self._jobs:
                part = next(part for part in self._pack.keys if part.job is job)
                self._conclude(part, self._pack.finish(part))
        if unit.checkpoint is None:
            raised = f"it raised {unit.errors[min(unit.errors)].rstrip().splitlines()[-1]}" if unit.errors else ""
            why = raised or "it has not reported, or its function counts epochs without trial.epochs"
            raise StudyError(f"unit {unit.name!r} has nothing to keep: {why}")
        return unit.checkpoint

    def _add(self, job: _Job, groups: Sequence[TrialGroup]) -> None:
        for group in groups:
            job.num_parts += 1
            self._pack.load(_Part(job, group), partial(job.train, group), job.unit.train)

    def _conclude(self, part: _Part, ending: Ending) -> bool:
        """Take in how a part of a unit ended, and tell whether that was the last one."""
        job = part.job
        job.num_parts -= 1
        self._add(job, job.sort_again(ending))
        if job.num_parts:
            return False
        del self._jobs[job.unit]
        return True


def pack(units: Sequence[Unit], device: str = "auto") -> UnitPack:
    """Put units on a device, to train together with `run`."""
    return UnitPack(units, device)


def load(unit: Unit, device: str | UnitPack = "auto") -> UnitPack:
    """Put a unit on a device, or add it to the pack that is there."""
    if isinstance(device, str):
        return UnitPack([unit], device)
    device.load(unit)
    return device


def free(unit: Unit) -> Checkpoint:
    """Take a unit off its device at its next report, and return what it has learnt.

    Raises:
        StudyError: It is in no pack, or nothing of it was kept.
    """
    if unit.pack is None:
        raise StudyError(f"unit {unit.name!r} is in no pack; load it first")
    return unit.pack.free(unit)


@dataclass(eq=False, slots=True)
class _Part:
    """Lanes of a unit that train as one."""

    job: _Job
    group: TrialGroup


class _Job:
    """A unit at work. To its trials it is the control."""

    def __init__(self, unit: Unit, device: Any) -> None:
        from headwater.train.running import TrainingSetup

        self.unit = unit
        self.is_leaving = False
        self.num_parts = 0
        self._states = dict(enumerate(unit.checkpoint.lanes)) if unit.checkpoint is not None else {}
        self._latest: dict[int, LaneState] = {}
        self._setup = TrainingSetup(unit.train, device)
        self._grouper = Grouper(len(unit.lanes), lambda *_: None, lambda _: None)
        self.groups = self._grouper.sort(unit.lanes)[0]

    def train(self, group: TrialGroup, access: PackUnit[_Part, Ending]) -> Ending:
        """Run one group of the unit's lanes in the pack."""
        from headwater.train.running import run_group

        states = [self._states[lane.number] for lane in group.lanes] if group.lanes[0].start_epoch else None
        try:
            ending = run_group(replace(self._setup, access=access), group, self, states)
            access.require_unchanged()
            return ending
        except CannotPack as refusal:
            raise StudyError(f"unit {self.unit.name!r} cannot train in a pack: {refusal}") from None

    def sort_again(self, ending: Ending) -> list[TrialGroup]:
        """Return the groups in which lanes train that could not train to the end as one."""
        if ending.outcome is Outcome.DONE:
            self._grouper.acquit(ending.lanes)
            return []
        has_raised = ending.outcome in (Outcome.RAISED, Outcome.OUT_OF_MEMORY) and not ending.was_fused
        if len(ending.lanes) == 1 and (has_raised or ending.outcome is Outcome.LOST):
            self.unit.errors[ending.lanes[0].number] = ending.failure
            return []
        return self._grouper.part(ending) or self._grouper.sort(ending.lanes)[0]

    def report(self, reports: Sequence[Report], capture: Capture) -> list[Decision]:
        """Keep what the lanes report and have learnt; let them go where the unit is to leave."""
        for report in reports:
            history = self.unit.reports[report.number]
            if not history or report.epoch > history[-1].epoch:
                history.append(report)
            state = capture(report.number)
            if state.is_whole:
                self._latest[report.number] = state
        if len(self._latest) == len(self.unit.lanes):
            self.unit.checkpoint = Checkpoint(tuple(self._latest[place] for place in sorted(self._latest)))
        return [Decision.STOP if self.is_leaving else Decision.CONTINUE] * len(reports)

    def hinder(self, obstacle: str) -> None:
        """Take no interest."""

    def expect(self, num_epochs: int) -> None:
        """Take no interest."""

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        """Take no interest."""

    def step(self, num_lanes: int) -> None:
        """Take no interest."""
