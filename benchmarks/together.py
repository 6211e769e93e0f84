"""Studies of several users that train the same function: together as lanes of common groups, against one after another.

Run `python benchmarks/together.py` (some minutes on one core). Each user has a study with a search of its own over the
same space, of so many trials of a small MLP or of a convolutional network. Both ways measure how many lanes pay, as
they do by default. Ways take turns, and what is compared is the CPU time of the process, so that other load on the
machine counts little. Every trial's first epochs are compared with those of the study that ran alone, in double
precision. The table goes to standard output as Markdown.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from measuring import heading
from torch import nn

import headwater as hw

NUM_COMPARED = 10
"""So many epochs are compared: where a rate is too high, a rounding of the first one grows to anything in forty."""
SEARCHES = ("random", "qmc", "tpe", "asha")
X = torch.randn(512, 16, generator=torch.Generator().manual_seed(0))
DATA = torch.utils.data.TensorDataset(X, (X[:, :4].sum(1) > 0).long())


def make_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))


def make_convolution() -> nn.Module:
    layers = nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 2)
    return nn.Sequential(nn.Unflatten(1, (1, 4, 4)), *layers)


def make_function(build: Callable[[], nn.Module], num_epochs: int) -> Callable[[hw.Trial], None]:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(build())
        loader = trial.prepare_data_loader(DATA, batch_size=32, shuffle=True)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=trial.config["m"])
        for _ in trial.epochs(num_epochs):
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x.to(torch.get_default_dtype())), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
            trial.report(loss=total)

    return train


def make_studies(train: Callable[[hw.Trial], None], num_users: int) -> list[hw.Study]:
    space = {"lr": hw.loguniform(1e-4, 0.3), "m": hw.uniform(0.0, 0.99)}
    return [
        hw.Study(train, space=space, metric="loss", search=search, executor="inline", packing=None)
        for search in SEARCHES[:num_users]
    ]


def run_apart(studies: Sequence[hw.Study], num_trials: int) -> list[hw.Result]:
    return [study.run(num_trials, watcher=hw.Silence()) for study in studies]


def find_gap(one: hw.Result, other: hw.Result) -> float:
    """Return how far apart two results of a study are at first, relative; inf where they are not of the same trials."""
    gap = 0.0
    for mine, its in zip(one.trials, other.trials, strict=True):
        if (mine.config, mine.status, mine.epochs) != (its.config, its.status, its.epochs):
            return float("inf")
        for left, right in zip(mine.history[:NUM_COMPARED], its.history[:NUM_COMPARED], strict=True):
            gap = max(gap, abs(left.metrics["loss"] - right.metrics["loss"]) / max(abs(right.metrics["loss"]), 1e-9))
    return gap


def compare(train: Callable[[hw.Trial], None], num_users: int, num_trials: int, num_rounds: int) -> str:
    seconds: dict[str, list[float]] = {"apart": [], "together": []}
    for _ in range(num_rounds):
        begin_s = time.process_time()
        run_apart(make_studies(train, num_users), num_trials)
        seconds["apart"].append(time.process_time() - begin_s)
        begin_s = time.process_time()
        hw.run_together(make_studies(train, num_users), num_trials)
        seconds["together"].append(time.process_time() - begin_s)
    torch.set_default_dtype(torch.float64)
    apart = run_apart(make_studies(train, num_users), num_trials)
    gap = max(map(find_gap, hw.run_together(make_studies(train, num_users), num_trials), apart))
    torch.set_default_dtype(torch.float32)
    ratios = [one / other for one, other in zip(seconds["apart"], seconds["together"], strict=True)]
    one, other = (statistics.median(values) for values in seconds.values())
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"{one:.2f} s | {other:.2f} s | {statistics.median(ratios):.2f} ({spread}) | {gap:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trials", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--epochs", type=int, default=40)
    asked = parser.parse_args()
    models = {"MLP of width 32": make_mlp, "convolution of 8 channels": make_convolution}
    run_apart(make_studies(make_function(make_mlp, 1), 2), 2)  # whatever is done once in a process
    print(heading("Studies of several users, one function"))
    print(
        "CPU time of all studies, median of the rounds; the gap is the largest relative difference of any loss in "
        f"the first {NUM_COMPARED} epochs, in double precision.\n"
    )
    print("| model | users | trials of each | apart | together | times as fast (least to most) | gap |")
    print("|---|---|---|---|---|---|---|")
    for name, build in models.items():
        train = make_function(build, asked.epochs)
        for num_users in (2, 4):
            for num_trials in asked.trials:
                row = compare(train, num_users, num_trials, asked.rounds)
                print(f"| {name} | {num_users} | {num_trials} | {row} |", flush=True)


if __name__ == "__main__":
    main()
