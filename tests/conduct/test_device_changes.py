"""Devices that come to a running study, or leave it, change its plan at the next report, and no result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conduct.lab import ConductedStudy, numbers_of, start_lone_trial
from tests.execute.simulation import list_gpus, list_histories, make_study

from headwater.execute import DeviceJoin, DeviceLeave, SimulatedExecutor, SimulatedTimes
from headwater.execute.simulated import Change
from headwater.plan.speeds import Speeds
from headwater.store import open_store, read_spans
from headwater.trials import Device, Order, Result, Span, SpanPurpose, Starting, Status, Surrogate

TIMES = SimulatedTimes(
    epoch_s=lambda config, num_lanes, kind: 10.0 * num_lanes, num_epochs=9, devices=Speeds(scaling=1.9, max_devices=4)
)
"""Of a function whose lanes gain nothing by training as one, and whose trials gain by more devices."""
LATE = Device(name="gpu:1", kind="gpu")


def run(
    path: Path, num_devices: int, *changes: Change, num_trials: int = 4, times: SimulatedTimes = TIMES, **settings: Any
) -> tuple[Result, list[Span]]:
    executor = SimulatedExecutor(
        list_gpus(num_devices), lambda config, epoch: {"loss": config["lr"] / epoch}, times, changes=changes
    )
    usual = {"storage": path, "lanes": "auto", "allocation": "ours"}
    result = make_study(executor, **{**usual, **settings}).run(num_trials)
    with open_store(path, create=False) as store:
        spans = read_spans(store, result.study)
    return result, [span for span in spans if span.purpose in (SpanPurpose.LANES, SpanPurpose.RANKS)]


def test_a_group_is_cut_when_a_device_comes(tmp_path: Path) -> None:
    times = replace(TIMES, epoch_s=lambda config, num_lanes, kind: 10.0 * num_lanes**0.9)
    alone, (whole,) = run(tmp_path / "one.db", 1, times=times)
    moved, spans = run(tmp_path / "two.db", 1, DeviceJoin(whole.begin_s + 1.0, LATE), times=times)
    assert list_histories(moved) == list_histories(alone)
    assert spans[0].trials == (0, 1, 2, 3)
    assert spans[0].seconds == pytest.approx(whole.seconds / 9), "it is cut at its first report"
    assert {span.trials for span in spans[1:3]} == {(0, 1), (2, 3)}
    assert {span.device for span in spans[1:3]} == {"gpu:0", "gpu:1"}


def test_a_lone_trial_has_both_devices_from_its_next_report_on(tmp_path: Path) -> None:
    moved, spans = run(tmp_path / "study.db", 1, DeviceJoin(25.0, LATE), num_trials=1)
    assert {(span.device, span.begin_s) for span in spans} == {("gpu:0", 0.0), ("gpu:0", 30.0), ("gpu:1", 30.0)}
    assert moved.seconds < 90.0


def test_a_wide_trial_gives_a_device_back_at_its_next_report(tmp_path: Path) -> None:
    moved, spans = run(tmp_path / "study.db", 2, DeviceLeave(21.0, "gpu:1"), num_trials=1)
    wide_end = next(span.end_s for span in spans if span.device == "gpu:1")
    assert 21.0 < wide_end < 21.0 + 10.0
    assert [(span.begin_s >= wide_end, span.trials) for span in spans if span.device == "gpu:0"][-1] == (True, (0,))
    assert moved.trials[0].status is Status.COMPLETED


def test_what_trains_where_a_device_goes_leaves_and_goes_on_elsewhere(tmp_path: Path) -> None:
    still, _ = run(tmp_path / "one.db", 2, lanes=1)
    moved, spans = run(tmp_path / "two.db", 2, DeviceLeave(35.0, "gpu:0"), lanes=1)
    assert list_histories(moved) == list_histories(still)
    assert max(span.end_s for span in spans if span.device == "gpu:0") == 40.0
    assert max(span.end_s for span in spans) == 320.0, "four trials of 90 s, 40 s of which two train side by side"


def test_a_device_that_is_wanted_again_before_it_left_stays(tmp_path: Path) -> None:
    changes = (DeviceLeave(31.0, "gpu:1"), DeviceJoin(32.0, LATE))
    moved, spans = run(tmp_path / "study.db", 2, *changes, lanes=1)
    assert sum(span.seconds for span in spans if span.device == "gpu:1") == 180.0
    assert [trial.status for trial in moved.trials] == [Status.COMPLETED] * 4


def test_no_group_joins_a_pack_on_a_device_that_goes(tmp_path: Path) -> None:
    times = SimulatedTimes(epoch_s=lambda config, num_lanes, kind: 10.0, num_epochs=3, load_s=8.0)
    settings: dict[str, Any] = {"times": times, "lanes": 1, "packing": "cost", "num_trials": 40}
    still, _ = run(tmp_path / "one.db", 2, **settings)
    moved, _ = run(tmp_path / "two.db", 2, DeviceLeave(60.0, "gpu:0"), **settings)
    with open_store(tmp_path / "two.db", create=False) as store:
        packs = [span for span in read_spans(store) if span.purpose is SpanPurpose.PACK and span.device == "gpu:0"]
    round_s = 10.0 + 2.0 * 38
    assert packs[0].trials == tuple(range(1, 40))
    assert 60.0 < max(span.end_s for span in packs) <= 2 * round_s, "who has reported leaves in the second round"
    assert list_histories(moved) == list_histories(still)


SURROGATE = Surrogate(scale=4, spread="ranks", eager=1.0, num_checked=0)


def run_target(path: Path, num_devices: int, *changes: Change) -> tuple[Result, list[Span]]:
    result, spans = run(path, num_devices, *changes, num_trials=3, surrogate=SURROGATE, lanes=1)
    return result, [span for span in spans if ".target-" in span.study]


def test_a_target_that_trains_alone_has_a_device_that_comes(tmp_path: Path) -> None:
    still, (whole,) = run_target(tmp_path / "one.db", 1)
    moved, spans = run_target(tmp_path / "two.db", 1, DeviceJoin(whole.begin_s + 1.0, LATE))
    assert {(span.device, span.purpose) for span in spans[1:]} == {
        ("gpu:0", SpanPurpose.RANKS),
        ("gpu:1", SpanPurpose.RANKS),
    }
    assert spans[0].end_s == spans[1].begin_s == spans[2].begin_s == whole.begin_s + 10.0
    assert still.target is not None
    assert moved.target is not None
    assert moved.target.history == still.target.history


@pytest.mark.parametrize("gone", ["gpu:0", "gpu:1"])
def test_a_target_goes_on_with_the_devices_that_are_left(gone: str, tmp_path: Path) -> None:
    still, whole = run_target(tmp_path / "one.db", 2)
    moved, spans = run_target(tmp_path / "two.db", 2, DeviceLeave(whole[0].begin_s + 1.0, gone))
    assert {span.device for span in spans[:2]} == {"gpu:0", "gpu:1"}
    assert [span.device for span in spans[2:]] == [name for name in ("gpu:0", "gpu:1") if name != gone]
    assert still.target is not None
    assert moved.target is not None
    assert moved.target.history == still.target.history


# by word


def test_only_what_trains_on_a_device_that_goes_leaves() -> None:
    study = ConductedStudy()
    first, second = study.place()
    study.start(first)
    study.start(second)
    study.conductor.regroup({"cpu:1"})
    assert study.report(first, 1, {0: 1.0, 1: 2.0}).leave == frozenset()
    order = study.report(second, 1, {2: 1.0, 3: 2.0})
    assert order.leave == {2, 3}
    assert set(order.save) == {2, 3}


def test_what_has_not_begun_on_a_device_that_goes_is_called_off_and_placed_elsewhere() -> None:
    study = ConductedStudy()
    first, second = study.place()
    study.conductor.regroup({"cpu:1"})
    starting = study.conductor.hear(Starting(key=second.key, device="cpu:1"))
    assert starting == Order(leave=frozenset({2, 3}))
    assert study.conductor.hear(Starting(key=first.key, device="cpu:0")) is None
    study.train(first)
    assert numbers_of(study.place("cpu:0")) == [(2, 3)]


def test_a_trial_that_waits_for_its_device_does_not_wait_for_one_that_goes() -> None:
    study, placement = start_lone_trial()
    order = study.report(placement, 1, {0: 1.0})
    assert order.leave == {0}, "it is to have both devices"
    study.save(placement, order.save, 1)
    study.conductor.regroup({"cpu:0"})
    study.end(placement)
    (again,) = study.place("cpu:1")
    assert [lane.start_epoch for lane in again.groups[0].lanes] == [1]


def test_idle_devices_that_are_gone_are_no_reason_to_change() -> None:
    study, placement = start_lone_trial()
    study.conductor.regroup({"cpu:1"})
    assert study.report(placement, 1, {0: 1.0}).leave == frozenset()


def test_memory_is_shared_by_the_devices_that_are_left() -> None:
    study = ConductedStudy(num_trials=4)
    first, second = study.place()
    assert (first.num_devices, second.num_devices) == (2, 2)
    study.train(first)
    study.conductor.regroup({"cpu:1"})
    study.train(second)
    placed = study.place("cpu:0")
    assert all(placement.num_devices == 1 for placement in placed)
