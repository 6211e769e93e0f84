"""A whole study whose target trains so long that compiling pays, with and without compiling.

Run `python benchmarks/compiling.py` (about a quarter of an hour). The two studies run at the same time, each on one
core, so that a machine that is slower for a while is so for both. The table goes to standard output as Markdown, what
the studies say on their way to standard error; the committed one is benchmarks/compiling.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # all that it does is on the study's own core

import torch
import torch.nn.functional as F
from measuring import heading
from torch.utils.data import TensorDataset
from tuners import Clock
from workloads import resnet18, thumbnails

import headwater as hw

BATCH_SIZE = 64
NUM_EXAMPLES = 4096
NUM_TRIALS = 2


class Stages(Clock):
    """Also keeps when the last stage began, and what was told of compiling."""

    def __init__(self, begin: float) -> None:
        super().__init__(begin)
        self.last_begin = begin
        self.remark = "-"

    def start(self, study: str, metric: str, num_trials: int | None) -> None:
        super().start(study, metric, num_trials)
        self.last_begin = time.perf_counter()

    def tell(self, text: str) -> None:
        super().tell(text)
        if "compiled" in text:
            self.remark = text


def run_study(compiles: bool, num_epochs: int) -> None:
    """Tune the learning rate on surrogates, train the target, and print what came of it."""
    torch.set_num_threads(1)
    x, y, valid_x, valid_y, _, _ = thumbnails(NUM_EXAMPLES)
    dataset = TensorDataset(x, y)

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(resnet18())
        loader = trial.prepare_data_loader(dataset, batch_size=BATCH_SIZE, shuffle=True)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
        for _ in trial.epochs(num_epochs):
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                trial.report(loss=F.cross_entropy(model(valid_x), valid_y))

    begin = time.perf_counter()
    watcher = Stages(begin)
    with tempfile.TemporaryDirectory() as folder:
        study = hw.Study(
            train,
            space={"lr": hw.loguniform(1e-3, 0.1)},
            metric="loss",
            storage=Path(folder) / "record.db",
            surrogate=hw.Surrogate(scale=8, eager=False, num_checked=0),
            compile=None if compiles else False,
        )
        result = study.run(num_trials=NUM_TRIALS, watcher=watcher)
    end = time.perf_counter()
    print(json.dumps([end - begin, end - watcher.last_begin, result.best.value("loss"), watcher.remark]))


def compare(num_epochs: int) -> None:
    command = [sys.executable, __file__, "--epochs", str(num_epochs), "--side"]
    sides = {side: subprocess.Popen([*command, side], stdout=subprocess.PIPE, text=True) for side in ("plain", "lazy")}
    print(heading("A target that is compiled on its way"))
    print(f"ResNet-18 on CIFAR-10 at 16 x 16, {num_epochs} epochs of {NUM_EXAMPLES // BATCH_SIZE} steps.\n")
    print("| compile | whole study, s | target, s | loss at the end | what was said |\n|---|---|---|---|---|")
    for side, process in sides.items():
        text, _ = process.communicate()
        whole_s, target_s, loss, remark = json.loads(text.splitlines()[-1])
        setting = "None (the default)" if side == "lazy" else "False"
        print(f"| {setting} | {whole_s:.0f} | {target_s:.0f} | {loss:.4f} | {remark} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--side", choices=["plain", "lazy"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run_study(options.side == "lazy", options.epochs)
    else:
        compare(options.epochs)


if __name__ == "__main__":
    main()
