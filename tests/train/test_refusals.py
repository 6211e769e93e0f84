"""A refusal to run lanes as one is remembered where it is raised: no handler of the user's can swallow it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.train.lab import run, run_alone
from torch import nn

from headwater.train import Trial
from headwater.trials import Outcome

CONFIGS = [{"lr": rate} for rate in (0.1, 0.3, 0.6)]


def save_to_a_buffer(model: Any, optimizer: Any) -> float:
    buffer = io.BytesIO()
    try:
        torch.save(model.state_dict(), buffer)
    except Exception:  # as code does that logs and goes on
        return 1.0
    return float(buffer.tell() > 0)


def read_the_state(model: Any, optimizer: Any) -> float:
    try:
        return float(len(optimizer.state))
    except Exception:
        return -1.0


def assign_the_state(model: Any, optimizer: Any) -> float:
    try:
        optimizer.state = {"a": 1}
    except Exception:
        return -1.0
    return 1.0


def pickle_the_weights(model: Any, optimizer: Any) -> float:
    try:
        torch.save([*model.parameters()], io.BytesIO())
    except Exception:
        return -1.0
    return 1.0


def call_in_a_library(model: Any, optimizer: Any) -> float:
    """Let a library swallow the error: its handlers ask nobody."""
    with __import__("contextlib").suppress(Exception):
        return float(len(optimizer.state))
    return -1.0


ACTS = [save_to_a_buffer, read_the_state, assign_the_state, pickle_the_weights, call_in_a_library]


@pytest.mark.parametrize("act", ACTS)
def test_no_lane_reports_the_number_of_a_handler(act: Callable[[Any, Any], float]) -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(2, 1))
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        trial.report(loss=act(model, optimizer))

    together = run(train, CONFIGS)
    assert together.outcome is Outcome.APART
    assert not together.notes.reports
    assert re.search(r"test_refusals\.py:\d+", together.reason)


def take_the_root_of_a_negative(trial: Trial) -> None:
    model = trial.prepare_model(nn.Linear(1, 1, bias=False).double())
    with torch.no_grad():
        model.weight.fill_(trial.config["lr"] - 0.2)
    try:
        (model(torch.ones(1, 1).double()).sqrt() * 0.0).sum().backward()
    except RuntimeError:
        trial.report(loss=1.0)
    else:
        trial.report(loss=0.0)


@pytest.mark.filterwarnings("ignore:Anomaly")
@pytest.mark.parametrize("is_scope", [True, False])
def test_lanes_train_separately_where_anomalies_raise(is_scope: bool) -> None:
    def train(trial: Trial) -> None:
        if is_scope:
            with torch.autograd.detect_anomaly(check_nan=True):
                take_the_root_of_a_negative(trial)
            return
        torch.autograd.set_detect_anomaly(True)
        try:
            take_the_root_of_a_negative(trial)
        finally:
            torch.autograd.set_detect_anomaly(False)

    assert [run_alone(train, config).history(0) for config in CONFIGS] == [[1.0], [0.0], [0.0]]
    together = run(train, CONFIGS)
    assert together.outcome is Outcome.APART
    assert "detect_anomaly" in together.reason


@pytest.mark.filterwarnings("ignore:Anomaly")
def test_lanes_train_separately_under_anomaly_mode_of_the_script() -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        together = run(take_the_root_of_a_negative, CONFIGS)
    assert together.outcome is Outcome.APART
    assert "detect_anomaly" in together.reason
