"""Whether compiling pays in a whole study: the same trial as written and with `compile=True`, side by side.

Run `python benchmarks/compiling.py` (some ten minutes on two cores). Both have a core and a process of their own and
train at the same time, so that a slow machine is slow for both. The table goes to standard output as Markdown; the
committed one is benchmarks/compiling.md.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import get_context

os.environ.setdefault("OMP_NUM_THREADS", "1")

import data
import torch
import torch.nn.functional as F
from measuring import heading
from torch import nn
from torch.utils.data import TensorDataset
from workloads import Basic

import headwater as hw

BATCH_SIZE = 32
STEPS_PER_EPOCH = 100


@dataclass(frozen=True)
class Outcome:
    seconds: float
    step_s: float
    """What a step of the last epoch took, evaluation left out."""
    loss: float
    told: list[str]


class Listener(hw.Silence):
    """Keeps what a study says."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def tell(self, text: str) -> None:
        self.told.append(text)
        print(f"{time.strftime('%X')} {text}", file=sys.stderr, flush=True)


def resnet() -> nn.Module:
    """ResNet-18 at a quarter of its width."""
    widths = (16, 16, 32, 64, 128)
    blocks = [
        block
        for stage, (inputs, outputs) in enumerate(pairwise(widths))
        for block in (Basic(inputs, outputs, 1 + (stage > 0)), Basic(outputs, outputs, 1))
    ]
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def training_function(num_epochs: int, laps: list[float]) -> Callable[[hw.Trial], None]:
    images = data.cifar10()
    count = BATCH_SIZE * STEPS_PER_EPOCH
    examples = TensorDataset(images.train_x[:count], images.train_y[:count])

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(resnet())
        loader = trial.prepare_data_loader(examples, batch_size=BATCH_SIZE, shuffle=True)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
        for _ in trial.epochs(num_epochs):
            begin = time.process_time()
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            laps.append((time.process_time() - begin) / STEPS_PER_EPOCH)
            with torch.no_grad():
                trial.report(loss=F.cross_entropy(model(images.valid_x[:512]), images.valid_y[:512]))

    return train


def run(num_epochs: int, is_compiled: bool) -> Outcome:
    torch.set_num_threads(1)
    laps: list[float] = []
    listener = Listener()
    study = hw.Study(
        training_function(num_epochs, laps), space={"lr": hw.grid([0.05])}, metric="loss", storage=None, lanes=1,
        compile=is_compiled,
    )  # fmt: skip
    begin = time.perf_counter()
    result = study.run(num_trials=1, watcher=listener)
    return Outcome(time.perf_counter() - begin, laps[-1], result.best.value("loss"), listener.told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=80, help=f"each of {STEPS_PER_EPOCH} steps")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        plain, compiled = pool.map(partial(run, options.epochs), (False, True))
    print(heading("A study in which compiling pays"))
    print(f"A ResNet-18 of a quarter of the width on CIFAR-10, {options.epochs} epochs of {STEPS_PER_EPOCH} steps of")
    print(f"{BATCH_SIZE} images, one trial. Compiling is part of the time.\n")
    print("| | wall s | CPU ms per step of the last epoch | loss |\n|---|---|---|---|")
    for name, outcome in (("as written", plain), ("`compile=True`", compiled)):
        print(f"| {name} | {outcome.seconds:.0f} | {outcome.step_s * 1e3:.1f} | {outcome.loss:.4f} |")
    print(f"\nTimes faster as a whole: {plain.seconds / compiled.seconds:.2f}. What the study said:\n")
    print("\n".join(f"- {text}" for text in compiled.told))


if __name__ == "__main__":
    main()
