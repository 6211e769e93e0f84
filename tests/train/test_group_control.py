"""A group while it trains: what is told of it, and what it does with the orders that it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from tests.clocks import JumpingClock

from headwater.errors import StoreError
from headwater.train.engines import LaneState
from headwater.train.group_control import GroupControl
from headwater.train.state_store import StateStore
from headwater.trials import (
    Decision,
    Ended,
    Ending,
    Event,
    Lane,
    Order,
    Outcome,
    Report,
    Reported,
    Saved,
    Started,
    StatesPlace,
    Stepped,
    TrialGroup,
)

LANES = tuple(Lane(number=number, config={}, seed=0) for number in (3, 4))
GROUP = TrialGroup(lanes=LANES)
MATE = TrialGroup(lanes=(Lane(number=9, config={}, seed=0),))


class Told:
    """Keeps what a group tells, and answers with what it is given."""

    def __init__(self, folder: Path, *orders: Order | None, is_packed: bool = False) -> None:
        self.events: list[Event] = []
        self.states = StateStore(StatesPlace(url=str(folder), study="mine"))
        self._orders = list(orders)
        self.group = GroupControl(7, GROUP, self.states, self._hear, is_packed=is_packed)

    def _hear(self, event: Event) -> Order | None:
        self.events.append(event)
        return self._orders.pop(0) if self._orders and not isinstance(event, Stepped) else None

    def report(self, capture: Callable[[int], LaneState] | None = None) -> Sequence[Decision]:
        reports = [Report(number=number, epoch=1, metrics={"loss": 1.0}) for number in GROUP.numbers]
        return self.group.report(reports, capture or (lambda number: LaneState(1)))

    @property
    def kinds(self) -> list[type[Event]]:
        return [type(event) for event in self.events]


def test_who_is_ordered_to_leave_stops_and_the_others_go_on(tmp_path: Path) -> None:
    told = Told(tmp_path, Order(leave=frozenset({4})))
    assert told.report() == [Decision.CONTINUE, Decision.STOP]
    assert told.kinds == [Reported]


class LoggedFolder:
    """Files in memory, and in which order they were written and flushed."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._files: dict[str, bytes] = {}

    def write(self, name: str, content: bytes) -> None:
        self.log.append(name)
        self._files[name] = content

    def flush(self) -> None:
        self.log.append("flushed")

    def read(self, name: str) -> bytes:
        return self._files[name]


def test_the_states_of_a_group_are_flushed_once_for_all_before_it_is_told_of_them() -> None:
    folder = LoggedFolder()

    def hear(event: Event) -> Order | None:
        folder.log.append(type(event).__name__)
        return Order(save=(3, 4), keep=(4,)) if isinstance(event, Reported) else None

    states = StateStore(StatesPlace(url="", study="mine"), folder)
    reports = [Report(number=number, epoch=1, metrics={"loss": 1.0}) for number in GROUP.numbers]
    GroupControl(7, GROUP, states, hear).report(reports, lambda number: LaneState(1))
    files = ["3-1.safetensors", "4-1.safetensors", "best-4-1.safetensors"]
    assert folder.log == ["Reported", *files, "flushed", "Saved"]


def test_states_are_in_their_place_before_it_is_told_that_they_are(tmp_path: Path) -> None:
    told = Told(tmp_path, Order(save=(3, 4), keep=(4,)))
    told.report(lambda number: LaneState(1, models=[{"weight": torch.full((1,), number)}]))
    saved = told.events[-1]
    assert isinstance(saved, Saved)
    assert (saved.epochs, saved.kept) == ({3: 1, 4: 1}, {4: 1})
    assert told.states.load(3, 1).models[0]["weight"].item() == 3
    place = StatesPlace(url=str(tmp_path), study="mine", kept=(4, 1))
    assert StateStore(place).load_kept().models[0]["weight"].item() == 4


def test_a_function_that_cannot_start_again_saves_nothing_but_its_best_weights(tmp_path: Path) -> None:
    told = Told(tmp_path, Order(save=(3,), keep=(3,)))
    told.report(lambda number: LaneState(1, is_whole=False))
    saved = told.events[-1]
    assert isinstance(saved, Saved)
    assert (saved.epochs, saved.kept) == ({}, {3: 1})
    with pytest.raises(StoreError):
        told.states.load(3, 1)


def test_trials_that_are_done_are_told_after_their_weights_are_kept(tmp_path: Path) -> None:
    told = Told(tmp_path, Order(keep=(4,)))
    reports = [Report(number=4, epoch=2, metrics={"loss": 1.0})]
    told.group.finish(reports, lambda number: LaneState(2, is_whole=False), goes_on=True)
    asked, saved, stepped = told.events
    assert isinstance(asked, Reported)
    assert isinstance(saved, Saved)
    assert isinstance(stepped, Stepped)
    assert (asked.is_over, saved.kept, stepped.done) == (True, {4: 2}, (4,))


def test_in_a_pack_every_report_asks_who_joins(tmp_path: Path) -> None:
    told = Told(tmp_path, Order(), Order(join=(MATE,)), is_packed=True)
    told.report()
    assert told.kinds == [Reported, Saved]
    assert told.group.take_mates() == (MATE,)
    assert told.group.take_mates() == ()


def test_a_group_that_is_not_to_begin_does_not(tmp_path: Path) -> None:
    assert Told(tmp_path).group.start()
    told = Told(tmp_path, Order(leave=frozenset({3, 4})))
    assert not told.group.start()
    assert told.kinds == [Started]


def test_steps_are_counted_by_lane_and_told_with_the_report_that_follows_them(tmp_path: Path) -> None:
    told = Told(tmp_path, Order())
    for _ in range(3):
        told.group.step(2)
    told.report()
    steps = [event.num_lane_steps for event in told.events if isinstance(event, Stepped | Reported)]
    assert sum(steps) == 6
    last = told.events[-1]
    assert isinstance(last, Reported)
    assert last.num_steps == 3


def test_how_many_epochs_there_are_is_passed_on(tmp_path: Path) -> None:
    told = Told(tmp_path, Order())
    told.group.expect(5)
    told.report()
    (event,) = told.events
    assert isinstance(event, Reported)
    assert (event.key, event.group, event.num_epochs) == (7, 3, 5)


def test_an_end_carries_numbers_and_not_configurations(tmp_path: Path) -> None:
    ended = Told(tmp_path).group.end(Ending(outcome=Outcome.DONE, lanes=LANES[1:]))
    assert isinstance(ended, Ended)
    assert (ended.numbers, ended.ending.lanes) == ((4,), ())


def test_in_a_pack_only_its_own_turns_are_the_time_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = JumpingClock()
    monkeypatch.setattr("time.perf_counter", clock)
    told = Told(tmp_path, Order(), None, Order(), is_packed=True)
    for _ in range(2):
        clock.jump(100.0)  # the turn of another
        with told.group.having_turn():
            clock.jump(3.0)
    clock.jump(100.0)
    with told.group.having_turn():
        clock.jump(1.0)
        told.report()
        clock.jump(2.0)
        told.report()
    assert [event.seconds for event in told.events if isinstance(event, Reported)] == pytest.approx([7.0, 2.0])
