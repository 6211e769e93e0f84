"""Settings that make no sense: each is refused in one line that says what is possible, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import HeadwaterError
from headwater.store import open_store

FILE = """
import math
import headwater as hw
from headwater.search import ASHA, BOHB, PBT, SHA, Hyperband, MedianStopping, OptunaSearch, RungModel

def train(trial):
    trial.report(loss=trial.config["lr"])

def takes_nothing(): ...
def takes_more(trial, data): ...
def yields(trial): yield
async def waits(trial): ...
class Trains:
    def __init__(self, trial): ...

settings = {"train": train, "space": {"lr": hw.uniform(0, 1)}, "metric": "loss", "storage": "study.db"}
"""

STUDY_CASES = [
    ("train=3", "train is 3; it must be a function"),
    ("train=takes_nothing", "takes_nothing(); it must take one argument, the trial"),
    ("train=takes_more", "takes_more(trial, data); it must take one argument"),
    ("train=yields", "generator yields"),
    ("train=waits", "async function waits"),
    ("train=Trains", "must be a function"),
    ("train=lambda: 1", "must take one argument"),
    ("space={}", "empty dictionary"),
    ("space=3", "give a dictionary"),
    ("space=None", "give a dictionary"),
    ("metric=3", "metric is 3; it must be the name of a metric"),
    ("metric=''", "metric is ''"),
    ("metric=None", "metric is None"),
    ("mode=None", "mode is None; it must be one of 'min', 'max'"),
    ("mode='best'", "mode is 'best'"),
    ("search=3", "there is no search 3; possible are 'random'"),
    ("search='annealing'", "there is no search 'annealing'; possible are"),
    ("search=None", "there is no search None"),
    ("search=ASHA", "search is the class ASHA; give an object of it, as in ASHA()"),
    ("search='pbt'", "pass max_epochs to the study"),
    ("search=ASHA(reduction=1.5)", "reduction is 1.5; it must be a whole number of at least 2"),
    ("search=ASHA(concurrency=True)", "concurrency is True"),
    ("search=SHA(min_epochs='1')", "min_epochs is '1'"),
    ("search=Hyperband(max_epochs=0)", "max_epochs is 0"),
    ("search=ASHA(suggest=3)", "suggest is 3; possible are"),
    ("search=PBT(quantile=0.9)", "quantile is 0.9; it must be a finite number at least 0 and at most 0.5"),
    ("search=PBT(factors=2)", "factors is 2; it must be two numbers"),
    ("search=PBT(mutate='lr')", "mutate is 'lr'; it must be keys"),
    ("search=BOHB(model=RungModel(random_fraction='x'))", "random_fraction is 'x'"),
    ("search=MedianStopping(grace_epochs=None, min_trials=0)", "min_trials is 0"),
    ("search=OptunaSearch(3)", "suggest is 3"),
    ("search=OptunaSearch('tpe', concurrency=0)", "concurrency is 0"),
    ("storage=3", "storage is 3; it must be a path, the URL of a database, or None"),
    ("storage=''", "storage is ''"),
    ("storage='nowhere/study.db'", "there is no directory"),
    ("storage='/proc/study.db'", "/proc/study.db"),
    ("storage='mysql://host/name'", "cannot hold a record"),
    (
        "executor=None",
        "executor is None; it must be one of 'auto', 'inline', 'processes', 'ray', 'slurm', or an executor",
    ),
    ("executor='cloud'", "executor is 'cloud'"),
    ("executor=hw.ProcessExecutor", "executor is"),
    ("executor=hw.ProcessExecutor(0)", "num_workers is 0; it must be a whole number of at least 1"),
    ("executor=hw.ProcessExecutor('2')", "num_workers is '2'"),
    ("executor=hw.ProcessExecutor(1.5)", "num_workers is 1.5"),
    ("lanes=True", "lanes is True; it must be 'auto' or a whole number of at least 1"),
    ("lanes=0", "lanes is 0"),
    ("lanes='8'", "lanes is '8'"),
    ("lanes=None", "lanes is None"),
    ("packing=3", "packing is 3; it must be one of 'cost'"),
    ("packing='batch_size'", "needs a key batch_size"),
    ("seed='x'", "seed is 'x'; it must be a whole number from 0 to 4294967295"),
    ("seed=-1", "seed is -1"),
    ("seed=1.5", "seed is 1.5"),
    ("seed=2**70", "seed is 1180591620717411303424"),
    ("seed=None", "seed is None"),
    ("name=''", "name is ''"),
    ("name=3", "name is 3"),
    ("name='a\\nb'", "in one line and without control characters"),
    ("name='a\\x1b[2Jb'", "without control characters"),
    ("name='a' * 300", "has 300 bytes; it must have at most 200"),
    ("device=3", "device is 3; it must be 'auto'"),
    ("device='tpu9'", "device 'tpu9' cannot be used"),
    ("device='meta'", "device 'meta' cannot be used"),
    ("max_epochs=0", "max_epochs is 0; it must be a whole number of at least 1"),
    ("max_epochs=-1", "max_epochs is -1"),
    ("max_epochs=2.5", "max_epochs is 2.5"),
    ("max_epochs=True", "max_epochs is True"),
    ("save_every=0", "save_every is 0; it must be 'auto', None or a whole number"),
    ("save_every=True", "save_every is True"),
    ("num_seeds=True", "num_seeds is True"),
    ("num_seeds=1.5", "num_seeds is 1.5"),
    ("num_seeds=0", "num_seeds is 0"),
    ("callbacks=3", "callbacks is 3; it must be a list of headwater.Callback objects"),
    ("callbacks=[object()]", "callbacks has <object"),
    ("callbacks=[hw.Callback]", "must hold objects"),
    ("callbacks=hw.Callback()", "it must be a list"),
    ("surrogate=1.5", "surrogate scale is 1.5; it must be 'auto' or a whole number of at least 1"),
    ("surrogate='8'", "surrogate scale is '8'"),
    ("surrogate=-1", "surrogate scale is -1"),
    ("surrogate=True", "surrogate scale is True"),
    ("surrogate=hw.Surrogate(min_width=0)", "surrogate min_width is 0"),
    ("surrogate=hw.Surrogate(num_checked=1.5)", "surrogate num_checked is 1.5"),
    ("surrogate=hw.Surrogate(time_share=2)", "surrogate time_share is 2"),
    ("surrogate=hw.Surrogate(decay_exponent='x')", "surrogate decay_exponent is 'x'"),
    ("surrogate=hw.Surrogate(eager='yes')", "surrogate eager is 'yes'; it must be a finite number"),
    ("surrogate=hw.Surrogate(untransferable='lr')", "untransferable is 'lr'; it must be a list of keys"),
    ("surrogate=hw.Surrogate(scale='auto', at=2)", "give scale as a whole number too"),
    ("compile='yes'", "compile is 'yes'; it must be one of True, False, None"),
]

RUN_CASES = [
    ("num_trials=0", "num_trials is 0; it must be a whole number of at least 1"),
    ("num_trials=-3", "num_trials is -3"),
    ("num_trials=True", "num_trials is True"),
    ("num_trials='10'", "num_trials is '10'"),
    ("num_trials=1.5", "num_trials is 1.5"),
    ("num_trials=None", "run needs num_trials"),
    ("num_trials=2, time_budget=-1", "time_budget is -1; it must be a finite number at least 0"),
    ("num_trials=2, time_budget=math.nan", "time_budget is nan"),
    ("num_trials=2, time_budget=math.inf", "time_budget is inf"),
    ("num_trials=2, time_budget='20'", "time_budget is '20'"),
    ("num_trials=2, target='x'", "target is 'x'"),
    ("num_trials=2, target=math.nan", "target is nan; it must be a finite number"),
]


@pytest.fixture(autouse=True)
def place(empty_place: Path) -> Path:
    return empty_place


def run_python(study: str, run: str) -> None:
    """Do what a script does with these settings; the text is this file's own."""
    scope: dict[str, Any] = {}
    exec(FILE, scope)  # noqa: S102
    exec(f"hw.Study(**{{**settings, **dict({study})}}).run({run})", scope)  # noqa: S102


