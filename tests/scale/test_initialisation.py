from __future__ import annotations

import copy
import importlib
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.scale.test_parametrization import Build, build_cnn, build_mlp, build_transformer, every_model
from torch import Tensor, nn

from headwater.errors import CannotScaleError
from headwater.fuse.functorch import stack_of
from headwater.fuse.mode import LaneMode
from headwater.fuse.models import fuse_models, lane_state
from headwater.fuse.roster import Roster
from headwater.fuse.rules import RULES
from headwater.scale.parametrization import forward_factors
from headwater.scale.roles import Ratio, Role, find_ratios, shapes_of
from headwater.scale.starting import (
    factors_of,
    fold_factors,
    folded_state,
    load_folded,
    set_forward_factors,
    start_surrogate,
    start_target,
    zero_readouts,
)

mup: Any = importlib.import_module("mup")  # Microsoft's, untyped: an oracle for tests, never a dependency


class Tied(nn.Module):
    def __init__(self, width: int, *, is_tied: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, width)
        self.body = nn.Linear(width, width)
        self.head = nn.Linear(width, 9)
        if is_tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.body(self.embedding(tokens))))
        return logits


def make_pair(
    build: Callable[[int], nn.Module], base: int, width: int
) -> tuple[nn.Module, nn.Module, dict[str, Ratio]]:
    """A target, and a surrogate that holds the first block of each of its weights."""
    torch.manual_seed(5)
    target, surrogate = build(width), build(base)
    with torch.no_grad():
        for small, large in zip(surrogate.parameters(), target.parameters(), strict=True):
            small.copy_(large[tuple(slice(size) for size in small.shape)])
    return surrogate, target, find_ratios(target, shapes_of(surrogate))


def sizes_of(model: nn.Module) -> dict[str, float]:
    return {name: float(parameter.detach().square().mean().sqrt()) for name, parameter in model.named_parameters()}


@every_model
def test_target_and_surrogate_start_in_the_proportion_of_mup(build: Build) -> None:
    base, width = 32, 128
    surrogate, target, ratios = make_pair(lambda size: build(size, nn.Linear), base, width)
    start_surrogate(surrogate, ratios)
    start_target(target, ratios)

    def readout(*args: int) -> nn.Module:
        layer: nn.Module = mup.MuReadout(*args, readout_zero_init=True)
        return layer

    their_base, theirs = (build(size, readout) for size in (base, width))
    mup.set_base_shapes(theirs, their_base)
    expected = {name: (sizes_of(theirs)[name], size) for name, size in sizes_of(their_base).items()}
    for name, size in sizes_of(surrogate).items():
        their_size, their_base_size = expected[name]
        if size == 0 or their_base_size == 0:
            assert sizes_of(target)[name] == size == their_size == their_base_size == 0
        else:  # samples: of a bias of the base there are but 32
            assert sizes_of(target)[name] / size == pytest.approx(their_size / their_base_size, rel=0.35)
    hidden = [name for name, ratio in ratios.items() if ratio.role is Role.HIDDEN]
    for name in hidden:
        assert sizes_of(target)[name] / sizes_of(surrogate)[name] == pytest.approx(0.5, rel=0.05)


def test_only_hidden_matrices_and_readouts_of_a_surrogate_change() -> None:
    surrogate, _, ratios = make_pair(build_mlp, 4, 12)
    before = copy.deepcopy(surrogate.state_dict())
    start_surrogate(surrogate, ratios)
    for name, value in surrogate.state_dict().items():
        factor = 3**0.5 if ratios[name].role is Role.HIDDEN else 0.0 if name.startswith("6.") else 1.0
        torch.testing.assert_close(value, before[name] * factor)


def test_a_shared_readout_does_not_start_from_zero() -> None:
    surrogate, target, ratios = make_pair(Tied, 4, 12)
    for model in (surrogate, target):
        before = copy.deepcopy(model.state_dict())
        zero_readouts(model, ratios)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_projection_inside_a_layer_starts_from_zero() -> None:
    _, target, ratios = make_pair(lambda width: nn.LSTM(5, width, proj_size=3), 4, 12)
    start_target(target, ratios)
    assert not target.get_parameter("weight_hr_l0").any()
    assert target.get_parameter("bias_hh_l0").all()


