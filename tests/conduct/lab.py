"""A study that is conducted by hand: tests say what devices tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.clocks import JumpingClock

import headwater as hw
from headwater.conduct.limits import Limits
from headwater.stage import OpenStudy, RunSettings
from headwater.store import Folder
from headwater.store.state_files import name_state
from headwater.store.state_format import StateHeader, seal_state
from headwater.trials import (
    Deadline,
    Device,
    Ended,
    Ending,
    Lost,
    Order,
    Outcome,
    Placement,
    Report,
    Reported,
    Saved,
    Silence,
    Started,
    Status,
    TrialGroup,
    Watcher,
)

DEVICES = (Device(name="cpu:0"), Device(name="cpu:1"), Device(name="cpu:2"))
NO_TENSORS = (2).to_bytes(8, "little") + b"{}"


def never_called(trial: hw.Trial) -> None:
    raise AssertionError("nothing trains here")


class ConductedStudy:
    """A study in memory in which nothing trains but by word. It knows of two devices; a test may offer a third."""

    def __init__(
        self, num_trials: int = 4, limits: Limits | None = None, watcher: Watcher | None = None, **settings: Any
    ) -> None:
        study = hw.Study(
            never_called,
            **{
                "space": {"lr": hw.loguniform(1e-3, 1.0)},
                "metric": "loss",
                "storage": None,
                "lanes": 2,
                "packing": None,
                **settings,
            },
        )
        run = RunSettings(num_devices=2, watcher=watcher or Silence())
        self.opened = OpenStudy(study, limits or Limits(num_trials=num_trials), run, is_new=True)
        self.conductor = self.opened.conductor
        self.conductor.begin()
        self._num_epochs = 0

    def place(self, *names: str) -> list[Placement]:
        """Ask what these devices, or all, are to do."""
        return self.conductor.place([device for device in DEVICES if device.name in (names or ("cpu:0", "cpu:1"))])

    def start(self, placement: Placement, num_epochs: int = 3) -> None:
        """Tell that the groups of a placement have begun, whose functions train so many epochs."""
        self._num_epochs = num_epochs
        for group in placement.groups:
            self.conductor.hear(Started(key=placement.key, group=group.key))

    def report(
        self, placement: Placement, epoch: int, losses: dict[int, float], group: TrialGroup | None = None
    ) -> Order:
        """Tell what the trials of a group report, and return the order."""
        reports = tuple(Report(number=n, epoch=epoch, metrics={"loss": loss}) for n, loss in losses.items())
        key = (group or placement.groups[0]).key
        event = Reported(
            key=placement.key, group=key, reports=reports, num_steps=epoch, seconds=1.0, num_epochs=self._num_epochs
        )
        order = self.conductor.hear(event)
        assert order is not None
        return order

    def save(self, placement: Placement, numbers: Sequence[int], epoch: int, kept: Sequence[int] = ()) -> Order | None:
        """Write states as a worker would, and tell of it."""
        place = self.conductor.brief("").states
        for number in numbers:
            header = StateHeader(study=place.study, trial=number, epoch=epoch, tree='{"$map": []}')
            Folder(place.url).write(name_state(number, epoch), seal_state(header, NO_TENSORS))
        event = Saved(
            key=placement.key,
            group=placement.groups[0].key,
            epochs=dict.fromkeys(numbers, epoch),
            kept=dict.fromkeys(kept, epoch),
        )
        return self.conductor.hear(event)

    def end(
        self,
        placement: Placement,
        numbers: Sequence[int] = (),
        outcome: Outcome = Outcome.DONE,
        group: TrialGroup | None = None,
        **ending: Any,
    ) -> Order | None:
        """Tell that a group has ended, with these trials still in it."""
        return self.conductor.hear(
            Ended(
                key=placement.key,
                group=(group or placement.groups[0]).key,
                ending=Ending(outcome=outcome, lanes=(), **ending),
                numbers=tuple(numbers),
                seconds=0.0,
            )
        )

    def lose(self, placement: Placement, reason: str = "it is gone", **event: Any) -> None:
        self.conductor.hear(Lost(key=placement.key, reason=reason, **event))

    def train(self, placement: Placement, num_epochs: int = 3) -> None:
        """Have every group of a placement train to its end as it is ordered; trial n reports n."""
        self.start(placement, num_epochs)
        for group in placement.groups:
            numbers = list(group.numbers)
            for epoch in range(group.lanes[0].start_epoch + 1, num_epochs + 1):
                if not numbers:
                    break
                order = self.report(placement, epoch, {number: float(number) for number in numbers}, group)
                if order.save or order.keep:
                    self.save(placement, order.save, epoch, order.keep)
                numbers = [number for number in numbers if number not in order.leave]
            self.end(placement, numbers, group=group)

    def finish(self) -> list[Placement]:
        """Train all that there is to train, and return how it was placed."""
        placed: list[Placement] = []
        while placements := self.place():
            placed += placements
            for placement in placements:
                self.train(placement)
        return placed

    @property
    def statuses(self) -> list[Status]:
        return [trial.status for trial in self.result.trials]

    @property
    def result(self) -> hw.Result:
        return self.conductor.result("memory")

    @property
    def notes(self) -> list[str]:
        recorder = self.opened._setup.recorder
        return [note.text for note in recorder.store.notes(recorder.info.id)]


def numbers_of(placements: Sequence[Placement]) -> list[tuple[int, ...]]:
    """Return the trials of each group that is placed."""
    return [group.numbers for placement in placements for group in placement.groups]


def start_lone_trial() -> tuple[ConductedStudy, Placement]:
    """Return a study of one trial that trains on the first of two devices, and is to have both at its first report."""
    clock = JumpingClock()
    limits = Limits(num_trials=1, deadline=Deadline.start(None, clock))
    study = ConductedStudy(limits=limits, num_trials=1, max_epochs=9)
    (placement,) = study.place("cpu:0")
    assert study.place("cpu:1") == []
    study.start(placement, 9)
    clock.jump(100.0)
    return study, placement