@pytest.mark.parametrize(("study", "message"), STUDY_CASES)
def test_a_study_with_a_malformed_setting_is_refused_in_one_line(place: Path, study: str, message: str) -> None:
    with pytest.raises(HeadwaterError) as caught:
        run_python(study, "num_trials=2")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(place.iterdir())


@pytest.mark.parametrize(("run", "message"), RUN_CASES)
@pytest.mark.parametrize("study", ["", "surrogate=2"])
def test_a_run_with_a_malformed_limit_is_refused_in_one_line(place: Path, study: str, run: str, message: str) -> None:
    with pytest.raises(HeadwaterError) as caught:
        run_python(study, run)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(place.iterdir())


@pytest.mark.parametrize(("study", "message"), STUDY_CASES)
def test_the_command_says_the_same_and_ends_with_status_two(place: Path, study: str, message: str) -> None:
    file = place / "my_study.py"
    file.write_text(f"{FILE}\nstudy = hw.Study(**{{**settings, **dict({study})}})\n")
    result = CliRunner().invoke(app, ["run", "my_study.py", "--trials", "2"])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert [path.name for path in place.iterdir() if path.name != "__pycache__"] == ["my_study.py"]


@pytest.mark.parametrize(
    "options",
    [
        ["--trials", "0"], ["--trials", "1.5"], ["--max-epochs", "x"], ["--seed", "-1"], ["--seed", str(2**70)],
        ["--lanes", "0"], ["--lanes", "1.5"], ["--lanes", "-2"], ["--devices", "0"], ["--devices", "two"],
        ["--executor", "two"],
        ["--packing", "tight"], ["--search", "annealing"], ["--surrogate", "1.5"], ["--surrogate", "-1"],
        ["--time-budget", "-1"], ["--time-budget", "nan"], ["--time-budget", "inf"], ["--target", "nan"],
        ["--name", ""], ["--name", "a\nb"], ["--name", "a" * 300], ["--storage", "nowhere/study.db"],
    ],
)  # fmt: skip
def test_malformed_options_end_the_command_with_status_two(place: Path, options: list[str]) -> None:
    (place / "my_study.py").write_text(f"{FILE}\nstudy = hw.Study(**settings)\nNUM_TRIALS = 2\n")
    result = CliRunner().invoke(app, ["run", "my_study.py", *options])
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert [path.name for path in place.iterdir() if path.name != "__pycache__"] == ["my_study.py"]


