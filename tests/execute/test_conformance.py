"""What every executor keeps to: the same study comes to the same, whatever happens on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest
import torch
import torch.nn.functional as F
from tests.execute.clusters import await_truth, count_reserved, open_cluster
from tests.execute.lab import (
    INPUTS,
    NUM_EPOCHS,
    STUDY,
    TARGETS,
    StayingExecutor,
    StopAt,
    assert_same,
    count_reports,
    train,
)
from tests.execute.simulation import UNEVEN, list_gpus
from tests.spans import assert_no_overlap
from torch import nn

import headwater as hw
from headwater.conduct.protocol import Conductor
from headwater.conduct.study_conductor import StudyConductor
from headwater.errors import StudyError
from headwater.execute import Executor, InlineExecutor, ProcessExecutor, RayExecutor, SimulatedExecutor
from headwater.plan.jobs import Part
from headwater.space import Config
from headwater.trials import (
    Brief,
    Device,
    DevicePool,
    Ended,
    Event,
    Lane,
    Noted,
    Order,
    Placement,
    Reported,
    Result,
    Started,
    Starting,
    Stepped,
)

Away: TypeAlias = Callable[[hw.Study], hw.Study]
"""Returns a study as it runs on an executor."""

BUILD: dict[str, Callable[[], Executor]] = {
    "inline": InlineExecutor,
    "processes": lambda: ProcessExecutor(2),
    "ray": RayExecutor,
}
"""Every executor that trains; a new one is added here."""
SIMULATED = "simulated"
"""The one that does not: it is given what each trial reports, and must come to the same table."""
APART = ["processes", "ray"]
"""Those whose workers can die without this process."""
SEARCHES = ["random", "asha", "hyperband", "pbt"]
NUM_TRIALS = 8
QUIET = (Noted, Starting, Stepped)
"""Events after which nothing else could be placed."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two nodes of Ray that train."""
    pytest.importorskip("ray")
    with open_cluster():
        yield
        await_truth(lambda: count_reserved() == 0)  # Ray gives them back in its own time


@pytest.fixture(scope="module", params=[*BUILD, SIMULATED])
def away(request: pytest.FixtureRequest) -> Iterator[Away]:
    """An executor for all tests of this module."""
    if request.param == SIMULATED:
        yield lambda study: replace(study, executor=simulate(study))
        return
    if request.param == "ray":
        request.getfixturevalue("cluster")
    staying = StayingExecutor(BUILD[request.param]())
    yield lambda study: replace(study, executor=staying)
    staying.end()


def simulate(study: hw.Study) -> SimulatedExecutor:
    """Return an executor on which each trial reports what it reports in this process."""
    plain = run_plainly(str(study.search), has_surrogate=study.surrogate is not None)
    table = {(trial.config["lr"], one.epoch): one.metrics for trial in plain.trials for one in trial.history}
    assert len(table) == count_reports(plain)

    def look_up(config: Config, epoch: int) -> Mapping[str, float]:
        """Return a value of the search; a target, which may train longer, reports the last one again."""
        return table[config["lr"], max(one for lr, one in table if lr == config["lr"] and one <= epoch)]

    return SimulatedExecutor(list_gpus(2), look_up, UNEVEN)


def train_wide(trial: hw.Trial) -> None:
    layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 3))
    model = trial.prepare_model(layers.double())
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(NUM_EPOCHS):
        optimizer.zero_grad()
        F.cross_entropy(model(INPUTS), TARGETS).backward()
        optimizer.step()
        trial.report(loss=F.cross_entropy(model(INPUTS), TARGETS))  # after the step: before it, all are alike


SURROGATE = hw.Surrogate(scale=2, min_width=4, num_checked=0)


@cache
def run_plainly(search: str, *, has_surrogate: bool = False) -> Result:
    """Return what the study comes to one trial after the other, in this process."""
    return make_study(search, has_surrogate=has_surrogate).run(num_trials=NUM_TRIALS)


def make_study(search: str, *, has_surrogate: bool = False) -> hw.Study:
    study = replace(STUDY, search=search, lanes=1)
    return replace(study, train=train_wide, surrogate=SURROGATE, compile=False) if has_surrogate else study


