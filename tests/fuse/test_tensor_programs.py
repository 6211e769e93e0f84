"""What people write with tensors gives each lane what it gives one lane alone: values, types and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import Agreement
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

NUMBERS = (0.1, 0.5, 2.5)
WHOLE = (1, 2, 3)


def nothing() -> Any:
    """None, as people compare tensors with it."""
    return None


def written(write: Callable[..., Any]) -> Callable[..., Any]:
    """A program that writes into a copy of its first tensor."""

    def program(x: Tensor, *rest: Any) -> Tensor:
        copy = x * 1.0
        write(copy, *rest)
        return copy

    return program


def written_into_shared(write: Callable[..., Any]) -> Callable[..., Any]:
    """A program that writes lanes' values into a tensor that they share so far."""

    def program(*args: Any) -> Tensor:
        shared = torch.zeros(4, 5, dtype=torch.float64)
        write(shared, *args)
        return shared

    return program


def add_to_rows(y: Tensor) -> Any:
    buffer = torch.zeros(4, 5, dtype=torch.float64)
    buffer[1] += y[0]
    buffer[:, 3] -= y[:, 0]
    row = buffer[1]
    row *= 3
    return buffer, row


def collect(y: Tensor) -> Any:
    outputs, total, count = torch.zeros(3, 4, 5, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64), 0
    for step in range(3):
        outputs[step] = y * step
        total += (y * step).sum().detach()
        count += len(y)
    return outputs, total / count


ONE: dict[str, Callable[..., Any]] = {
    "first": lambda x: x[0],
    "slices": lambda x: x[:, 1:3],
    "by-shared-indices": lambda x: x[torch.tensor([2, 0, 2])],
    "by-a-shared-mask": lambda x: x[torch.eye(4, 5) > 0],
    "new-dimensions": lambda x: x[None, ..., None],
    "flipped-steps": lambda x: x.flip(0)[::2],
    "all-selected": lambda x: x[x.detach() < 1e9],
    "set-an-element": written(lambda b: b.__setitem__((1, 2), 3.5)),
    "set-by-a-lane-mask": written(lambda b: b.__setitem__(b.detach() > 0, 0.0)),
    "set-by-a-shared-mask": written(lambda b: b.__setitem__(torch.eye(4, 5) > 0, 0.0)),
    "set-one-values-of-a-mask": written(lambda b: b.__setitem__(torch.eye(4, 5) > 0, (b * 2)[0, :4])),
    "shared-row-and-column": add_to_rows,
    "shared-collected": collect,
    "shared-set-row": written_into_shared(lambda b, y: b.__setitem__(0, y[1])),
    "shared-set-by-a-lane-mask": written_into_shared(lambda b, y: b.__setitem__(y > 0, 1.0)),
    "shared-plus": written_into_shared(lambda b, y: b.__iadd__(y)),
    "shared-copy": written_into_shared(lambda b, y: b.copy_(y)),
    "shared-masked-fill": written_into_shared(lambda b, y: b.masked_fill_(y > 0, 3.0)),
    "shared-index-add": written_into_shared(lambda b, y: b.index_add_(0, torch.tensor([0, 2]), y[:2])),
    "shared-or": lambda x: [flags := torch.zeros(4, 5, dtype=torch.bool), flags.__ior__(x > 0)],
    "out": lambda x: torch.add(x.detach(), 1, out=torch.empty(4, 5, dtype=x.dtype)),
    "index-fill": written(lambda b: b.index_fill_(0, torch.tensor([0, 2]), 1.0)),
    "scatter": lambda x: x.scatter(0, torch.tensor([[0, 1, 2, 3, 0]]), x[:1] * 2),
    "masked-scatter": lambda x: x.masked_scatter(torch.eye(4, 5) > 0, x * 2),
    "split": lambda x: [*x.split([1, 3]), *x.chunk(3, 1), *x.unbind(1)],
    "topk-and-sort": lambda x: [*x.topk(2), *x.sort(0, descending=True), x.argsort(1)],
    "extremes": lambda x: [x.argmax(), x.argmax(1, keepdim=True), *x.max(1), x.max(), x.amin((0, 1)), *x.median(1)],
    "running": lambda x: [x.cumsum(0), x.cumprod(1), *x.cummax(0), x.logsumexp(1)],
    "statistics": lambda x: [x.mean(), x.var(0), x.std(), x.norm(), x.norm(p=1, dim=1), torch.cov(x)],
    "logic": lambda x: [(x > 0).any(1), (x > -9).all(), ~(x > 0), (x > 0) ^ (x < 1), torch.count_nonzero(x > 0)],
    "matrices": lambda x: [torch.linalg.svdvals(x), torch.linalg.eigvalsh(x @ x.t()), torch.linalg.det(x[:, :4])],
    "fourier": lambda x: torch.fft.rfft(x).abs(),
    "iterated": lambda x: [row * step for step, row in enumerate(x)],
    "unpacked": lambda x: torch.stack([*x]),
    "asked": lambda x: [len(x), x.dim(), x.size(1), x.numel(), x.t().is_contiguous(), x.t().stride(0)],
    "compared-with-none": lambda x: [x == nothing(), x is None],
    "views": lambda x: [x.view(2, -1), x.t().reshape(2, 10), x.flatten(), x.unflatten(0, (2, 2)), x.unfold(1, 2, 1)],
    "written-through-views": written(lambda b: [b.view(-1)[:3].mul_(2), b.t().add_(1), b.diagonal().zero_()]),
    "reshaped-in-place": written(lambda b: b.unsqueeze_(0).squeeze_(0).t_()),
    "in-place": written(lambda b: b.clamp_(-0.5, 0.5).mul_(2).sub_(1).tril_().neg_()),
    "channels-last": lambda x: x.view(1, 2, 2, 5).to(memory_format=torch.channels_last),
    "made-alike": lambda x: [torch.zeros_like(x), x.new_ones(2) * x[0, 0], torch.ones_like(x, dtype=torch.float32)],
    "cast": lambda x: [x.float(), x.type_as(torch.ones(1)), x.to(torch.ones(1)), x.long()],
    "unique-of-one": lambda x: torch.unique((x.detach() * 0).long()),
    "padded-sequences": lambda x: pad_sequence([x[0], x[1, :3]], batch_first=True),
    "packed-sequences": lambda x: pad_packed_sequence(pack_padded_sequence(x.view(2, 5, 2), [5, 3], True))[0],
    "of-a-shared-linear-layer": lambda x: [
        (y := F.linear(torch.ones(6, 4, dtype=x.dtype), x.t())).view(-1), y.view(3, 10), y.view(-1)[:3].mul_(0), y,
    ],
}  # fmt: skip