@pytest.mark.parametrize("count", ["0", "1.5", "True", "'10'"])
def test_a_file_that_asks_for_no_number_of_trials_is_refused(place: Path, count: str) -> None:
    (place / "my_study.py").write_text(f"{FILE}\nstudy = hw.Study(**settings)\nNUM_TRIALS = {count}\n")
    result = CliRunner().invoke(app, ["run", "my_study.py"])
    assert result.exit_code == 2
    assert f"is {count}; it must be a whole number" in result.stderr


def train(trial: hw.Trial) -> None:
    for _ in trial.epochs(3):
        trial.report(loss=trial.config["lr"])


def test_numbers_of_numpy_are_numbers(place: Path) -> None:
    numbers: dict[str, Any] = {
        "seed": np.int64(3),
        "lanes": np.int32(2),
        "max_epochs": np.int64(2),
        "save_every": np.int16(1),
        "num_seeds": np.uint8(2),
    }
    limits: dict[str, Any] = {"num_trials": np.int64(4), "time_budget": np.float64(1000), "target": np.float32(-1)}
    study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", storage="study.db", **numbers)
    result = study.run(**limits)
    assert [trial.epochs for trial in result.trials] == [2] * 4
    with open_store("study.db", create=False) as store:
        info = store.study()
        assert (info.seed, info.settings["lanes"], info.settings["num_trials"]) == (3, 2, 4)
        assert store.facts(info.id)["max_epochs"] == 2


def test_a_lambda_and_a_device_of_torch_are_taken(place: Path) -> None:
    study = hw.Study(
        lambda trial: trial.report(loss=trial.config["lr"]),
        space={"lr": hw.uniform(0, 1)},
        metric="loss",
        storage=None,
        device=torch.device("cpu"),  # type: ignore[arg-type]  # as many would write it
    )
    assert len(study.run(2).trials) == 2
