"""A pipeline that lends its bubbles tells when it waits, and computes what it did before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest
import torch
from tests.clocks import JumpingClock

from headwater.errors import StudyError
from headwater.stalls import LentPage, LentStage, StallPage, find_page
from headwater.train.gating import BubbleGate
from headwater.train.lending import ExpectedStalls, StageRoom, StreamStalls, lend_bubbles

LAB = Path(__file__).with_name("pipeline_lab.py")
STAGE = LentStage(stage=0, num_stages=2, pid=os.getpid(), cores=(0,))


def run_pipeline(meeting: Path, *args: str) -> list[dict[str, Any]]:
    ranks = [
        subprocess.Popen([sys.executable, str(LAB), str(rank), str(meeting), *args], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    return [json.loads(rank.communicate(timeout=100)[0]) for rank in ranks]


@pytest.mark.parametrize("order", ["1f1b", "gpipe"])
def test_a_pipeline_that_lends_has_the_same_losses_and_tells_of_its_stalls(order: str, tmp_path: Path) -> None:
    lent = run_pipeline(tmp_path / "meeting", order, str(tmp_path / "bubbles"))
    plain = run_pipeline(tmp_path / "another", order)
    assert len(lent[1]["losses"]) == 40
    assert lent[1]["losses"] == plain[1]["losses"]
    for rank in lent:
        assert rank["steps"] == 10
        assert rank["stalls"] >= 10 * 4
        assert 0.0 < rank["share"] < 1.0
        assert rank["is_restored"]
    assert list((tmp_path / "bubbles").glob("stage-*")) == []


def test_schedules_with_several_stages_in_a_process_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"schedule is str; .* one stage in a process"), lend_bubbles("", tmp_path):  # type: ignore[arg-type]  # that is the point
        pass


def test_a_stall_is_expected_to_last_as_the_shortest_at_its_place() -> None:
    expected = ExpectedStalls()
    for lasted in ([5.0, 1.0], [3.0, 2.0], [4.0, 2.0]):
        expected.begin_step()
        for seconds in lasted:
            expected.see(seconds)
    expected.begin_step()
    assert expected.foresee() == 3.0
    expected.see(9.0)
    assert expected.foresee() == 1.0
    expected.see(1.0)
    assert expected.foresee() is None


def test_a_cpu_stage_is_lent_from_its_first_step_on(tmp_path: Path) -> None:
    page = StallPage(tmp_path, STAGE)
    room = StageRoom(page, torch.device("cpu"), 2, None)
    with LentPage(find_page(tmp_path, 0)) as reader:
        assert reader.stage is None
        room.count_step()
        stage = reader.stage
        assert stage is not None
        assert stage.memory_bytes is not None
        assert stage.memory_bytes > 0
    page.close()


class Moment:
    """A place in a stream that a test lets a GPU come to."""

    def __init__(self) -> None:
        self._is_reached = Event()

    def query(self) -> bool:
        return self._is_reached.is_set()

    def reach(self) -> None:
        self._is_reached.set()


def test_a_stream_that_waits_is_told_of_when_it_comes_there(tmp_path: Path) -> None:
    page = StallPage(tmp_path, STAGE)
    moments = [Moment() for _ in range(4)]
    recorded = iter(moments)
    stalls = StreamStalls(page, lambda: next(recorded))
    stalls.begin_step()
    stalls.wait(lambda: None)
    stalls.wait(lambda: None)
    assert not page.state.is_waiting
    moments[0].reach()
    wait_until(lambda: page.state.is_waiting)
    assert page.state.num_stalls == 0
    moments[1].reach()
    wait_until(lambda: page.state.num_stalls == 1)
    assert not page.state.is_waiting
    for moment in moments[2:]:
        moment.reach()
    stalls.close()
    assert page.state.num_stalls == 2
    page.close()


def wait_until(is_so: Any) -> None:
    while not is_so():
        os.sched_yield()


class Host:
    """A pipeline in a test's own time: it computes for 6 s, then waits for 4 s, over and over."""

    def __init__(self, folder: Path) -> None:
        self.clock = JumpingClock()
        self.page = StallPage(folder, STAGE, self.clock)
        self.page.open(None)
        self.begin_s = self.clock()
        self.steps: list[tuple[float, float]] = []
        self.tell()

    def sleep(self, seconds: float) -> None:
        self.clock.jump(0.25)
        self.tell()

    def train(self, seconds: float) -> None:
        """Do what a filler's step does."""
        begin_s = self.clock() - self.begin_s
        self.clock.jump(seconds)
        self.steps.append((begin_s % 10, seconds))
        self.tell()

    def tell(self) -> None:
        is_waiting = (self.clock() - self.begin_s) % 10 >= 6
        if is_waiting and not self.page.state.is_waiting:
            self.page.begin_stall(4.0 - ((self.clock() - self.begin_s) % 10 - 6))
        elif not is_waiting and self.page.state.is_waiting:
            self.page.end_stall()


def test_steps_begin_in_bubbles_that_are_long_enough_for_them(tmp_path: Path) -> None:
    host = Host(tmp_path)
    with LentPage(find_page(tmp_path, 0)) as page:
        gate = BubbleGate(page, lambda: None, host.clock, host.sleep)
        for _ in range(12):
            gate.pass_through()
            host.train(1.5)
    assert all(begin_s >= 6 and begin_s + seconds <= 10 for begin_s, seconds in host.steps[1:])
    assert len({begin_s for begin_s, _ in host.steps}) > 1  # two in a bubble
    host.page.close()


def test_a_step_that_is_longer_than_any_bubble_begins_with_one(tmp_path: Path) -> None:
    host = Host(tmp_path)
    with LentPage(find_page(tmp_path, 0)) as page:
        gate = BubbleGate(page, lambda: None, host.clock, host.sleep)
        for _ in range(4):
            gate.pass_through()
            host.train(7.0)
    assert all(6 <= begin_s <= 6.5 for begin_s, _ in host.steps)
    host.page.close()


def test_without_its_host_nothing_is_held_back(tmp_path: Path) -> None:
    page = StallPage(tmp_path, STAGE)
    with LentPage(find_page(tmp_path, 0)) as reader:
        page.close()
        BubbleGate(reader, lambda: None).pass_through()


def test_gates_are_closed_before_each_step_of_a_run() -> None:
    from headwater.train.faults import GuardedControl

    passed: list[str] = []

    class Control:
        def step(self, num_lanes: int) -> None:
            passed.append("step")

    guarded = GuardedControl(cast("Any", Control()), lambda: passed.append("gate"))
    guarded.step(3)
    assert passed == ["gate", "step"]
