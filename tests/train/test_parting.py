"""Lanes part where the code needs one value of what differs between them, and only there."""

from __future__ import annotations

import builtins
import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.lab import Run, run
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from headwater.train import Trial
from headwater.trials import Outcome

DATA = TensorDataset(torch.arange(8.0).view(8, 1))


def run_two(function: Callable[[Trial], Any], name: str, *values: Any) -> Run:
    """Run the function for lanes that differ in one hyperparameter."""
    return run(function, [{name: value} for value in values])


def read_layer_size(trial: Trial) -> None:
    nn.Linear(4, trial.config["x"])


def read_tensor_size(trial: Trial) -> None:
    torch.zeros(2, trial.config["x"])


def read_dictionary(trial: Trial) -> None:
    {8: "a", 16: "b"}[trial.config["x"]]


def read_range(trial: Trial) -> None:
    for _ in range(trial.config["x"]):
        pass


def read_list_place(trial: Trial) -> None:
    [*range(20)][trial.config["x"]]


def read_repetition(trial: Trial) -> None:
    nn.Sequential(*[nn.ReLU()] * trial.config["x"])


def read_int(trial: Trial) -> None:
    hidden = int(trial.config["x"] * 1.5)
    nn.Linear(hidden, 1)


def read_batch_size(trial: Trial) -> None:
    trial.prepare_data_loader(DATA, batch_size=trial.config["x"])


def read_kernel_size(trial: Trial) -> None:
    nn.Conv2d(1, 1, trial.config["x"])


def read_view(trial: Trial) -> None:
    torch.zeros(16).view(trial.config["x"], -1)


@pytest.mark.parametrize(
    "function",
    [
        read_layer_size, read_tensor_size, read_dictionary, read_range, read_list_place, read_repetition, read_int,
        read_batch_size, read_kernel_size, read_view,
    ],
)  # fmt: skip
def test_lanes_part_where_an_int_is_needed(function: Callable[[Trial], Any]) -> None:
    done = run_two(function, "x", 8, 16)
    assert done.outcome is Outcome.PARTED
    assert len({repr(answer) for answer in done.answers()}) == 2


@pytest.mark.parametrize("function", [read_layer_size, read_range, read_batch_size, read_dictionary])
def test_lanes_that_agree_do_not_part(function: Callable[[Trial], Any]) -> None:
    assert run_two(function, "x", 8, 8).outcome is Outcome.DONE


def test_lanes_part_by_what_is_computed_from_the_configuration() -> None:
    done = run_two(lambda trial: nn.Linear(2 * trial.config["x"] + 1, 1), "x", 8, 16)
    assert done.answers() == [17, 33]
    assert done.label is not None
    assert "x" in done.label


def test_lanes_part_where_words_name_an_attribute_a_key_or_a_branch() -> None:
    def read_attribute(trial: Trial) -> None:
        getattr(nn, trial.config["act"])()

    def read_key(trial: Trial) -> None:
        {"ReLU": nn.ReLU, "GELU": nn.GELU}[trial.config["act"]]()

    def branch(trial: Trial) -> None:
        nn.ReLU() if trial.config["act"] == "ReLU" else nn.GELU()

    def match(trial: Trial) -> None:
        match trial.config["act"]:
            case "ReLU":
                nn.ReLU()
            case _:
                nn.GELU()

    for function in (read_attribute, read_key, branch, match):
        done = run_two(function, "act", "ReLU", "GELU")
        assert done.outcome is Outcome.PARTED, function.__name__
        assert len(set(done.answers())) == 2
        assert "act" in str(done.label)


def test_a_word_that_settles_nothing_does_not_part() -> None:
    assert run_two(lambda trial: trial.config["act"] == "tanh", "act", "ReLU", "GELU").outcome is Outcome.DONE


def test_lanes_part_by_the_answer_where_a_word_is_compared_with_others() -> None:
    def branch(trial: Trial) -> None:
        act = trial.config["act"]
        if act in ("ReLU", "GELU"):
            pass

    done = run_two(branch, "act", "ReLU", "Tanh", "SiLU")
    assert done.label == "act == 'ReLU'"


def test_lanes_part_where_the_type_of_a_value_differs_and_not_further() -> None:
    done = run_two(lambda trial: nn.Dropout(trial.config["p"] or 0.0), "p", None, 0.5, 0.25, None)
    assert done.label == "type(p)"
    assert done.answers() == ["NoneType", "float", "float", "NoneType"]


@pytest.mark.parametrize("value", [True, 1, None, "yes", [1]], ids=["bool", "int", "none", "text", "list"])
def test_lanes_part_at_an_if(value: Any) -> None:
    def train(trial: Trial) -> None:
        if trial.config["flag"]:
            pass

    done = run_two(train, "flag", value, type(value)() if value is not None else 3)
    assert done.outcome is Outcome.PARTED


def test_classes_tuples_and_functions_part_where_they_are_used() -> None:
    def call(trial: Trial) -> None:
        trial.config["layer"]()

    def unpack(trial: Trial) -> None:
        one, other = trial.config["shape"]
        torch.zeros(one, other)

    assert run_two(call, "layer", nn.ReLU, nn.GELU).outcome is Outcome.PARTED
    assert run_two(unpack, "shape", (1, 2), (2, 2)).outcome is Outcome.PARTED


