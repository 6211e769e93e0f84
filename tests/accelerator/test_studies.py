"""Whole studies on the simulated accelerator: devices, checkpoints, processes, ranks, shortages, errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.accelerator.lab import INPUTS, STUDY, losses, train
from tests.train import rank_tasks
from tests.train.lab import Notebook, open_lanes, run_alone
from tests.train.rank_lab import TIMEOUT_S, Task, train_together
from tests.train.test_ranks import require_as_alone
from torch import nn

import headwater as hw
from headwater.errors import AllTrialsFailedError
from headwater.store import StateFiles
from headwater.train.machine import describe_device, list_devices
from headwater.train.memory import available_bytes, watch_peak
from headwater.train.running import TrainingSetup, run_group
from headwater.train.state_store import StateStore
from headwater.trials import Decision, Outcome, StatesPlace, TrialGroup

CONFIGS = {number: {"lr": 0.01 * (number + 1), "b": 0.5 + 0.1 * number} for number in range(3)}
HEAVY = 1 << 18
"""So many numbers of four bytes has the weight of a heavy model."""


@pytest.mark.parametrize("device", ["auto", "sim", "sim:1"])
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_study_has_the_numbers_of_the_cpu(device: str, lanes: int) -> None:
    found = replace(STUDY, device=device, lanes=lanes).run(num_trials=6)
    expected = replace(STUDY, device="cpu", lanes=lanes).run(num_trials=6)
    for ours, theirs in zip(losses(found), losses(expected), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("search", ["asha", "pbt"])
def test_searches_that_pause_trials_have_the_decisions_of_the_cpu(search: str) -> None:
    found, expected = (replace(STUDY, device=device, search=search).run(num_trials=8) for device in ("auto", "cpu"))
    assert [trial.epochs for trial in found.trials] == [trial.epochs for trial in expected.trials]
    assert found.best.number == expected.best.number


def test_worker_processes_have_a_device_each() -> None:
    found = replace(STUDY, executor=hw.ProcessExecutor(2, kind="sim"), lanes=2).run(num_trials=6)
    expected = replace(STUDY, device="cpu", lanes=2).run(num_trials=6)
    for ours, theirs in zip(losses(found), losses(expected), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("is_in_lanes", [False, True], ids=["alone", "in lanes"])
@pytest.mark.parametrize(("first", "then"), [("sim:0", "cpu"), ("cpu", "sim:0"), ("sim:0", "sim:1")])
def test_a_checkpoint_goes_on_on_another_device(first: str, then: str, is_in_lanes: bool, tmp_path: Path) -> None:
    numbers = list(CONFIGS) if is_in_lanes else [1]
    configs = {number: CONFIGS[number] for number in numbers}
    store = StateStore(StatesPlace(url=str(tmp_path), study="devices"))
    pausing = Notebook(lambda report: Decision.PAUSE if report.epoch == 2 else Decision.CONTINUE)
    going_on = Notebook()

    run_group(_setup(first, is_in_lanes), TrialGroup(lanes=open_lanes(configs)), pausing)
    for number in numbers:
        store.put(number, pausing.states[number])
    files = StateFiles(StatesPlace(url=str(tmp_path), study="devices"))
    states = [store.load(number, files.find_epoch(number, 99)) for number in numbers]
    ending = run_group(_setup(then, is_in_lanes), TrialGroup(lanes=open_lanes(configs, 2)), going_on, states)

    assert ending.outcome is Outcome.DONE, ending.error
    for number in numbers:
        expected = run_alone(train, CONFIGS[number], number).history(number)
        assert pausing.history(number) + going_on.history(number) == pytest.approx(expected, rel=1e-9)


def _setup(device: str, is_in_lanes: bool) -> TrainingSetup:
    return TrainingSetup(train, device=torch.device(device), always_fuse=is_in_lanes)


def test_a_study_is_resumed_on_another_device(tmp_path: Path) -> None:
    study = replace(STUDY, storage=str(tmp_path / "study.db"), name="moved", search="asha")
    study.run(num_trials=4)
    resumed = replace(study, device="cpu").resume(num_trials=8)
    expected = replace(STUDY, device="cpu", search="asha").run(num_trials=8)
    assert [trial.epochs for trial in resumed.trials] == [trial.epochs for trial in expected.trials]
    assert resumed.best.number == expected.best.number


def test_the_best_model_is_an_ordinary_module_of_the_host() -> None:
    result = STUDY.run(num_trials=4)
    model = result.load_best_model()
    assert {weight.device.type for weight in model.parameters()} == {"cpu"}
    assert model(INPUTS[:2]).shape == (2, 3)


def train_heavy(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Linear(512, 512))
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    x = torch.ones(2, 512, device=trial.device)
    for _ in trial.epochs(2):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trial.report(loss=loss)


def test_a_group_that_does_not_fit_is_halved(sim: Any) -> None:
    study = hw.Study(
        train_heavy, space={"lr": hw.loguniform(1e-4, 1e-2)}, metric="loss", storage=None, lanes=8, executor="inline"
    )
    expected = study.run(num_trials=8)
    sim.set_limit(torch.accelerator.memory_allocated("sim:0") + 6 * 2 * 4 * HEAVY)
    found = study.run(num_trials=8)
    notes = {note for trial in found.trials for note in trial.notes}
    assert "8 lanes in a group ran out of memory; at most 4 from now on (all trials)" in notes
    for ours, theirs in zip(losses(found), losses(expected), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


def test_memory_is_measured_on_the_device(sim: Any) -> None:
    device = torch.device("sim:0")
    peak = watch_peak(device)
    free = available_bytes(device)
    tensor = torch.ones(1000, device=device)
    torch.ones(3000, device=device)
    assert peak() == 16_000
    assert free is not None
    assert available_bytes(device) == free - tensor.nbytes


def test_devices_have_names() -> None:
    assert list_devices()[:2] == ["sim:0 Simulated accelerator", "sim:1 Simulated accelerator"]
    assert describe_device(torch.device("sim"), 1) == "sim Simulated accelerator"


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_ranks_over_two_devices_train_what_one_process_trains(tmp_path: Path) -> None:
    tasks = [Task(name, 2) for name in ("train_mlp", "train_conv", "train_transformer")]
    for (rank, task), done in train_together(tasks, tmp_path).items():
        assert done.ending.outcome is Outcome.DONE, done.ending.error
        if rank == 0:
            require_as_alone(done, _run_on_one_device(task.function))


def _run_on_one_device(function: str) -> Notebook:
    notebook = Notebook()
    setup = TrainingSetup(dict(rank_tasks.every_function())[function], device=torch.device("sim:0"))
    run_group(setup, TrialGroup(lanes=open_lanes({0: {}})), notebook)
    return notebook


def train_forgetful(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Linear(6, 3).double())
    trial.report(loss=model(INPUTS).sum() * trial.config["lr"])


@pytest.mark.parametrize("lanes", [1, 4])
def test_mixed_devices_are_explained(lanes: int) -> None:
    with pytest.raises(AllTrialsFailedError) as raised:
        replace(STUDY, train=train_forgetful, lanes=lanes).run(num_trials=4)
    line = train_forgetful.__code__.co_firstlineno + 2
    for trial in raised.value.result.trials:
        assert trial.error is not None
        last = trial.error.rstrip().splitlines()[-1]
        assert last.startswith("RuntimeError: Expected all tensors to be on the same device")
        assert f"test_studies.py:{line} mixes devices: prepared models and batches are on sim" in last
        assert ".to(trial.device)" in last


def test_other_errors_get_no_hint() -> None:
    def train_broken(trial: hw.Trial) -> None:
        raise RuntimeError("something else")

    with pytest.raises(AllTrialsFailedError) as raised:
        replace(STUDY, train=train_broken).run(num_trials=1)
    error = raised.value.result.trials[0].error
    assert error is not None
    assert error.rstrip().endswith("RuntimeError: something else")
