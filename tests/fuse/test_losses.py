"""Losses of lanes equal the losses of separate models, with every option."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import Agreement, Parity, make_mode
from torch import Tensor, nn

from headwater.torch_private import lanes_of

SEED = torch.Generator().manual_seed(3)
CLASSES = torch.tensor([1, 4, 0, 2])
SOME_IGNORED = torch.tensor([1, -100, 0, 2])
POSITIONS = torch.randint(0, 5, (4, 3), generator=SEED)
SOFT = torch.rand(4, 5, generator=SEED, dtype=torch.float64).softmax(1)
WEIGHTS = torch.rand(5, generator=SEED, dtype=torch.float64)
TARGETS = torch.randn(4, 5, generator=SEED, dtype=torch.float64)
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
LABELS = torch.tensor([[1, 2, -1, 0, 0]] * 4)

LOSSES: dict[str, Callable[..., Any]] = {
    "cross-entropy": lambda o, **k: F.cross_entropy(o, CLASSES, **k),
    "cross-entropy-many-classes": lambda o, **k: F.cross_entropy(
        o.repeat(1, 4), SOME_IGNORED, label_smoothing=0.1, **k
    ),
    "cross-entropy-smoothed": lambda o, **k: F.cross_entropy(o, CLASSES, label_smoothing=0.1, **k),
    "cross-entropy-ignoring": lambda o, **k: F.cross_entropy(o, SOME_IGNORED, label_smoothing=0.1, **k),
    "cross-entropy-ignoring-a-class": lambda o, **k: F.cross_entropy(o, CLASSES, ignore_index=2, **k),
    "cross-entropy-weighted": lambda o, **k: F.cross_entropy(o, SOME_IGNORED, weight=WEIGHTS.to(o.dtype), **k),
    "cross-entropy-weighted-smoothed": lambda o, **k: F.cross_entropy(
        o, CLASSES, weight=WEIGHTS.to(o.dtype), label_smoothing=0.1, **k
    ),
    "cross-entropy-soft": lambda o, **k: F.cross_entropy(o, SOFT.to(o.dtype), label_smoothing=0.1, **k),
    "cross-entropy-soft-weighted": lambda o, **k: F.cross_entropy(o, SOFT.to(o.dtype), weight=WEIGHTS.to(o.dtype), **k),
    "cross-entropy-own-targets": lambda o, **k: F.cross_entropy(o, o.detach().argmax(1), **k),
    "cross-entropy-own-soft-targets": lambda o, **k: F.cross_entropy(o, (o * o).softmax(1), **k),
    "cross-entropy-one-example": lambda o, **k: F.cross_entropy(o[0], CLASSES[0], label_smoothing=0.1, **k),
    "nll": lambda o, **k: F.nll_loss(o.log_softmax(1), SOME_IGNORED, **k),
    "nll-weighted": lambda o, **k: F.nll_loss(o.log_softmax(1), SOME_IGNORED, weight=WEIGHTS.to(o.dtype), **k),
    "mse": lambda o, **k: F.mse_loss(o, TARGETS.to(o.dtype), **k),
    "mse-between-lanes": lambda o, **k: F.mse_loss(o, o.flip(0) * 0.3, **k),
    "l1": lambda o, **k: F.l1_loss(o, TARGETS.to(o.dtype), **k),
    "smooth-l1": lambda o, **k: F.smooth_l1_loss(o, TARGETS.to(o.dtype), beta=0.3, **k),
    "huber": lambda o, **k: F.huber_loss(o, TARGETS.to(o.dtype), delta=0.3, **k),
    "huber-own-target": lambda o, **k: F.huber_loss(TARGETS.to(o.dtype), o, **k),
    "bce": lambda o, **k: F.binary_cross_entropy(o.sigmoid(), SOFT.to(o.dtype), weight=WEIGHTS.to(o.dtype), **k),
    "bce-with-logits": lambda o, **k: F.binary_cross_entropy_with_logits(
        o, SOFT.to(o.dtype), weight=WEIGHTS.to(o.dtype), pos_weight=WEIGHTS.to(o.dtype) * 2, **k
    ),
    "gaussian-nll": lambda o, **k: F.gaussian_nll_loss(o, TARGETS.to(o.dtype), o.exp(), full=True, **k),
    "poisson-nll": lambda o, **k: F.poisson_nll_loss(o, TARGETS.abs().to(o.dtype), full=True, **k),
    "cosine-embedding": lambda o, **k: F.cosine_embedding_loss(o, o.flip(0) * o, SIGNS.to(o.dtype), margin=0.2, **k),
    "margin-ranking": lambda o, **k: F.margin_ranking_loss(o[:, 0], o[:, 1], SIGNS.to(o.dtype), margin=0.2, **k),
    "triplet": lambda o, **k: F.triplet_margin_loss(o, o.flip(0) * o, o + TARGETS.to(o.dtype), swap=True, **k),
    "triplet-with-distance": lambda o, **k: F.triplet_margin_with_distance_loss(o, o * 2, TARGETS.to(o.dtype), **k),
    "hinge-embedding": lambda o, **k: F.hinge_embedding_loss(o, SIGNS[:, None].to(o.dtype), **k),
    "soft-margin": lambda o, **k: F.soft_margin_loss(o, SIGNS[:, None].to(o.dtype).expand(4, 5), **k),
    "multi-margin": lambda o, **k: F.multi_margin_loss(o, CLASSES, **k),
    "multilabel-margin": lambda o, **k: F.multilabel_margin_loss(o, LABELS, **k),
    "multilabel-soft-margin": lambda o, **k: F.multilabel_soft_margin_loss(o, (SOFT > 0.2).to(o.dtype), **k),
}
SEQUENCE_LOSSES: dict[str, Callable[..., Any]] = {
    "cross-entropy": lambda o, **k: F.cross_entropy(o.transpose(1, 2), POSITIONS, label_smoothing=0.1, **k),
    "cross-entropy-weighted": lambda o, **k: F.cross_entropy(o.transpose(1, 2), POSITIONS, WEIGHTS.to(o.dtype), **k),
    "nll": lambda o, **k: F.nll_loss(o.log_softmax(2).transpose(1, 2), POSITIONS, **k),
    "ctc": lambda o, **k: F.ctc_loss(
        o.log_softmax(2), torch.tensor([[1, 2], [3, 3], [1, 1]]), torch.tensor([4] * 3), torch.tensor([2, 2, 1]), **k
    ),
}


class Head(nn.Module):
    def __init__(self, loss: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.loss = nn.Linear(6, 5), loss

    def forward(self, x: Tensor) -> Any:
        return self.loss(self.linear(x))


@pytest.mark.parametrize("num_lanes", [1, 2, 7])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_equals_that_of_separate_models(name: str, num_lanes: int) -> None:
    x = example(4, 6)
    Parity().check(lambda: Head(LOSSES[name]), lambda m: m(x), num_lanes)


@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_reduced_as_for_separate_models(name: str, reduction: str) -> None:
    x = example(4, 6)
    Parity().check(lambda: Head(lambda o: LOSSES[name](o, reduction=reduction)), lambda m: m(x))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", SEQUENCE_LOSSES)
def test_a_loss_of_sequences_equals_that_of_separate_models(name: str, reduction: str) -> None:
    x = example(4, 3, 6)
    Parity().check(lambda: Head(lambda o: SEQUENCE_LOSSES[name](o, reduction=reduction)), lambda m: m(x))


@pytest.mark.parametrize("name", LOSSES)
def test_single_precision_is_kept(name: str) -> None:
    x = example(4, 6).float()
    Parity(dtype=torch.float32, num_steps=1).check(lambda: Head(LOSSES[name]), lambda m: m(x), 2)


@pytest.mark.parametrize("reduction", ["batchmean", "sum", "none"])
def test_divergence_equals_that_of_separate_models(reduction: str) -> None:
    def loss(o: Tensor) -> Any:
        log_p, log_q = o.log_softmax(1), (o * 2).log_softmax(1)
        return F.kl_div(log_p, SOFT, reduction=reduction), F.kl_div(log_p, log_q, log_target=True, reduction=reduction)

    x = example(4, 6)
    Parity().check(lambda: Head(loss), lambda m: m(x))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, WEIGHTS])
@pytest.mark.parametrize("target", [CLASSES, SOME_IGNORED, SOFT], ids=["classes", "ignoring", "soft"])
def test_label_smoothing_may_differ_by_lane(target: Tensor, weight: Tensor | None, reduction: str) -> None:
    def loss(o: Tensor, share: Any) -> Tensor:
        return F.cross_entropy(o, target, weight=weight, reduction=reduction, label_smoothing=share)

    Agreement().check(loss, torch.randn(3, 4, 5, dtype=torch.float64), numbers=[(0.0, 0.1, 0.5)])


def test_targets_of_the_wrong_shape_are_refused_as_alone() -> None:
    logits = lanes_of(torch.randn(3, 4, 5, 3))
    with make_mode(3), pytest.raises((ValueError, RuntimeError), match=r"target size|batch_size"):
        F.cross_entropy(logits, torch.zeros(3, 4).long())


def test_a_class_that_does_not_exist_is_refused_as_alone() -> None:
    logits = lanes_of(torch.randn(3, 4, 5))
    with make_mode(3), pytest.raises(IndexError, match="out of bounds"):
        F.cross_entropy(logits, CLASSES + 1)


def example(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
