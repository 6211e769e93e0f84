"""Targets that start ahead of time, beside the search, in real processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.execute.lab import INPUTS, StayingExecutor, list_children
from tests.spans import assert_no_overlap
from torch import nn

import headwater as hw
from headwater.conduct.protocol import Conductor
from headwater.errors import StudyError
from headwater.report import Callback
from headwater.report.reading import read_study
from headwater.store import open_store
from headwater.trials import Brief, Device, Event, Order, Placement, Result, Status

WIDTH, NUM_EPOCHS, LAST = 16, 4, 3
SURROGATE = hw.Surrogate(scale=2, min_width=4, num_checked=0, eager=True, on_drift=None, allow_pretrained=True)
"""Nothing is looked at before the search: the function waits for others."""


@dataclass(frozen=True)
class Meeting:
    """A function by which a target waits for the end of the search, and the last trial of the search for a target."""

    folder: Path
    is_last_best: bool

    def __call__(self, trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3)).double())
        place = trial.config["place"]
        for epoch in trial.epochs(NUM_EPOCHS):
            model(INPUTS)
            is_target = len(next(model.parameters())) == WIDTH
            if is_target:
                with (self.folder / "log").open("a") as file:
                    file.write(f"{place} {epoch}\n")
            if is_target and not (self.folder / "first").exists():
                (self.folder / "first").touch()
                (self.folder / "begun").write_text("")
                (self.folder / "settled").read_text()
            elif not is_target and epoch == 0 and place == LAST:
                (self.folder / "begun").read_text()
            trial.report(loss=-1.0 if self.is_last_best and place == LAST else float(place))


class CheckedMeeting(Meeting):
    """The same, by which the check of the last trial waits for the target of that trial."""

    def __call__(self, trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3)).double())
        place, width = trial.config["place"], len(next(model.parameters()))
        for epoch in trial.epochs(NUM_EPOCHS):
            model(INPUTS)
            if width == WIDTH:
                with (self.folder / "log").open("a") as file:
                    file.write(f"{place} {epoch}\n")
            if epoch == 0 and place == LAST:
                if width == WIDTH:
                    (self.folder / "again").write_text("")
                else:
                    (self.folder / ("again" if width == WIDTH // 2 else "begun")).read_text()
            elif epoch == 0 and width == WIDTH:
                (self.folder / "begun").write_text("")
                (self.folder / "settled").read_text()
            trial.report(loss=-1.0 if place == LAST else float(place))


class Settled(Callback):
    """Lets the target that waits go on when the search has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_result(self, result: Result) -> None:
        (self._folder / "settled").write_text("")


class Noting:
    """A conductor that passes everything on to another, and notes what is placed, and on how many devices."""

    def __init__(self, conductor: Conductor, placed: dict[str, list[int]], order: list[str]) -> None:
        self._placed = placed
        self._order = order
        self.brief: Callable[[str], Brief] = conductor.brief
        self.hear: Callable[[Event], Order | None] = conductor.hear
        self.regroup, self.foresee = conductor.regroup, conductor.foresee
        self.name, self.list_lanes, self.is_to_end = conductor.name, conductor.list_lanes, conductor.is_to_end
        self.want_devices, self.part = conductor.want_devices, conductor.part
        self._place = conductor.place

    def place(self, idle: Sequence[Device]) -> Sequence[Placement]:
        placements = self._place(idle)
        for placement in placements:
            self._placed.setdefault(placement.study, []).append(len(placement.devices))
            self._order.append(placement.study)
        return placements


class NotingExecutor(StayingExecutor):
    """Two processes, and on how many of them each study was placed, time by time."""

    def __init__(self) -> None:
        super().__init__(hw.ProcessExecutor(2))
        self.placed: dict[str, list[int]] = {}
        self.order: list[str] = []

    def run(self, conductor: Conductor) -> None:
        super().run(Noting(conductor, self.placed, self.order))


@pytest.fixture(scope="module")
def workers() -> Iterator[NotingExecutor]:
    before = list_children()
    executor = NotingExecutor()
    yield executor
    executor.end()
    assert list_children() <= before


