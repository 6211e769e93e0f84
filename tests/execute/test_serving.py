"""What an executor and a worker in another process say to each other: the worker's side, at the end of a pipe."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import headwater as hw
from headwater.errors import LineLost, StudyError
from headwater.execute.lines import Line
from headwater.execute.sending import send_value
from headwater.execute.serving import (
    Answer,
    BriefMessage,
    Idle,
    Raised,
    RemoteWorker,
    RunMessage,
    Told,
    decode_groups,
    encode_groups,
)
from headwater.space import Space
from headwater.trials import (
    Brief,
    Ended,
    Lane,
    Lost,
    Order,
    Placement,
    Reported,
    Saved,
    Started,
    StatesPlace,
    TrialGroup,
)

ACTS = [lambda x: x, lambda x: -x]
SPACE = Space({"act": hw.choice(ACTS), "lr": hw.uniform(0.0, 1.0)})
GROUP = TrialGroup(lanes=(Lane(number=3, config={"act": ACTS[1], "lr": 0.5}, seed=0),))


def train(trial: hw.Trial) -> None:
    for _ in trial.epochs(2):
        trial.report(loss=trial.config["act"](1.0))


class Wire:
    """A worker on a thread of its own, and the end of the line that the executor has."""

    def __init__(self, folder: Path) -> None:
        ours, theirs = Pipe()
        self.line = Line(ours)
        self._theirs = Line(theirs)
        self._folder = folder
        self.worker = RemoteWorker()
        self.said: list[Any] = []

    def teach(self, function: Any, study: str = "s", **brief: Any) -> None:
        states = StatesPlace(url=str(self._folder), study="mine")
        value = Brief(study=study, function=function, space=SPACE, states=states, **brief)
        self.worker.learn(BriefMessage(study, send_value(value, self._folder)), self._theirs)

    def run(
        self,
        study: str = "s",
        groups: tuple[TrialGroup, ...] = (GROUP,),
        join: Order | None = None,
        **settings: Any,
    ) -> Idle | Raised:
        """Have a placement run, order who waits to go on and the first who has saved to let others join.

        Return how it went.
        """
        usual: dict[str, Any] = {"devices": ("cpu:0",), **settings}
        placement = Placement(key=1, study=study, groups=encode_groups(groups, SPACE), **usual)
        sent = pickle.loads(pickle.dumps(RunMessage(placement, meeting="nowhere://")))
        ends: list[Idle | Raised] = []

        def work() -> None:
            ends.append(self.worker.run(sent, self._theirs))
            self._theirs.send("end")

        thread = Thread(target=work)
        thread.start()
        while (message := self.line.receive()) != "end":
            self.said.append(message)
            if message.awaits_order and join is not None and isinstance(message.event, Saved):
                self.line.send(Answer(join))
                join = None
            elif message.awaits_order:
                self.line.send(Answer(Order()))
        thread.join()
        return ends[0]


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    wire = Wire(tmp_path)
    yield wire
    wire.line.close()


def test_configurations_go_as_codes_and_come_back_as_the_values_of_the_space() -> None:
    (encoded,) = pickle.loads(pickle.dumps(encode_groups((GROUP,), SPACE)))
    assert not callable(encoded.lanes[0].config["act"])
    assert decode_groups((encoded,), SPACE) == (GROUP,)


def test_only_who_starts_or_reports_waits_for_an_answer(wire: Wire) -> None:
    wire.teach(train)
    assert wire.run() == Idle()
    waits = {type(told.event): told.awaits_order for told in wire.said}
    assert waits == {Started: True, Reported: True, Ended: False}
    reports = [told.event.reports[0] for told in wire.said if isinstance(told.event, Reported)]
    assert [(one.number, one.epoch, one.metrics["loss"]) for one in reports] == [(3, 1, -1.0), (3, 2, -1.0)]


def test_ranks_that_cannot_meet_are_lost_and_the_study_goes_on(wire: Wire) -> None:
    """They are sent nowhere, as if the other had died on its way."""
    wire.teach(train)
    assert wire.run(devices=("cpu:0", "cpu:1"), as_ranks=True) == Idle()
    (told,) = wire.said
    assert isinstance(told.event, Lost)
    assert told.event.reason.startswith("rank 0 of 2 has lost the others")


def test_in_a_pack_every_save_and_end_waits_too_and_groups_may_join(wire: Wire) -> None:
    wire.teach(train, shares_loading=True)
    other = replace(GROUP, lanes=(replace(GROUP.lanes[0], number=4),))
    joining = replace(GROUP, lanes=(replace(GROUP.lanes[0], number=5, config={"act": ACTS[0], "lr": 0.1}),))
    wire.run(groups=(GROUP, other), join=Order(join=encode_groups((joining,), SPACE)))
    waits = {type(told.event): told.awaits_order for told in wire.said}
    assert waits == {Started: True, Reported: True, Saved: True, Ended: True}
    losses = {
        one.number: one.metrics["loss"]
        for told in wire.said
        if isinstance(told.event, Reported)
        for one in told.event.reports
    }
    assert losses == {3: -1.0, 4: -1.0, 5: 1.0}


def test_what_is_wrong_with_a_study_is_said_when_it_is_to_run_and_a_better_one_takes_its_place(wire: Wire) -> None:
    wire.worker.learn(BriefMessage("s", b"nonsense"), wire._theirs)
    assert wire.said == []
    assert isinstance(wire.run(), Raised)
    wire.teach(train)
    assert wire.run() == Idle()


def test_what_no_trial_can_answer_for_is_raised_where_the_study_is(wire: Wire) -> None:
    def interrupt(trial: hw.Trial) -> None:
        raise KeyboardInterrupt("now")

    wire.teach(interrupt)
    end = wire.run()
    assert isinstance(end, Raised)
    assert isinstance(end.error, KeyboardInterrupt)


def test_an_exception_that_cannot_be_sent_says_the_same_as_another(wire: Wire) -> None:
    class Local(BaseException):
        pass

    def raise_local(trial: hw.Trial) -> None:
        raise Local("cannot be sent")

    wire.teach(raise_local)
    end = wire.run()
    assert isinstance(end, Raised)
    assert isinstance(end.error, StudyError)
    assert "cannot be sent" in str(end.error)


def test_a_worker_whose_study_is_gone_ends(wire: Wire) -> None:
    wire.teach(train)
    placement = Placement(key=1, study="s", groups=encode_groups((GROUP,), SPACE), devices=("cpu:0",))
    wire.line.close()
    with pytest.raises(LineLost):
        wire.worker.run(RunMessage(placement), wire._theirs)
    wire.line = Line(Pipe()[0])


def test_several_studies_are_kept_apart_by_their_names(wire: Wire) -> None:
    def report_two(trial: hw.Trial) -> None:
        trial.report(loss=2.0)

    wire.teach(train)
    wire.teach(report_two, "other")
    wire.run(study="other")
    wire.run()
    reported = [told.event for told in wire.said if isinstance(told.event, Reported)]
    assert [event.reports[0].metrics["loss"] for event in reported if not event.is_over] == [2.0, -1.0, -1.0]
    assert all(isinstance(told, Told) for told in wire.said)
