"""Models that are trained by several ranks, none of which knows of them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

DOUBLE = torch.float64


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


class TwoHeads(nn.Module):
    """One of whose heads each batch leaves unused; it returns a nest, with something that has no rows."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.heads = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor, *, head: int) -> dict[str, Any]:
        return {"logits": (self.heads[head](self.body(x)), None), "scale": self.scale.exp(), "name": "two"}


class LossInside(nn.Module):
    """Returns its own loss, as those of Hugging Face do, with words that do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11)

    def forward(self, words: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.words(words))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0), logits


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


class Checkpointed(nn.Module):
    """Computes its layers, with dropout, a second time in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.4), nn.Tanh(), nn.Linear(8, 8), nn.Dropout(0.4))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(checkpoint(self.body, x, use_reentrant=False))
        return answer


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
