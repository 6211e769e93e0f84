"""The simulated executor: real conductors and searchers, a clock that jumps, and nothing that trains."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest
from tests.execute.simulation import (
    EVEN,
    UNEVEN,
    learn,
    list_gpus,
    list_histories,
    make_study,
    simulate,
)

from headwater.errors import StudyError
from headwater.execute import (
    DeviceJoin,
    DeviceLoss,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedTimes,
    read_epoch_times,
)
from headwater.execute.simulated import Change
from headwater.space import Config
from headwater.trials import Device, Measurement, Profile, Status


def test_a_study_takes_the_time_that_the_table_says() -> None:
    result = simulate(EVEN, num_devices=2, num_trials=8)
    assert result.seconds == 4 * (1.0 + 9 * 2.0)
    assert {trial.seconds for trial in result.trials} == {18.0}
    assert [trial.status for trial in result.trials] == [Status.COMPLETED] * 8


def test_a_thousand_devices_train_a_thousand_trials_at_once() -> None:
    times = replace(EVEN, num_epochs=1)
    assert simulate(times, num_devices=1000, num_trials=1000).seconds == 3.0


@pytest.mark.parametrize("search", ["random", "asha", "hyperband", "pbt", "median"])
def test_neither_devices_nor_times_change_what_a_search_finds(search: str) -> None:
    alone = simulate(EVEN, num_devices=1, num_trials=20, search=search)
    many = simulate(UNEVEN, num_devices=5, num_trials=20, search=search)
    assert list_histories(many) == list_histories(alone)
    assert many.best.number == alone.best.number


def test_slow_kinds_of_devices_take_longer() -> None:
    times = SimulatedTimes(epoch_s=lambda config, num_lanes, kind: {"fast": 1.0, "slow": 5.0}[kind], num_epochs=2)
    devices = [Device(name="a", kind="fast"), Device(name="b", kind="slow")]
    result = make_study(SimulatedExecutor(devices, learn, times)).run(6)
    assert sorted(trial.seconds for trial in result.trials) == [2.0] * 5 + [10.0]
    assert result.seconds == 10.0


def test_lanes_are_as_many_as_the_table_says_is_fastest() -> None:
    times = replace(EVEN, epoch_s=lambda config, num_lanes, kind: 1.0 if num_lanes <= 4 else float(num_lanes))
    result = simulate(times, num_devices=1, num_trials=16, lanes="auto")
    assert [profile.num_lanes for profile in result.profiles] == [4]
    assert result.seconds == 1.0 + 4 * (1.0 + 9.0)


def test_groups_of_a_pack_load_their_data_once() -> None:
    def is_loaded(config: Config, num_lanes: int, kind: str) -> float:
        return 10.0

    apart = simulate(SimulatedTimes(epoch_s=is_loaded, num_epochs=3), num_devices=1, num_trials=4, packing="cost")
    times = SimulatedTimes(epoch_s=is_loaded, num_epochs=3, load_s=8.0)
    packed = simulate(times, num_devices=1, num_trials=4, packing="cost")
    assert apart.seconds == 4 * 3 * 10.0
    assert packed.seconds == 3 * (10.0 + 3 * 2.0)
    assert list_histories(packed) == list_histories(apart)


def test_loading_is_measured_once_however_many_devices_are_idle() -> None:
    times = SimulatedTimes(epoch_s=lambda config, num_lanes, kind: 10.0, num_epochs=1, measure_s=7.0)
    result = simulate(times, num_devices=4, num_trials=7, packing="cost")
    assert result.seconds == 20.0, "one device measures while three train, and then they are four"


@pytest.mark.parametrize("search", ["random", "hyperband", "pbt"])
def test_a_device_that_is_lost_costs_its_placement_back_to_the_last_state(search: str, tmp_path: Path) -> None:
    whole = simulate(UNEVEN, num_devices=3, num_trials=12, search=search)
    joins = DeviceJoin(12.0, Device(name="x", kind="gpu"))
    changes: list[Change] = [DeviceLoss(3.1, "gpu:0"), DeviceLoss(9.0, "gpu:2"), joins]
    settings = {"search": search, "save_every": 1, "storage": tmp_path / "record.db"}
    disturbed = simulate(UNEVEN, num_devices=3, num_trials=12, changes=changes, **settings)
    assert list_histories(disturbed) == list_histories(whole)


def test_what_is_lost_starts_again_from_its_last_state() -> None:
    times = replace(EVEN, start_s=0.0)
    settings = {"num_devices": 2, "num_trials": 1, "changes": [DeviceLoss(7.0, "gpu:0")]}
    assert simulate(times, **settings).seconds == 7.0 + 9 * 2.0  # type: ignore[arg-type]  # each is its own kind


def test_devices_that_join_are_used() -> None:
    changes = [DeviceJoin(1.0, Device(name=f"late:{place}", kind="gpu")) for place in range(7)]
    times = replace(EVEN, start_s=0.0)
    assert simulate(times, num_devices=1, num_trials=8, changes=changes).seconds == 1.0 + 18.0


def test_a_study_waits_for_devices_that_are_to_come() -> None:
    changes = [DeviceJoin(100.0, Device(name="late", kind="gpu"))]
    assert simulate(replace(EVEN, start_s=0.0), num_devices=0, num_trials=1, changes=changes).seconds == 118.0


def test_a_study_without_a_device_left_says_so_and_can_be_resumed(tmp_path: Path) -> None:
    settings = {"storage": tmp_path / "record.db", "save_every": 1}
    with pytest.raises(StudyError, match=r"no device is left after 30 s .* resume the study on other devices"):
        simulate(EVEN, num_devices=1, changes=[DeviceLoss(30.0, "gpu:0")], **settings)  # type: ignore[arg-type]  # likewise
    resumed = make_study(SimulatedExecutor(list_gpus(2), learn, EVEN), **settings).resume()
    assert list_histories(resumed) == list_histories(simulate(EVEN))


def test_a_deadline_is_one_of_the_simulated_clock(tmp_path: Path) -> None:
    study = make_study(SimulatedExecutor(list_gpus(2), learn, UNEVEN), storage=tmp_path / "record.db", search="asha")
    first = study.run(30, time_budget=40.0)
    assert first.ended_early == "the time budget of 40 s is used up"
    assert 40.0 <= first.seconds < 50.0
    assert list_histories(study.resume()) == list_histories(simulate(UNEVEN, num_trials=30, search="asha"))


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_curve_that_raises_fails_its_trial_alone(lanes: int) -> None:
    def stumble(config: Config, epoch: int) -> Mapping[str, float]:
        if config["lr"] > 0.8 and epoch == 3:
            raise ValueError("too fast")
        return learn(config, epoch)

    result = simulate(EVEN, num_trials=12, curve=stumble, lanes=lanes)
    failed = [trial for trial in result.trials if trial.config["lr"] > 0.8]
    assert failed
    assert all(trial.status is Status.FAILED and trial.epochs == 2 for trial in failed)
    assert all("ValueError: too fast" in (trial.error or "") for trial in failed)
    assert all(trial.status is Status.COMPLETED for trial in result.trials if trial not in failed)


def test_a_study_with_surrogates_goes_through_all_its_stages(tmp_path: Path) -> None:
    times = replace(UNEVEN, speedups={4: 10.0, 2: 3.0})
    result = simulate(times, num_trials=8, surrogate=4, storage=tmp_path / "record.db")
    assert result.trust is not None
    assert result.trust.agreement == 1.0
    assert result.target is not None
    assert result.target.config == result.best.config
    search_s = sum(trial.seconds for trial in result.trials)
    assert result.target.seconds == pytest.approx(9 * (1.0 + 9.0 * result.best.config["lr"]))
    assert search_s < result.target.seconds * 8


def test_times_are_read_from_what_was_measured() -> None:
    measured = tuple(Measurement(num_lanes=size, seconds_per_lane_step=s) for size, s in ((1, 1.0), (4, 0.5)))
    epoch_s = read_epoch_times({"gpu": Profile(num_lanes=4, reason="", measurements=measured)}, num_steps=10)
    assert [epoch_s({}, size, "gpu") for size in (1, 2, 4, 8)] == pytest.approx([10.0, 40 / 3, 20.0, 40.0])


def test_the_clock_never_goes_back() -> None:
    clock = SimulatedClock()
    clock.jump_to(5.0)
    clock.jump_to(3.0)
    assert clock() == 5.0


def test_a_simulated_study_does_without_torch() -> None:
    program = """
