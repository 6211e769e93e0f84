"""A worker trains or measures what it is given, and tells what happens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.space import Space
from headwater.train.state_store import StateStore
from headwater.train.worker import Worker
from headwater.trials import (
    Brief,
    Ended,
    Event,
    Lane,
    LoadingCost,
    Measured,
    Measurement,
    Order,
    Outcome,
    Placement,
    Profile,
    Purpose,
    Reported,
    StartCheck,
    Started,
    StatesPlace,
    Surrogate,
    TrainingTime,
    TrialGroup,
)

DATA = TensorDataset(torch.linspace(-1, 1, 32).view(16, 2))


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)))
    loader = trial.prepare_data_loader(DATA, batch_size=trial.config.get("batch_size", 8))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(3):
        for (x,) in loader:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        trial.report(loss=loss.item(), width=float(len(next(model.parameters()))))


class Desk:
    """A worker, and whoever hears it: every report gets the next order, or one to go on."""

    def __init__(self, folder: Path, *orders: Order) -> None:
        self.events: list[Event] = []
        self.brief = Brief(
            study="s",
            function=train,
            space=Space({"lr": 0.1}),
            states=StatesPlace(url=str(folder), study="mine"),
        )
        self._orders = list(orders)

    def run(self, *groups: TrialGroup, purpose: Purpose = Purpose.TRAIN, worker: Worker | None = None) -> None:
        placement = Placement(key=7, study="s", groups=groups, devices=("cpu:0",), purpose=purpose, seconds_left=60.0)
        (worker or Worker(self.brief)).run(placement, self._hear)

    def losses(self, number: int) -> list[float]:
        reports = [one for event in self.events if isinstance(event, Reported) for one in event.reports]
        return [one.metrics["loss"] for one in reports if one.number == number]

    def find(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def _hear(self, event: Event) -> Order | None:
        self.events.append(event)
        return (self._orders.pop(0) if self._orders else Order()) if isinstance(event, Reported) else None


def make_group(*numbers: int, start_epoch: int = 0, **config: object) -> TrialGroup:
    lanes = [
        Lane(number=number, config={"lr": 0.01 * (number + 1), **config}, seed=0, start_epoch=start_epoch)
        for number in numbers
    ]
    return TrialGroup(lanes=tuple(lanes))


def test_a_group_is_told_from_its_start_over_every_report_to_its_end(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.run(make_group(0, 1))
    assert isinstance(desk.events[0], Started)
    assert len(desk.find(Reported)) == 3
    last = desk.events[-1]
    assert isinstance(last, Ended)
    assert (last.key, last.group, last.numbers, last.ending.outcome) == (7, 0, (0, 1), Outcome.DONE)


def test_a_trial_that_left_with_its_state_goes_on_there_as_if_it_had_stayed(tmp_path: Path) -> None:
    whole = Desk(tmp_path / "whole")
    whole.run(make_group(0))
    desk = Desk(tmp_path, Order(leave=frozenset({0}), save=(0,)))
    desk.run(make_group(0))
    assert len(desk.losses(0)) == 1
    desk.run(make_group(0, start_epoch=1))
    assert desk.losses(0) == whole.losses(0)


def test_groups_of_a_pack_take_turns_and_come_to_what_they_would_alone(tmp_path: Path) -> None:
    groups = make_group(0, batch_size=4), make_group(1, batch_size=16)
    desk = Desk(tmp_path)
    desk.brief = replace(desk.brief, shares_loading=True)
    desk.run(*groups)
    order = [event.group for event in desk.events if isinstance(event, Reported)]
    assert order != sorted(order)
    for group in groups:
        alone = Desk(tmp_path)
        alone.run(group)
        assert desk.losses(group.key) == alone.losses(group.key)


def test_an_exception_of_the_function_is_how_the_group_ended(tmp_path: Path) -> None:
    def fail(trial: hw.Trial) -> None:
        raise ValueError("no such data")

    desk = Desk(tmp_path)
    desk.brief = replace(desk.brief, function=fail)
    desk.run(make_group(0))
    last = desk.events[-1]
    assert isinstance(last, Ended)
    assert last.ending.outcome is Outcome.RAISED
    assert "ValueError: no such data" in last.ending.error


def test_at_a_width_models_are_narrower_and_the_target_is_as_written(tmp_path: Path) -> None:
    widths = {}
    for at in (1, 2):
        desk = Desk(tmp_path)
        desk.brief = replace(desk.brief, surrogate=Surrogate(scale=2, at=at, min_width=2))
        desk.run(make_group(0))
        (first, *_) = desk.find(Reported)
        assert isinstance(first, Reported)
        widths[at] = first.reports[0].metrics["width"]
    assert widths == {1: 8.0, 2: 4.0}


def test_measuring_tells_what_it_was_asked_for_and_trains_nobody(tmp_path: Path) -> None:
    found = {}
    for purpose in Purpose:
        if purpose is not Purpose.TRAIN:
            desk = Desk(tmp_path)
            if purpose in (Purpose.START, Purpose.SCALES):
                desk.brief = replace(desk.brief, surrogate=Surrogate(scale=2, at=2, min_width=2))
            desk.run(make_group(0, 1), purpose=purpose)
            (event,) = desk.events
            assert isinstance(event, Measured)
            found[purpose] = type(event.finding)
    assert found == {
        Purpose.PROFILE: Profile,
        Purpose.ALONE: Measurement,
        Purpose.LOADING: LoadingCost,
        Purpose.FORESEE: TrainingTime,
        Purpose.START: StartCheck,
        Purpose.SCALES: tuple,
    }


def test_what_a_worker_has_chosen_is_told_once_and_what_is_known_already_never(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    worker = Worker(desk.brief)
    for _ in range(2):
        desk.run(make_group(0, 1, 2, 3), worker=worker)
    first, second = desk.find(Ended)
    assert isinstance(first, Ended)
    assert isinstance(second, Ended)
    assert not set(first.ways) & set(second.ways)
    again = Desk(tmp_path)
    again.brief = replace(desk.brief, learnt=replace(desk.brief.learnt, strategies=first.ways))
    again.run(make_group(0, 1, 2, 3))
    (third,) = again.find(Ended)
    assert isinstance(third, Ended)
    assert not set(first.ways) & set(third.ways)


def test_states_lie_where_the_brief_says(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Order(save=(0,)))
    desk.run(make_group(0))
    assert StateStore(desk.brief.states).load(0, 1).epoch == 1