TWO: dict[str, Callable[..., Any]] = {
    "joined": lambda x, y: [torch.cat([x, y], 1), torch.cat((x, torch.ones(2, 5).double())), torch.stack([x, y], -1)],
    "products": lambda x, y: [x @ y.t(), x @ y[0], x[:, 0] @ y, x[0] @ y[0], torch.ones(3, 4, dtype=x.dtype) @ x],
    "batched-products": lambda x, y: [torch.bmm(x[None], y.t()[None]), torch.addmm(x[0, :4], x, y.t())],
    "einsum": lambda x, y: [torch.einsum("ij,kj->ik", x, y), torch.einsum("ij,kj,k->i", x, y, x[:, 0])],
    "distances": lambda x, y: [torch.cdist(x, y), F.cosine_similarity(x, y), F.pairwise_distance(x, y)],
    "chosen": lambda x, y: [torch.where(x > y, x, y), torch.maximum(x, y), x.lerp(y, 0.3), x.clamp(max=y)],
    "broadcast": lambda x, y: [x + y[0], x[:, 0] * y.t(), torch.ones(3, 1, 1).double() * x],
    "grid": lambda x, y: torch.meshgrid(x[0], y[0], indexing="ij"),
    "equal": lambda x, y: [torch.equal(x, x), torch.allclose(x, x), torch.isclose(x, y)],
    "set-a-row": lambda x, y: written(lambda b: b.__setitem__(0, y[1]))(x),
    "set-a-column": lambda x, y: written(lambda b: b.__setitem__((slice(None), 0), y[:, 1]))(x),
    "solved": lambda x, y: torch.linalg.solve(x[:, :4] + 5 * torch.eye(4, dtype=x.dtype), y),
}  # fmt: skip

