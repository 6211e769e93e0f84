"""Who is told what a study does: its record, whoever watches it, and the user's own callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from headwater.conduct.tally import Tally
from headwater.store import DEVICES, Recorder, Store, StudyInfo, Transition
from headwater.trials import Lane, Report, Silence, Status, Watcher


class Listener(Protocol):
    """A user's own code that follows a study."""

    def on_study(self, info: StudyInfo, store: Store) -> None:
        """The study is about to run."""

    def on_start(self, lanes: Sequence[Lane]) -> None:
        """Trials are about to train, or to train on."""

    def on_reports(self, reports: Sequence[Report]) -> None:
        """A group of trials reported an epoch; it is in the record already."""

    def on_end(self, number: int, status: Status) -> None:
        """A trial was completed, stopped or paused, or it failed."""


class StudyLog:
    """Writes what happens into the record, and tells everybody else."""

    def __init__(self, recorder: Recorder, tally: Tally, watcher: Watcher, listeners: Sequence[Listener] = ()) -> None:
        self.recorder = recorder
        self.tally = tally
        self._watcher = watcher
        self._listeners = listeners
        self._seconds: dict[int, float] = {}

    def begin(self, num_trials: int | None, max_epochs: int | None, remarks: Sequence[str] = ()) -> None:
        """Say that the run begins, and what is to be said of that."""
        info = self.recorder.info
        self.recorder.add_fact("max_epochs", max_epochs)
        for listener in self._listeners:
            listener.on_study(info, self.recorder.store)
        self._watcher.start(info.name, info.metric, num_trials)
        for text in remarks:
            self.tell(text)

    def end(self) -> None:
        """Say that it is over, with its figures."""
        figures = {"seconds": self.tally.seconds, "lane_steps": self.tally.num_lane_steps}
        self.recorder.add_fact("run", {**figures, "seconds_one_by_one": self.tally.seconds_alone})

    def close(self) -> None:
        """Let go of whoever watches, however the run ended."""
        self._watcher.end()

    def pulse(self) -> None:
        """Show where the study stands, if anybody looks."""
        if type(self._watcher) is not Silence:
            self._watcher.pulse(self.tally.pulse())

    def tell(self, text: str, lanes: Sequence[Lane] = (), kind: str = "study") -> None:
        """Note something worth a line."""
        self.recorder.note(kind, text, lanes)
        self._watcher.tell(text)

    def tell_lanes(self, text: str, lanes: Sequence[Lane]) -> None:
        """Note something about how these lanes train."""
        self.tell(text, lanes, kind="lanes")

    def tell_devices(self, text: str, lanes: Sequence[Lane]) -> None:
        """Note why these lanes have the devices they have, or what that gained."""
        self.tell(text, lanes, kind=DEVICES)

    def charge(self, numbers: Sequence[int], seconds: float) -> None:
        """Share the time that a group has trained among its trials."""
        for number in numbers:
            self._seconds[number] = self._seconds.get(number, 0.0) + seconds / len(numbers)

    def write_start(self, lanes: Sequence[Lane], epoch_of: Callable[[int], int]) -> None:
        """Say that trials are about to train."""
        self.tally.begin(lanes)
        self.recorder.write(transitions=[self.move(lane.number, Status.RUNNING, epoch_of) for lane in lanes])
        for listener in self._listeners:
            listener.on_start(lanes)

    def write_reports(self, reports: Sequence[Report], moves: Sequence[Transition]) -> None:
        """Record what a group reported, and what becomes of its trials."""
        self.recorder.write(reports, moves)

    def show_reports(self, reports: Sequence[Report]) -> None:
        """Tell the listeners."""
        for listener in self._listeners:
            listener.on_reports(reports)

    def show_end(self, number: int, status: Status) -> None:
        """Tell everybody that a segment of a trial has ended; it is in the record already."""
        self.tally.end(number, status)
        for listener in self._listeners:
            listener.on_end(number, status)

    def move(self, number: int, status: Status, epoch_of: Callable[[int], int], error: str | None = None) -> Transition:
        """Return how a trial's status changes, with the time that it owes."""
        seconds = self._seconds.pop(number, 0.0)
        return Transition(number=number, status=status, epoch=epoch_of(number), error=error, seconds=seconds)
