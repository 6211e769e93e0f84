"""Ordinary training functions, none of which knows of ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from tests.train.rank_models import (
    DOUBLE,
    Checkpointed,
    ConvNet,
    CountsRows,
    CrossRows,
    KeepsLoss,
    LossInside,
    Noisy,
    ReadsValues,
    Transformer,
    TwoHeads,
    make_mlp,
)
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from headwater.train import Trial

Function: TypeAlias = Callable[[Trial], None]
Loss: TypeAlias = Callable[[Any, Tensor, Tensor], Tensor]

NUM_EPOCHS, NUM_EXAMPLES, BATCH_SIZE = 2, 21, 8
"""Neither two nor three parts of a batch are always equal, and the last batch has five rows."""


def make_data(*shape: int, num_classes: int = 3) -> TensorDataset:
    dice = torch.Generator().manual_seed(1)
    x = torch.randn(NUM_EXAMPLES, *shape, generator=dice, dtype=DOUBLE)
    return TensorDataset(x, torch.randint(num_classes, (NUM_EXAMPLES,), generator=dice))


def count_right(model: nn.Module, data: Any) -> tuple[int, int]:
    right = total = 0
    for x, y in data:
        right += int((model(x).argmax(1) == y).sum().item())
        total += len(y)
    return right, total


def fit(trial: Trial, model: Any, data: Any, loss: Loss, num_epochs: int = NUM_EPOCHS) -> None:
    """Train as most people do, counting losses and hits on the way."""
    loader = trial.prepare_data_loader(data, batch_size=BATCH_SIZE, shuffle=True)
    valid = trial.prepare_data_loader(data, batch_size=10)
    model = trial.prepare_model(model)
    optimizer = trial.prepare_optimizer(torch.optim.AdamW, model, lr=0.05)
    scheduler = trial.prepare_scheduler(torch.optim.lr_scheduler.StepLR, optimizer, step_size=2)
    for _ in trial.epochs(num_epochs):
        model.train()
        total, count = 0.0, 0
        for x, y in loader:
            optimizer.zero_grad()
            value = loss(model, x, y)
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.7)
            optimizer.step()
            total += value.item() * len(y)
            count += y.size(0)
        scheduler.step()
        model.eval()
        with torch.no_grad():
            right, seen = count_right(model, valid)
        trial.report(loss=total / count, count=count, accuracy=right / seen, drawn=torch.rand(()))


def classify(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def train_mlp(trial: Trial) -> None:
    fit(trial, make_mlp(), make_data(4), classify)


def train_keeping_best(trial: Trial) -> None:
    """The first of its epochs is the best, so that the kept weights are not the last."""
    model = trial.prepare_model(make_mlp())
    loader = trial.prepare_data_loader(make_data(4), batch_size=BATCH_SIZE, shuffle=True)
    optimizer = trial.prepare_optimizer("SGD", model, lr=0.1)
    for epoch in trial.epochs(NUM_EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            loss = classify(model, x, y)
            loss.backward()
            optimizer.step()
        trial.keep_best(model, epoch + loss.item())
        trial.report(loss=loss.item())


def train_conv(trial: Trial) -> None:
    fit(trial, ConvNet().to(DOUBLE), make_data(2, 6, 6), classify)


def make_sentences() -> TensorDataset:
    dice = torch.Generator().manual_seed(2)
    words = torch.randint(11, (NUM_EXAMPLES, 5), generator=dice)
    return TensorDataset(words, torch.randint(3, (NUM_EXAMPLES,), generator=dice))


def train_transformer(trial: Trial) -> None:
    fit(trial, Transformer().to(DOUBLE), make_sentences(), lambda model, x, y: F.cross_entropy(model(x, x == 0), y))


def train_with_sum_and_penalty(trial: Trial) -> None:
    """A loss that is no mean, depends on pairs of rows, and a penalty on weights that is computed outside of calls."""

    def loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
        answer = model(x)
        pairs = (answer @ answer.T).logsumexp(1).sum()
        penalty = sum((param.square().sum() for param in model.parameters()), torch.zeros((), dtype=DOUBLE))
        total: Tensor = F.cross_entropy(answer, y, reduction="sum") + 0.1 * pairs + penalty
        return total

    fit(trial, make_mlp(), make_data(4), loss)


def train_accumulating(trial: Trial) -> None:
    """Several backward passes to a step, and a part of the model called by itself."""
    model = trial.prepare_model(ConvNet().to(DOUBLE))
    optimizer = trial.prepare_optimizer("SGD", model, lr=0.05, momentum=0.9)
    loader = trial.prepare_data_loader(make_data(2, 6, 6), batch_size=6, shuffle=True)
    for _ in trial.epochs(NUM_EPOCHS):
        total = 0.0
        for number, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x), y) + 0.01 * model.features(x).square().mean()
            (loss / 2).backward()
            total += loss.item()
            if number % 2:
                nn.utils.clip_grad_value_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
        trial.report(loss=total)


def train_two_heads(trial: Trial) -> None:
    def loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
        answer = model(x, head=int(y[0]) % 2)
        return F.cross_entropy(answer["logits"][0] * answer["scale"], y)

    model = trial.prepare_model(TwoHeads().to(DOUBLE))
    optimizer = trial.prepare_optimizer("SGD", model, lr=0.1, momentum=0.9)
    loader = trial.prepare_data_loader(make_data(4), batch_size=BATCH_SIZE, shuffle=True)
    for _ in trial.epochs(NUM_EPOCHS):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            value = loss(model, x, y)
            value.backward()
            optimizer.step()
            total += value.item()
        used = sum(param.grad is not None for param in model.parameters())
        trial.report(loss=total, used=used)


def train_loss_inside(trial: Trial) -> None:
    model = trial.prepare_model(LossInside().to(DOUBLE))
    optimizer = trial.prepare_optimizer("SGD", model, lr=0.5)
    loader = trial.prepare_data_loader(make_sentences(), batch_size=BATCH_SIZE, shuffle=True)
    for _ in trial.epochs(NUM_EPOCHS):
        total = 0.0
        for x, _ in loader:
            optimizer.zero_grad()
            value = model(x, labels=x.roll(1, 1))[0]
            value.backward()
            optimizer.step()
            total += value.item()
        trial.report(loss=total)


def train_adversaries(trial: Trial) -> None:
    """Two models and optimizers; gradients go through one model's answer into the other."""
    maker = trial.prepare_model(nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)).to(DOUBLE))
    judge = trial.prepare_model(nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.2), nn.Linear(6, 1)).to(DOUBLE))
    by_maker = trial.prepare_optimizer("Adam", maker, lr=0.02)
    by_judge = trial.prepare_optimizer("Adam", judge, lr=0.02)
    loader = trial.prepare_data_loader(make_data(4), batch_size=BATCH_SIZE, shuffle=True)
    for _ in trial.epochs(NUM_EPOCHS):
        total = 0.0
        for x, _ in loader:
            made = maker(torch.randn(len(x), 2, dtype=DOUBLE))
            by_judge.zero_grad()
            loss = F.softplus(-judge(x)).mean() + F.softplus(judge(made.detach())).mean()
            loss.backward()
            by_judge.step()
            by_maker.zero_grad()
            F.softplus(-judge(made)).mean().backward()
            by_maker.step()
            total += loss.item()
        trial.report(loss=total)


