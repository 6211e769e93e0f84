"""What a conductor of stages runs: a measurement is placed once, and a lost one has found nothing."""

from __future__ import annotations

from itertools import count

import pytest
from tests.conduct.lab import DEVICES, ConductedStudy

from headwater.conduct.stages import Measuring, Stage
from headwater.trials import Event, Lane, Lost, Measured, Purpose, TrainingTime

TIME = TrainingTime(seconds_per_step=0.5, num_epochs=3, num_steps=6)


def make_measuring() -> Measuring:
    brief = ConductedStudy().conductor.brief("")
    return Measuring(brief, [Lane(number=0, config={"lr": 0.1}, seed=0)], Purpose.FORESEE, count(7), 60.0)


def test_a_measurement_is_placed_on_one_device_once() -> None:
    measuring = make_measuring()
    assert measuring.place([]) == []
    (placement,) = measuring.place(DEVICES)
    assert (placement.key, placement.devices, placement.purpose) == (7, ("cpu:0",), Purpose.FORESEE)
    assert placement.seconds_left == 60.0
    assert measuring.is_running
    assert measuring.place(DEVICES) == []


@pytest.mark.parametrize(
    ("event", "finding"),
    [(Measured(key=7, finding=TIME), TIME), (Measured(key=7, finding=None), None), (Lost(key=7, reason="gone"), None)],
)
def test_what_was_found_is_kept_and_a_lost_worker_has_found_nothing(event: Event, finding: TrainingTime | None) -> None:
    measuring = make_measuring()
    measuring.place(DEVICES)
    assert measuring.hear(event) is None
    assert measuring.finding == finding
    assert not measuring.is_running
    assert measuring.place(DEVICES) == []


def test_a_worker_that_is_lost_when_it_has_told_what_it_found_takes_nothing_back() -> None:
    measuring = make_measuring()
    measuring.place(DEVICES)
    measuring.hear(Measured(key=7, finding=TIME))
    measuring.hear(Lost(key=7, reason="gone"))
    assert measuring.finding == TIME


def test_an_open_study_is_a_stage() -> None:
    study = ConductedStudy()
    assert isinstance(study.opened, Stage)
    assert not isinstance(make_measuring(), Stage)
    study.finish()
    assert study.opened.finish().study == study.opened.name
    study.opened.close()
