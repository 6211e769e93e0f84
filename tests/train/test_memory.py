"""Ended groups are freed at once; circles of the user's own objects are cleared away when they hold much."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from tests.train.lab import run
from torch import nn

import headwater as hw
from headwater.train.memory import GARBAGE_BYTES, SLIGHT_BYTES, Clearing
from headwater.trials import Decision, Outcome


class Circle:
    """Holds itself, so that only a search for circles frees it."""

    def __init__(self) -> None:
        self.itself = self


class Machine:
    """A process that holds so much, on a machine where so much is free."""

    def __init__(self) -> None:
        self.held = 10 * GARBAGE_BYTES
        self.free = 100 * GARBAGE_BYTES
        self.num_asked = 0

    def tell_free(self) -> int:
        self.num_asked += 1
        return self.free

    def open_clearing(self) -> Clearing:
        clearing = Clearing(lambda: self.held, self.tell_free)
        clearing.clear()
        return clearing


def has_cleared(clearing: Clearing) -> bool:
    circle = weakref.ref(Circle())
    clearing.clear()
    return circle() is None


def test_what_has_grown_by_little_is_not_worth_asking_what_is_free() -> None:
    machine = Machine()
    clearing = machine.open_clearing()
    machine.held += SLIGHT_BYTES
    assert not has_cleared(clearing)
    assert machine.num_asked == 0


def test_what_was_found_to_be_little_is_not_asked_about_again() -> None:
    machine = Machine()
    clearing = machine.open_clearing()
    machine.held += GARBAGE_BYTES // 2
    assert not any(has_cleared(clearing) for _ in range(10))
    assert machine.num_asked == 1


def test_what_grows_by_little_at_a_time_is_cleared_when_it_is_much() -> None:
    machine = Machine()
    clearing = machine.open_clearing()
    num_small = 0
    while not has_cleared(clearing):
        machine.held += 2 * SLIGHT_BYTES
        num_small += 1
    assert num_small == GARBAGE_BYTES // (2 * SLIGHT_BYTES) + 1


def test_where_little_is_free_less_is_much() -> None:
    machine = Machine()
    clearing = machine.open_clearing()
    machine.free = GARBAGE_BYTES
    machine.held += GARBAGE_BYTES // 5
    assert has_cleared(clearing)


def test_circles_are_looked_for_though_some_memory_was_given_back_at_once() -> None:
    most = GARBAGE_BYTES
    held = iter([0, most, most + 2 * SLIGHT_BYTES, most + SLIGHT_BYTES // 2, 0])
    clearing = Clearing(lambda: next(held), lambda: None)
    clearing.clear()
    assert not has_cleared(clearing)
    assert has_cleared(clearing)


def test_circles_that_grow_little_by_little_are_looked_for_when_they_have_become_many() -> None:
    """What each trial needs while it trains is given back, and a bit of it is not."""
    machine = Machine()
    clearing = machine.open_clearing()
    begin, least = machine.held, GARBAGE_BYTES // 4
    found = []
    for place in range(1, 7):
        machine.held = begin + place * least
        seen = iter([machine.held + 2 * GARBAGE_BYTES, *[machine.held] * 3])
        clearing._held = seen.__next__
        found.append(has_cleared(clearing))
    assert found == [False] * 4 + [True, False]


@pytest.fixture
def _without_collector() -> Iterator[None]:
    torch.optim.SGD([torch.zeros(1)])  # the first one imports modules of torch that keep frames in caught exceptions
    gc.disable()
    yield
    gc.enable()


def train_until(end: str, models: list[weakref.ref[nn.Module]], trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)))
    models.append(weakref.ref(model))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for epoch in trial.epochs(3):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 2)).square().mean()
        loss.backward()
        optimizer.step()
        if end == "error" and epoch == 1:
            raise ValueError("no such data")
        if end == "memory" and epoch == 1:
            raise MemoryError
        if end == "question" and epoch == 1 and trial.config["lr"] > 0.15:
            optimizer.zero_grad()
            raise RuntimeError("too large")
        trial.report(loss=loss.item())


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize("num_lanes", [1, 3])
@pytest.mark.parametrize(
    ("end", "outcomes"),
    [
        ("end", {Outcome.DONE}),
        ("stop", {Outcome.DONE}),
        ("error", {Outcome.RAISED}),
        ("memory", {Outcome.OUT_OF_MEMORY}),
        ("question", {Outcome.DONE, Outcome.PARTED}),
    ],
)
def test_a_group_that_has_ended_is_freed_at_once_however_it_ended(
    end: str, outcomes: set[Outcome], num_lanes: int
) -> None:
    models: list[weakref.ref[nn.Module]] = []
    done = run(
        lambda trial: train_until(end, models, trial),
        {number: {"lr": 0.1 * (number + 1)} for number in range(num_lanes)},
        decide=lambda report: Decision.STOP if end == "stop" and report.epoch == 2 else Decision.CONTINUE,
        always_fuse=num_lanes > 1,
    )
    assert done.outcome in outcomes
    assert models
    assert [model() for model in models] == [None] * len(models)
