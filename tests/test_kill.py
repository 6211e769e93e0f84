"""A study that is killed again and again, with SIGKILL and at any moment, ends like one that was left alone."""

from __future__ import annotations

import multiprocessing
import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.faults.killing import at_call, count_calls, die
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.errors import StoreError
from headwater.store import open_store
from headwater.trials import Result, TrialRecord

NUM_KILLS = 20

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
    train,
    space={"lr": hw.loguniform(1e-4, 1.0)},
    metric="loss",
    search="asha",
    max_epochs=9,
    storage=None,
    executor="inline",
    lanes=6,
)


def live_for(study: hw.Study, is_new: bool, num_calls: int) -> None:
    """Let a process work on the study until it has made so many calls, and dies by SIGKILL in the middle of it all."""

    def work() -> None:
        torch.set_num_threads(1)
        count_calls(lambda: study.run(num_trials=60) if is_new else study.resume(), at_call(num_calls, die))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


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
    left_alone = replace(STUDY, storage=tmp_path / "alone.db", lanes=lanes)
    num_calls = count_calls(lambda: left_alone.run(num_trials=60), lambda _: None)
    results: list[Result] = []
    num_calls_to_start = count_calls(lambda: results.append(left_alone.resume()), lambda _: None)
    longest = num_calls_to_start + num_calls // NUM_KILLS
    study = replace(STUDY, storage=tmp_path / "study.db", lanes=lanes)
    moments = random.Random(1)
    reported: dict[int, int] = {}
    for _ in range(NUM_KILLS):
        is_new = read(tmp_path / "study.db") is None
        live_for(study, is_new, moments.randrange(1, longest))
        now = {trial.number: trial.epochs for trial in read(tmp_path / "study.db") or ()}
        assert all(now.get(number, 0) >= epochs for number, epochs in reported.items()), "a reported value was lost"
        reported = now
    assert reported, "no life was long enough to report anything"
    result = study.resume(num_trials=60)
    assert outline(result) == outline(results[0])
    assert values(result) == pytest.approx(values(results[0]), rel=tolerance, abs=tolerance)
