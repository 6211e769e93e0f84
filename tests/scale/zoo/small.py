"""Small models, each with one thing that couples widths."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Perceptron(nn.Module):
    """Flattens its input, and ends in log_softmax."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(48, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.layers(x), dim=1)


class Joining(nn.Module):
    """Joins two branches of different widths and the input itself."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(12, 64), nn.Linear(12, 32)
        self.head = nn.Linear(64 + 32 + 12, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([F.relu(self.wide(x)), F.relu(self.narrow(x)), x], dim=-1))  # type: ignore[no-any-return]  # modules return Any


class Gated(nn.Module):
    """Splits in halves, and splits by a list of sizes that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = [48, 16, 32]
        self.doubled = nn.Linear(12, 2 * 64)
        self.three = nn.Linear(64, sum(self.sizes))
        self.heads = nn.ModuleList([nn.Linear(size, 10) for size in self.sizes])

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.doubled(x).chunk(2, dim=-1)
        parts = self.three(value * gate.sigmoid()).split(self.sizes, dim=-1)
        answers: list[Tensor] = [head(part) for head, part in zip(self.heads, parts, strict=True)]
        return answers[0] + answers[1] + answers[2]


class Grouped(nn.Module):
    """Grouped and depthwise convolutions, and group normalisation on one residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, padding=1)
        self.grouped = nn.Conv2d(64, 64, 3, padding=1, groups=4)
        self.norm1 = nn.GroupNorm(8, 64)
        self.depthwise = nn.Conv2d(64, 128, 3, padding=1, groups=64)
        self.narrow = nn.Conv2d(128, 64, 1)
        self.norm2 = nn.GroupNorm(16, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + F.relu(self.norm1(self.grouped(x)))
        x = x + self.norm2(self.narrow(F.relu(self.depthwise(x))))
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]  # modules return Any


class Flattening(nn.Module):
    """Flattens channels and places after convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 32, 3, 2, 1)
        self.fc = nn.Linear(32 * 4 * 4, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x))
        return self.head(F.relu(self.fc(torch.flatten(x, 1))))  # type: ignore[no-any-return]  # modules return Any


class Twice(nn.Module):
    """Calls one layer twice, and one layer's weight by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.again, self.head = nn.Linear(12, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(F.relu(self.again(F.relu(self.into(x)))))
        return self.head(F.linear(x, self.again.weight))  # type: ignore[no-any-return]  # modules return Any


class GroupedQuery(nn.Module):
    """Attention with fewer key and value heads than query heads, and rotated positions kept as buffers."""

    def __init__(self, dim: int = 128, n_heads: int = 8, n_kv_heads: int = 4, vocab: int = 50, steps: int = 16) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.embedding = nn.Embedding(vocab, dim)
        self.positions = nn.Parameter(torch.zeros(1, steps, dim))
        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(n_heads * self.head_dim, dim, bias=False)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.embedding.weight
        angles = torch.outer(torch.arange(steps), 1.0 / 100.0 ** (torch.arange(self.head_dim // 2) / self.head_dim))
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def rotate(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=-1)
        return x * self.get_buffer("cos") + torch.cat([-right, left], dim=-1) * self.get_buffer("sin")

    def forward(self, tokens: Tensor) -> Tensor:
        n, t = tokens.shape
        x = self.embedding(tokens) + self.positions
        q = self.rotate(self.wq(x).view(n, t, self.n_heads, self.head_dim).transpose(1, 2))
        k = self.rotate(self.wk(x).view(n, t, self.n_kv_heads, self.head_dim).transpose(1, 2))
        v = self.wv(x).view(n, t, self.n_kv_heads, self.head_dim).transpose(1, 2)
        k, v = (y.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + self.wo(y.transpose(1, 2).reshape(n, t, -1)))  # type: ignore[no-any-return]  # modules return Any


class TextEncoder(nn.Module):
    """Torch's own encoder behind embeddings scaled by the root of a width that it keeps, with fixed positions."""

    def __init__(self, dim: int = 64, heads: int = 4, vocab: int = 50, steps: int = 16) -> None:
        super().__init__()
        self.d_model = dim
        self.embedding = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.register_buffer("positions", torch.randn(1, steps, dim))
        self.head = nn.Linear(dim, 10)

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        x = self.embedding(tokens) * math.sqrt(self.d_model) + self.get_buffer("positions")
        x = self.encoder(x)
        return {"features": x, "logits": self.head(x.mean(1))}