import sys
from tests.execute.simulation import EVEN, simulate
assert len(simulate(EVEN, search="asha").ranked) == 8
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_process_that_has_simulated_ends_in_silence(tmp_path: Path) -> None:
    program = f"""
from tests.execute.simulation import EVEN, make_study, list_gpus, learn
from headwater.execute import SimulatedExecutor
from headwater.report import Silence
study = make_study(SimulatedExecutor(list_gpus(2), learn, EVEN), storage={str(tmp_path / "study.db")!r})
result = study.run(2, watcher=Silence())  # which outlives everything
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert done.stderr == ""


APART = replace(UNEVEN, epoch_s=lambda config, num_lanes, kind: num_lanes * (1.0 + 9.0 * config["lr"]))
"""Of a function whose lanes gain nothing by training as one, so that each trial has a device."""


def count_calls(num_devices: int, search: str) -> float:
    """Return how many functions of the package are called for each trial of a study of four trials a device."""
    num_calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal num_calls
        num_calls += event == "call" and "headwater" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        simulate(APART, num_devices, num_trials=4 * num_devices, search=search, lanes="auto", max_epochs=3)
    finally:
        sys.setprofile(None)
    return num_calls / (4 * num_devices)


@pytest.mark.parametrize("search", ["random", "asha"])
def test_a_trial_costs_about_as_much_with_many_devices(search: str) -> None:
    assert count_calls(128, search) < 1.5 * count_calls(16, search)
