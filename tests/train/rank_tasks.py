"""Ordinary training functions, none of which knows of ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, TensorDataset

from headwater.train import Trial

Function: TypeAlias = Callable[[Trial], None]
Loss: TypeAlias = Callable[[Any, Tensor, Tensor], Tensor]

NUM_EPOCHS, NUM_EXAMPLES, BATCH_SIZE = 2, 21, 8
"""Neither two nor three parts of a batch are always equal, and the last batch has five rows."""
DOUBLE = torch.float64


def make_data(*shape: int, num_classes: int = 3) -> TensorDataset:
    dice = torch.Generator().manual_seed(1)
    x = torch.randn(NUM_EXAMPLES, *shape, generator=dice, dtype=DOUBLE)
    return TensorDataset(x, torch.randint(num_classes, (NUM_EXAMPLES,), generator=dice))


def make_mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 3)).to(DOUBLE)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.2), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.features(x))
        return answer


class Transformer(nn.Module):
    """Two layers of torch's own, whose attention has dropout too, and words of varying number."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, words: Tensor, is_padding: Tensor | None = None) -> Tensor:
        answer: Tensor = self.head(self.layers(self.words(words), src_key_padding_mask=is_padding).mean(1))
        return answer


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


class TwoHeads(nn.Module):
    """One of whose heads each batch leaves unused; it returns a nest, with something that has no rows."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.heads = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor, *, head: int) -> dict[str, Any]:
        return {"logits": (self.heads[head](self.body(x)), None), "scale": self.scale.exp(), "name": "two"}


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


class LossInside(nn.Module):
    """Returns its own loss, as those of Hugging Face do, with words that do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11)

    def forward(self, words: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.words(words))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0), logits


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


class Noisy(nn.Module):
    """A recurrent model with dropout between its layers, whose draws do not begin with rows, and noise by rows."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 4)
        self.rnn = nn.LSTM(4, 4, num_layers=2, dropout=0.3, batch_first=True)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(4, 3)

    def forward(self, words: Tensor) -> Tensor:
        states = self.rnn(self.words(words))[0]
        noise = torch.randn(words.shape[0], 3, dtype=DOUBLE)
        answer: Tensor = self.head(self.drop(states).sum(1)) + 0.1 * noise * torch.rand((), dtype=DOUBLE)
        return answer


def train_noisy(trial: Trial) -> None:
    fit(trial, Noisy().to(DOUBLE), make_sentences(), classify)


class Checkpointed(nn.Module):
    """Computes its layers, with dropout, a second time in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.4), nn.Tanh(), nn.Linear(8, 8), nn.Dropout(0.4))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(checkpoint(self.body, x, use_reentrant=False))
        return answer


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


class CountsRows(nn.Module):
    """Knows how many rows it was last called with."""

    def __init__(self) -> None:
        super().__init__()
        self.body = make_mlp()
        self.num_rows = 0

    def forward(self, x: Tensor) -> Tensor:
        self.num_rows = len(x)
        answer: Tensor = self.body(x)
        return answer


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


class CrossRows(nn.Module):
    """Whose rows depend on each other."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.body(x - x.mean(0))
        return answer


class KeepsLoss(nn.Module):
    """Hands a loss out by an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.body(x)
        self.penalty = answer.square().mean()
        return answer


class ReadsValues(nn.Module):
    """Goes one way or another by what it reads of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        answer: Tensor = self.head(x.abs() if bool(x.max() > 1.9) else x)
        return answer


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
