"""What people write around a model trains each lane as it trains one model alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import Parity
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

X = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randint(0, 4, (6,), generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Net(nn.Module):
    ema: Tensor
    late: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)
        self.drop = nn.Dropout(0.3)
        self.register_buffer("ema", torch.zeros(8))
        self.cache: Tensor | None = None
        self.kept: dict[str, Any] = {}

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(self.drop(torch.relu(self.norm(self.first(x)))))
        return scores


def loss_of(model: Callable[[Tensor], Tensor]) -> Tensor:
    return F.cross_entropy(model(X), Y)


def copied(m: Net) -> Any:
    twin = copy.deepcopy(m)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(0.5)
    return loss_of(m), twin(X).detach()


def saved_and_loaded(m: Net) -> Any:
    before = copy.deepcopy(m.state_dict())
    with torch.no_grad():
        for parameter in m.parameters():
            parameter.add_(1.0)
    m.load_state_dict(before)
    m.load_state_dict(copy.deepcopy(m.state_dict()), assign=True)
    return loss_of(m), list(m.state_dict().values())


def averaged(**options: Any) -> Callable[[Net], Any]:
    def step(m: Net) -> Any:
        average = m.kept.setdefault("average", AveragedModel(nn.Sequential(m.first, m.last), **options))
        loss = loss_of(m)
        average.update_parameters(nn.Sequential(m.first, m.last))
        return loss, [parameter.detach().clone() for parameter in average.parameters()], average(X).detach()

    return step


def averaged_by_hand(m: Net) -> Any:
    teacher = m.kept.setdefault("teacher", copy.deepcopy(m.first).requires_grad_(False))
    loss = loss_of(m)
    for slow, fast in zip(teacher.parameters(), m.first.parameters(), strict=True):
        slow.data.mul_(0.9).add_(fast.data, alpha=0.1)
    return loss, list(teacher.parameters())


def buffer_assigned(m: Net) -> Any:
    hidden = m.first(X)
    m.ema = m.ema * 0.9 + hidden.mean(0).detach() * 0.1
    return F.cross_entropy(m.last(hidden - m.ema), Y)


def buffer_updated(m: Net) -> Any:
    hidden = m.first(X)
    m.ema.mul_(0.9).add_(hidden.detach().mean(0), alpha=0.1)
    return F.cross_entropy(m.last(hidden - m.ema), Y)


def buffer_registered_late(m: Net) -> Any:
    if not hasattr(m, "late"):
        m.register_buffer("late", torch.zeros(8, dtype=torch.float64), persistent=False)
    hidden = m.first(X)
    m.late += hidden.detach().mean(0)
    return F.cross_entropy(m.last(hidden * m.late), Y)


def lazy_state(m: Net) -> Any:
    hidden = m.first(X)
    m.cache = (torch.zeros_like(hidden) if m.cache is None else m.cache) * 0.5 + hidden.detach()
    return F.cross_entropy(m.last(hidden + m.cache), Y)


def frozen(m: Net) -> Any:
    m.first.requires_grad_(False)
    return loss_of(m)


def initialised_again(m: Net) -> Any:
    torch.manual_seed(3)

    def initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.kaiming_uniform_(module.weight, a=2)
            nn.init.zeros_(module.bias)

    m.apply(initialise)
    m.norm.reset_parameters()
    return loss_of(m)


def evaluated(m: Net) -> Any:
    loss = loss_of(m)
    m.eval()
    with torch.no_grad():
        accuracy = (m(X).argmax(1) == Y).double().mean()
    m.train()
    return loss, accuracy


def hooked_forward(m: Net) -> Any:
    seen: list[Tensor] = []

    def observe(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        seen.append(output.detach().norm())
        return output * 1.1

    handles = [m.norm.register_forward_hook(observe), m.first.register_forward_pre_hook(lambda _, x: (x[0] * 2,))]
    loss = loss_of(m)
    for handle in handles:
        handle.remove()
    return loss, seen


def halve(module: nn.Module, outputs: Any) -> Any:
    return tuple(grad * 0.5 for grad in outputs)


def hooked_backward(m: Net) -> Any:
    seen: list[Tensor] = []

    def normalise(module: nn.Module, inputs: Any, outputs: Any) -> Any:
        seen.extend((inputs[0].norm(), outputs[0].norm()))
        return (inputs[0] / inputs[0].norm(),)

    handles = [
        m.last.register_full_backward_hook(normalise),
        m.norm.register_full_backward_pre_hook(halve),
    ]
    loss_of(m).backward()
    for handle in handles:
        handle.remove()
    grads = [parameter.grad.clone() for parameter in m.parameters() if parameter.grad is not None]
    m.zero_grad()
    return loss_of(m), grads, seen


def penalised(m: Net) -> Any:
    return loss_of(m) + 0.01 * sum(p.abs().sum() for p in m.parameters()) + sum((p**2).sum() for p in m.parameters())


def accumulated_and_clipped(m: Net) -> Any:
    for _ in range(2):
        (loss_of(m) / 2).backward()
    norm = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    grads = [parameter.grad.clone() for parameter in m.parameters() if parameter.grad is not None]
    m.zero_grad(set_to_none=False)
    return loss_of(m), norm, grads


def sharpness_aware(m: Net) -> Any:
    loss_of(m).backward()
    with torch.no_grad():
        norm = torch.stack([p.grad.norm() for p in m.parameters() if p.grad is not None]).norm()
        moves = [p.grad * (0.05 / (norm + 1e-12)) for p in m.parameters() if p.grad is not None]
        for parameter, move in zip(m.parameters(), moves, strict=True):
            parameter.add_(move)
    m.zero_grad()
    loss = loss_of(m)
    with torch.no_grad():
        for parameter, move in zip(m.parameters(), moves, strict=True):
            parameter.data.sub_(move)
    return loss.detach(), loss_of(m)


def inner_step(m: Net) -> Any:
    weights = dict(m.named_parameters())
    grads = torch.autograd.grad(functional_loss(m, weights), list(weights.values()), create_graph=True)
    moved = {name: weight - 0.1 * grad for (name, weight), grad in zip(weights.items(), grads, strict=True)}
    return functional_loss(m, moved)


def functional_loss(m: Net, weights: Mapping[str, Tensor]) -> Tensor:
    return F.cross_entropy(torch.func.functional_call(m, dict(weights), (X,)), Y)


def taught(m: Net) -> Any:
    teacher = m.kept.setdefault("unprepared", nn.Linear(5, 4, dtype=torch.float64))
    with torch.no_grad():
        targets = (teacher(X) * 0 + X[:, :4]).softmax(1)
    return F.cross_entropy(m(X), targets)


def checkpointed(m: Net) -> Any:
    hidden = checkpoint(lambda x: m.drop(torch.relu(m.first(x))), X, use_reentrant=False)
    hidden = checkpoint(lambda h: torch.tanh(h) * m.norm.weight, hidden, use_reentrant=True)
    return F.cross_entropy(m.last(hidden), Y)


class Checkpointed(nn.Module):
    """Every kind of layer that has several ways to be computed, inside checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.recurrent = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, momentum=0.0), nn.LSTM(4, 3)
        self.head, self.drop = nn.Linear(3, 5), nn.Dropout(0.3)

    def forward(self, images: Tensor) -> Any:
        hidden = checkpoint(self.convolution, images, use_reentrant=False)
        hidden = checkpoint(lambda h: self.drop(self.norm(h)).flatten(2).transpose(1, 2), hidden, use_reentrant=False)
        return self.head(checkpoint(lambda h: self.recurrent(h)[0], hidden, use_reentrant=True))