@pytest.mark.parametrize("search", SEARCHES)
def test_one_by_one_the_table_is_exactly_the_same(away: Away, search: str) -> None:
    result = away(make_study(search)).run(num_trials=NUM_TRIALS)
    assert_same(result, run_plainly(search), tolerance=0.0)


@pytest.mark.parametrize("search", SEARCHES)
def test_in_lanes_the_table_is_the_same_but_for_rounding(away: Away, search: str) -> None:
    result = away(replace(make_study(search), lanes=4)).run(num_trials=NUM_TRIALS)
    assert_same(result, run_plainly(search))


@pytest.mark.parametrize("search", SEARCHES)
def test_with_a_surrogate_the_table_and_the_target_are_the_same(away: Away, search: str, tmp_path: Path) -> None:
    """Where there are devices for it, the target starts ahead of time."""
    study = away(replace(make_study(search, has_surrogate=True), storage=tmp_path / "s.db"))
    result = study.run(num_trials=NUM_TRIALS)
    expected = run_plainly(search, has_surrogate=True)
    assert_same(result, expected, tolerance=0.0)
    assert result.target is not None
    assert expected.target is not None
    assert result.target.config == expected.target.config
    assert_no_overlap(tmp_path / "s.db")
    if not isinstance(study.executor, SimulatedExecutor):  # its table has one value for an epoch, whatever the width
        assert result.target.history == expected.target.history


@pytest.mark.parametrize("search", SEARCHES)
def test_with_a_surrogate_in_lanes_they_are_the_same_but_for_rounding(away: Away, search: str, tmp_path: Path) -> None:
    study = replace(make_study(search, has_surrogate=True), storage=tmp_path / "s.db", lanes=4)
    result = away(study).run(num_trials=NUM_TRIALS)
    expected = run_plainly(search, has_surrogate=True)
    assert_same(result, expected)
    assert_no_overlap(tmp_path / "s.db")
    assert result.target is not None
    assert expected.target is not None
    assert result.target.config == expected.target.config


class Observer:
    """A conductor that passes everything on to another, and notes what it is asked and told."""

    def __init__(self, conductor: Conductor) -> None:
        assert isinstance(conductor, StudyConductor)
        self.events: list[Event] = []
        self.left_idle: list[tuple[str, ...]] = []
        """Devices that were left idle although lanes waited."""
        self.unasked: list[Event] = []
        """Events after which it was not asked what devices that it knew to be idle are to do."""
        self.num_asked_after = 0
        self._conductor = conductor
        self._idle: set[str] = set()
        self._last: Event | None = None

    def brief(self, study: str) -> Brief:
        return self._conductor.brief(study)

    @property
    def name(self) -> str:
        return self._conductor.name

    def list_lanes(self) -> Sequence[Lane] | None:
        return self._conductor.list_lanes()

    def is_to_end(self) -> bool:
        return self._conductor.is_to_end()

    @property
    def part(self) -> Part:
        return self._conductor.part

    def foresee(self) -> float | None:
        return self._conductor.foresee()

    def want_devices(self, pool: DevicePool) -> Sequence[str]:
        return self._conductor.want_devices(pool)

    def regroup(self, devices: Collection[str] | None = None) -> None:
        self._conductor.regroup(devices)

    def place(self, idle: Sequence[Device]) -> Sequence[Placement]:
        placements = self._conductor.place(idle)
        used = {name for placement in placements for name in placement.devices}
        self._idle = {device.name for device in idle} - used
        if self._idle and self._conductor.waiting.num_lanes:
            self.left_idle.append(tuple(self._idle))
        self.num_asked_after += self._last is not None
        self._last = None
        return placements

    def hear(self, event: Event) -> Order | None:
        self._note_unasked()
        self.events.append(event)
        self._last = event if self._idle and not isinstance(event, (*QUIET, Started)) else None
        return self._conductor.hear(event)

    def _note_unasked(self) -> None:
        if self._last is not None:
            self.unasked.append(self._last)


class ObservedExecutor:
    """Runs what it is given on another executor, and keeps what passed between them."""

    def __init__(self, executor: Executor) -> None:
        self.observers: list[Observer] = []
        self._executor = executor

    def list_devices(self) -> Sequence[Device]:
        return self._executor.list_devices()

    def run(self, conductor: Conductor) -> None:
        self.observers.append(Observer(conductor))
        self._executor.run(self.observers[-1])

    def close(self) -> None:
        self._executor.close()


