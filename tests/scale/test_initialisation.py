from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.scale.test_parametrization import Build, build_cnn, build_mlp, build_transformer, every_model
from torch import Tensor, nn

from headwater.errors import CannotScaleError
from headwater.scale.initialisation import spread_weights
from headwater.scale.roles import Ratio, Role, find_ratios, shapes_of

mup: Any = importlib.import_module("mup")  # Microsoft's, untyped: an oracle for tests, never a dependency


def make_pair(
    build: Callable[[int], nn.Module], width: int, target_width: int
) -> tuple[nn.Module, nn.Module, dict[str, Ratio]]:
    """A surrogate that holds the first block of each of its target's weights, that target, and their ratios."""
    torch.manual_seed(5)
    target, surrogate = build(target_width), build(width)
    with torch.no_grad():
        for small, large in zip(surrogate.parameters(), target.parameters(), strict=True):
            small.copy_(large[tuple(slice(size) for size in small.shape)])
    return surrogate, target, find_ratios(surrogate, shapes_of(target))


def sizes_of(model: nn.Module) -> dict[str, float]:
    return {name: float(parameter.detach().square().mean().sqrt()) for name, parameter in model.named_parameters()}


@every_model
def test_spreads_are_those_of_mup_save_that_readouts_start_as_large_as_the_targets(build: Build) -> None:
    width, target_width = 32, 128
    surrogate, target, ratios = make_pair(lambda size: build(size, nn.Linear), width, target_width)
    spread_weights(surrogate, ratios)
    theirs, their_base = (build(size, mup.MuReadout) for size in (width, target_width))
    mup.set_base_shapes(theirs, their_base)
    for name, size in sizes_of(surrogate).items():
        expected = sizes_of(theirs)[name] / max(sizes_of(their_base)[name], 1e-9)
        if ratios[name].role is Role.READOUT:  # theirs is as spread in every width, and multiplied by 1/m_in
            expected *= 4**0.5
        if size > 0 and ratios[name].role is not Role.FIXED:  # samples: of a bias there are but 32
            assert size / sizes_of(target)[name] == pytest.approx(expected, rel=0.35)


def test_only_weights_that_sum_over_a_width_change() -> None:
    surrogate, _, ratios = make_pair(build_mlp, 4, 12)
    before = copy.deepcopy(surrogate.state_dict())
    spread_weights(surrogate, ratios)
    for name, value in surrogate.state_dict().items():
        factor = 3**0.5 if ratios[name].role in (Role.HIDDEN, Role.READOUT) else 1.0
        torch.testing.assert_close(value, before[name] * factor)


def test_answers_start_as_large_as_the_targets() -> None:
    inputs = torch.randn(2000, 6)
    surrogate, target, ratios = make_pair(build_mlp, 64, 512)
    spread_weights(surrogate, ratios)
    with torch.no_grad():
        assert float(surrogate(inputs).std() / target(inputs).std()) == pytest.approx(1.0, rel=0.2)


@pytest.mark.parametrize("build", [build_mlp, build_cnn, build_transformer])
def test_a_model_as_wide_as_its_target_stays_as_it_is(build: Callable[[int], nn.Module]) -> None:
    model = build(8)
    before = copy.deepcopy(model)
    spread_weights(model, find_ratios(model, shapes_of(before)))
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), before.parameters(), strict=True))


@pytest.mark.parametrize(
    "spoil",
    [nn.init.ones_, nn.init.eye_, lambda weight: nn.init.normal_(weight, mean=1.0, std=0.5)],
)
@pytest.mark.parametrize("num_outputs", [None, 6], ids=["hidden", "readout"])
def test_a_matrix_that_is_not_random_around_zero_is_refused(
    spoil: Callable[[Tensor], object], num_outputs: int | None
) -> None:
    def build(width: int) -> nn.Module:
        return nn.Linear(width, num_outputs or width)

    surrogate, _, ratios = make_pair(build, 8, 16)
    spoil(surrogate.get_parameter("weight"))
    with pytest.raises(CannotScaleError, match="`weight` does not start at random around zero"):
        spread_weights(surrogate, ratios)


@pytest.mark.parametrize("num_outputs", [None, 6], ids=["hidden", "readout"])
def test_a_matrix_may_start_from_zero(num_outputs: int | None) -> None:
    surrogate, _, ratios = make_pair(lambda width: nn.Linear(width, num_outputs or width), 8, 16)
    nn.init.zeros_(surrogate.get_parameter("weight"))
    spread_weights(surrogate, ratios)
    assert not surrogate.get_parameter("weight").any()
