"""Spans: which trials sat on which device from when to when, as the record holds it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.execute.simulation import EVEN, UNEVEN, learn, list_gpus, make_study
from tests.spans import assert_no_overlap

from headwater.errors import StudyError
from headwater.execute import DeviceJoin, DeviceLeave, DeviceLoss, SimulatedExecutor, SimulatedTimes
from headwater.space import Config
from headwater.store import open_store, read_spans
from headwater.trials import Device, Span, SpanPurpose, Surrogate


def read(path: Path, name: str | None = None) -> list[Span]:
    with open_store(path, create=False) as store:
        return read_spans(store, name)


def record(path: Path, times: SimulatedTimes, num_devices: int, num_trials: int, **settings: Any) -> list[Span]:
    executor = SimulatedExecutor(list_gpus(num_devices), learn, times, changes=settings.pop("changes", ()))
    make_study(executor, storage=path, **settings).run(num_trials)
    return read(path)


def test_every_placement_is_a_span_of_its_device(tmp_path: Path) -> None:
    spans = record(tmp_path / "record.db", EVEN, 2, 3)
    assert spans == [
        Span(study="never_called-1", device=device, purpose=SpanPurpose.LANES, trials=(number,), begin_s=b, end_s=e)
        for device, number, b, e in [("gpu:0", 0, 1.0, 19.0), ("gpu:1", 1, 1.0, 19.0), ("gpu:0", 2, 20.0, 38.0)]
    ]


def test_when_trials_leave_their_group_another_span_begins(tmp_path: Path) -> None:
    def diverge(config: Config, epoch: int) -> Mapping[str, float]:
        return {"loss": math.nan if epoch * config["lr"] > 2.0 else 1.0}

    path = tmp_path / "record.db"
    executor = SimulatedExecutor(list_gpus(1), diverge, replace(EVEN, start_s=0.0))
    trials = make_study(executor, storage=path, lanes=9).run(9).trials
    ends = sorted({2.0 * trial.epochs for trial in trials})
    assert len(ends) > 2
    assert [(one.begin_s, one.end_s, one.trials) for one in read(path)] == [
        (begin, end, tuple(trial.number for trial in trials if 2.0 * trial.epochs >= end))
        for begin, end in pairwise([0.0, *ends])
    ]


def test_spans_tell_packs_and_measurements_apart(tmp_path: Path) -> None:
    times = SimulatedTimes(
        epoch_s=lambda config, num_lanes, kind: 10.0, num_epochs=2, load_s=8.0, start_s=1.0, measure_s=3.0
    )
    spans = record(tmp_path / "record.db", times, 1, 4, packing="cost")
    assert [(one.purpose.value, one.trials, one.begin_s, one.end_s) for one in spans] == [
        ("measurement", (0,), 0.0, 4.0),
        ("pack", (0, 1, 2, 3), 5.0, 31.0),
        ("pack", (1, 2, 3), 31.0, 33.0),
        ("pack", (2, 3), 33.0, 35.0),
        ("pack", (3,), 35.0, 37.0),
    ]


def test_the_target_has_all_devices_also_the_one_on_which_the_search_has_just_ended(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    record(path, EVEN, 2, 3, surrogate=Surrogate(scale=4, spread="ranks", eager=1.0, num_checked=0))
    spans = [span for span in read(path) if ".target-" in span.study]
    assert [(span.device, span.purpose) for span in spans] == [
        ("gpu:0", SpanPurpose.RANKS),
        ("gpu:1", SpanPurpose.RANKS),
    ]


def test_the_spans_of_a_device_never_overlap_and_hold_all_that_was_trained(tmp_path: Path) -> None:
    spans = record(tmp_path / "record.db", UNEVEN, 3, 30, search="asha")
    assert_no_overlap(tmp_path / "record.db")
    with open_store(tmp_path / "record.db", create=False) as store:
        trials = store.trials(store.study().id)
    saved_s = sum(span.seconds for span in spans) - sum(trial.seconds for trial in trials)
    assert saved_s == pytest.approx(0.25 * round(saved_s / 0.25)), "what is not training is saving, 0.25 s each"


def test_what_a_lost_device_did_until_then_is_a_span(tmp_path: Path) -> None:
    times = replace(EVEN, start_s=0.0)
    spans = record(tmp_path / "record.db", times, 2, 1, changes=[DeviceLoss(7.0, "gpu:0")])
    trained = [one for one in spans if one.purpose is SpanPurpose.LANES]
    assert [(one.device, one.begin_s, one.end_s) for one in trained] == [("gpu:0", 0.0, 7.0), ("gpu:1", 7.0, 19.0)]


def test_when_a_device_was_not_there_is_a_span_of_its_own(tmp_path: Path) -> None:
    times = replace(EVEN, start_s=0.0)
    changes = [
        DeviceJoin(3.0, Device(name="gpu:1", kind="gpu")),
        DeviceLeave(7.0, "gpu:0"),
        DeviceJoin(11.0, Device(name="gpu:0", kind="gpu")),
        DeviceLeave(11.0, "gpu:1"),
    ]
    spans = record(tmp_path / "record.db", times, 1, 2, changes=changes)
    away = [(one.device, one.begin_s, one.end_s) for one in spans if one.purpose is SpanPurpose.ABSENCE]
    assert ("gpu:1", 0.0, 3.0) in away
    assert ("gpu:0", 8.0, 11.0) in away, "it goes with the report at 8 s"
    end_s = max(one.end_s for one in spans)
    assert ("gpu:1", 11.0, end_s) in away
    for name, begin_s, stop_s in away:
        beside = [one for one in spans if one.device == name and one.purpose is not SpanPurpose.ABSENCE]
        assert all(one.end_s <= begin_s or one.begin_s >= stop_s for one in beside)


def test_a_run_that_resumes_counts_on_from_the_last_span(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    executor = SimulatedExecutor(list_gpus(1), learn, replace(EVEN, start_s=0.0))
    study = make_study(executor, storage=path, save_every=1)
    study.run(2, time_budget=20.0)
    before = read(path)
    study.resume()
    after = read(path)
    assert after[: len(before)] == before
    assert [one.begin_s for one in after[1:]] == [one.end_s for one in after[:-1]]
    assert after[-1].end_s == 36.0


def test_spans_that_have_ended_are_there_when_a_run_dies(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    times = replace(EVEN, start_s=0.0)
    with pytest.raises(StudyError, match="no device is left"):
        record(path, times, 1, 3, changes=[DeviceLoss(30.0, "gpu:0")])
    assert [(one.trials, one.begin_s, one.end_s) for one in read(path)] == [((0,), 0.0, 18.0)], "the open one is lost"


def test_stages_of_a_study_with_surrogates_share_a_timeline(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    spans = record(path, replace(UNEVEN, speedups={4: 10.0, 2: 3.0}), 2, 8, surrogate=4, name="whole")
    studies = {span.study for span in spans}
    assert "whole" in studies
    assert any(name.startswith("whole.target-") for name in studies)
    assert read(path, "whole") == spans
    assert_no_overlap(path, "whole")
