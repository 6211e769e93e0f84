"""Attention of lanes equals that of separate models, with every kind of mask and with dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import Agreement, Parity
from torch import Tensor, nn

PADDING = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
FUTURE = torch.ones(5, 5, dtype=torch.bool).triu(1)
SEEN = (torch.rand(5, 5, generator=torch.Generator().manual_seed(2)) > 0.3) & (torch.arange(5) != 2)[:, None]
"""A mask under which one position sees nothing at all."""

attend = F.scaled_dot_product_attention


class Attention(nn.Module):
    def __init__(self, call: Callable[[Attention, Tensor], Any], **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **options)
        self.scale, self.mask = nn.Parameter(torch.randn(())), nn.Parameter(torch.randn(5, 5))
        self.masks = nn.Parameter(torch.randn(3, 2, 5, 5))
        self.call = call

    def forward(self, x: Tensor) -> Any:
        return self.call(self, x)


CALLS: dict[str, Callable[[Attention, Tensor], Any]] = {
    "shared": lambda m, x: m.attention(x, x, x),
    "lane": lambda m, x: m.attention(x * m.scale, x, x * 2),
    "padding": lambda m, x: m.attention(x * m.scale, x * m.scale, x, key_padding_mask=PADDING),
    "padding-no-weights": lambda m, x: m.attention(x, x, x, key_padding_mask=PADDING, need_weights=False),
    "bool-mask": lambda m, x: m.attention(x, x, x, attn_mask=FUTURE),
    "bool-mask-no-weights": lambda m, x: m.attention(x, x, x, attn_mask=FUTURE, need_weights=False),
    "float-mask": lambda m, x: m.attention(x, x, x, attn_mask=m.mask.detach(), average_attn_weights=False),
    "learned-mask": lambda m, x: m.attention(x, x, x, attn_mask=m.mask),
    "learned-mask-no-weights": lambda m, x: m.attention(x, x, x, attn_mask=m.mask, need_weights=False),
    "causal": lambda m, x: m.attention(x, x, x, attn_mask=FUTURE, is_causal=True, need_weights=False),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "dropout": {"dropout": 0.3},
    "bias-kv": {"add_bias_kv": True, "add_zero_attn": True},
    "no-bias": {"bias": False},
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("call", CALLS)
def test_multihead_attention_equals_separate_modules(call: str, batch_first: bool) -> None:
    x = example(3, 5, 8) if batch_first else example(5, 3, 8)
    Parity().check(lambda: Attention(CALLS[call], batch_first=batch_first), lambda m: m(x))


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("call", ["lane", "padding-no-weights", "bool-mask"])
@pytest.mark.parametrize("options", OPTIONS)
def test_options_of_multihead_attention_are_kept(options: str, call: str, train: bool) -> None:
    if options == "bias-kv" and call != "lane":
        call = "padding-no-weights"
    x = example(3, 5, 8)
    build = OPTIONS[options]
    Parity().check(lambda: Attention(CALLS[call], batch_first=True, **build), lambda m: m(x), train=train)


def test_keys_and_values_may_have_other_sizes() -> None:
    def call(m: Attention, x: Tensor) -> Any:
        return m.attention(x, x[..., :6], x[..., :4])

    x = example(5, 3, 8)
    Parity().check(lambda: Attention(call, kdim=6, vdim=4), lambda m: m(x))


def test_one_sequence_without_a_batch_attends() -> None:
    x = example(5, 8)
    Parity().check(lambda: Attention(CALLS["lane"]), lambda m: m(x))


DOT_PRODUCTS: dict[str, Callable[[Attention, Tensor], Any]] = {
    "plain": lambda m, x: attend(x * m.scale, x, x),
    "causal": lambda m, x: attend(x * m.scale, x, x, is_causal=True),
    "scaled": lambda m, x: attend(x * m.scale, x, x, scale=0.3),
    "bool-mask": lambda m, x: attend(x * m.scale, x, x, attn_mask=SEEN),
    "bool-mask-per-sequence": lambda m, x: attend(x * m.scale, x, x, attn_mask=SEEN.expand(3, 1, 5, 5)),
    "lane-bool-mask": lambda m, x: attend(x * m.scale, x, x, attn_mask=m.mask > 0),
    "learned-mask": lambda m, x: attend(x, x, x, attn_mask=m.mask),
    "learned-masks": lambda m, x: attend(x, x, x, attn_mask=m.masks),
    "one-learned-mask-for-all": lambda m, x: attend(x, x, x, attn_mask=m.masks[:1]),
    "grouped-queries": lambda m, x: attend(x * m.scale, x[:, :1], x[:, 1:], enable_gqa=True),
    "cross": lambda m, x: attend(x * m.scale, x[:, :, :3], x[:, :, :3]),
    "keys-for-all-sequences": lambda m, x: attend(x * m.scale, x[:1], x[:1]),
    "narrow-values": lambda m, x: attend(x * m.scale, x, x[..., :3]),
    "three-dimensions": lambda m, x: attend((x * m.scale)[0], x[0], x[0]),
    "two-dimensions": lambda m, x: attend((x * m.scale)[0, 0], x[0, 0], x[0, 0]),
    "five-dimensions": lambda m, x: attend((x * m.scale)[None], x[None], x[None]),
    "dropout": lambda m, x: attend(x * m.scale, x, x, dropout_p=0.3),
    "dropout-causal": lambda m, x: attend(x * m.scale, x, x, dropout_p=0.3, is_causal=True),
    "dropout-bool-mask": lambda m, x: attend(x * m.scale, x, x, SEEN, 0.3),
    "dropout-learned-mask": lambda m, x: attend(x * m.scale, x, x, m.mask, 0.3),
    "dropout-grouped-queries": lambda m, x: attend(x * m.scale, x[:, :1], x[:, 1:], dropout_p=0.3, enable_gqa=True),
    "dropout-three-dimensions": lambda m, x: attend((x * m.scale)[0], x[0], x[0], dropout_p=0.3),
}


@pytest.mark.parametrize("num_lanes", [1, 2, 7])
@pytest.mark.parametrize("call", DOT_PRODUCTS)
def test_scaled_dot_product_attention_equals_separate_calls(call: str, num_lanes: int) -> None:
    x = example(3, 2, 5, 4)
    Parity().check(lambda: Attention(DOT_PRODUCTS[call]), lambda m: m(x), num_lanes)


def test_dropout_and_scale_of_attention_may_differ_by_lane() -> None:
    x, shares = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64), (0.1, 0.5, 0.9)
    Agreement().check(lambda x, p: attend(x, x, x, dropout_p=p), x, numbers=[shares])
    Agreement().check(lambda x, scale: attend(x, x, x, scale=scale), x, numbers=[shares])


class Behind(nn.Module):
    """A transformer behind a factor, so that each lane gives it another input."""

    def __init__(self, build: Callable[[], nn.Module], call: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.transformer, self.factor, self.call = build(), nn.Parameter(torch.randn(())), call

    def forward(self, x: Tensor) -> Any:
        return self.call(self.transformer, x * self.factor)


TRANSFORMERS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any, Tensor], Any]]] = {
    "encoder-layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.2, batch_first=True),
        lambda m, x: m(x, src_key_padding_mask=PADDING),
    ),
    "encoder-layer-norm-first": (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, activation="gelu", norm_first=True),
        lambda m, x: m(x, src_mask=torch.ones(3, 3, dtype=torch.bool).triu(1)),
    ),
    "encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, dropout=0.2, batch_first=True), 2),
        lambda m, x: m(x, src_key_padding_mask=PADDING),
    ),
    "decoder-layer": (
        lambda: nn.TransformerDecoderLayer(8, 2, 12, dropout=0.2, batch_first=True),
        lambda m, x: m(x, x * 0.5, tgt_mask=FUTURE, tgt_is_causal=True, memory_key_padding_mask=PADDING),
    ),
    "whole": (
        lambda: nn.Transformer(8, 2, 1, 1, 12, dropout=0.2, batch_first=True),
        lambda m, x: m(x, x.flip(0), tgt_mask=m.generate_square_subsequent_mask(5, dtype=x.dtype), tgt_is_causal=True),
    ),
}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_equals_separate_modules(name: str, train: bool) -> None:
    build, call = TRANSFORMERS[name]
    x = example(3, 5, 8)
    Parity().check(lambda: Behind(build, call), lambda m: m(x), train=train)


def example(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
