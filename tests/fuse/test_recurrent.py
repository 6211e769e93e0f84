"""Recurrent layers of lanes equal separate modules: outputs, states and all gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.fuse.test_convolution import Shifted, build, compare
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headwater.errors import CannotFuseError
from headwater.fuse.mode import LaneMode
from headwater.fuse.models import fuse_models
from headwater.fuse.roster import Roster
from headwater.fuse.rules import RULES
from headwater.fuse.strategies import Strategies
from headwater.torch_private import stack_of

WAYS = ["fused", "looped"]
LAYERS: dict[str, Callable[..., nn.RNNBase]] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *args, **kwargs: nn.RNN(*args, nonlinearity="relu", **kwargs),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "one": {},
    "bare": {"bias": False},
    "deep": {"num_layers": 3},
    "both": {"bidirectional": True},
    "all": {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.4},
}
NUM_INPUTS, NUM_UNITS = 3, 5


class WithState(nn.Module):
    """A recurrent layer that learns the state it starts from."""

    def __init__(self, layer: nn.RNNBase, num_sequences: int) -> None:
        super().__init__()
        self.layer = layer
        num_states = layer.num_layers * (2 if layer.bidirectional else 1)
        self.states = nn.ParameterList(torch.randn(num_states, num_sequences, NUM_UNITS) for _ in range(2))

    def forward(self, x: Tensor) -> Any:
        h, c = self.states
        return self.layer(x, (h, c) if isinstance(self.layer, nn.LSTM) else h)


def layer_of(kind: str, setting: str = "one") -> nn.RNNBase:
    return LAYERS[kind](NUM_INPUTS, NUM_UNITS, **SETTINGS[setting])


def preset(way: str) -> Strategies:
    return Strategies(preset=[way, "batched"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("num_sequences", [2, 9])
def test_lanes_recur_over_their_own_input_as_separate_modules_do(
    kind: str, setting: str, way: str, num_sequences: int
) -> None:
    shape = (num_sequences, 6, NUM_INPUTS) if setting == "all" else (6, num_sequences, NUM_INPUTS)
    models = build(3, torch.float64, lambda: Shifted(layer_of(kind, setting), shape))
    x = torch.randn(shape, dtype=torch.float64)
    compare(models, lambda model: model(x), preset(way))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_lanes_recur_over_shared_input_as_separate_modules_do(kind: str, setting: str, way: str) -> None:
    models = build(2, torch.float64, lambda: layer_of(kind, setting))
    x = torch.randn(4, 6, NUM_INPUTS, dtype=torch.float64)
    compare(models, lambda model: model(x), preset(way))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("num_lanes", [1, 7])
def test_any_number_of_lanes_will_do(kind: str, num_lanes: int) -> None:
    models = build(num_lanes, torch.float64, lambda: layer_of(kind, "all"))
    x = torch.randn(10, 4, NUM_INPUTS, dtype=torch.float64)
    compare(models, lambda model: model(x), preset("fused"))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_single_precision_is_kept(kind: str, setting: str) -> None:
    models = build(2, torch.float32, lambda: layer_of(kind, setting))
    x = torch.randn(9, 6, NUM_INPUTS)
    compare(models, lambda model: model(x), preset("fused"), 2e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("setting", ["one", "all"])
def test_lanes_may_learn_the_state_they_start_from(kind: str, setting: str, way: str) -> None:
    num_sequences = 9
    shape = (num_sequences, 4, NUM_INPUTS) if setting == "all" else (4, num_sequences, NUM_INPUTS)
    models = build(2, torch.float64, lambda: WithState(layer_of(kind, setting), num_sequences))
    x = torch.randn(shape, dtype=torch.float64)
    compare(models, lambda model: model(x), preset(way))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_lanes_may_share_the_state_they_start_from(kind: str) -> None:
    models = build(2, torch.float64, lambda: layer_of(kind))
    x = torch.randn(4, 8, NUM_INPUTS, dtype=torch.float64)
    h, c = torch.randn(2, 1, 8, NUM_UNITS, dtype=torch.float64)
    compare(models, lambda model: model(x, (h, c) if kind == "lstm" else h), preset("fused"))


@pytest.mark.parametrize("part", ["last output", "states"])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_loss_may_use_a_part_of_what_comes_out(kind: str, part: str) -> None:
    models = build(2, torch.float64, lambda: layer_of(kind, "all"))
    x = torch.randn(9, 4, NUM_INPUTS, dtype=torch.float64)

    def run(model: Any) -> Any:
        y, states = model(x)
        return y[:, -1] if part == "last output" else states

    compare(models, run, preset("fused"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LAYERS)
def test_a_sequence_needs_no_batch(kind: str, way: str) -> None:
    models = build(2, torch.float64, lambda: layer_of(kind, "all"))
    x = torch.randn(6, NUM_INPUTS, dtype=torch.float64)
    compare(models, lambda model: model(x), preset(way))


@pytest.mark.parametrize("kind", LAYERS)
def test_states_carry_over_from_call_to_call(kind: str) -> None:
    models = build(2, torch.float64, lambda: layer_of(kind))
    first, second = torch.randn(2, 1, 8, NUM_INPUTS, dtype=torch.float64)

    def run(model: Any) -> Any:
        _, states = model(first)
        return model(second, states)

    compare(models, run, preset("fused"))


@pytest.mark.parametrize("kind", LAYERS)
def test_the_measured_way_serves_training_and_evaluation(kind: str) -> None:
    models = build(2, torch.float64, lambda: layer_of(kind, "all"))
    x = torch.randn(9, 4, NUM_INPUTS, dtype=torch.float64)
    strategies = Strategies()
    compare(models, lambda model: model(x), strategies)
    with torch.no_grad():
        compare([model.eval() for model in models], lambda model: model(x), strategies)
    assert len(strategies.seconds) == 2
    assert all(set(seconds) == set(WAYS) for seconds in strategies.seconds.values())


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_of_several_passes_add_up(kind: str) -> None:
    models = build(2, torch.float64, lambda: layer_of(kind))
    x = torch.randn(4, 8, NUM_INPUTS, dtype=torch.float64)

    def run(model: Any) -> Any:
        model(x)[0].sum().backward()
        return model(2 * x)[0]

    compare(models, run, preset("fused"))


@pytest.mark.parametrize("kind", LAYERS)
def test_what_comes_out_may_be_changed_in_place(kind: str) -> None:
    models = build(2, torch.float64, lambda: layer_of(kind))
    x = torch.randn(1, 1, NUM_INPUTS, dtype=torch.float64)

    def run(model: Any) -> Any:
        y, states = model(x)
        return y.mul_(2), (states[0] if kind == "lstm" else states).add_(1)

    compare(models, run, preset("fused"))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_packed_sequences_are_those_of_separate_modules(kind: str) -> None:
    shape = (5, 3, NUM_INPUTS)
    models = build(2, torch.float64, lambda: layer_of(kind, "both"))
    x = torch.randn(shape, dtype=torch.float64)

    def run(model: Any) -> Any:
        y, states = model(pack_padded_sequence(x, torch.tensor([5, 4, 2])))
        return pad_packed_sequence(y)[0], states

    compare(models, run, Strategies())


def test_a_projected_lstm_is_that_of_separate_modules() -> None:
    models = build(2, torch.float64, lambda: nn.LSTM(NUM_INPUTS, NUM_UNITS, proj_size=2))
    x = torch.randn(4, 8, NUM_INPUTS, dtype=torch.float64)
    compare(models, lambda model: model(x), preset("fused"))


def test_autocast_computes_as_torch_does() -> None:
    models = build(2, torch.float32, lambda: layer_of("gru"))
    x = torch.randn(4, 8, NUM_INPUTS)

    def run(model: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y, _ = model(x)
        return y.float()

    compare(models, run, preset("fused"), 2e-2)


def test_a_gradient_of_a_gradient_is_refused_in_clear_words() -> None:
    fused = fuse_models(build(2, torch.float64, lambda: Shifted(layer_of("gru"), (4, 8, NUM_INPUTS))))
    x = torch.randn(4, 8, NUM_INPUTS, dtype=torch.float64)
    with LaneMode(Roster([{}, {}]), RULES, preset("fused")):
        loss = fused(x)[0].square().sum()
        with pytest.raises(CannotFuseError, match="gradient of a gradient"):
            torch.autograd.grad(loss, list(fused.parameters()), create_graph=True)


def test_a_lane_that_breaks_leaves_the_others_alone() -> None:
    models = build(3, torch.float64, lambda: layer_of("lstm", "all"))
    nn.init.constant_(models[1].weight_hh_l0, float("nan"))  # type: ignore[arg-type]
    fused = fuse_models(models)
    with LaneMode(Roster([{}, {}, {}]), RULES, preset("fused")):
        y, _ = fused(torch.randn(9, 4, NUM_INPUTS, dtype=torch.float64))
        y.sum().backward()
    for stack in (stack_of(y), *(stack_of(parameter).grad for parameter in fused.parameters())):
        assert stack is not None
        assert stack.isnan().flatten(1).any(1).tolist() == [False, True, False]
