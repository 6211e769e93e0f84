"""Batch normalisation of lanes equals that of separate modules, running statistics included."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.fuse.test_convolution import Shifted, build, compare
from torch import Tensor, nn

from headwater.fuse.mode import LaneMode
from headwater.fuse.models import fuse_models, lane_state, repeat_model
from headwater.fuse.per_lane import PerLane
from headwater.fuse.roster import Roster
from headwater.fuse.rules import RULES
from headwater.fuse.strategies import Strategies
from headwater.torch_private import stack_of

WAYS = ["looped", "batched"]
SHAPES: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "rows": (nn.BatchNorm1d, (9, 5)),
    "sequences": (nn.BatchNorm1d, (4, 5, 7)),
    "images": (nn.BatchNorm2d, (4, 5, 3, 6)),
    "volumes": (nn.BatchNorm3d, (3, 5, 2, 3, 4)),
}


def norm_of(kind: str, **options: Any) -> nn.Module:
    """A layer whose parameters and statistics are not those that every layer starts from."""
    layer = SHAPES[kind][0](5, **options)
    for tensor in [*layer.parameters(), *layer.buffers()]:
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 2.0)
    return layer


def examples(kind: str, dtype: torch.dtype = torch.float64) -> Tensor:
    return 3 + 2 * torch.randn(SHAPES[kind][1], dtype=dtype)


def twice(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return model(x), model(x * x)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("num_lanes", [1, 2, 7])
@pytest.mark.parametrize("train", [True, False])
def test_lanes_normalise_as_separate_modules_do(kind: str, way: str, num_lanes: int, train: bool) -> None:
    models = build(num_lanes, torch.float64, lambda: Shifted(norm_of(kind), SHAPES[kind][1]).train(train))
    x = examples(kind)
    compare(models, lambda model: twice(model, x), Strategies(preset=[way]), 1e-11)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("train", [True, False])
def test_single_precision_is_kept(kind: str, way: str, train: bool) -> None:
    models = build(2, torch.float32, lambda: Shifted(norm_of(kind), SHAPES[kind][1]).train(train))
    x = examples(kind, torch.float32)
    compare(models, lambda model: model(x), Strategies(preset=[way]), 5e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "options",
    [
        {"momentum": None},
        {"momentum": 0.7, "eps": 0.1},
        {"affine": False},
        {"track_running_stats": False},
        {"affine": False, "track_running_stats": False},
    ],
)
@pytest.mark.parametrize("train", [True, False])
def test_every_setting_means_what_it_means_alone(options: dict[str, Any], way: str, train: bool) -> None:
    models = build(3, torch.float64, lambda: Shifted(norm_of("images", **options), SHAPES["images"][1]).train(train))
    x = examples("images")
    compare(models, lambda model: twice(model, x), Strategies(preset=[way]), 1e-11)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("train", [True, False])
def test_shared_examples_give_each_lane_its_own_result(way: str, train: bool) -> None:
    models = build(3, torch.float64, lambda: norm_of("images").train(train))
    x = examples("images")
    compare(models, lambda model: model(x), Strategies(preset=[way]), 1e-11)


def test_measuring_leaves_the_running_statistics_alone() -> None:
    models = build(3, torch.float64, lambda: norm_of("images"))
    x = examples("images")
    strategies = Strategies()
    compare(models, lambda model: model(x), strategies, 1e-11)
    assert set(strategies.seconds) == set(strategies.choices) != set()


@pytest.mark.parametrize("way", WAYS)
def test_each_lane_may_have_a_momentum_of_its_own(way: str) -> None:
    momenta = [0.1, 0.4, 1.0]
    x = examples("images")
    alone = [norm_of("images", momentum=momentum).double() for momentum in momenta]
    roster = Roster([{} for _ in momenta])
    copies = copy.deepcopy(alone)
    for layer in copies:
        layer.momentum = PerLane(momenta, roster)  # type: ignore[assignment]  # as `trial.config` may hand it over
    fused = fuse_models(copies)
    with LaneMode(roster, RULES, Strategies(preset=[way])):
        fused(x)
    for lane, layer in enumerate(alone):
        layer(x)
        torch.testing.assert_close(lane_state(fused, lane), layer.state_dict())


@pytest.mark.parametrize("way", WAYS)
def test_what_follows_may_work_in_place(way: str) -> None:
    make: Callable[[], nn.Module] = lambda: nn.Sequential(nn.Conv2d(3, 5, 3), norm_of("images"), nn.ReLU(inplace=True))  # noqa: E731
    x = torch.randn(4, 3, 6, 6, dtype=torch.float64)
    compare(build(3, torch.float64, make), lambda model: model(x), Strategies(preset=[way, "looped"]), 1e-11)


@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_gradients_are_those_of_separate_modules(way: str) -> None:
    def penalise(model: Any) -> Tensor:
        loss = model(x).pow(3).sum()
        (gradient,) = torch.autograd.grad(loss, [model.shift], create_graph=True)
        return gradient.square()

    models = build(2, torch.float64, lambda: Shifted(norm_of("images"), SHAPES["images"][1]))
    x = examples("images")
    compare(models, penalise, Strategies(preset=[way]), 1e-8)


def test_a_batch_of_one_fails_in_torchs_own_words() -> None:
    fused = repeat_model(nn.BatchNorm1d(5), 2)
    with LaneMode(Roster([{}, {}]), RULES), pytest.raises(ValueError, match="more than 1 value per channel"):
        fused(torch.randn(1, 5))


def test_a_lane_that_breaks_leaves_the_others_alone() -> None:
    models = build(3, torch.float64, lambda: Shifted(norm_of("images"), SHAPES["images"][1]))
    nn.init.constant_(models[1].shift, float("nan"))  # type: ignore[arg-type]
    fused = fuse_models(models)
    for way in WAYS:
        with LaneMode(Roster([{}, {}, {}]), RULES, Strategies(preset=[way])):
            y = fused(examples("images"))
        broken = stack_of(y).isnan().flatten(1).any(1).tolist()
        assert broken == [False, True, False]
