"""However lanes lie in memory, they draw random numbers and give views as each lane alone does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import Agreement, Parity
from tests.train.lab import run, run_alone
from torch import Tensor, nn

from headwater.errors import LanesPart
from headwater.fuse.layouts import Layouts
from headwater.fuse.per_lane import PerLane
from headwater.fuse.roster import Roster
from headwater.fuse.strategies import Strategies
from headwater.torch_private import lanes_of
from headwater.train import Trial
from headwater.trials import Outcome

WAYS = [("looped",), ("side by side",), ("product", "looped")]


class Drops(nn.Module):
    """Applies a program to what a layer gives, and drops some of each result."""

    def __init__(self, layer: nn.Module, *programs: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.drop, self.programs = layer, nn.Dropout(0.5), programs

    def forward(self, x: Tensor) -> Any:
        return [self.drop(program(self.layer(x))) for program in self.programs]


IMAGE_PROGRAMS: list[Callable[[Tensor], Tensor]] = [
    lambda y: y, torch.relu, lambda y: F.relu(y, inplace=True), lambda y: y + 1, lambda y: y + y, lambda y: y.clone(),
    lambda y: y.float().double(), lambda y: F.batch_norm(y, None, None, training=True), lambda y: F.group_norm(y, 2),
    lambda y: F.max_pool2d(y, 2), lambda y: F.avg_pool2d(y, 2), lambda y: F.adaptive_avg_pool2d(y, 1),
    lambda y: F.interpolate(y, scale_factor=2), lambda y: F.pad(y, (1, 1, 1, 1)), lambda y: y.softmax(1),
    lambda y: torch.cat([y, y], 1), lambda y: torch.stack([y, y], 1), lambda y: y[:, :2], lambda y: y.chunk(2, 1)[1],
    lambda y: y.mean((2, 3)), lambda y: y.amax(2), lambda y: y.sum(1), lambda y: y * y.mean((2, 3), keepdim=True),
    lambda y: y.flatten(2).transpose(1, 2), lambda y: y.flatten(2).transpose(1, 2) + torch.ones(36, 4).double(),
    lambda y: y.permute(0, 2, 3, 1), lambda y: y.view(3, 4, -1), lambda y: y.reshape(3, -1), lambda y: y.flip(2),
    lambda y: F.pixel_shuffle(y, 2), lambda y: F.unfold(y, 2), lambda y: y.contiguous(), lambda y: y.repeat(1, 2, 1, 1),
    lambda y: torch.einsum("nchw,nkhw->nckh", y, y), lambda y: y.flatten(2) @ y.flatten(2).mT, lambda y: y.cumsum(1),
    torch.rand_like, lambda y: torch.empty_like(y).normal_(), lambda y: torch.bernoulli(y.sigmoid()),
    lambda y: F.alpha_dropout(y, 0.5, True), lambda y: F.dropout2d(y, 0.5), lambda y: torch.where(y > 0, y, 0.0),
]  # fmt: skip


@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: ways[0])
def test_dropout_behind_a_convolution_drops_as_alone(ways: tuple[str, ...]) -> None:
    x = torch.randn(3, 4, 8, 8, dtype=torch.float64)
    parity = Parity(strategies=Strategies(preset=ways), num_steps=1)
    parity.check(lambda: Drops(nn.Conv2d(4, 4, 3), *IMAGE_PROGRAMS), lambda m: m(x))


@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: ways[0])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Conv1d(4, 5, 3), (3, 4, 9)),
        (lambda: nn.Conv3d(2, 3, 2), (2, 2, 4, 4, 4)),
        (lambda: nn.ConvTranspose2d(4, 6, 3), (3, 4, 8, 8)),
        (lambda: nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 1)), (3, 4, 8, 8)),
        (lambda: nn.BatchNorm1d(4), (3, 4, 9)),
        (lambda: nn.BatchNorm2d(4), (3, 4, 8, 8)),
        (lambda: nn.InstanceNorm2d(4, affine=True), (3, 4, 8, 8)),
    ],
    ids=["1d", "3d", "transposed", "chain", "norm-1d", "norm-2d", "norm-of-instances"],
)
def test_dropout_behind_other_layers_drops_as_alone(
    layer: Callable[[], nn.Module], shape: tuple[int, ...], ways: tuple[str, ...]
) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    programs: list[Callable[[Tensor], Tensor]] = [lambda y: y, lambda y: y.transpose(1, 2), torch.relu]
    Parity(strategies=Strategies(preset=ways)).check(lambda: Drops(layer(), *programs), lambda m: m(x))


def test_channels_last_that_the_user_asks_for_is_kept() -> None:
    x = torch.randn(3, 4, 8, 8, dtype=torch.float64)

    def step(m: Any) -> Any:
        return m(x.to(memory_format=torch.channels_last)), m.to(memory_format=torch.channels_last)(x)

    Parity().check(lambda: Drops(nn.Conv2d(4, 4, 3), torch.relu), step)


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.drop = layer, nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Any:
        return self.drop(self.layer(x)[0])


@pytest.mark.parametrize("ways", [("looped",), ("fused",)], ids=lambda ways: ways[0])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_dropout_behind_a_recurrent_layer_drops_as_alone(kind: Any, batch_first: bool, ways: tuple[str, ...]) -> None:
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    parity = Parity(strategies=Strategies(preset=ways))
    parity.check(lambda: Recurrent(kind(4, 5, num_layers=2, dropout=0.5, batch_first=batch_first)), lambda m: m(x))


def test_a_view_of_a_displaced_tensor_shares_its_memory() -> None:
    def step(m: nn.Module) -> Any:
        y = m(torch.ones(2, 3, 5, 5, dtype=torch.float64))
        same = y.contiguous()
        same.mul_(2)
        y.view(-1)[0] = 0.0
        return y, same

    Parity().check(lambda: nn.Conv2d(3, 4, 3), step)


PERMUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.t(),
    "transposed-relu": lambda x: x.t().relu(),
    "transposed-plus": lambda x: x.t() + torch.ones(5, 4, dtype=x.dtype),
    "plus-transposed": lambda x: torch.ones(5, 4, dtype=x.dtype) + x.t(),
    "product": lambda x: (x @ x.t()).t(),
    "einsum": lambda x: torch.einsum("bij,bkj->bki", x.view(2, 2, 5), x.view(2, 2, 5)),
    "stacked": lambda x: torch.stack([x, x], 1),
    "indexed": lambda x: x[:, torch.tensor([0, 2])],
    "expanded": lambda x: x[:1].expand(3, 5),
    "summed": lambda x: x.view(2, 2, 5).permute(2, 0, 1).sum(1),
    "linear": lambda x: F.linear(torch.ones(6, 4, dtype=x.dtype), x.t()).t(),
    "chunk": lambda x: x.chunk(2, 1)[1],
}


@pytest.mark.parametrize("name", PERMUTED)
def test_dropout_of_a_permuted_tensor_drops_as_alone(name: str) -> None:
    def program(x: Tensor) -> Any:
        y = PERMUTED[name](x)
        return F.dropout(y, 0.5), torch.rand_like(y), F.alpha_dropout(y, 0.5, True)

    Agreement().check(program, torch.randn(3, 4, 5, dtype=torch.float64))


def swap_channels(y: Tensor) -> Tensor:
    return y.permute(0, 3, 1, 2)


def attend(y: Tensor, **options: Any) -> Tensor:  # Any: of scaled_dot_product_attention
    heads = y.permute(1, 2, 0, 3)
    return F.scaled_dot_product_attention(heads, heads, heads, **options)


PERMUTED_PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "concatenated": lambda y: torch.cat([swap_channels(y), swap_channels(y)], -1),
    "stacked": lambda y: torch.stack(swap_channels(y).unbind(2), 2),
    "stacked-in-rows": lambda y: torch.vstack([swap_channels(y), swap_channels(y) * 2]),
    "stacked-in-columns": lambda y: torch.hstack([swap_channels(y), swap_channels(y) * 2]),
    "padded": lambda y: F.pad(swap_channels(y), (1, 0)),
    "rolled": lambda y: swap_channels(y).roll(1, 2),
    "pooled-without-a-batch": lambda y: F.max_pool2d(y[0].permute(2, 0, 1), 2, 1),
    "pooled": lambda y: F.max_pool2d(swap_channels(y), 2, 1),
    "interpolated": lambda y: F.interpolate(swap_channels(y), scale_factor=2),
    "channels-last": lambda y: torch.cat([y.contiguous(memory_format=torch.channels_last)] * 2, 0),
    "attended": attend,
    "attended-with-dropout": lambda y: attend(y, dropout_p=0.2),
    "attended-with-a-mask": lambda y: attend(y, attn_mask=torch.eye(3, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", PERMUTED_PROGRAMS)
def test_dropout_behind_a_call_that_reads_the_memory_format_drops_as_alone(name: str) -> None:
    program = PERMUTED_PROGRAMS[name]
    Agreement().check(lambda x: F.dropout(program(x), 0.5), torch.randn(3, 3, 4, 5, 4, dtype=torch.float64))


def test_dropout_behind_attention_with_a_share_per_lane_drops_as_alone() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(4, 4).double())
        answer = attend(model(torch.ones(3, 4, 5, 4).double()), dropout_p=trial.config["dropout"])
        trial.report(loss=(F.dropout(answer, 0.5) * torch.arange(4)).sum())

    configs = [{"dropout": share} for share in (0.1, 0.2, 0.4)]
    together = run(train, configs)
    assert together.outcome is Outcome.DONE, together.reason
    for number, config in enumerate(configs):
        assert together.notes.history(number) == pytest.approx(run_alone(train, config, number).history(number))


def test_lanes_part_where_a_number_decides_on_the_memory_format() -> None:
    def turn(x: Tensor, share: float) -> Tensor:
        return x.clone() if share > 0 else x.mT.contiguous().mT

    roster = Roster([{}, {}, {}])
    x = lanes_of(torch.randn(3, 4, 5))
    same, different = (PerLane(values, roster, None) for values in ((0.1, 0.2, 0.3), (0.0, 0.2, 0.3)))
    assert Layouts().compare(turn, (x, same), {}, x) is x
    with pytest.raises(LanesPart, match="needs one value"):
        Layouts().compare(turn, (x, different), {}, x)
