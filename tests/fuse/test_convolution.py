"""Convolutions of lanes equal those of separate modules, whichever way they are computed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwater.fuse.mode import LaneMode
from headwater.fuse.models import fuse_models
from headwater.fuse.roster import Roster
from headwater.fuse.rules import RULES
from headwater.fuse.rules.convolution import LAYOUTS
from headwater.fuse.strategies import NUM_LAPS, Strategies
from headwater.torch_private import is_lane_tensor, stack_of

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")  # torch itself, once

WAYS = ["looped", "side by side", "product"]
TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5}

KINDS: dict[str, tuple[Callable[..., nn.Module], dict[str, Any], tuple[int, ...]]] = {
    "1d": (nn.Conv1d, {"kernel_size": 3, "padding": 1}, (5, 4, 9)),
    "1d-dilated": (nn.Conv1d, {"kernel_size": 3, "dilation": 2, "stride": 2}, (5, 4, 11)),
    "2d": (nn.Conv2d, {"kernel_size": 3, "padding": 1}, (5, 4, 6, 7)),
    "2d-strided": (nn.Conv2d, {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}, (5, 4, 6, 7)),
    "2d-dilated": (nn.Conv2d, {"kernel_size": 2, "dilation": (2, 3), "padding": 2}, (5, 4, 6, 7)),
    "2d-bare": (nn.Conv2d, {"kernel_size": 3, "bias": False}, (5, 4, 6, 7)),
    "2d-same": (nn.Conv2d, {"kernel_size": 3, "padding": "same"}, (5, 4, 6, 7)),
    "2d-same-uneven": (nn.Conv2d, {"kernel_size": 2, "padding": "same"}, (5, 4, 6, 7)),
    "2d-valid": (nn.Conv2d, {"kernel_size": 3, "padding": "valid"}, (5, 4, 6, 7)),
    "2d-reflecting": (nn.Conv2d, {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"}, (5, 4, 6, 7)),
    "2d-grouped": (nn.Conv2d, {"kernel_size": 3, "groups": 2}, (5, 4, 6, 7)),
    "2d-depthwise": (nn.Conv2d, {"kernel_size": 3, "groups": 4, "padding": 1}, (5, 4, 6, 7)),
    "2d-pointwise": (nn.Conv2d, {"kernel_size": 1}, (5, 4, 6, 7)),
    "2d-pointwise-strided": (nn.Conv2d, {"kernel_size": 1, "stride": 2}, (5, 4, 6, 7)),
    "2d-unbatched": (nn.Conv2d, {"kernel_size": 3}, (4, 6, 7)),
    "2d-one-image": (nn.Conv2d, {"kernel_size": 3}, (1, 4, 6, 7)),
    "3d": (nn.Conv3d, {"kernel_size": 2, "padding": 1, "stride": (1, 2, 1)}, (3, 4, 4, 5, 4)),
    "transposed-1d": (nn.ConvTranspose1d, {"kernel_size": 3, "stride": 2, "output_padding": 1}, (5, 4, 7)),
    "transposed-2d": (nn.ConvTranspose2d, {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}, (5, 4, 6, 5)),
    "transposed-2d-grouped": (nn.ConvTranspose2d, {"kernel_size": 2, "groups": 2, "bias": False}, (5, 4, 6, 5)),
    "transposed-3d": (nn.ConvTranspose3d, {"kernel_size": 2}, (3, 4, 3, 4, 3)),
}


class Shifted(nn.Module):
    """A module whose input differs by lane and has a gradient."""

    def __init__(self, module: nn.Module, shape: Sequence[int]) -> None:
        super().__init__()
        self.module = module
        self.shift = nn.Parameter(torch.randn(*shape))

    def forward(self, x: Tensor, *args: Any) -> Any:
        return self.module(x + self.shift, *args)


@dataclass(slots=True)
class Seen:
    """What a module has shown: its outputs, the gradients of its parameters, its buffers afterwards."""

    outputs: list[Any] = field(default_factory=list)
    gradients: dict[str, Any] = field(default_factory=dict)
    buffers: dict[str, Any] = field(default_factory=dict)


def compare(
    models: Sequence[nn.Module], run: Callable[[Any], Any], strategies: Strategies, tolerance: float = 1e-12
) -> None:
    """Require that the models as lanes show what they show alone, for a forward and a backward pass."""
    alone = [watch(copy.deepcopy(model), run) for model in models]
    fused = fuse_models([copy.deepcopy(model) for model in models])
    with LaneMode(Roster([{} for _ in models]), RULES, strategies):
        together = watch(fused, run)
    for lane, seen in enumerate(alone):
        torch.testing.assert_close(
            [value_of(item, lane) for item in together.outputs], seen.outputs, rtol=tolerance, atol=tolerance
        )
        for actual, expected in ((together.gradients, seen.gradients), (together.buffers, seen.buffers)):
            values = {name: value_of(item, lane) for name, item in actual.items()}
            torch.testing.assert_close(values, expected, rtol=tolerance, atol=tolerance)


def watch(model: nn.Module, run: Callable[[Any], Any]) -> Seen:
    torch.manual_seed(5)
    outputs = list(leaves(run(model)))
    loss = sum((output * torch.linspace(-1, 1, output.shape[-1], dtype=output.dtype)).sum() for output in outputs)
    if isinstance(loss, Tensor) and loss.requires_grad:
        loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return Seen([output.detach() for output in outputs], gradients, dict(model.named_buffers()))


def leaves(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    else:
        for item in value:
            yield from leaves(item)


def value_of(value: Tensor, lane: int) -> Tensor:
    return stack_of(value)[lane] if is_lane_tensor(value) else value


def build(num_lanes: int, dtype: torch.dtype, make: Callable[[], nn.Module]) -> list[nn.Module]:
    torch.manual_seed(0)
    return [make().to(dtype) for _ in range(num_lanes)]


def layer_of(kind: str, num_outputs: int = 8) -> nn.Module:
    layer, options, shape = KINDS[kind]
    return layer(4 if len(shape) > 1 else 1, num_outputs, **options)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_lanes", [1, 2, 7])
def test_lanes_convolve_their_own_images_as_separate_modules_do(kind: str, way: str, num_lanes: int) -> None:
    shape = KINDS[kind][2]
    models = build(num_lanes, torch.float64, lambda: Shifted(layer_of(kind), shape))
    x = torch.randn(shape, dtype=torch.float64)
    compare(models, lambda model: model(x), Strategies(preset=[way, "looped"]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_lanes_convolve_shared_images_as_separate_modules_do(kind: str, way: str) -> None:
    models = build(3, torch.float64, lambda: layer_of(kind))
    x = torch.randn(KINDS[kind][2], dtype=torch.float64)
    compare(models, lambda model: model(x), Strategies(preset=[way, "looped"]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["1d", "2d", "2d-depthwise", "2d-pointwise", "3d", "transposed-2d"])
@pytest.mark.parametrize("shared", [True, False])
def test_single_precision_is_kept(kind: str, way: str, shared: bool) -> None:
    shape = KINDS[kind][2]
    models = build(2, torch.float32, lambda: layer_of(kind) if shared else Shifted(layer_of(kind), shape))
    x = torch.randn(shape)
    compare(models, lambda model: model(x), Strategies(preset=[way, "looped"]), TOLERANCES[torch.float32])


@pytest.mark.parametrize("kind", ["2d", "2d-pointwise", "transposed-2d"])
def test_the_measured_way_serves_training_and_evaluation(kind: str) -> None:
    shape = KINDS[kind][2]
    models = build(2, torch.float64, lambda: Shifted(layer_of(kind), shape))
    x = torch.randn(shape, dtype=torch.float64)
    strategies = Strategies()
    compare(models, lambda model: model(x), strategies)
    with torch.no_grad():
        compare(models, lambda model: model(x), strategies)
    assert all(set(seconds) >= {strategies.choices[key]} for key, seconds in strategies.seconds.items())


@pytest.mark.parametrize("way", WAYS)
def test_what_follows_a_convolution_may_work_in_place_and_view(way: str) -> None:
    def make() -> nn.Module:
        layers = [nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(4, 5, 1), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    x = torch.randn(4, 3, 10, 10, dtype=torch.float64)
    models = build(3, torch.float64, make)
    compare(models, lambda model: (y := model(x)).view(y.size(0), -1), Strategies(preset=[way, "looped"]))


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize("way", WAYS)
def test_frozen_parameters_get_no_gradient(way: str, frozen: str) -> None:
    models = build(2, torch.float64, lambda: Shifted(nn.Conv2d(4, 6, 1), (3, 4, 5, 5)))
    for model in models:
        dict(model.named_parameters())[f"module.{frozen}"].requires_grad_(False)
    x = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    compare(models, lambda model: model(x), Strategies(preset=[way]))


@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_gradients_are_those_of_separate_modules(way: str) -> None:
    def penalise(model: Any) -> Tensor:
        loss = model(x).square().sum()
        (gradient,) = torch.autograd.grad(loss, [model.shift], create_graph=True)
        return gradient.square()

    models = build(2, torch.float64, lambda: Shifted(nn.Conv2d(4, 6, 1), (3, 4, 5, 5)))
    x = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    compare(models, penalise, Strategies(preset=[way]))


@pytest.mark.parametrize("shared", [True, False])
def test_autocast_computes_in_the_lower_precision(shared: bool) -> None:
    shape = (3, 4, 6, 6)
    models = build(2, torch.float32, lambda: nn.Conv2d(4, 8, 3) if shared else Shifted(nn.Conv2d(4, 8, 3), shape))
    x = torch.randn(shape)

    def run(model: Any) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y: Tensor = model(x)
        assert y.dtype == torch.bfloat16
        return y.float()

    compare(models, run, Strategies(), 1e-2)


@pytest.mark.parametrize("size", [1, (1, 1), 2, (2, 3)])
def test_adaptive_averages_are_those_of_separate_modules(size: Any) -> None:
    make = lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(size))  # noqa: E731
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    compare(build(3, torch.float64, make), lambda model: model(x), Strategies())


def test_layers_that_differ_in_one_setting_are_measured_apart() -> None:
    strategies = Strategies()
    x = torch.randn(2, 3, 8, 8)
    for stride in (1, 2):
        models = build(2, torch.float32, lambda: nn.Conv2d(3, 4, 3, stride=stride))  # noqa: B023 - used at once
        compare(models, lambda model: model(x), strategies, TOLERANCES[torch.float32])
    assert len({key for key in strategies.choices if key[0][0] == "convolution"}) == 2  # type: ignore[index]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_either_layout_of_images_gives_the_same(layout: str) -> None:
    make = lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.ConvTranspose2d(4, 2, 2))  # noqa: E731
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    compare(build(3, torch.float64, make), lambda model: model(x), Strategies(preset=[layout]), 1e-11)


def test_a_change_of_layout_in_the_middle_of_training_changes_nothing() -> None:
    def train(model: Any) -> Tensor:
        for _ in range(2 * NUM_LAPS + 2):
            model.zero_grad()
            y: Tensor = model(x).square().mean()
            y.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(0.1 * parameter.grad)
        final: Tensor = model(x)
        return final

    make = lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 2))  # noqa: E731
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    strategies = Strategies()
    compare(build(3, torch.float64, make), train, strategies, 1e-10)
    (race,) = (seconds for seconds in strategies.seconds.values() if set(seconds) == set(LAYOUTS))
    assert all(seconds > 0 for seconds in race.values())
