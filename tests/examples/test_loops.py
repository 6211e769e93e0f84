"""Every loop in `examples/loops` gives each trial the same numbers in a group of eight as alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from headwater.loading import load_study_file
from headwater.study import Study
from headwater.trials import Result, Status

LOOPS = Path(__file__).parents[2] / "examples" / "loops"
NAMES = sorted(path.stem for path in LOOPS.glob("*.py"))
NUM_TRIALS = 8

PARTING = {
    "activation": "lanes part by `activation`",
    "batch_size": "lanes part by `batch_size`",
    "conditional_space": "lanes part by `optimizer.name == 'sgd'`",
}
"""The examples whose code needs one value of a hyperparameter, and the note that says of which."""

RELATIVE = 5e-6
"""A lane adds the same float32 numbers as a trial alone, but in another order: 1e-7 apart after one step. A hundred
steps of training carry that to 1e-6 at most in these examples. What a wrong rule does is larger: leaving autocast out,
the least of them, shows as 1e-5 after the first epoch."""

ONE_EXAMPLE = 1.001 / 397
"""Accuracies count right answers among 397: one that is a tie up to rounding may fall on either side."""


SWITCHING = ("cnn",)
"""In single precision, rectifiers near zero and ties in max pooling switch with the last digit, and that shows. These
examples are compared in double precision."""


@pytest.fixture(autouse=True)
def precision(request: pytest.FixtureRequest) -> Iterator[None]:
    is_double = request.node.callspec.params["name"] in SWITCHING
    torch.set_default_dtype(torch.float64 if is_double else torch.float32)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", NAMES)
def test_eight_lanes_equal_eight_trials(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study = _load(name, monkeypatch)
    if name in SWITCHING:
        _double_data(study.train.__globals__, monkeypatch)

    alone = replace(study, lanes=1, storage=None).run(num_trials=NUM_TRIALS)
    together = replace(study, lanes=NUM_TRIALS, storage=None).run(num_trials=NUM_TRIALS)

    assert _deviations(alone, together) == []
    assert _notes(alone) == []
    assert [note.split(":")[0] for note in _notes(together)] == ([PARTING[name]] if name in PARTING else [])


def _load(name: str, monkeypatch: pytest.MonkeyPatch) -> Study:
    monkeypatch.setattr(sys, "argv", [*sys.argv])  # loading a file changes both
    monkeypatch.setattr(sys, "path", [*sys.path])
    return load_study_file(LOOPS / f"{name}.py").study


def _double_data(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in list(names.items()):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            monkeypatch.setitem(names, name, value.double())
        if isinstance(value, TensorDataset):
            doubled = [item.double() if item.is_floating_point() else item for item in value.tensors]
            monkeypatch.setitem(names, name, TensorDataset(*doubled))


def _deviations(alone: Result, together: Result) -> list[str]:
    """Say of every reported number that differs by more than it may, and of every trial that did not end well."""
    found = [
        f"trial {trial.number} {trial.status}: {trial.error}"
        for result in (alone, together)
        for trial in result.trials
        if trial.status is not Status.COMPLETED
    ]
    for one, lane in zip(alone.trials, together.trials, strict=True):
        assert one.config == lane.config
        for expected, actual in zip(one.history, lane.history, strict=True):
            assert expected.metrics.keys() == actual.metrics.keys()
            found += [
                f"trial {one.number}, epoch {expected.epoch}: {metric} {value}, in a group {actual.metrics[metric]}"
                for metric, value in expected.metrics.items()
                if abs(value - actual.metrics[metric]) > _tolerance(metric, value)
            ]
    return found


def _tolerance(metric: str, value: float) -> float:
    return ONE_EXAMPLE if metric in ("accuracy", "best") else RELATIVE * abs(value)


def _notes(result: Result) -> list[str]:
    return sorted({note for trial in result.trials for note in trial.notes})
