"""A study that is killed again and again, with SIGKILL and at any moment, ends like one that was left alone."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.errors import StoreError
from headwater.store import open_store
from headwater.trials import Result, TrialRecord

NUM_KILLS = 20
MAX_SECONDS_ALIVE = 0.5

torch.manual_seed(0)
INPUTS = torch.randn(64, 6)
TARGETS = (INPUTS @ torch.randn(6, 3)).argmax(1)
DATA = TensorDataset(INPUTS, TARGETS)


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3)))
    loader = trial.prepare_data_loader(DATA, batch_size=16, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.AdamW, model, lr=trial.config["lr"])
    scheduler = trial.prepare_scheduler(torch.optim.lr_scheduler.CosineAnnealingLR, optimizer, T_max=9)
    for _ in trial.epochs(9):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        trial.report(loss=total)


STUDY = hw.Study(
    train, space={"lr": hw.loguniform(1e-4, 1.0)}, metric="loss", search="asha", max_epochs=9, storage=None, lanes=6
)


def run_or_resume(study: hw.Study, is_new: bool) -> None:
    torch.set_num_threads(1)
    if is_new:
        study.run(num_trials=60)
    else:
        study.resume()


def live_for(study: hw.Study, is_new: bool, seconds: float) -> bool:
    """Let a process work on the study for a while and kill it; tell whether it came to its end before."""
    process = multiprocessing.get_context("fork").Process(target=run_or_resume, args=(study, is_new))
    process.start()
    process.join(seconds)
    if process.is_alive():
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        return False
    assert process.exitcode == 0
    return True


def read(path: Path) -> list[TrialRecord] | None:
    """Return what the record holds; None where the first process was killed before it had begun one."""
    try:
        with open_store(path, create=False) as store:
            return store.trials(store.study().id)
    except StoreError:
        return None


def outline(result: Result) -> list[tuple[object, ...]]:
    return [(trial.number, trial.status, trial.epochs, dict(trial.config)) for trial in result.trials]


def values(result: Result) -> list[float]:
    return [report.metrics["loss"] for trial in result.trials for report in trial.history]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("lanes", "tolerance"),
    [
        (1, 0.0),
        # After a kill, trials go on in other groups, and a group of another size may round the last digit otherwise.
        (6, 1e-4),
    ],
)
def test_a_study_killed_at_random_moments_ends_like_one_left_alone(
    tmp_path: Path, lanes: int, tolerance: float
) -> None:
    torch.set_num_threads(1)
    study = replace(STUDY, storage=tmp_path / "study.db", lanes=lanes)
    moments = random.Random(1)
    reported: dict[int, int] = {}
    num_kills = 0
    for _ in range(NUM_KILLS):
        is_new = read(tmp_path / "study.db") is None
        if live_for(study, is_new, moments.uniform(0.0, MAX_SECONDS_ALIVE)):
            break
        num_kills += 1
        now = {trial.number: trial.epochs for trial in read(tmp_path / "study.db") or ()}
        assert all(now.get(number, 0) >= epochs for number, epochs in reported.items()), "a reported value was lost"
        reported = now
    result = study.resume(num_trials=60)
    assert num_kills > NUM_KILLS / 4, "the study was over before it could be killed often enough"
    undisturbed = replace(STUDY, lanes=lanes).run(num_trials=60)
    assert outline(result) == outline(undisturbed)
    assert values(result) == pytest.approx(values(undisturbed), rel=tolerance, abs=tolerance)