def observe(study: hw.Study, num_trials: int) -> Observer:
    observed = ObservedExecutor(find_executor(study))
    replace(study, executor=observed).run(num_trials=num_trials)
    (observer,) = observed.observers
    return observer


def find_executor(study: hw.Study) -> Executor:
    assert not isinstance(study.executor, str | hw.Service)
    return study.executor


@pytest.mark.parametrize("search", ["asha", "hyperband"])
def test_no_device_is_idle_while_lanes_wait(away: Away, search: str) -> None:
    observer = observe(away(make_study(search)), num_trials=5)
    assert observer.left_idle == []
    assert observer.unasked == []


def test_after_every_event_it_is_asked_what_an_idle_device_is_to_do(away: Away) -> None:
    study = away(make_study("random"))
    observer = observe(study, num_trials=1)
    assert observer.unasked == []
    if len(find_executor(study).list_devices()) > 1:
        assert observer.num_asked_after >= NUM_EPOCHS


def test_events_come_in_order_with_their_device_and_time(away: Away) -> None:
    study = away(make_study("random"))
    observer = observe(study, num_trials=3)
    names = {device.name for device in find_executor(study).list_devices()}
    events = [event for event in observer.events if event.key >= 0]  # the others belong to no placement
    assert {event.device for event in events} <= names
    times = [event.time_s for event in observer.events]
    assert times == sorted(times)
    for key in {event.key for event in events}:
        told = [event for event in events if event.key == key and not isinstance(event, QUIET)]
        assert isinstance(told[0], Started)
        assert isinstance(told[-1], Ended)
        epochs = [event.reports[0].epoch for event in told if isinstance(event, Reported)]
        assert epochs == list(range(1, NUM_EPOCHS + 1))
        assert len({event.device for event in told}) == 1


@pytest.mark.parametrize("num_reports", [1, 5])
@pytest.mark.parametrize("search", ["random", "asha"])
def test_an_interrupted_study_goes_on_and_ends_like_another(
    away: Away, tmp_path: Path, search: str, num_reports: int
) -> None:
    study = replace(away(make_study(search)), storage=tmp_path / "study.db")
    cut = replace(study, callbacks=[StopAt(num_reports)]).run(num_trials=NUM_TRIALS)
    assert cut.was_interrupted
    assert count_reports(cut) < count_reports(run_plainly(search))
    assert_same(study.resume(), run_plainly(search), tolerance=0.0)
    assert_no_overlap(tmp_path / "study.db")


def test_a_study_that_has_ended_is_resumed_without_training(away: Away, tmp_path: Path) -> None:
    study = replace(away(make_study("asha")), storage=tmp_path / "study.db")
    study.run(num_trials=NUM_TRIALS)
    again = study.resume()
    assert again.num_lane_steps == 0
    assert_same(again, run_plainly("asha"), tolerance=0.0)


@pytest.mark.parametrize("away", APART, indirect=True, scope="module")
@pytest.mark.parametrize(("search", "lanes"), [("random", 4), ("pbt", 1)])
def test_a_worker_that_dies_changes_nothing(away: Away, tmp_path: Path, search: str, lanes: int) -> None:
    flag = tmp_path / "died"

    def die_once(trial: hw.Trial) -> None:
        epochs = trial.epochs

        def die_in_the_third(count: int) -> Iterator[int]:
            for epoch in epochs(count):
                if epoch == 2 and not flag.exists():
                    flag.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield epoch

        trial.epochs = die_in_the_third  # type: ignore[method-assign]  # stands for a machine that fails
        train(trial)

    study = replace(make_study(search), train=die_once, lanes=lanes)
    result = away(study).run(num_trials=NUM_TRIALS)
    assert flag.exists()
    assert_same(result, run_plainly(search), tolerance=0.0 if lanes == 1 else 1e-9)


def test_what_is_wrong_with_the_study_ends_it_and_the_next_one_runs(away: Away) -> None:
    with pytest.raises(StudyError, match="'loss'"):
        replace(away(make_study("random")), metric="accuracy").run(num_trials=NUM_TRIALS)
    assert len(away(make_study("random")).run(num_trials=2).ranked) == 2