def parametrized_late(m: Net) -> Any:
    if not parametrize.is_parametrized(m.first):
        parametrize.register_parametrization(m.first, "weight", nn.Tanh())
        parametrizations.weight_norm(m.last)
        prune.l1_unstructured(m.norm, "weight", amount=3)
    return loss_of(m)


STEPS: dict[str, Callable[[Net], Any]] = {
    "copied": copied,
    "saved-and-loaded": saved_and_loaded,
    "averaged": averaged(),
    "averaged-with-buffers": averaged(use_buffers=True),
    "exponential-average": averaged(avg_fn=get_ema_avg_fn(0.9)),
    "exponential-average-of-lists": averaged(multi_avg_fn=get_ema_multi_avg_fn(0.9)),
    "averaged-by-hand": averaged_by_hand,
    "buffer-assigned": buffer_assigned,
    "buffer-updated": buffer_updated,
    "buffer-registered-late": buffer_registered_late,
    "lazy-state": lazy_state,
    "frozen": frozen,
    "initialised-again": initialised_again,
    "evaluated": evaluated,
    "hooked-forward": hooked_forward,
    "hooked-backward": hooked_backward,
    "penalised": penalised,
    "accumulated-and-clipped": accumulated_and_clipped,
    "sharpness-aware": sharpness_aware,
    "inner-step": inner_step,
    "taught": taught,
    "checkpointed": checkpointed,
    "parametrized-late": parametrized_late,
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_trains_lanes_as_separate_models(name: str) -> None:
    Parity().check(Net, STEPS[name])


def test_checkpoints_compute_again_what_they_computed_before() -> None:
    Parity(num_steps=4).check(Checkpointed, lambda m: m(IMAGES).tanh())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_may_change_its_type_after_fusing(dtype: torch.dtype) -> None:
    def step(m: Net) -> Any:
        m.to(dtype)
        return F.cross_entropy(m.eval()(X.to(dtype)), Y)

    Parity(dtype=torch.float32, tolerance=1e-10 if dtype == torch.float64 else 2e-2).check(Net, step)


class Mixed(nn.Module):
    """Convolution, attention, normalisation and look-up in one."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.LayerNorm(4), nn.Linear(4, 5)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, dropout=0.2)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.convolution(images).relu().flatten(2).transpose(1, 2)
        scores: Tensor = self.head(self.norm(tokens + self.attention(tokens, tokens, tokens)[0]).mean(1))
        return scores


def test_autocast_lowers_precision_as_for_separate_models() -> None:
    def step(m: Mixed) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(m(IMAGES.float()), torch.tensor([0, 2, 1]), label_smoothing=0.1)

    Parity(dtype=torch.float32, tolerance=2e-2).check(Mixed, step)


def test_channels_last_is_a_layout_of_each_lane() -> None:
    def step(m: Any) -> Any:
        m.to(memory_format=torch.channels_last)
        return m(IMAGES.contiguous(memory_format=torch.channels_last))

    Parity().check(Mixed, step)
