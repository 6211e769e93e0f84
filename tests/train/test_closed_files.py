"""Programs that write files in a group: each trial has the files that it would write alone, byte for byte."""

from __future__ import annotations

import builtins
import csv
import importlib
import json
import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]  # it has no types
import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from ray.experimental.tqdm_ray import safe_print
from tests.train.lab import run, run_alone
from torch import Tensor, nn
from tqdm import tqdm  # type: ignore[import-untyped]  # it has no types

from headwater.train import Trial
from headwater.trials import Outcome

VALUES = (0.25, 0.5, 0.75)
Program = Callable[[nn.Module, Any, Tensor, Path], Any]


class Net(nn.Module):
    """A model with tied weights and a setting that may differ by lane."""

    def __init__(self, dropout: Any) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        return self.second(self.dropout(self.first(x)))


def save_model(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    torch.save(model, folder / "model.pt")
    return x


def save_checkpoint(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    state = {"epoch": 3, "model": model.state_dict(), "best": x, "history": [x, 2 * x], "rows": (t, t * 2)}
    torch.save(state, os.path.join(folder, "checkpoint.pt"))  # noqa: PTH118 - what is tested
    return x


def save_by_keyword(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    torch.save(obj={"x": x}, f=str(folder / "named.pt"))
    return x


def pickle_numbers(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    with (folder / "numbers.pkl").open("wb") as file:
        pickle.dump({"x": x, "all": [x, 1.0]}, file)
    return x


def dump_text(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    with (folder / "log.json").open("w") as file:
        json.dump({"x": x}, file, indent=2)
        file.write("\n")
    with (folder / "log.yaml").open("w") as file:
        yaml.dump({"x": x, "values": [x, 2]}, file)
    return x


def save_arrays(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    np.save(folder / "t.npy", t.numpy())
    np.savetxt(str(folder / "t.txt"), t.numpy())
    joblib.dump([x, t.numpy()], folder / "t.joblib")
    return x


def save_picture(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    utils: Any = importlib.import_module("torchvision.utils")
    utils.save_image(t.view(1, 3), folder / "t.png", normalize=True)
    return x


def save_image_of_array(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    pixels = (t * 100).numpy().astype(np.uint8).reshape(1, 3)
    Image.fromarray(pixels).save(folder / "pixels.png")
    return x


def copy_checkpoint(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    torch.save(model.state_dict(), folder / "last.pt")
    shutil.copyfile(folder / "last.pt", folder / "best.pt")
    os.replace(folder / "last.pt", folder / "moved.pt")  # noqa: PTH105 - what is tested
    return x + float((folder / "best.pt").exists()) + float(os.path.isfile(folder / "last.pt"))  # noqa: PTH113


def copy_if_best(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    torch.save({"x": x}, folder / "last.pt")
    is_best = x > 0.4
    if is_best:
        shutil.copyfile(folder / "last.pt", folder / "best.pt")
    return x


def write_rows(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "loss"])
        for epoch in range(2):
            writer.writerow([epoch, x * epoch])
    return x


def print_to_file(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    with (folder / "log.txt").open("w") as file:
        print("epoch", 1, x, sep="\t", file=file)
        print("done", file=file)
    return x


def make_folder_by_value(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    where = os.path.join(folder, f"run-{x}")  # noqa: PTH118 - what is tested
    os.makedirs(where, exist_ok=True)  # noqa: PTH103
    torch.save({"x": x}, os.path.join(where, "a.pt"))  # noqa: PTH118
    return x


def list_folder(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    torch.save({"x": x}, folder / "last.pt")
    return x + len([name for name in os.listdir(folder) if name.endswith(".pt")])  # noqa: PTH208


def show_progress(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    bar = tqdm(range(3), disable=False)
    for _ in bar:
        bar.set_postfix(loss=x, accuracy=f"{100 * x:.1f}%")
        bar.set_description(f"loss {x:.3f}")
    return x


LAST: list[float] = [time.time()]


def progress_bar(current: int, total: int, message: str | None = None) -> None:
    """Show how far an epoch is, as pytorch-cifar does."""
    if current == 0:
        LAST[0] = time.time()
    done = int(20 * current / total)
    sys.stdout.write(" [" + "=" * done + ">" + "." * (19 - done) + "]")
    parts = [f"  Step: {time.time() - LAST[0]:.0f}"]
    if message:
        parts.append(" | " + message)
    line = "".join(parts)
    sys.stdout.write(line)
    for _ in range(60 - len(line) - 3):
        sys.stdout.write(" ")
    sys.stdout.write("\b" * 3)
    sys.stdout.write("\r" if current < total - 1 else "\n")
    sys.stdout.flush()


def show_bar(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    for batch in range(2):
        progress_bar(batch, 2, "Loss: %.3f | Acc: %.3f%% (%d/%d)" % (x * 30, 200 * x, 1, 2))  # noqa: UP031
    return x


def progress_bar_that_keeps(message: str) -> None:
    """Show a message, and keep its length."""
    sys.stdout.write(message)
    LAST[0] = float(len(message))


def show_and_keep(model: nn.Module, x: Any, t: Tensor, folder: Path) -> Any:
    progress_bar_that_keeps(f"{x * 30:.1f}")
    return LAST[0]


PROGRAMS: Mapping[str, Program] = {
    function.__name__: function
    for function in (
        save_model, save_checkpoint, save_by_keyword, pickle_numbers, dump_text, save_arrays, save_picture,
        save_image_of_array, copy_checkpoint, copy_if_best, write_rows, print_to_file, make_folder_by_value,
        list_folder, show_progress, show_bar, show_and_keep,
    )
}  # fmt: skip


def train_with(program: Program, folder: Path) -> Callable[[Trial], None]:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(lambda: Net(trial.config["x"] / 2).double())
        with torch.no_grad():
            ones = model.get_parameter("first.bias").fill_(1.0)
            t = ones * trial.config["x"] * torch.tensor([0.5, 1.0, 2.0]).double()
        trial.report(loss=program(model, t.sum().item() / 3.5, t, folder))

    return train


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SPLITTING = frozenset({"save_image_of_array", "write_rows", "list_folder", "show_and_keep"})
"""Programs that lanes cannot run as one."""


@pytest.fixture(autouse=True)
def torchvision(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a package stand in for torchvision, which is not installed, and be gone after the test."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "pictures" / "site-packages"))
    yield
    for name in ("torchvision", "torchvision.utils"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_trial_has_its_own_files_or_lanes_split(name: str, tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    configs = {7 + place: {"x": value} for place, value in enumerate(VALUES)}
    done = run(train_with(PROGRAMS[name], group), configs, checks=False)
    if name in SPLITTING:
        assert done.outcome in (Outcome.PARTED, Outcome.APART), done.ending.error
        return
    assert done.outcome is Outcome.DONE, (done.reason, done.ending.error)
    for number, config in configs.items():
        alone = tmp_path / f"alone{number}"
        alone.mkdir()
        notes = run_alone(train_with(PROGRAMS[name], alone), config, number)
        assert done.notes.history(number) == notes.history(number)
        own = group / f"trial_{number}"
        assert read_files(own if own.exists() else group).items() >= read_files(alone).items()


def test_a_print_function_of_ray_writes_to_each_trials_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "print", safe_print)
    done = run(train_with(print_to_file, tmp_path), {7: {"x": 0.25}, 8: {"x": 0.5}}, checks=False)
    assert done.outcome is Outcome.DONE, done.reason
    assert [(tmp_path / f"trial_{number}" / "log.txt").read_text() for number in (7, 8)] == [
        "epoch\t1\t0.25\ndone\n", "epoch\t1\t0.5\ndone\n"
    ]  # fmt: skip