def run(
    workers: NotingExecutor, meeting: Meeting, surrogate: hw.Surrogate = SURROGATE
) -> tuple[Result, list[tuple[int, int]]]:
    """Return what the study comes to, and which epochs of which targets were trained, in order."""
    folder = meeting.folder
    for name in ("begun", "settled", "again"):
        os.mkfifo(folder / name)
    workers.placed.clear()
    study = hw.Study(
        meeting,
        space={"place": hw.grid(list(range(LAST + 1)))},
        metric="loss",
        storage=folder / "s.db",
        name="s",
        executor=workers,
        lanes=1,
        packing=None,
        surrogate=surrogate,
        compile=False,
        callbacks=[Settled(folder)],
    )
    result = study.run()
    assert_no_overlap(folder / "s.db", "s")
    lines = (folder / "log").read_text().splitlines()
    return result, [(int(place), int(epoch)) for place, epoch in map(str.split, lines)]


def read_notes(folder: Path) -> list[str]:
    with open_store(folder / "s.db") as store:
        return [note.text for note in read_study(store, "s", "").notes]


def test_a_target_that_started_ahead_is_handed_over_to_all_devices_after_a_report(
    workers: NotingExecutor, tmp_path: Path
) -> None:
    result, trained = run(workers, Meeting(tmp_path, is_last_best=False))
    assert result.target is not None
    assert result.target.config == {"place": 0}
    assert result.target.status is Status.COMPLETED
    assert trained == [(0, epoch) for epoch in range(NUM_EPOCHS)]  # none twice
    assert workers.placed["s.target-0"] == [1, 2]
    assert "eager transfer: the target had started with trial 0 before it was settled" in read_notes(tmp_path)
    with open_store(tmp_path / "s.db") as store:
        assert [info.settings["part_of"] for info in store.studies() if ".target-" in info.name] == ["s"]


def test_a_target_that_started_ahead_gives_way_to_that_of_a_better_trial(
    workers: NotingExecutor, tmp_path: Path
) -> None:
    result, trained = run(workers, Meeting(tmp_path, is_last_best=True))
    assert result.target is not None
    assert result.target.config == {"place": LAST}
    assert result.target.epochs == NUM_EPOCHS
    assert [epoch for place, epoch in trained if place == 0] == [0]
    assert [epoch for place, epoch in trained if place == LAST] == list(range(NUM_EPOCHS))
    assert f"eager transfer: the target had started with trial 0, and trial {LAST} is better" in read_notes(tmp_path)


def test_the_target_of_a_better_trial_starts_while_the_ranking_is_checked(
    workers: NotingExecutor, tmp_path: Path
) -> None:
    surrogate = replace(SURROGATE, scale=4, min_width=2, num_checked=3, min_agreement=-1.0)
    result, trained = run(workers, CheckedMeeting(tmp_path, is_last_best=True), surrogate)
    assert result.target is not None
    assert result.target.config == {"place": LAST}
    assert [epoch for place, epoch in trained if place == 0] == [0]
    assert [epoch for place, epoch in trained if place == LAST] == list(range(NUM_EPOCHS))
    assert f"eager transfer: the target had started with trial {LAST} before it was settled" in read_notes(tmp_path)


def train_by_place(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3)).double())
    for _ in trial.epochs(2):
        model(INPUTS)
        trial.report(loss=trial.config["place"] + 1.0)


def test_the_target_goes_before_lanes_that_wait_where_it_is_most_likely_settled(
    workers: NotingExecutor, tmp_path: Path
) -> None:
    workers.order.clear()
    study = hw.Study(
        train_by_place, space={"place": hw.grid(list(range(64)))}, metric="loss", storage=tmp_path / "s.db", name="s",
        executor=workers, lanes=16, packing=None, surrogate=SURROGATE, compile=False,
    )  # fmt: skip
    result = study.run()
    assert result.target is not None
    assert result.target.config == {"place": 0}
    first = next(place for place, name in enumerate(workers.order) if ".target-" in name)  # whichever trial led then
    assert "s" in workers.order[first:]
    assert {trial.status for trial in result.trials} == {Status.COMPLETED}
    assert_no_overlap(tmp_path / "s.db", "s")


def test_a_search_that_comes_to_nothing_is_told_and_leaves_no_process_behind(tmp_path: Path) -> None:
    def report_nothing_finite(trial: hw.Trial) -> None:
        trial.prepare_model(nn.Sequential(nn.Linear(6, WIDTH), nn.Linear(WIDTH, 3)).double())(INPUTS)
        trial.report(loss=float("nan"))

    before = list_children()
    space = {"lr": hw.loguniform(1e-4, 1.0)}
    study = hw.Study(report_nothing_finite, space=space, metric="loss", storage=tmp_path / "s.db")
    study = replace(study, executor=hw.ProcessExecutor(2), lanes=1, surrogate=SURROGATE)
    with pytest.raises(StudyError, match="finite 'loss'"):
        study.run(num_trials=2)
    assert list_children() <= before
