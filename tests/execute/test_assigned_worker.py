"""What an executor sends to a worker, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.execute.assigned_worker import AssignedWorker
from headwater.execute.briefs import Briefs
from headwater.execute.serving import BriefMessage, Message, Ready, RunMessage
from headwater.space import Space, uniform
from headwater.trials import Brief, Placement, StatesPlace


class Line:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)


class Known:
    """The one who has the briefs."""

    def __init__(self, url: str) -> None:
        self._brief = Brief(
            study="s", function=len, space=Space({"lr": uniform(0, 1)}), states=StatesPlace(url=url, study="u")
        )

    def brief(self, study: str) -> Brief:
        return self._brief


@pytest.fixture
def briefs(tmp_path: Path) -> Briefs:
    return Briefs(Known(str(tmp_path / "states")), tmp_path)  # type: ignore[arg-type] # all that is asked of it


def make_placement(*devices: str, key: int = 0, seconds_left: float | None = None) -> Placement:
    as_ranks = len(devices) > 1
    return Placement(key=key, study="s", groups=(), devices=devices, as_ranks=as_ranks, seconds_left=seconds_left)


def test_a_study_is_told_once_and_what_is_placed_begins_when_it_is_known(briefs: Briefs) -> None:
    worker = AssignedWorker("cpu:0", Line())
    worker.start(make_placement("cpu:0", seconds_left=10.0), briefs, 0, "", 100.0)
    assert [type(message) for message in worker.end.sent] == [BriefMessage]
    assert not worker.can_begin
    worker.note(Ready())
    assert worker.can_begin
    worker.begin(103.0)
    run = worker.end.sent[1]
    assert isinstance(run, RunMessage)
    assert run.placement.seconds_left == 7.0  # three went by while it got ready
    worker.start(make_placement("cpu:0", key=1), briefs, 0, "", 104.0)
    assert [type(message) for message in worker.end.sent] == [BriefMessage, RunMessage, RunMessage]