@pytest.mark.parametrize("build", [build_mlp, build_cnn, build_transformer, Tied])
def test_a_target_as_wide_as_its_surrogate_stays_as_it_is(build: Callable[[int], nn.Module]) -> None:
    model = build(8)
    before = copy.deepcopy(model)
    ratios = find_ratios(model, shapes_of(before))
    start_surrogate(model, ratios)
    start_target(model, ratios)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), before.parameters(), strict=True))
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    "spoil",
    [nn.init.ones_, nn.init.eye_, lambda weight: nn.init.normal_(weight, mean=1.0, std=0.5)],
)
def test_a_hidden_matrix_that_is_not_random_around_zero_is_refused(spoil: Callable[[Tensor], object]) -> None:
    def build(width: int) -> nn.Module:
        return nn.Linear(width, width)

    surrogate, _, ratios = make_pair(build, 8, 16)
    spoil(surrogate.get_parameter("weight"))
    with pytest.raises(CannotScaleError, match="`weight` does not start at random around zero"):
        start_surrogate(surrogate, ratios)


def test_a_hidden_matrix_may_start_from_zero() -> None:
    surrogate, _, ratios = make_pair(lambda width: nn.Linear(width, width), 8, 16)
    nn.init.zeros_(surrogate.get_parameter("weight"))
    start_surrogate(surrogate, ratios)


def make_factored(is_tied: bool = True) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(6)
    model = Tied(12, is_tied=is_tied)
    set_forward_factors(model, forward_factors(model, find_ratios(model, shapes_of(Tied(4, is_tied=is_tied)))))
    return model, torch.arange(9)


def test_a_factor_multiplies_the_input_and_not_the_bias() -> None:
    layer = nn.Linear(3, 2)
    x_NI = torch.randn(4, 3)
    expected = nn.functional.linear(x_NI * 0.25, layer.weight, layer.bias)
    set_forward_factors(layer, {"": 0.5})
    set_forward_factors(layer, {"": 0.25})
    assert torch.equal(layer(x_NI), expected)
    assert torch.equal(layer(input=x_NI), expected)


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
)
def test_copies_of_a_model_keep_its_factors(duplicate: Callable[[nn.Module], nn.Module]) -> None:
    model, tokens = make_factored()
    twin = duplicate(model)
    assert torch.equal(twin(tokens), model(tokens))
    set_forward_factors(model, {})
    assert not torch.equal(twin(tokens), model(tokens))


def test_factors_act_in_every_lane() -> None:
    models = [make_factored()[0], make_factored()[0]]
    with torch.no_grad():
        models[1].get_parameter("head.bias").add_(1.0)
        models[1].get_parameter("embedding.weight").mul_(2.0)
    tokens = torch.arange(9)
    alone = [model(tokens).detach() for model in models]
    fused = fuse_models([copy.deepcopy(model) for model in models])
    with LaneMode(Roster([{}, {}]), RULES):
        together = stack_of(fused(tokens))
    torch.testing.assert_close(together.detach(), torch.stack(alone))
    plain = Tied(12, is_tied=False)
    plain.load_state_dict(folded_state(lane_state(fused, 1), factors_of(fused)))
    torch.testing.assert_close(plain(tokens), alone[1])


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_folded_model_computes_the_same_without_us(is_tied: bool) -> None:
    model, tokens = make_factored(is_tied)
    expected = model(tokens).detach()
    plain = Tied(12, is_tied=is_tied)
    load_folded(plain, folded_state(model.state_dict(), factors_of(model)))
    torch.testing.assert_close(plain(tokens), expected)
    assert torch.equal(model(tokens), expected)
    fold_factors(model)
    assert not any(module._forward_pre_hooks for module in model.modules())
    torch.testing.assert_close(model(tokens), expected)
    stream = io.BytesIO()
    torch.save(model.state_dict(), stream)
    assert b"headwater" not in stream.getvalue()


@given(factor=st.floats(1e-3, 1e3))
def test_folding_moves_any_factor_into_the_weight(factor: float) -> None:
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    set_forward_factors(layer, {"": factor})
    torch.testing.assert_close(folded_state(layer.state_dict(), factors_of(layer))["weight"], before * factor)
    fold_factors(layer)
    torch.testing.assert_close(layer.weight.detach(), before * factor)
    assert isinstance(layer.weight, nn.Parameter)
