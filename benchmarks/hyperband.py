"""Pack-aware Hyperband on the paper's space: one trial after the other, and packed in each of the ways.

Run `python benchmarks/hyperband.py` (about half an hour on one core). The table goes to standard output as Markdown;
the committed one is benchmarks/hyperband.md.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from measuring import heading
from pack_models import ACTIVATIONS, BATCH_SIZES, OPTIMIZERS, RATES, mlp3, mobilenet, raw_images, training
from torch import nn

import headwater as hw
from headwater.search import Hyperband

SPACE = {
    "batch_size": hw.choice(BATCH_SIZES),
    "optimizer": hw.choice(OPTIMIZERS),
    "lr": hw.choice(RATES),
    "activation": hw.choice(ACTIVATIONS),
}
MAX_EPOCHS = 81
NUM_TRIALS = 143
"""One round of Hyperband: brackets of 81, 34, 15, 8 and 5 trials."""
WAYS: dict[str, dict[str, Any]] = {
    "original": {"packing": None, "lanes": 1},
    "batch-size": {"packing": "batch_size"},
    "random": {"packing": "random"},
    "kNN": {"packing": "knn"},
    "cost": {"packing": "cost"},
    "lanes alone": {"packing": None},
}
MODELS: dict[str, Callable[[str], nn.Module]] = {"MLP-3": mlp3, "MobileNet": mobilenet}


@dataclass(frozen=True)
class Run:
    seconds: float
    survivors: frozenset[int]
    best: int
    loss: float


def run(model: str, way: str, num_examples: int, max_epochs: int, num_trials: int) -> Run:
    examples = raw_images(num_examples)

    def train(trial: hw.Trial) -> None:
        build = partial(build_model, model, trial)
        training(build, examples, max_epochs)(trial)

    study = hw.Study(
        train, space=SPACE, metric="loss", search=Hyperband(reduction=3), max_epochs=max_epochs, storage=None,
        **WAYS[way],
    )  # fmt: skip
    begin = time.process_time()
    result = study.run(num_trials=num_trials)
    seconds = time.process_time() - begin
    survivors = frozenset(trial.number for trial in result.trials if trial.epochs == max_epochs)
    return Run(seconds, survivors, result.best.number, result.best.value("loss"))


def build_model(model: str, trial: hw.Trial) -> nn.Module:
    return MODELS[model](trial.config["activation"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--examples", type=int, default=400)
    parser.add_argument("--max-epochs", type=int, default=MAX_EPOCHS)
    parser.add_argument("--trials", type=int, default=NUM_TRIALS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(heading("Pack-aware Hyperband (as Table 4)"))
    print(
        f"CPU seconds of a whole study, profiles included, median of {options.rounds}: the paper's space of 1,056 "
        f"configurations, R = {options.max_epochs}, eta = 3, {options.trials} trials, epochs of {options.examples} raw "
        "CIFAR-10 images, each cropped, flipped and normalised when it is loaded. The same survivors: those of the "
        "original that also trained to the end.\n"
    )
    print(
        "| model | way | seconds | speed-up | same survivors | best trial | its loss |\n|---|---|---|---|---|---|---|"
    )
    for model in options.models:
        found: dict[str, list[Run]] = {way: [] for way in options.ways}
        for _ in range(options.rounds):
            for way in options.ways:
                found[way].append(run(model, way, options.examples, options.max_epochs, options.trials))
        first = found[options.ways[0]]
        for way, runs in found.items():
            seconds = statistics.median(one.seconds for one in runs)
            gain = statistics.median(one.seconds for one in first) / seconds
            same = len(runs[0].survivors & first[0].survivors)
            print(
                f"| {model} | {way} | {seconds:.1f} | {gain:.2f} | {same} of {len(first[0].survivors)} "
                f"| {runs[0].best} | {runs[0].loss:.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
