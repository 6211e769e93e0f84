"""A study whose devices are of unlike kinds trains on each what gains by it, and finds what it finds anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from tests.execute.simulation import list_histories, make_study, never_called

import headwater as hw
from headwater.conduct.limits import Limits
from headwater.execute import SimulatedExecutor, SimulatedTimes
from headwater.space import Config
from headwater.stage import OpenStudy, RunSettings
from headwater.store import open_store, read_spans
from headwater.trials import Deadline, Device, Learnt, Recipe, Result, Span, SpanPurpose
from headwater.trials.recipes import Key

SPEEDS = {"fast": 1.0, "slow": 4.0}
EPOCH_S = {"small": 1.0, "large": 8.0}
BY_SIZE = Learnt(recipes=(Recipe("size", Key(("size",))),))
SLOW_FIRST = [Device(name="slow:0", kind="slow"), Device(name="fast:0", kind="fast")]


def learn(config: Config, epoch: int) -> Mapping[str, float]:
    return {"loss": abs(config["lr"] - 0.3) + 1.0 / epoch}


def time_epoch(config: Config, num_lanes: int, kind: str) -> float:
    """Return more for large models; only these gain by fast devices."""
    size = str(config.get("size", "large"))
    return EPOCH_S[size] * (SPEEDS[kind] if size == "large" else 1.0) * math.sqrt(num_lanes)


TIMES = SimulatedTimes(epoch_s=time_epoch, num_epochs=9)


def run(
    path: Path | None, devices: list[Device], num_trials: int, *, learnt: Learnt | None = None, **settings: Any
) -> Result:
    executor = SimulatedExecutor(devices, learn, TIMES)
    space: dict[str, Any] = {"lr": hw.uniform(0.0, 1.0)}
    if learnt is not None:
        space["size"] = hw.choice(["small", "large"])
    usual: dict[str, Any] = {"lanes": 1, "packing": None, "max_epochs": 9, "storage": path, "name": "unlike"}
    study = hw.Study(never_called, space=space, metric="loss", executor=executor, **{**usual, **settings})
    limits = Limits(num_trials=num_trials, deadline=Deadline.start(None, executor.clock))
    given = RunSettings(num_devices=len(devices), learnt=learnt or Learnt())
    opened = OpenStudy(study, limits, given, is_new=True)
    opened.conductor.begin()
    executor.run(opened.conductor)
    result = opened.finish()
    opened.close()
    return result


def read_training(path: Path) -> list[Span]:
    with open_store(path, create=False) as store:
        return [span for span in read_spans(store, "unlike") if span.purpose is SpanPurpose.LANES]


def test_the_last_trial_goes_on_where_it_is_faster(tmp_path: Path) -> None:
    """Two trials of 72 s: one is done when the other, on the slow device, has two of nine epochs."""
    result = run(tmp_path / "study.db", SLOW_FIRST, 2, allocation="ours")
    (slow, fast), (moved, *_) = read_training(tmp_path / "study.db")[:2], read_training(tmp_path / "study.db")[2:]
    assert {slow.device, fast.device} == {"slow:0", "fast:0"}
    assert moved.device == "fast:0"
    assert result.seconds < 0.6 * run(None, SLOW_FIRST, 2, allocation="fifo").seconds == 0.6 * 9 * 32


def test_nothing_moves_for_less_than_a_move_costs(tmp_path: Path) -> None:
    alike = [Device(name="slow:0", kind="slow"), Device(name="slow:1", kind="slow")]
    run(tmp_path / "study.db", alike, 2, allocation="ours")
    assert len(read_training(tmp_path / "study.db")) == 2


@pytest.mark.parametrize("devices", [SLOW_FIRST, SLOW_FIRST[::-1]])
def test_small_models_leave_the_fast_device_to_large_ones_that_wait(devices: list[Device], tmp_path: Path) -> None:
    """Once an epoch of each was seen on each, whichever device comes first."""
    result = run(tmp_path / "study.db", devices, 24, learnt=BY_SIZE, search="halving", allocation="ours")
    sizes = {trial.number: trial.config["size"] for trial in result.trials}
    spans = read_training(tmp_path / "study.db")
    epochs = {(size, name): 0.0 for size in ("small", "large") for name in ("fast:0", "slow:0")}
    for span in spans[4:]:
        size = sizes[span.trials[0]]
        slowness = SPEEDS[span.device[:4]] if size == "large" else 1.0
        epochs[size, span.device] += span.seconds / EPOCH_S[size] / slowness
    assert epochs["small", "slow:0"] > 4 * epochs["small", "fast:0"]
    assert epochs["large", "fast:0"] > 2 * epochs["large", "slow:0"]


@pytest.mark.parametrize("search", ["random", "halving", "asha", "bohb"])
def test_what_a_search_finds_does_not_depend_on_where_it_trains(search: str) -> None:
    many = [*SLOW_FIRST, Device(name="slow:1", kind="slow"), Device(name="fast:1", kind="fast")]
    ours = run(None, many, 20, learnt=BY_SIZE, search=search, allocation="ours")
    fifo = run(None, SLOW_FIRST, 20, learnt=BY_SIZE, search=search, allocation="fifo")
    assert list_histories(ours) == list_histories(fifo)


@pytest.mark.parametrize("search", ["random", "halving"])
def test_studies_end_earlier_than_in_the_order_of_arrival(search: str) -> None:
    """On the mean: what comes next is not known, so that single ones may end later."""
    shares = []
    for seed in range(3):
        ours, fifo = (
            run(None, SLOW_FIRST, 24, learnt=BY_SIZE, search=search, seed=seed, allocation=how).seconds
            for how in ("ours", "fifo")
        )
        shares.append(ours / fifo)
    assert fmean(shares) < 0.95


@pytest.mark.parametrize("devices", [SLOW_FIRST, SLOW_FIRST[::-1]])
def test_a_study_with_surrogates_ends_as_on_devices_that_are_alike(devices: list[Device], tmp_path: Path) -> None:
    alike = [Device(name="fast:0", kind="fast"), Device(name="fast:1", kind="fast")]
    results = [
        make_study(SimulatedExecutor(some, learn, TIMES), surrogate=4, storage=tmp_path / f"{place}.db").run(8)
        for place, some in enumerate((devices, alike))
    ]
    targets = [result.target for result in results]
    assert targets[0] is not None
    assert targets[1] is not None
    assert targets[0].config == targets[1].config
    assert targets[0].history == targets[1].history