def train_noisy(trial: Trial) -> None:
    fit(trial, Noisy().to(DOUBLE), make_sentences(), classify)


def train_checkpointed(trial: Trial) -> None:
    fit(trial, Checkpointed().to(DOUBLE), make_data(4), classify)


class Images(Dataset[tuple[Tensor, int]]):
    """Draws while it loads, and counts."""

    def __init__(self) -> None:
        self.num_loaded = 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.num_loaded += 1
        return torch.full((4,), float(index), dtype=DOUBLE).sin() + 0.1 * torch.randn(4, dtype=DOUBLE), index % 3


def train_images(trial: Trial) -> None:
    images = Images()
    model = trial.prepare_model(CountsRows())
    optimizer = trial.prepare_optimizer("SGD", model, lr=0.5)
    loader = trial.prepare_data_loader(images, batch_size=32, shuffle=True)
    for _ in trial.epochs(1):
        for x, y in loader:
            optimizer.zero_grad()
            loss = classify(model, x, y)
            loss.backward()
            optimizer.step()
        trial.report(loss=loss, loaded=images.num_loaded, rows=model.num_rows)


def train_cross_rows(trial: Trial) -> None:
    fit(trial, CrossRows().to(DOUBLE), make_data(4), classify)


def train_keeping_loss(trial: Trial) -> None:
    fit(trial, KeepsLoss().to(DOUBLE), make_data(4), lambda model, x, y: classify(model, x, y) + model.penalty)


def train_reading(trial: Trial) -> None:
    fit(trial, ReadsValues().to(DOUBLE), make_data(4), classify)


def train_hooked(trial: Trial) -> None:
    seen: list[Tensor] = []
    model = make_mlp()
    model[0].register_forward_hook(lambda module, args, answer: seen.append(answer))
    fit(trial, model, make_data(4), lambda model, x, y: classify(model, x, y) + 0.1 * seen[-1].square().mean())


def train_long(trial: Trial) -> None:
    """Six epochs, through which a trial is moved about."""
    fit(trial, ConvNet().to(DOUBLE), make_data(2, 6, 6), classify, num_epochs=6)


def train_raising_at_one_rank(trial: Trial) -> None:
    model = trial.prepare_model(make_mlp())
    optimizer = trial.prepare_optimizer("SGD", model, lr=0.1)
    for epoch in trial.epochs(3):
        optimizer.zero_grad()
        classify(model, *make_data(4).tensors).backward()
        optimizer.step()
        if epoch == 1 and _is_second_process():
            raise ValueError("this rank alone")
        trial.report(loss=1.0)


def _is_second_process() -> bool:
    return sys.argv[1:2] == ["1"]


def train_with_other_batches(trial: Trial) -> None:
    model = trial.prepare_model(make_mlp())
    x, y = make_data(4).tensors
    classify(model, x + 0.1 * _is_second_process(), y)
    trial.report(loss=1.0)


def every_function() -> Iterator[tuple[str, Function]]:
    yield from ((name, value) for name, value in globals().items() if name.startswith("train_"))
