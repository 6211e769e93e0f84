"""Who is told what a study does: its record, whoever watches it, and the user's own callbacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from headwater.conduct.run_progress import RunProgress
from headwater.store import DEVICES, Recorder, Store, StudyInfo, Transition
from headwater.trials import (
    Foreseen,
    Lane,
    Noted,
    PhaseWatcher,
    Purpose,
    Report,
    Silence,
    Spending,
    Spent,
    Status,
    Watcher,
)

PHASES: Mapping[Purpose, str] = MappingProxyType(
    {
        Purpose.PROFILE: "measuring group sizes",
        Purpose.ALONE: "measuring a step of one trial",
        Purpose.LOADING: "measuring what loading costs",
    }
)
"""What is done that is not training."""
STARTING = "starting worker processes"
PULSE_EVERY_S = 0.25
"""Whoever watches is shown no more often than this where a study stands: to sum that up takes time."""


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

    def __init__(
        self, recorder: Recorder, progress: RunProgress, watcher: Watcher, listeners: Sequence[Listener] = ()
    ) -> None:
        self.recorder = recorder
        self.progress = progress
        self._watcher = watcher
        self._show_text = watcher.phase if isinstance(watcher, PhaseWatcher) else None
        self._listeners = listeners
        self._seconds: dict[int, float] = {}
        self._noted: set[str] = set()
        self._next_pulse_s = -math.inf
        self._is_behind = False
        """Whether something has happened that nobody was shown."""

    def begin(self, num_trials: int | None, max_epochs: int | None, remarks: Sequence[str] = ()) -> None:
        """Say that the run begins, and what is to be said of that."""
        info = self.recorder.info
        self.recorder.add_fact("max_epochs", max_epochs)
        for listener in self._listeners:
            listener.on_study(info, self.recorder.store)
        self._watcher.start(info.name, info.metric, num_trials)
        for text in remarks:
            self.tell(text)

    def end(self, ended_early: str | None) -> None:
        """Record the figures of the run, and why it ended early; None where the search came to its end."""
        figures = {"seconds": self.progress.seconds, "lane_steps": self.progress.num_lane_steps}
        end = {"seconds_one_by_one": self.progress.seconds_alone, "ended_early": ended_early}
        self.recorder.add_fact("run", {**figures, **end})

    def close(self) -> None:
        """Let go of whoever watches, however the run ended; what is shown last is where it stands then."""
        if self._is_behind:
            self.show()
        self._watcher.end()

    def pulse(self, time_s: float) -> None:
        """Show where the study stands after what has happened at this time, unless that was shown just before."""
        self._is_behind = True
        if time_s >= self._next_pulse_s:
            self._next_pulse_s = time_s + PULSE_EVERY_S
            self.show()

    def show(self) -> None:
        """Show where the study stands, if anybody looks."""
        self._is_behind = False
        if type(self._watcher) is not Silence:
            self._watcher.pulse(self.progress.pulse())

    def spend(self, spending: Spending) -> None:
        """Write down what nodes cost, and which there were where that has changed; it is written every few seconds."""
        for key, fact in spending.list_facts(self.progress.spending):
            self.recorder.add_fact(key, fact)
        self.progress.spending = spending
        self.show()  # it has no time of the run's clock, and comes seldom

    def hear(self, event: Foreseen | Noted | Spent) -> None:
        """Pass on what is to be shown, and changes nothing else."""
        if isinstance(event, Noted):
            if event.key < 0 or event.text not in self._noted:  # several placements have the same to say
                self.tell(event.text)
            self._noted.add(event.text)
        elif isinstance(event, Foreseen):
            self.show_phase(event.purpose, seconds=event.seconds)
        else:
            self.spend(event.spending)

    def show_phase(self, purpose: Purpose, *, is_starting: bool = False, seconds: float | None = None) -> None:
        """Show what is done now, where that is not training, or what will be when whoever is to do it is ready.

        Args:
            purpose: What it is for.
            is_starting: Whether nobody is ready yet.
            seconds: About how long it takes, where that is known.
        """
        if self._show_text is not None:
            text = PHASES.get(purpose)
            text = text if text is None or seconds is None else f"{text}, about {_round(seconds)} s"
            starting = STARTING if text is None else f"{STARTING}, then {text}"
            self._show_text(starting if is_starting else text)

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
        share_s = seconds / max(len(numbers), 1)
        for number in numbers:
            self._seconds[number] = self._seconds.get(number, 0.0) + share_s

    def write_start(self, lanes: Sequence[Lane], epoch_of: Callable[[int], int]) -> None:
        """Say that trials are about to train."""
        self.progress.begin(lanes)
        self.recorder.write(transitions=[self.move(lane.number, Status.RUNNING, epoch_of) for lane in lanes])
        for listener in self._listeners:
            listener.on_start(lanes)

    def show_reports(self, reports: Sequence[Report]) -> None:
        """Tell the listeners; there is nothing to tell of a trial that is trained again up to where it was."""
        if not reports:
            return
        for listener in self._listeners:
            listener.on_reports(reports)

    def show_end(self, number: int, status: Status, error: str | None = None) -> None:
        """Tell everybody that a segment of a trial has ended; it is in the record already."""
        self.progress.end(number, status)
        failure = self.progress.first_failures.end(number, status, error)
        if failure is not None:
            self.tell(f"trial {number} failed: {failure}")
        for listener in self._listeners:
            listener.on_end(number, status)

    def move(self, number: int, status: Status, epoch_of: Callable[[int], int], error: str | None = None) -> Transition:
        """Return how a trial's status changes, with the time that it owes."""
        seconds = self._seconds.pop(number, 0.0)
        return Transition(number=number, status=status, epoch=epoch_of(number), error=error, seconds=seconds)


def _round(seconds: float) -> int:
    """Return whole seconds, of ten and more only every fifth: it is a guess."""
    return max(round(seconds), 1) if seconds < 10 else 5 * round(seconds / 5)
