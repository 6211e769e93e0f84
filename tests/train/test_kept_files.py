"""What is saved, dumped and logged in a group is kept for each trial, as the trial alone would write it."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.train.lab import run, run_alone
from torch import nn

from headwater.train import Trial
from headwater.trials import Outcome

VALUES = (0.25, 0.5, 0.75)


def open_model(trial: Trial) -> tuple[nn.Module, Any]:
    model = trial.prepare_model(nn.Linear(2, 1))
    with torch.no_grad():
        model.weight.fill_(1.0).mul_(trial.config["x"])
    return model, model.weight.sum().item()


def train_with(act: Callable[[Any, Any, Path], Any], folder: Path) -> Callable[[Trial], None]:
    def train(trial: Trial) -> None:
        model, number = open_model(trial)
        trial.report(loss=act(model, number, folder))

    return train


def save_state(model: Any, x: Any, folder: Path) -> Any:
    torch.save({"model": model.state_dict(), "best": x, "epoch": 3}, folder / "best.pt")
    return 0.0


def save_open_file(model: Any, x: Any, folder: Path) -> Any:
    with (folder / "best.pt").open("wb") as file:
        torch.save({"model": model.state_dict(), "best": x, "epoch": 3}, file)
    return 0.0


def save_and_copy(model: Any, x: Any, folder: Path) -> Any:
    torch.save({"model": model.state_dict(), "best": x, "epoch": 3}, str(folder / "last.pt"))
    shutil.copyfile(str(folder / "last.pt"), str(folder / "best.pt"))
    return 0.0


@pytest.mark.parametrize("save", [save_state, save_open_file, save_and_copy])
def test_each_trial_has_the_file_it_would_write_alone(save: Callable[..., Any], tmp_path: Path) -> None:
    together = run(train_with(save, tmp_path), {7 + place: {"x": value} for place, value in enumerate(VALUES)})
    assert together.outcome is Outcome.DONE, together.reason
    for place, value in enumerate(VALUES):
        kept = torch.load(tmp_path / f"trial_{7 + place}" / "best.pt")
        run_alone(train_with(save, tmp_path), {"x": value})
        alone = torch.load(tmp_path / "best.pt")
        assert kept["best"] == alone["best"]
        assert kept["epoch"] == 3
        torch.testing.assert_close(kept["model"], alone["model"])


def test_what_was_saved_is_loaded_for_each_lane(tmp_path: Path) -> None:
    def act(model: Any, x: Any, folder: Path) -> Any:
        torch.save({"model": model.state_dict(), "best": x}, folder / "best.pt")
        with torch.no_grad():
            model.weight.zero_()
        kept = torch.load(folder / "best.pt")
        model.load_state_dict(kept["model"])
        return model.weight.sum().item() + kept["best"]

    together = run(train_with(act, tmp_path), [{"x": value} for value in VALUES])
    assert together.outcome is Outcome.DONE, together.reason
    assert [together.notes.history(number)[0] for number in range(3)] == [4 * value for value in VALUES]


def test_only_lanes_that_come_there_save(tmp_path: Path) -> None:
    def act(model: Any, x: Any, folder: Path) -> Any:
        best = 0.0
        if x > 0.8:
            best = x
            torch.save(model.state_dict(), folder / "best.pt")
        return best

    assert run(train_with(act, tmp_path), [{"x": value} for value in VALUES]).outcome is Outcome.DONE
    assert sorted(path.name for path in tmp_path.iterdir() if (path / "best.pt").exists()) == ["trial_1", "trial_2"]


def test_text_goes_to_a_copy_of_each_trial(tmp_path: Path) -> None:
    def act(model: Any, x: Any, folder: Path) -> Any:
        for epoch in range(2):
            with (folder / "log.txt").open("a") as file:
                file.write(f"epoch {epoch}\n")
                file.write(json.dumps({"loss": x * epoch}) + "\n")
        with (folder / "history.json").open("w") as file:
            json.dump({"losses": [x, 2 * x]}, file)
        np.save(str(folder / "rows.npy"), (model.weight.detach() * 1.0).numpy())
        return 0.0

    together = run(train_with(act, tmp_path), [{"x": value} for value in VALUES])
    assert together.outcome is Outcome.DONE, together.reason
    alone_folder = tmp_path / "alone"
    for number, value in enumerate(VALUES):
        shutil.rmtree(alone_folder, ignore_errors=True)
        alone_folder.mkdir()
        run_alone(train_with(act, alone_folder), {"x": value})
        for name in ("log.txt", "history.json", "rows.npy"):
            assert (tmp_path / f"trial_{number}" / name).read_bytes() == (alone_folder / name).read_bytes()


def test_what_reads_a_file_back_reads_that_of_its_lane_or_parts(tmp_path: Path) -> None:
    def act(model: Any, x: Any, folder: Path) -> Any:
        with (folder / "log.txt").open("w") as file:
            file.write(f"{x}")
        return float((folder / "log.txt").read_text())

    together = run(train_with(act, tmp_path), [{"x": value} for value in VALUES])
    assert together.outcome is Outcome.DONE, together.reason
    assert [together.notes.history(number)[0] for number in range(3)] == [2 * value for value in VALUES]


def test_a_stream_in_memory_sets_lanes_apart(tmp_path: Path) -> None:
    import io

    def act(model: Any, x: Any, folder: Path) -> Any:
        torch.save(model.state_dict(), io.BytesIO())
        return 0.0

    together = run(train_with(act, tmp_path), [{"x": value} for value in VALUES])
    assert together.outcome is Outcome.APART, together.ending.error
    assert "give a path" in together.reason


@pytest.fixture
def logger(tmp_path: Path) -> Iterator[logging.Logger]:
    found = logging.getLogger("tests.kept_files")
    found.setLevel(logging.INFO)
    found.propagate = False
    handler = logging.FileHandler(tmp_path / "train.log")
    found.addHandler(handler)
    yield found
    found.removeHandler(handler)
    handler.close()


def test_a_logged_number_shows_all_lanes(logger: logging.Logger, tmp_path: Path) -> None:
    def act(model: Any, x: Any, folder: Path) -> Any:
        logger.info("epoch %d loss %.2f (%s)", 1, x, "ok")
        logger.info("loss=%.1f" % x)  # noqa: UP031 - what is tested
        return 0.0

    together = run(train_with(act, tmp_path), [{"x": value} for value in VALUES])
    assert together.outcome is Outcome.DONE, together.reason
    assert (tmp_path / "train.log").read_text() == "epoch 1 loss [0.50 1.00 1.50] (ok)\nloss=[0.5 1.0 1.5]\n"