INDEXED: dict[str, Callable[..., Any]] = {
    "index": lambda x, i: x[i],
    "index-a-column": lambda x, i: x[:, i],
    "index-both": lambda x, i: x[i, torch.tensor([0, 1, 4])],
    "index-by-one": lambda x, i: x[i[0]],
    "index-a-shared-tensor": lambda x, i: torch.arange(8.0, dtype=x.dtype).view(4, 2)[i] * x.sum(),
    "index-select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(3, 5)),
    "take": lambda x, i: [x.take(i), torch.take_along_dim(x, i[None, :, None].expand(1, 3, 5)[0], 0)],
    "one-hot": lambda x, i: F.one_hot(i, 4) * x[:3, :4],
    "index-add": lambda x, i: x.index_add(0, i, x[:3] * 2),
    "scatter-add": lambda x, i: x.scatter_add(0, i[:, None].expand(3, 5), x[:3]),
    "scattered-into-shared": lambda x, i: torch.zeros(4, 5).double().scatter_add_(0, i[:, None].expand(3, 5), x[:3]),
    "index-put": lambda x, i: (x * 1).index_put_((i,), x[:3], accumulate=True),
    "bincount": lambda x, i: torch.bincount(i, minlength=4),
    "integer-arithmetic": lambda x, i: [i / 2, i // 2, i % 3, i + x[0, :3], (i == 1).float().mean(), i.sum() / 3],
}  # fmt: skip

WITH_NUMBERS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, p: [x + p, p - x, p * x, x / p, p / x, x % p],
    "powers": lambda x, p: [x.abs() ** p, p**x, torch.pow(x.abs(), p)],
    "comparisons": lambda x, p: [x < p, p < x, x == p],
    "limits": lambda x, p: [x.clamp(-p, p), x.clamp(max=p), torch.clamp(x, min=-p, max=p)],
    "choices": lambda x, p: [torch.where(x > 0, x, p), torch.where(x > 0, p, x), x.masked_fill(x > 0, p)],
    "mixtures": lambda x, p: [torch.lerp(x, x * 2, p), x.add(x * x, alpha=p), torch.addcmul(x, x, x, value=p)],
    "in-place": lambda x, p: [(x * 1).add_(p), (x * 1).mul_(p), (x * 1).sub_(x, alpha=p), (x * 1).lerp_(x * 2, p)],
    "filled": lambda x, p: [torch.full((3,), p), torch.full_like(x, p), (x * 1).fill_(p), x.new_full((2,), p)],
    "filled-shared": lambda x, p: [torch.ones(3).fill_(p), torch.ones(3).mul_(p)],
    "made": lambda x, p: [torch.tensor([[p, 1.0], [2.0, p]]), torch.as_tensor(p), x.new_tensor([p])],
    "set": lambda x, p: written(lambda b: b.__setitem__((0, 0), p))(x),
    "activations": lambda x, p: [F.leaky_relu(x, p), F.elu(x, p), F.softplus(x, p), F.softmax(x / p, -1)],
    "norms": lambda x, p: [x.norm(p), F.layer_norm(x, (5,), eps=p), F.pad(x, (1, 1), value=p)],
    "products": lambda x, p: torch.addmm(x[:, :4], x, x.t(), beta=p, alpha=2 * p),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_a_program_of_one_tensor(name: str) -> None:
    Agreement().check(ONE[name], tensor())


@pytest.mark.parametrize("name", TWO)
def test_a_program_of_two_tensors(name: str) -> None:
    Agreement().check(TWO[name], tensor(), tensor(1))


@pytest.mark.parametrize("name", INDEXED)
def test_a_program_with_indices_that_differ_by_lane(name: str) -> None:
    indices = torch.tensor([[0, 2, 1], [1, 3, 3], [3, 0, 2]])
    Agreement().check(INDEXED[name], tensor(), indices)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_a_program_with_numbers_that_differ_by_lane(name: str, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and name in ("powers", "norms"):
        pytest.skip("torch itself lacks some of these in reduced precision")
    tolerance = 1e-10 if dtype == torch.float64 else 1e-6 if dtype == torch.float32 else 1e-2
    Agreement(tolerance).check(lambda x, p: WITH_NUMBERS[name](x.to(dtype), p), tensor(), numbers=[NUMBERS])


def test_reduced_precision_meets_numbers_unrounded() -> None:
    def program(x: Tensor, p: Any) -> Any:
        low = x.detach().bfloat16()
        return low * p, low + p, p - low, low < p

    Agreement(0.0).check(lambda x, p: [part.float() for part in program(x, p)], tensor(), numbers=[NUMBERS])


@pytest.mark.parametrize("program", [lambda x, i: x[i], lambda x, i: torch.arange(6.0)[i], lambda x, i: x.roll(i, 0)])
def test_whole_numbers_that_differ_by_lane_serve_as_indices(program: Callable[..., Any]) -> None:
    Agreement().check(program, tensor(), numbers=[WHOLE])


def tensor(seed: int = 0) -> Tensor:
    return torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
