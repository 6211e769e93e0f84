"""Transformers: ViT with torch's attention, Swin with windows, a small GPT with its own attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class EncoderBlock(nn.Module):
    def __init__(self, dim: int, heads: int, wide: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, dropout=0.1, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, wide), nn.GELU(), nn.Linear(wide, dim))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        x = x + y
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]  # modules return Any


class VisionTransformer(nn.Module):
    def __init__(
        self,
        image_size: int = 64,
        patch_size: int = 16,
        dim: int = 768,
        depth: int = 12,
        heads: int = 12,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.hidden_dim = dim
        self.patch_size = patch_size
        self.patches = nn.Conv2d(3, dim, patch_size, patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.randn(1, (image_size // patch_size) ** 2 + 1, dim) * 0.02)
        self.blocks = nn.Sequential(*[EncoderBlock(dim, heads, 4 * dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        n, _, h, w = x.shape
        x = (
            self.patches(x)
            .reshape(n, self.hidden_dim, (h // self.patch_size) * (w // self.patch_size))
            .permute(0, 2, 1)
        )
        x = torch.cat([self.cls_token.expand(n, -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])  # type: ignore[no-any-return]  # modules return Any


def vit(depth: int = 12) -> nn.Module:
    return VisionTransformer(depth=depth)


class WindowAttention(nn.Module):
    """Attention within windows, with a learnt bias for each relative position."""

    def __init__(self, dim: int, window: int, num_heads: int) -> None:
        super().__init__()
        self.dim, self.window_size, self.num_heads = dim, window, num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, num_heads))
        axis = torch.arange(window)
        places = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).flatten(1)
        relative = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("relative", relative[..., 0] * (2 * window - 1) + relative[..., 1])
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attention = (q * self.scale) @ k.transpose(-2, -1)
        relative = self.get_buffer("relative")
        attention = attention + self.bias_table[relative.view(-1)].view(n, n, -1).permute(2, 0, 1)
        if mask is not None:
            windows = mask.shape[0]
            attention = attention.view(b // windows, windows, self.num_heads, n, n) + mask[None, :, None]
            attention = attention.view(-1, self.num_heads, n, n)
        return self.proj((attention.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))  # type: ignore[no-any-return]  # modules return Any


class SwinBlock(nn.Module):
    def __init__(self, dim: int, side: int, window: int, shift: int, num_heads: int) -> None:
        super().__init__()
        self.side, self.window_size, self.shift_size = side, window, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attention = WindowAttention(dim, window, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.register_buffer("mask", self._mask() if shift else None)

    def _mask(self) -> Tensor:
        regions = torch.zeros(1, self.side, self.side, 1)
        parts = (slice(0, -self.window_size), slice(-self.window_size, -self.shift_size), slice(-self.shift_size, None))
        for number, (rows, columns) in enumerate((rows, columns) for rows in parts for columns in parts):
            regions[:, rows, columns] = number
        flat = to_windows(regions, self.window_size).squeeze(-1)
        return torch.where(flat[:, None] == flat[:, :, None], 0.0, -100.0)

    def forward(self, x: Tensor) -> Tensor:
        n, side, _, c = x.shape
        y = self.norm1(x)
        if self.shift_size:
            y = torch.roll(y, (-self.shift_size, -self.shift_size), (1, 2))
        windows = self.attention(to_windows(y, self.window_size), self.mask)
        count = side // self.window_size
        y = windows.view(n, count, count, self.window_size, self.window_size, c)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(n, side, side, c)
        if self.shift_size:
            y = torch.roll(y, (self.shift_size, self.shift_size), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]  # modules return Any


def to_windows(x: Tensor, window: int) -> Tensor:
    n, h, w, c = x.shape
    x = x.view(n, h // window, window, w // window, window, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, c)


class Merging(nn.Module):
    """Joins each two by two places."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduction(self.norm(torch.cat(corners, -1)))  # type: ignore[no-any-return]  # modules return Any


class Swin(nn.Module):
    def __init__(
        self, side: int = 56, dim: int = 96, depths: Sequence[int] = (2, 2, 6, 2), heads: Sequence[int] = (3, 6, 12, 24)
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 4, 4)
        self.norm = nn.LayerNorm(dim)
        layers: list[nn.Module] = []
        for place, (depth, num_heads) in enumerate(zip(depths, heads, strict=True)):
            if place:
                layers.append(Merging(dim))
                dim, side = 2 * dim, side // 2
            window = min(7, side)
            shifts = [window // 2 if number % 2 and side > window else 0 for number in range(depth)]
            layers += [SwinBlock(dim, side, window, shift, num_heads) for shift in shifts]
        self.layers = nn.ModuleList(layers)
        self.last = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.patches(x).permute(0, 2, 3, 1))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.last(x).mean((1, 2)))  # type: ignore[no-any-return]  # modules return Any


def swin(depths: Sequence[int] = (2, 2, 6, 2)) -> nn.Module:
    return Swin(depths=depths)


def swin_even() -> nn.Module:
    """A Swin whose numbers of heads are powers of two."""
    return Swin(side=28, dim=128, depths=(2, 2), heads=(4, 8))


@dataclass
class GptSettings:
    """What a small GPT is built of."""

    vocab_size: int = 65
    block_size: int = 32
    n_layer: int = 2
    n_head: int = 8
    n_embd: int = 128


class CausalAttention(nn.Module):
    def __init__(self, settings: GptSettings) -> None:
        super().__init__()
        self.c_attn = nn.Linear(settings.n_embd, 3 * settings.n_embd)
        self.c_proj = nn.Linear(settings.n_embd, settings.n_embd)
        self.n_head = settings.n_head
        self.n_embd = settings.n_embd
        size = settings.block_size
        self.register_buffer("bias", torch.tril(torch.ones(size, size)).view(1, 1, size, size))

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (y.view(n, t, self.n_head, c // self.n_head).transpose(1, 2) for y in (q, k, v))
        weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        weights = weights.masked_fill(self.get_buffer("bias")[:, :, :t, :t] == 0, float("-inf"))
        y = (F.softmax(weights, dim=-1) @ v).transpose(1, 2).contiguous().view(n, t, c)
        return self.c_proj(y)  # type: ignore[no-any-return]  # modules return Any


class GptBlock(nn.Module):
    def __init__(self, settings: GptSettings) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(settings.n_embd)
        self.attn = CausalAttention(settings)
        self.ln_2 = nn.LayerNorm(settings.n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(settings.n_embd, 4 * settings.n_embd), nn.GELU(), nn.Linear(4 * settings.n_embd, settings.n_embd)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]  # modules return Any


class Gpt(nn.Module):
    """With tied embeddings and its settings kept on the model."""

    def __init__(self, settings: GptSettings | None = None) -> None:
        super().__init__()
        self.settings = settings or GptSettings()
        self.wte = nn.Embedding(self.settings.vocab_size, self.settings.n_embd)
        self.wpe = nn.Embedding(self.settings.block_size, self.settings.n_embd)
        self.blocks = nn.ModuleList([GptBlock(self.settings) for _ in range(self.settings.n_layer)])
        self.ln_f = nn.LayerNorm(self.settings.n_embd)
        self.lm_head = nn.Linear(self.settings.n_embd, self.settings.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        _, t = tokens.shape
        x = self.wte(tokens) * math.sqrt(self.settings.n_embd) + self.wpe(torch.arange(t, device=tokens.device))
        for block in self.blocks:
            x = block(x)
        x = self.ln_f(x)
        return self.lm_head(x), x