def test_printing_does_not_part(capsys: pytest.CaptureFixture[str]) -> None:
    def train(trial: Trial) -> None:
        lr = trial.config["lr"]
        print(f"{lr:.2f} {lr} {lr!r}", lr)  # noqa: T201 - what is tested
        print(str(lr) + "!", trial.config, "%s" % lr, file=sys.stderr)  # noqa: T201, UP031 - what is tested

    done = run(train, [{"lr": 0.125, "act": "relu"}, {"lr": 0.25, "act": "gelu"}])
    assert done.outcome is Outcome.DONE
    written = capsys.readouterr()
    assert written.out == "[0.12 0.25] [0.125 0.25] [0.125 0.25] [0.125 0.25]\n"
    assert "gelu" in written.err


def test_printing_does_not_part_where_a_library_has_its_own_print(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(trial: Trial) -> None:
        print(f"at {trial.config['lr']}")  # noqa: T201 - what is tested

    monkeypatch.syspath_prepend(str(Path(__file__).parent / "site-packages"))
    library_code: Any = importlib.import_module("library_code")
    monkeypatch.setattr(library_code, "WRITTEN", [])
    monkeypatch.setattr(builtins, "print", library_code.write_line)
    assert run_two(train, "lr", 0.125, 0.25).outcome is Outcome.DONE
    assert library_code.WRITTEN == ["at [0.125 0.25]"]


def test_logging_notes_the_line_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    def train(trial: Trial) -> None:
        logging.getLogger("mine").warning("lr is %s", trial.config["lr"])

    assert run_two(train, "lr", 0.5, 0.25).outcome is Outcome.DONE
    assert [(record.getMessage(), record.funcName) for record in caplog.records] == [("lr is [0.5 0.25]", "train")]


def test_arithmetic_does_not_part() -> None:
    def train(trial: Trial) -> None:
        lr = trial.config["lr"]
        trial.report(loss=(2 * lr + 1) / (lr**2 - 3) - abs(-lr) + round(lr, 1))

    done = run_two(train, "lr", 0.1, 0.2)
    assert done.notes.history(1) == [(2 * 0.2 + 1) / (0.2**2 - 3) - 0.2 + 0.2]


def test_a_comparison_of_continuous_values_parts_in_two_by_its_answer() -> None:
    def train(trial: Trial) -> None:
        if trial.config["lr"] > 0.25:
            pass

    done = run_two(train, "lr", 0.1, 0.2, 0.3, 0.4)
    assert done.answers() == [False, False, True, True]
    assert done.label == "lr > 0.25"


def test_a_comparison_on_which_lanes_agree_does_not_part() -> None:
    def train(trial: Trial) -> None:
        if trial.config["lr"] > 1:
            raise AssertionError

    assert run_two(train, "lr", 0.1, 0.2).outcome is Outcome.DONE


def test_the_question_stays_even_if_the_code_swallows_it() -> None:
    def swallow_everything(trial: Trial) -> None:
        try:
            nn.Linear(4, trial.config["x"])
        except:  # noqa: E722 - what careless code does
            nn.Linear(4, 4)

    def fail_otherwise(trial: Trial) -> None:
        try:
            nn.Linear(4, trial.config["x"])
        except BaseException as error:
            raise ValueError("no good") from error

    for function in (swallow_everything, fail_otherwise):
        done = run_two(function, "x", 8, 16)
        assert done.outcome is Outcome.PARTED
        assert done.answers() == [8, 16]


def branch_on_tensor(trial: Trial) -> None:
    model = trial.prepare_model(nn.Linear(1, 1))
    with torch.no_grad():
        model.weight.fill_(1.0).mul_(trial.config["x"])
        model.bias.zero_()
        loss = model(torch.ones(1)).sum()
    trial.report(loss=loss)
    if loss > 2:
        trial.report(loss=0.0)


def test_a_branch_on_what_lanes_computed_sets_them_apart_by_their_answers() -> None:
    done = run_two(branch_on_tensor, "x", 1, 3, 2)
    assert done.outcome is Outcome.APART
    assert done.ending.question is not None
    assert done.ending.question.answers == (False, True, False)
    assert "branches on what lanes computed: one side calls report (test_parting.py:" in done.reason


def test_a_branch_on_which_lanes_agree_is_taken() -> None:
    assert run_two(branch_on_tensor, "x", 3, 4).notes.epochs(0) == [1, 2]


def test_lanes_that_have_left_have_no_say() -> None:
    from headwater.trials import Decision

    def train(trial: Trial) -> None:
        trial.report(loss=1.0)
        nn.Linear(4, trial.config["x"])

    configs = [{"x": 8}, {"x": 16}, {"x": 8}]
    done = run(train, configs, decide=lambda report: Decision.STOP if report.number == 1 else Decision.CONTINUE)
    assert done.outcome is Outcome.DONE


def test_what_lanes_cannot_do_at_once_sets_them_apart_with_the_reason() -> None:
    def train(trial: Trial) -> None:
        trial.prepare_model(nn.Linear(1, 1)).weight.detach().numpy()

    done = run_two(train, "x", 1, 2)
    assert done.outcome is Outcome.APART
    assert "detach().clone().numpy() (test_parting.py:" in done.reason


def test_an_exception_of_the_users_is_an_ending_with_its_traceback() -> None:
    def train(trial: Trial) -> None:
        raise KeyError("where is it")

    done = run_two(train, "x", 1, 2)
    assert done.outcome is Outcome.RAISED
    assert "KeyError: 'where is it'" in done.ending.error


def test_a_loader_of_the_users_own_parts_by_its_batch_size() -> None:
    done = run_two(lambda trial: list(DataLoader(DATA, batch_size=trial.config["x"])), "x", 2, 4)
    assert done.outcome is Outcome.PARTED