class AutoEncoder(nn.Module):
    """Narrows pictures to a code and widens them again."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.Flatten(), nn.Linear(64 * 2 * 2, 32)
        )
        self.decoder = nn.Sequential(
            nn.Linear(32, 64 * 2 * 2),
            nn.Unflatten(1, (64, 2, 2)),
            nn.ConvTranspose2d(64, 32, 2, 2),
            nn.PReLU(32),
            nn.ConvTranspose2d(32, 3, 2, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))  # type: ignore[no-any-return]  # modules return Any


class Shuffled(nn.Module):
    """Mixes the channels of groups, by the number of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = 4
        self.conv1 = nn.Conv2d(3, 64, 1)
        self.conv2 = nn.Conv2d(64, 64, 1, groups=self.groups)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        n, c, h, w = x.shape
        x = x.view(n, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(n, c, h, w)
        return self.head(self.conv2(x).mean((2, 3)))  # type: ignore[no-any-return]  # modules return Any


class Cells(nn.Module):
    """Runs a recurrent cell by hand, from a state that it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = 64
        self.cell = nn.LSTMCell(12, self.hidden)
        self.head = nn.Linear(self.hidden, 10)

    def forward(self, x: Tensor) -> Tensor:
        h, c = (x.new_zeros(x.shape[0], self.hidden) for _ in range(2))
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
        return self.head(h)  # type: ignore[no-any-return]  # modules return Any


class UNet(nn.Module):
    """Goes down and up again, and joins what it passed on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.up, self.join, self.out = (
            nn.ConvTranspose2d(64, 32, 2, 2),
            nn.Conv2d(64, 32, 3, padding=1),
            nn.Conv2d(32, 2, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.down1(x))
        second = F.relu(self.down2(F.max_pool2d(first, 2)))
        return self.out(F.relu(self.join(torch.cat([first, self.up(second)], 1))))  # type: ignore[no-any-return]  # modules return Any


class Translator(nn.Module):
    """Torch's own encoder and decoder between tied embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 64)
        self.inner = nn.Transformer(64, 4, 1, 1, 128, batch_first=True)
        self.head = nn.Linear(64, 50)
        self.head.weight = self.embedding.weight

    def forward(self, source: Tensor) -> Tensor:
        return self.head(self.inner(self.embedding(source), self.embedding(source[:, :5])))  # type: ignore[no-any-return]  # modules return Any


class OneHead(nn.Module):
    """One head of attention, whose scaling is a float kept from the start."""

    def __init__(self, dim: int = 64) -> None:
        super().__init__()
        self.scaling = dim**-0.5
        self.into, self.q, self.k, self.head = (
            nn.Linear(12, dim),
            nn.Linear(dim, dim),
            nn.Linear(dim, dim),
            nn.Linear(dim, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        weights = (self.q(x) @ self.k(x).transpose(-2, -1) * self.scaling).softmax(-1)
        return self.head(weights @ x)  # type: ignore[no-any-return]  # modules return Any


class Literal(nn.Module):
    """Has its width as a number in the code."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.head = nn.Linear(12, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.into(x).view(-1, 64))  # type: ignore[no-any-return]  # modules return Any


class Looking(nn.Module):
    """Decides by a value in its data."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.head = nn.Linear(12, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.into(x)
        return self.head(y if y.sum().item() > 0 else -y)  # type: ignore[no-any-return]  # modules return Any
