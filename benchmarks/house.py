"""How many classes does a reader meet on the way of a trial?

Run `python benchmarks/house.py`, or with PYTHONPATH set to the sources of another commit. Four trials of a plain loop
train inline. A class is *entered* when a function of its body runs, and it is a *noun* on the way of a trial when it is
entered or is a value of its own, such as a frozen dataclass, of which an instance is made. Those of `fuse`, which makes
models one, and of `space`, which describes what may vary, are left out.
"""

import argparse
import inspect
import os
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

import headwater as hw

LEFT_OUT = ("headwater.fuse", "headwater.space")


class ClassesSeen:
    """Takes note of every class of Headwater of which a function is called."""

    def __init__(self) -> None:
        self.entered: set[str] = set()
        self.made: set[str] = set()

    def hear(self, frame: FrameType, event: str, argument: Any) -> None:  # Any: as sys.setprofile gives it
        """Take in a call."""
        module = sys.modules.get(frame.f_globals.get("__name__", ""))
        if event != "call" or module is None or not is_counted(module.__name__):
            return
        name, _, rest = frame.f_code.co_qualname.partition(".")
        if rest and inspect.isclass(getattr(module, name, None)):
            self.entered.add(f"{module.__name__}.{name}")
        elif frame.f_code.co_name == "__init__":  # as dataclasses generate it
            made = type(frame.f_locals["self"])
            self.made.add(f"{made.__module__}.{made.__name__}")


def is_counted(module: str) -> bool:
    return module.startswith("headwater") and not module.startswith(LEFT_OUT)


def train(trial: hw.Trial) -> None:
    """Two epochs of a small model."""
    inputs, targets = torch.randn(16, 4), torch.randn(16, 1)
    model = trial.prepare_model(nn.Linear(4, 1))
    loader = trial.prepare_data_loader(torch.utils.data.TensorDataset(inputs, targets), batch_size=8)
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    for _ in trial.epochs(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
        trial.report(loss=loss.item())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="also name them")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seen = ClassesSeen()
    with tempfile.TemporaryDirectory() as folder:
        study = hw.Study(
            train, space={"lr": hw.loguniform(1e-3, 1.0)}, metric="loss", storage=Path(folder) / "record.db",
            executor="inline",
        )  # fmt: skip
        sys.setprofile(seen.hear)
        try:
            study.run(4)
            assert sys.getprofile() == seen.hear, "something has stopped the count"
        finally:
            sys.setprofile(None)
    nouns = seen.entered | seen.made
    print(f"classes entered: {len(seen.entered)}; nouns on the way of a trial: {len(nouns)}")
    if options.list:
        print("\n".join(f"{name}{'' if name in seen.entered else ' (a value)'}" for name in sorted(nouns)))


if __name__ == "__main__":
    main()
