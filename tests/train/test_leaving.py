"""A lane that leaves the last loop of its function is done, and the others go on."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tests.train.lab import Notebook, open_lanes, run, run_alone
from torch import nn

import headwater as hw
from headwater.report import Silence
from headwater.train import Trial
from headwater.train.running import TrainingSetup, run_group
from headwater.train.trial import Capture
from headwater.trials import Outcome, Report, Status, TrialGroup

RATES = (0.05, 0.9, 0.3, 1.5, 0.6)
CONFIGS = [{"lr": rate} for rate in RATES]
X = torch.randn(16, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
Y = X.sum(1, keepdim=True)


def prepare(trial: Trial) -> tuple[Any, Callable[[], Any]]:
    """Return a model, and what trains it for an epoch and returns its loss."""
    model = trial.prepare_model(nn.Linear(3, 1).double())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.5)

    def train_epoch() -> Any:
        loss = (model(X) - Y).square().mean() + 0.01 * torch.rand(())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return model, train_epoch


def stop_when_it_gets_worse(trial: Trial) -> None:
    _, train_epoch = prepare(trial)
    best, wait = math.inf, 0
    for _ in trial.epochs(9):
        loss = train_epoch()
        trial.report(loss=loss)
        if loss < best - 1e-3:
            best, wait = loss, 0
        else:
            wait += 1
            if wait > 1:
                break


def stop_when_it_is_good(trial: Trial) -> None:
    model, train_epoch = prepare(trial)
    best = copy.deepcopy(model.state_dict())
    for epoch in trial.epochs(9):
        loss = train_epoch()
        trial.report(loss=loss)
        if loss < 0.05:
            print(f"good in epoch {epoch}")  # noqa: T201 - what loops do
            best = copy.deepcopy(model.state_dict())
            break
    model.load_state_dict(best)
    print("done")  # noqa: T201


def stop_by_returning(trial: Trial) -> None:
    _, train_epoch = prepare(trial)
    for _epoch in range(9):
        loss = train_epoch()
        trial.report(loss=loss)
        if loss > 100:
            wide = True
            return
        wide = False
        if not wide and loss < 0.02:
            return
        if math.isnan(loss):
            break


def stop_in_a_branch_that_assigns_nothing_by_lane(trial: Trial) -> None:
    _, train_epoch = prepare(trial)
    for epoch in trial.epochs(9):
        loss = train_epoch()
        trial.report(loss=loss)
        if (number := epoch) > 1:  # noqa: SIM102 - what is tested
            if loss < 0.3 / number:
                break


TOGETHER = [
    stop_when_it_gets_worse, stop_when_it_is_good, stop_by_returning, stop_in_a_branch_that_assigns_nothing_by_lane,
]  # fmt: skip


@pytest.mark.parametrize("train", TOGETHER)
def test_lanes_that_are_done_leave_and_the_others_go_on(train: Callable[[Trial], None]) -> None:
    together = run(train, CONFIGS)
    assert together.outcome is Outcome.DONE, f"{together.reason} {together.ending.error}"
    assert together.notes.done
    histories = [run_alone(train, config).history(0) for config in CONFIGS]
    assert len({*map(len, histories)}) > 1
    for number, history in enumerate(histories):
        assert together.notes.history(number) == pytest.approx(history, rel=1e-9)
    left = [lane.number for lane in together.ending.lanes]
    assert sorted([*together.notes.done, *left]) == [*range(len(CONFIGS))]


def test_a_lane_that_leaves_is_saved_with_the_weights_that_the_end_of_the_function_loads() -> None:
    saved = [_final_weights(CONFIGS), *(_final_weights([config]) for config in CONFIGS)]
    together, alone = saved[0], {number: weights[0] for number, weights in enumerate(saved[1:]) if weights}
    assert len(together) > 1
    for number, weights in together.items():
        torch.testing.assert_close(weights, alone[number], rtol=1e-9, atol=1e-9)


def load_the_best(trial: Trial) -> None:
    model, train_epoch = prepare(trial)
    best, best_loss, wait = copy.deepcopy(model.state_dict()), math.inf, 0
    for _ in trial.epochs(9):
        loss = train_epoch()
        trial.report(loss=loss)
        if loss < best_loss:
            best_loss, wait = loss, 0
            best = copy.deepcopy(model.state_dict())
        else:
            wait += 1
            if wait > 1:
                break
    model.load_state_dict(best)


class Saving(Notebook):
    """Keeps the weights that trials have at their end."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[int, Any] = {}

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        self.weights |= {report.number: capture(report.number).models[0]["weight"] for report in reports}


def _final_weights(configs: Sequence[Any]) -> dict[int, Any]:
    notes = Saving()
    group = TrialGroup(lanes=open_lanes(dict(enumerate(configs))))
    run_group(TrainingSetup(load_the_best), group, notes)
    return notes.weights


def report_at_the_end(trial: Trial) -> None:
    _, train_epoch = prepare(trial)
    for _ in trial.epochs(9):
        loss = train_epoch()
        if loss < 0.05:
            break
        trial.report(loss=loss)
    trial.report(loss=0.0)


def do_more_after_the_exit(trial: Trial) -> None:
    _, train_epoch = prepare(trial)
    count = 0
    for _ in trial.epochs(9):
        loss = train_epoch()
        trial.report(loss=loss + count)
        if loss < 0.5:
            if loss < 0.05:
                break
            count += 1


def leave_an_inner_loop(trial: Trial) -> None:
    _, train_epoch = prepare(trial)
    for _ in trial.epochs(3):
        for _ in range(5):
            loss = train_epoch()
            if loss < 0.05:
                break
        trial.report(loss=loss)


def leave_a_helper(trial: Trial) -> None:
    fit(trial)
    trial.report(loss=1.0)


def fit(trial: Trial) -> None:
    _, train_epoch = prepare(trial)
    for _ in trial.epochs(9):
        loss = train_epoch()
        trial.report(loss=loss)
        if loss < 0.05:
            break


@pytest.mark.parametrize("train", [report_at_the_end, do_more_after_the_exit, leave_an_inner_loop, leave_a_helper])
def test_lanes_part_where_something_is_left_to_do(train: Callable[[Trial], None]) -> None:
    together = run(train, CONFIGS)
    assert together.outcome is Outcome.APART
    assert "one side leaves a loop or a function" in together.reason


def test_a_study_records_when_each_trial_was_done() -> None:
    space = {"lr": hw.choice([*RATES])}
    runs = []
    for lanes in (1, 8):
        study = hw.Study(
            stop_when_it_gets_worse,
            space=space,
            metric="loss",
            mode="min",
            lanes=lanes,
            storage=None,
            executor="inline",
        )
        runs.append(study.run(num_trials=8, watcher=Silence()))
    alone, together = ([(trial.status, trial.epochs, trial.notes) for trial in result.trials] for result in runs)
    assert together == alone
    assert {status for status, _, _ in alone} == {Status.COMPLETED}
    assert len({epochs for _, epochs, _ in alone}) > 1
