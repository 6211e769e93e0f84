"""Attention whose heads become smaller keeps the target's logits by the 1/d rule, or is refused."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headwater as hw
from headwater.errors import CannotScaleError
from headwater.scale.shrinking import shrink

WIDTH, NUM_HEADS, SCALE = 64, 2, 8
X_NTI = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(0))
ANSWERS = torch.arange(6) % 3


class Attending(nn.Module):
    """Attends with heads of its own."""

    def __init__(self, num_heads: int = NUM_HEADS, factor: float | None = None) -> None:
        super().__init__()
        self.num_heads, self.factor = num_heads, factor
        self.inner, self.qkv, self.head = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3)

    def split(self, x_NTI: Tensor) -> list[Tensor]:
        parts = self.qkv(self.inner(x_NTI)).chunk(3, -1)
        return [part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts]

    def answer(self, mixed: Tensor) -> Tensor:
        answer: Tensor = self.head(mixed.transpose(1, 2).flatten(2).mean(1))
        return answer

    def forward(self, x_NTI: Tensor) -> Tensor:
        q, k, v = self.split(x_NTI)
        return self.answer(F.scaled_dot_product_attention(q, k, v, scale=self.factor))


class ByHand(Attending):
    """Computes the products itself."""

    def forward(self, x_NTI: Tensor) -> Tensor:
        q, k, v = self.split(x_NTI)
        return self.answer((q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v)


class ByEinsum(Attending):
    """Computes the products itself, by letters."""

    def forward(self, x_NTI: Tensor) -> Tensor:
        q, k, v = self.split(x_NTI)
        return self.answer(torch.softmax(torch.einsum("nhid,nhjd->nhij", q, k) / math.sqrt(q.shape[-1]), -1) @ v)


class OfTorch(nn.Module):
    """Attends with torch's layer."""

    def __init__(self, kdim: int | None = None) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 3)
        self.attention = nn.MultiheadAttention(WIDTH, NUM_HEADS, batch_first=True, kdim=kdim)
        nn.init.normal_(self.attention.in_proj_bias)

    def forward(self, x_NTI: Tensor) -> Tensor:
        x = self.inner(x_NTI)
        keys = x if self.attention.kdim == self.attention.embed_dim else x_NTI
        answer: Tensor = self.head(self.attention(x, keys, x)[0].mean(1))
        return answer


@pytest.mark.parametrize("factor", [None, 0.3])
def test_heads_that_shrink_have_the_targets_factor_times_the_ratio_of_sizes(factor: float | None) -> None:
    torch.manual_seed(0)
    small = shrink(Attending(factor=factor), SCALE, (X_NTI,), {}, min_width=4)
    assert isinstance(small, Attending)
    q, k, v = small.split(X_NTI)
    size, target_size = q.shape[-1], WIDTH // NUM_HEADS
    assert size < target_size
    wanted = (target_size**-0.5 if factor is None else factor) * target_size / size
    expected = small.answer((q @ k.transpose(-2, -1) * wanted).softmax(-1) @ v)
    torch.testing.assert_close(small(X_NTI), expected)


@pytest.mark.parametrize("kdim", [None, 8])
def test_torchs_own_attention_has_it_too(kdim: int | None) -> None:
    torch.manual_seed(0)
    model = OfTorch(kdim)
    small = shrink(model, SCALE, (X_NTI,), {}, min_width=4)
    assert isinstance(small, OfTorch)
    size, target_size = small.attention.head_dim, WIDTH // NUM_HEADS
    assert size < target_size
    answer = small(X_NTI)
    width = small.attention.embed_dim
    with torch.no_grad():
        weight = small.attention.in_proj_weight if kdim is None else small.attention.q_proj_weight
        weight[:width] *= (target_size / size) ** 0.5
        small.attention.in_proj_bias[:width] *= (target_size / size) ** 0.5
    torch.testing.assert_close(OfTorch.forward(small, X_NTI), answer)


def test_heads_that_keep_their_size_need_nothing() -> None:
    model = Attending(num_heads=8)
    small = shrink(model, SCALE, (X_NTI,), {}, min_width=4)
    assert type(small) is Attending
    assert (small.num_heads, small.split(X_NTI)[0].shape[-1]) == (1, 8)


@pytest.mark.parametrize("kind", [ByHand, ByEinsum])
def test_attention_that_the_model_computes_itself_is_refused_where_heads_shrink(kind: type[Attending]) -> None:
    with pytest.raises(CannotScaleError, match=r"sums over 32 numbers.*scaled_dot_product_attention"):
        shrink(kind(), SCALE, (X_NTI,), {}, min_width=4)
    shrink(kind(8), SCALE, (X_NTI,), {}, min_width=4)


def test_a_model_of_hugging_face_with_few_heads_has_it() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    tokens = torch.arange(6)[None]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=10, n_positions=8, n_embd=64, n_head=2, n_layer=1)).eval()
    small = shrink(model, SCALE, (tokens,), {}, min_width=4)
    answer = small(tokens).logits
    attention = small.get_submodule("transformer.h.0.attn")
    attention.scaling = 32**-0.5 * 32 / attention.head_dim
    torch.testing.assert_close(GPT2LMHeadModel.forward(small, tokens).logits, answer)


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(Attending())
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    for _ in trial.epochs(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X_NTI), ANSWERS)
        loss.backward()
        optimizer.step()
        trial.report(loss=loss.detach())


def test_lanes_of_such_surrogates_equal_single_trials() -> None:
    surrogate = hw.Surrogate(scale=SCALE, at=SCALE, min_width=4)
    study = hw.Study(
        train, space={"lr": hw.loguniform(1e-3, 1e-1)}, metric="loss", storage=None, surrogate=surrogate, lanes=3
    )
    alone = hw.Study(
        train, space={"lr": hw.loguniform(1e-3, 1e-1)}, metric="loss", storage=None, surrogate=surrogate, lanes=1
    )
    values = [[trial.value("loss") for trial in one.run(num_trials=3).trials] for one in (study, alone)]
    assert values[0] == pytest.approx(values[1], rel=1e-5)
