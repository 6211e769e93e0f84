"""Devices flow to what holds up the rest: whole studies on simulated devices, and what is decided by word."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conduct.lab import ConductedStudy, numbers_of, start_lone_trial
from tests.execute.simulation import UNEVEN, learn, list_gpus, list_histories, make_study, simulate

from headwater.conduct.limits import Limits
from headwater.conduct.setup import name_learnt
from headwater.execute import DeviceJoin, DeviceLoss, SimulatedExecutor, SimulatedTimes
from headwater.plan.speeds import Speeds
from headwater.space import Config
from headwater.stage import OpenStudy, RunSettings
from headwater.store import DEVICES, open_store
from headwater.trials import Deadline, Device, Result

ALONE = SimulatedTimes(
    epoch_s=lambda config, num_lanes, kind: num_lanes * (1.0 + 9.0 * config["lr"]),
    num_epochs=9,
    start_s=0.25,
    save_s=0.05,
    devices=Speeds(scaling=1.1, max_devices=16),
)
"""Of a function whose lanes gain nothing by training as one."""
FUSED = replace(ALONE, epoch_s=lambda config, num_lanes, kind: (1.0 + 9.0 * config["lr"]) * (0.7 + 0.3 * num_lanes))


def run(times: SimulatedTimes, allocation: str, num_devices: int = 4, **settings: Any) -> Result:
    return simulate(times, num_devices, **{"lanes": "auto", "num_trials": 9, "allocation": allocation, **settings})


@pytest.mark.parametrize("search", ["random", "halving", "hyperband", "asha", "pbt", "bohb", "sync-bohb", "median"])
@pytest.mark.parametrize("times", [ALONE, FUSED], ids=["alone", "fused"])
@pytest.mark.parametrize("allocation", ["even", "fluid", "ours"])
def test_what_a_search_finds_does_not_depend_on_who_gets_devices(
    search: str, times: SimulatedTimes, allocation: str
) -> None:
    queued = run(times, "fifo", search=search, num_trials=12)
    assert list_histories(run(times, allocation, search=search, num_trials=12)) == list_histories(queued)


@pytest.mark.parametrize("num_devices", [2, 4, 16])
@pytest.mark.parametrize("search", ["halving", "hyperband", "asha"])
def test_a_stage_ends_earlier_than_in_a_queue(search: str, num_devices: int) -> None:
    queued = run(ALONE, "fifo", num_devices, search=search, num_trials=27)
    ours = run(ALONE, "ours", num_devices, search=search, num_trials=27)
    assert ours.seconds < queued.seconds


def test_the_last_trial_has_all_devices() -> None:
    """Two trials of 9 epochs of 2 s on four devices, one of which has just measured them: two each from the start."""
    times = replace(ALONE, epoch_s=lambda config, num_lanes, kind: 2.0 * num_lanes, start_s=0.0, save_s=0.0)
    assert run(times, "fifo", 5, num_trials=2).seconds == pytest.approx(18.0)
    assert run(times, "even", 5, num_trials=2).seconds == pytest.approx(18.0 * 1.1 / 2)
    assert run(times, "ours", 5, num_trials=2).seconds < 18.0 * 1.1 / 2, "the fifth device is of use too"


def test_trials_of_one_lane_stay_on_one_device_each() -> None:
    queued, ours = (run(ALONE, allocation, lanes=1, num_trials=2) for allocation in ("fifo", "ours"))
    assert ours.seconds == queued.seconds


def test_a_group_is_cut_for_a_device_that_comes() -> None:
    times = replace(FUSED, epoch_s=lambda config, num_lanes, kind: 1.0 * num_lanes**0.9)
    joined = [DeviceJoin(3.0, Device(name="late", kind="gpu"))]
    alone = run(times, "ours", 1, num_trials=8, lanes=8)
    helped = run(times, "ours", 1, num_trials=8, lanes=8, changes=joined)
    assert helped.seconds == alone.seconds, "nobody knows how fast fewer lanes are"
    alone = run(times, "ours", 1, num_trials=8)
    helped = run(times, "ours", 1, num_trials=8, changes=joined)
    assert helped.seconds < 0.8 * alone.seconds
    assert list_histories(helped) == list_histories(alone)


def test_a_device_that_goes_takes_a_wide_trial_back_to_its_last_state() -> None:
    gone = [DeviceLoss(20.0, "gpu:1"), DeviceLoss(22.0, "gpu:3")]
    ours = run(ALONE, "ours", search="halving", num_trials=9, changes=gone, save_every=1)
    assert list_histories(ours) == list_histories(run(ALONE, "fifo", search="halving", num_trials=9))


def test_it_is_noted_why_a_trial_has_devices_and_what_that_gained(tmp_path: Any) -> None:
    executor = SimulatedExecutor(list_gpus(2), learn, ALONE)
    storage = tmp_path / "study.db"
    make_study(executor, search="halving", lanes="auto", storage=storage, name="one").run(9)
    with open_store(storage, create=False) as store:
        info = store.study("one")
        texts = [note for trial in store.trials(info.id) for note in trial.notes]
    assert any("on 2 devices, for nothing else waited for them" in text and "in prediction" in text for text in texts)
    assert any("gained" in text and "epochs" in text for text in texts)


def test_it_is_noted_why_a_trial_starts_on_several_devices(tmp_path: Path) -> None:
    executor = SimulatedExecutor(list_gpus(4), learn, ALONE)
    make_study(executor, lanes="auto", storage=tmp_path / "study.db", name="one").run(2)
    with open_store(tmp_path / "study.db", create=False) as store:
        texts = [note.text for note in store.notes(store.study("one").id) if note.kind == DEVICES]
    assert texts[0] == (
        "at 0.2 s starts on 2 devices, for nothing else waited for them; 57% of the time on one in prediction, "
        "a guess, until a trial has had both"
    )


def test_a_result_sums_up_what_changes_of_devices_gained() -> None:
    gains = run(replace(ALONE, num_epochs=27), "ours", search="halving", max_epochs=27).device_gains
    assert gains is not None
    assert gains.num_changes > 1
    assert gains.seconds > 0
    assert "devices, for nothing else waited for them, from epoch" in gains.last
    assert run(ALONE, "fifo", search="halving").device_gains is None


def test_devices_that_are_of_no_use_are_given_up() -> None:
    useless = replace(ALONE, devices=Speeds(scaling=1.99, max_devices=16))
    queued, ours = (run(useless, allocation, search="halving", num_trials=9) for allocation in ("fifo", "ours"))
    assert ours.seconds < 1.1 * queued.seconds


USELESS = replace(ALONE, num_epochs=27, devices=Speeds(scaling=1.99, max_devices=16))


def run_of_kind(storage: Path, is_new: bool = True, num_trials: int = 3, **settings: Any) -> Result:
    """Run a study where further devices make trials slower, on devices whose kind is told."""
    executor = SimulatedExecutor(list_gpus(8), learn, USELESS)
    limits = Limits(num_trials=num_trials, deadline=Deadline.start(None, executor.clock))
    study = make_study(executor, search="halving", lanes="auto", max_epochs=27, storage=storage, **settings)
    opened = OpenStudy(study, limits, RunSettings(num_devices=8, kind="gpu"), is_new=is_new)
    opened.conductor.begin()
    executor.run(opened.conductor)
    result = opened.finish()
    opened.close()
    return result


def count_wide(result: Result) -> int:
    """Return how often a trial was placed on several devices."""
    with open_store(result.storage, create=False) as store:
        spans = store.spans(store.study(result.study))
    places = Counter((span.trials, span.begin_s) for span in spans)
    return sum(count > 1 for count in places.values())


def test_a_later_study_knows_from_its_first_placement_what_several_devices_gain(tmp_path: Path) -> None:
    first, second = (run_of_kind(tmp_path / "study.db") for _ in range(2))
    assert count_wide(first) > 0, "it had to find out"
    assert count_wide(second) == 0
    assert second.seconds < first.seconds
    assert list_histories(second) == list_histories(first)
    with open_store(tmp_path / "study.db", create=False) as store:
        texts = [note.text for note in store.notes(store.study(second.study).id)]
    assert f"what several devices gain known from study {first.study}" in " ".join(texts)


def test_a_study_that_goes_on_knows_what_several_devices_gain(tmp_path: Path) -> None:
    first = run_of_kind(tmp_path / "study.db", name="one")
    num_wide = count_wide(first)
    resumed = run_of_kind(tmp_path / "study.db", name="one", is_new=False, num_trials=6)
    assert count_wide(resumed) == num_wide > 0


@pytest.mark.parametrize("fact", ["{", 3, '{"version": 1, "times": 3}', '{"version": 9}', ["learnt"]])
def test_a_record_of_times_that_is_no_such_thing_is_passed_over(fact: Any, tmp_path: Path) -> None:
    first = run_of_kind(tmp_path / "study.db", name="one")
    with open_store(tmp_path / "study.db") as store:
        store.add_fact(store.study("one").id, name_learnt("cpu"), fact)
    assert list_histories(run_of_kind(tmp_path / "study.db")) == list_histories(first)
    resumed = run_of_kind(tmp_path / "study.db", name="one", is_new=False, num_trials=6)
    assert len(resumed.trials) == 6


@pytest.mark.parametrize("search", ["halving", "asha"])
@pytest.mark.parametrize("num_devices", [4, 8, 16])
def test_where_devices_do_not_scale_a_first_study_loses_little(search: str, num_devices: int) -> None:
    for seed in range(3):
        queued, ours = (
            run(USELESS, allocation, num_devices, search=search, num_trials=3, max_epochs=27, seed=seed)
            for allocation in ("fifo", "ours")
        )
        assert ours.seconds < 1.15 * queued.seconds


def test_what_was_learnt_is_written_rarely(tmp_path: Path) -> None:
    storage = tmp_path / "study.db"
    result = run(replace(ALONE, num_epochs=27), "ours", 4, num_trials=9, max_epochs=27, storage=storage)
    assert sum(trial.epochs for trial in result.trials) == 9 * 27
    with closing(sqlite3.connect(storage)) as database:
        ((num_written,),) = database.execute("select count(*) from facts where key like 'learnt%'")
    assert 1 < num_written < 9


def test_uneven_trials_of_one_lane_are_untouched() -> None:
    assert run(UNEVEN, "ours", lanes=1).seconds == run(UNEVEN, "fifo", lanes=1).seconds


def test_devices_that_make_a_trial_slower_are_given_back() -> None:
    slower = replace(
        ALONE,
        epoch_s=lambda config, num_lanes, kind: 2.0 * num_lanes,
        num_epochs=27,
        start_s=0.0,
        devices=Speeds(scaling=1.99, max_devices=16),
    )
    joined = [DeviceJoin(1.0, Device(name=f"late:{place}", kind="gpu")) for place in range(3)]
    queued, ours = (
        run(slower, allocation, 1, num_trials=1, max_epochs=27, changes=joined) for allocation in ("fifo", "ours")
    )
    assert ours.seconds < 1.1 * queued.seconds


def test_an_idle_device_is_promised_once(tmp_path: Any) -> None:
    times = replace(ALONE, epoch_s=lambda config, num_lanes, kind: 5.0 * num_lanes)
    joined = [DeviceJoin(2.0, Device(name="late", kind="gpu"))]
    executor = SimulatedExecutor(list_gpus(2), learn, times, changes=joined)
    storage = tmp_path / "study.db"
    make_study(executor, lanes="auto", storage=storage, name="one").run(2)
    with open_store(storage, create=False) as store:
        notes = [trial.notes for trial in store.trials(store.study("one").id)]
    first = [any("after epoch 1: on 2 devices" in text for text in texts) for texts in notes]
    assert sorted(first) == [False, True]


def test_trials_in_lockstep_share_devices_that_come() -> None:
    """At the report of each, the other has an epoch more left: neither may wait for the other for ever."""
    times = replace(ALONE, epoch_s=lambda config, num_lanes, kind: 5.0 * num_lanes, num_epochs=27)
    joined = [DeviceJoin(12.0, Device(name=f"late:{place}", kind="gpu")) for place in range(4)]
    queued, ours = (
        run(times, allocation, 2, num_trials=2, max_epochs=27, changes=joined) for allocation in ("fifo", "ours")
    )
    assert ours.seconds < 0.6 * queued.seconds
    assert list_histories(ours) == list_histories(queued)


def test_short_segments_tell_what_several_devices_gain_by_one_trial_that_had_both(tmp_path: Path) -> None:
    """Trials that take 20 times as long as others are not taken to be slow for having two devices."""
    times = replace(ALONE, epoch_s=lambda config, num_lanes, kind: num_lanes * (2.0 + 38.0 * (config["lr"] > 0.3)))
    simulate(times, 32, search="hyperband", lanes="auto", num_trials=27, storage=tmp_path / "study.db", name="one")
    with open_store(tmp_path / "study.db", create=False) as store:
        texts = [note.text for note in store.notes(store.study("one").id) if note.kind == DEVICES]
    assert texts
    assert not any("more were of no use" in text for text in texts)


def test_what_waits_for_a_device_that_is_gone_goes_elsewhere_at_once() -> None:
    study, placement = start_lone_trial()
    order = study.report(placement, 1, {0: 1.0})
    assert order.leave == {0}, "it is to have both devices"
    study.save(placement, order.save, 1)
    study.end(placement)
    study.lose(placement)
    (again,) = study.place("cpu:1")
    assert [lane.start_epoch for lane in again.groups[0].lanes] == [1]


def test_a_group_that_is_lost_while_it_changes_trains_once(tmp_path: Any) -> None:
    study = ConductedStudy(num_trials=2, save_every=1, storage=tmp_path / "study.db")
    (placement,) = study.place("cpu:0")
    study.start(placement)
    study.conductor.regroup()
    assert study.report(placement, 1, {0: 1.0, 1: 2.0}).leave == {0, 1}
    study.lose(placement)
    assert numbers_of(study.place("cpu:1")) == [(0, 1)]


def lose_most(config: Config, epoch: int) -> dict[str, float]:
    """Three of four trials come to nothing at their second epoch."""
    return {"loss": math.inf if epoch == 2 and config["lr"] > 0.25 else config["lr"] / epoch}


def run_shrinking(allocation: str, storage: Path | None = None) -> Result:
    times = replace(FUSED, epoch_s=lambda config, num_lanes, kind: 10.0 + num_lanes, num_epochs=27)
    return simulate(
        times, 2, curve=lose_most, num_trials=96, lanes=16, max_epochs=27, allocation=allocation, storage=storage,
        name="one",
    )  # fmt: skip


def test_groups_that_have_shrunk_become_one_where_others_wait(tmp_path: Path) -> None:
    queued, ours = run_shrinking("fifo"), run_shrinking("ours", tmp_path / "study.db")
    with open_store(tmp_path / "study.db", create=False) as store:
        texts = [note.text for note in store.notes(store.study("one").id) if note.kind == DEVICES]
    assert any("trials of two groups become one, for others waited" in text for text in texts)
    assert list_histories(ours) == list_histories(queued)
    assert ours.seconds < 0.9 * queued.seconds
