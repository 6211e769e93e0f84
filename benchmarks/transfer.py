"""Whether settings carry over from narrow models to wide ones: the best learning rate by width, and how widths rank.

Run `python benchmarks/transfer.py` (about 25 minutes on one core), with `--quick` for a look (some 6 minutes), or with
`--workloads MLP` for a part of it. The tables go to standard output as Markdown, the curves where `--svg` says; those
committed are benchmarks/transfer.md and benchmarks/transfer.svg.
"""

import argparse
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import data
import numpy as np
import torch
import torch.nn.functional as F
from measuring import heading
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from transfer_drawing import draw
from workloads import Block

import headwater as hw
from headwater.plan import measure_trust

BASE_SCALE = 8
NUM_SEEDS = {8: 3, 4: 2, 2: 1, 1: 1}
"""How many seeds each scale S is trained under: more where it is cheap, and where chance plays more."""
NUM_CONFIGS = 10
WARM_UP = 0.1
"""So much of the training the rate rises; then it falls to zero, both in a straight line."""
TAIL = 0.1
"""The loss is the mean over so much of the training, at its end."""
VALLEY = 1.05
"""A loss within this factor of the lowest is hardly worse."""


def mlp(scale: int) -> nn.Module:
    width = 1024 // scale
    hidden = [layer for _ in range(2) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(196, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


class Transformer(nn.Module):
    """Starts as GPT-2 does."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        width = 192 // scale
        self.tokens, self.places = nn.Embedding(84, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*(Block(width, head_size=8) for _ in range(2)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 84)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


class Residual(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(ins, outs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outs), nn.BatchNorm2d(outs)
        self.around = nn.Sequential()
        if stride > 1:
            self.around = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.around(x))


def resnet(scale: int) -> nn.Module:
    first, second = 64 // scale, 128 // scale
    return nn.Sequential(
        nn.Conv2d(3, first, 3, 2, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU(),
        Residual(first, first, 1), Residual(first, second, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(second, 10),
    )  # fmt: skip


def halved(images: data.Images, num_examples: int) -> TensorDataset:
    """Take images of half the height and width."""
    return TensorDataset(F.avg_pool2d(images.train_x[:num_examples], 2), images.train_y[:num_examples])


def verses(num_examples: int) -> TensorDataset:
    """Pieces of 64 characters from all over the works, and what follows each character."""
    text = data.shakespeare().train.long()
    starts = torch.randperm((len(text) - 1) // 64, generator=torch.Generator().manual_seed(0))[:num_examples] * 64
    places = starts[:, None] + torch.arange(65)
    return TensorDataset(text[places[:, :-1]], text[places[:, 1:]])


@dataclass(frozen=True, kw_only=True)
class Workload:
    title: str
    build: Callable[[int], nn.Module]
    """Writes the model at 1/scale of its width."""
    load: Callable[[int], TensorDataset]
    optimizer: type[torch.optim.Optimizer]
    settings: Mapping[str, Any]
    """What the optimizer is given besides the learning rate, where nothing else is drawn."""
    exponents: range
    """The learning rates of the grid, as powers of 2."""
    space: Mapping[str, Any]
    """What the random configurations are drawn from."""
    num_classes: int
    batch_size: int
    num_steps: int

    @property
    def rates(self) -> list[float]:
        return [2.0**exponent for exponent in self.exponents]


SGD_SPACE = {
    "lr": hw.loguniform(1e-3, 1.0),
    "momentum": hw.uniform(0.5, 0.99),
    "weight_decay": hw.loguniform(1e-5, 1e-2),
}
WORKLOADS = {
    "MLP": Workload(
        title="MLP on Fashion-MNIST, SGD with momentum",
        build=mlp, load=lambda count: halved(data.fashion_mnist(), count),
        optimizer=torch.optim.SGD, settings={"momentum": 0.9}, exponents=range(-7, 0), space=SGD_SPACE,
        num_classes=10, batch_size=64, num_steps=300,
    ),
    "Transformer": Workload(
        title="Transformer on Shakespeare, AdamW",
        build=Transformer, load=verses,
        optimizer=torch.optim.AdamW, settings={"betas": (0.9, 0.95)}, exponents=range(-11, -4),
        space={"lr": hw.loguniform(1e-4, 1e-1), "weight_decay": hw.loguniform(1e-3, 1.0)},
        num_classes=84, batch_size=8, num_steps=250,
    ),
    "ResNet": Workload(
        title="ResNet on CIFAR-10, SGD with momentum",
        build=resnet, load=lambda count: halved(data.cifar10(), count),
        optimizer=torch.optim.SGD, settings={"momentum": 0.9}, exponents=range(-6, 1), space=SGD_SPACE,
        num_classes=10, batch_size=64, num_steps=200,
    ),
}  # fmt: skip


def training_function(work: Workload, examples: TensorDataset, scale: int) -> Callable[[hw.Trial], None]:
    num_rising, num_tail = work.num_steps * WARM_UP, int(work.num_steps * TAIL)

    def factor(step: int) -> float:
        return min((step + 1) / num_rising, (work.num_steps - step) / (work.num_steps - num_rising))

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(lambda: work.build(scale))
        loader = trial.prepare_data_loader(examples, batch_size=work.batch_size, shuffle=True)
        optimizer = trial.prepare_optimizer(work.optimizer, model, **{**work.settings, **trial.config})
        scheduler = trial.prepare_scheduler("LambdaLR", optimizer, lr_lambda=factor)
        total = 0.0
        for _ in trial.epochs(1):
            for step, (x, y) in enumerate(loader):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y.flatten())
                loss.backward()
                optimizer.step()
                scheduler.step()
                if step >= work.num_steps - num_tail:
                    total = total + loss.detach() / num_tail
            trial.report(loss=total)

    return train


def train_grid(work: Workload, examples: TensorDataset, scale: int, *, is_scaled: bool) -> list[float]:
    """Return the loss of each learning rate at 1/scale of the width, with the parametrization or without."""
    space = {"lr": hw.grid(work.rates)}
    return losses_of(study_of(work, examples, scale, is_scaled=is_scaled, space=space, search="grid").run())


def train_random(work: Workload, examples: TensorDataset, scale: int) -> list[float]:
    """Return the losses of random configurations at 1/scale of the width; they are the same for every scale."""
    return losses_of(study_of(work, examples, scale, space=work.space, search="random").run(num_trials=NUM_CONFIGS))


def study_of(work: Workload, examples: TensorDataset, scale: int, is_scaled: bool = True, **options: Any) -> hw.Study:
    train = training_function(work, examples, 1 if is_scaled else scale)
    surrogate = hw.Surrogate(scale=BASE_SCALE, at=scale, eager=False) if is_scaled else None
    seeds = NUM_SEEDS[scale]
    return hw.Study(train, metric="loss", storage=None, lanes=16, num_seeds=seeds, surrogate=surrogate, **options)


def losses_of(result: hw.Result) -> list[float]:
    values = [trial.value("loss") for trial in result.trials]
    if not any(map(math.isfinite, values)):
        raise RuntimeError(f"no trial came to a finite loss; the first says: {result.trials[0].error}")
    return [value if math.isfinite(value) else math.inf for value in values]


@dataclass(frozen=True)
class Sweep:
    """The losses of a grid of learning rates at every width."""

    rates: Sequence[float]
    losses: Mapping[int, Sequence[float]]
    """By scale; infinite where a training diverged."""
    ceiling: float
    """The loss of guessing, which stands for anything worse."""

    def best(self, scale: int) -> tuple[float, float]:
        """Return the best learning rate and its loss, by a parabola fitted to the valley that the lowest point lies in.

        To the valley belong the lowest point, its neighbours, and whatever is hardly worse: where the ground is flat,
        the lowest point alone says little.
        """
        place = self.lowest(scale)
        if self.is_at_edge(scale):
            return self.rates[place], self.losses[scale][place]
        places, lowered = np.log2(self.rates), np.minimum(self.losses[scale], self.ceiling)
        valley = lowered <= VALLEY * lowered[place]
        valley[place - 1 : place + 2] = True
        square, slope, height = np.polyfit(places[valley], lowered[valley], 2)
        return float(2 ** (-slope / (2 * square))), float(height - slope * slope / (4 * square))

    def lowest(self, scale: int) -> int:
        return min(range(len(self.rates)), key=self.losses[scale].__getitem__)

    def is_at_edge(self, scale: int) -> bool:
        return self.lowest(scale) in (0, len(self.rates) - 1)

    @property
    def move(self) -> float:
        """By what factor the best rate differs between the narrowest and the widest model."""
        ends = self.best(max(self.losses))[0], self.best(min(self.losses))[0]
        return max(ends) / min(ends)

    @property
    def penalty(self) -> float:
        """How much the widest model loses by the rate that suits the narrowest, between points of the grid."""
        widest = np.minimum(self.losses[min(self.losses)], self.ceiling)
        rate, _ = self.best(max(self.losses))
        return float(np.interp(math.log2(rate), np.log2(self.rates), widest) - widest.min())


@dataclass(frozen=True)
class Findings:
    work: Workload
    plain: Sweep
    scaled: Sweep
    ranking: Mapping[int, Sequence[float]]
    """The losses of the random configurations, by scale."""


def measure(work: Workload) -> Findings:
    examples = work.load(work.num_steps * work.batch_size)
    sweeps = []
    for is_scaled in (False, True):
        losses = {scale: train_grid(work, examples, scale, is_scaled=is_scaled) for scale in NUM_SEEDS}
        sweeps.append(Sweep(work.rates, losses, ceiling=math.log(work.num_classes)))
    return Findings(work, *sweeps, {scale: train_random(work, examples, scale) for scale in NUM_SEEDS})


def show(findings: Findings) -> Iterator[str]:
    work = findings.work
    yield f"\n## {work.title}\n"
    yield f"{work.num_steps} steps of {work.batch_size} examples, none seen twice."
    for name, sweep in (("Without", findings.plain), ("With", findings.scaled)):
        yield f"\n{name} the parametrization, loss by learning rate:\n"
        yield f"| S | {' | '.join(f'2^{exponent}' for exponent in work.exponents)} | best |"
        yield "|---" * (len(work.exponents) + 2) + "|"
        for scale, losses in sweep.losses.items():
            cells = [f"{loss:.3f}" if math.isfinite(loss) else "-" for loss in losses]
            cells[sweep.lowest(scale)] = f"**{cells[sweep.lowest(scale)]}**"
            edge = " (edge)" if sweep.is_at_edge(scale) else ""
            yield f"| {scale} | {' | '.join(cells)} | 2^{math.log2(sweep.best(scale)[0]):.2f}{edge} |"
    yield f"\n{NUM_CONFIGS} random configurations ({', '.join(work.space)}), with the parametrization:\n"
    yield "| S | best to worst (small letters diverged) | Spearman with S = 1 | 95 % interval |"
    yield "|---|---|---|---|"
    for scale, losses in findings.ranking.items():
        trust = measure_trust(scale, 1, list(zip(losses, findings.ranking[1], strict=True)))
        against = f"{trust.agreement:.2f} | {trust.low:.2f} to {trust.high:.2f}" if scale > 1 else "- | -"
        yield f"| {scale} | {order_of(losses)} | {against} |"


def order_of(losses: Sequence[float]) -> str:
    """Name the configurations by letters, the best first; small letters diverged."""
    places = sorted(range(len(losses)), key=losses.__getitem__)
    return " ".join(chr(ord("A" if math.isfinite(losses[place]) else "a") + place) for place in places)


def summarise(all_findings: Mapping[str, Findings]) -> Iterator[str]:
    yield "\n## Summary\n"
    yield "Aims: the best rate moves by less than 2 with and by 4 or more without; Spearman above 0.9 at S = 8.\n"
    yield "| | best rate moves, S = 8 to 1 | best of S = 8 costs at S = 1 | lowest loss at S = 1 | Spearman at S = 8 |"
    yield "|---|---|---|---|---|"
    for name, findings in all_findings.items():
        pairs = list(zip(findings.ranking[8], findings.ranking[1], strict=True))
        agreement = f"{measure_trust(8, 1, pairs).agreement:.2f}"
        for way, sweep, rank in (("without", findings.plain, "-"), ("with", findings.scaled, agreement)):
            yield f"| {name}, {way} | {sweep.move:.1f} | {sweep.penalty:.3f} | {min(sweep.losses[1]):.3f} | {rank} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--quick", action="store_true", help="a fifth of the steps")
    parser.add_argument("--svg", type=Path, help="where to draw the curves")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(heading("Settings over widths, without the parametrization and with it"))
    print(INTRODUCTION, flush=True)
    found = {}
    begin = time.process_time()
    for name in options.workloads:
        work = WORKLOADS[name]
        found[name] = measure(replace(work, num_steps=work.num_steps // 5) if options.quick else work)
        print("\n".join(show(found[name])), flush=True)
    print("\n".join(summarise(found)))
    print(f"\nCPU time: {(time.process_time() - begin) / 60:.0f} minutes.")
    if options.svg is not None:
        options.svg.write_text(draw(found))


INTRODUCTION = """\
Models at 1/S of their width. Without the parametrization they are written so; with it, the target is written and
Headwater makes it narrower, under rules that count from S = 8. The loss is that of training, its mean over the last
tenth of the steps; the learning rate rises for a tenth of them and then falls to zero. S = 8 is the mean over three
seeds, S = 4 over two, S = 2 and S = 1 have one. The best rate is that of a parabola fitted to the lowest point, its
neighbours and all points within 5 % of it; what is worse than guessing counts as guessing, and `-` diverged."""


if __name__ == "__main__":
    main()
