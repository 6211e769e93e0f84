"""Models that differ in modules or functions without weights train as one; those that differ in more do not."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import make_mode, value_of
from torch import Tensor, nn

from headwater.errors import CannotFuseError, LanesPart
from headwater.fuse.choices import LaneChoice, answering_for
from headwater.fuse.mode import LaneMode
from headwater.fuse.models import fuse_models, lane_state, load_lane_states, narrow_model, repeat_model
from headwater.fuse.per_lane import PerLane
from headwater.fuse.roster import Roster
from headwater.fuse.rules import RULES
from headwater.fuse.strategies import LANE_BY_LANE, Strategies
from headwater.torch_private import stack_of
from headwater.trials import Recipe
from headwater.trials.recipes import Constant, Key

NUM_STEPS = 5
X = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Own(nn.Module):
    """What a user writes: along a dimension, with a setting of its own."""

    def __init__(self, power: float) -> None:
        super().__init__()
        self.power = power

    def forward(self, x: Tensor) -> Tensor:
        return x.abs().pow(self.power).cumsum(dim=0)


class Net(nn.Module):
    """Calls a function that it keeps as an attribute."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.hidden, self.activation, self.output = nn.Linear(4, 6), activation, nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Any:
        return self.output(self.activation(self.hidden(x)))


class Residual(nn.Module):
    """Goes on with the input of its activation, which may have been written into."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.hidden, self.activation, self.output = nn.Linear(4, 6), activation, nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Any:
        h = self.hidden(x)
        return self.output(self.activation(h) + h)


class Turned(nn.Module):
    """Activates what does not lie in memory as it is seen, and drops some of it in the order of memory."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.hidden, self.activation, self.output = nn.Linear(4, 6), activation, nn.Linear(7, 2)

    def forward(self, x: Tensor) -> Any:
        return self.output(F.dropout(self.activation(self.hidden(x).t()), 0.4))


class Images(nn.Module):
    def __init__(self, activation: nn.Module, pool: nn.Module) -> None:
        super().__init__()
        self.first, self.norm, self.activation = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), activation
        self.pool, self.second = pool, nn.Conv2d(4, 2, 3)

    def forward(self, x: Tensor) -> Any:
        return self.second(self.pool(F.dropout(self.activation(self.norm(self.first(x))), 0.3)))


def build(kind: Callable[..., nn.Module], choices: Sequence[Any]) -> list[nn.Module]:
    """Build one model per choice, each with weights of its own."""
    models = []
    for seed, choice in enumerate(choices):
        torch.manual_seed(seed)
        models.append(kind(*choice if isinstance(choice, tuple) else (choice,)).double())
    return models


def stacked(activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), activation, nn.Linear(6, 2))


def train(model: nn.Module, x: Tensor) -> list[Any]:
    """Take a few steps with momentum; return what they showed, and what the model does when it is evaluated."""
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    seen: list[Any] = []
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        answer = model.train()(x)
        answer.square().mean().backward()
        seen += [answer.detach(), *(parameter.grad.clone() for parameter in model.parameters())]  # type: ignore[union-attr]  # all have one
        optimizer.step()
    seen.append(torch.get_rng_state())
    with torch.no_grad():
        return [*seen, model.eval()(x)]


def require_parity(models: Sequence[nn.Module], x: Tensor = X, strategies: Strategies | None = None) -> nn.Module:
    """Fail where a lane's numbers or state differ from those of its model alone; return the fused model."""
    alone = [copy.deepcopy(model) for model in models]
    expected = [train(model, x) for model in alone]
    fused = fuse_models(models)
    with make_mode(len(models), strategies):
        together = train(fused, x)
    for lane, (model, values) in enumerate(zip(alone, expected, strict=True)):
        for ours, theirs in zip(together, values, strict=True):
            torch.testing.assert_close(value_of(ours, lane), theirs, rtol=1e-9, atol=1e-9)
        state = lane_state(fused, lane)
        assert list(state) == list(model.state_dict())
        for name, theirs in model.state_dict().items():
            torch.testing.assert_close(state[name], theirs, rtol=1e-9, atol=1e-9)
    return fused


def num_choices(model: nn.Module) -> int:
    return sum(isinstance(module, LaneChoice) for module in model.modules())


ACTIVATIONS: dict[str, list[nn.Module]] = {
    "three kinds in mixed order": [nn.ReLU(), nn.Tanh(), nn.ReLU(), nn.GELU(), nn.Tanh()],
    "in order": [nn.ReLU(), nn.ReLU(), nn.SiLU(), nn.SiLU()],
    "settings": [nn.LeakyReLU(0.1), nn.LeakyReLU(0.3), nn.LeakyReLU(0.1), nn.ELU(0.5), nn.Identity()],
    "softmax": [nn.Softmax(dim=1), nn.ReLU(), nn.Softmax(dim=0), nn.ReLU(), nn.Softmax(dim=1)],
    "a user's own": [Own(1.5), nn.Sigmoid(), Own(2.5), nn.Sigmoid()],
    "nothing but a user's own": [Own(1.5), Own(2.5), Own(1.5)],
    "containers": [nn.Sequential(nn.ReLU(), nn.Tanh()), nn.Tanh(), nn.Sequential(nn.Softplus())],
    "in place": [nn.ReLU(inplace=True), nn.Tanh(), nn.ReLU(inplace=True), nn.ReLU(), nn.SiLU(inplace=True)],
    "in place beside a user's own": [nn.ReLU(inplace=True), Own(1.5), nn.ReLU(inplace=True)],
    "as much chance": [nn.Dropout(0.2), nn.Dropout(0.6), nn.Dropout(0.2)],
}


@pytest.mark.parametrize("kind", [stacked, Net, Residual])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_each_lane_trains_as_its_own_model_alone(name: str, kind: Callable[..., nn.Module]) -> None:
    fused = require_parity(build(kind, copy.deepcopy(ACTIVATIONS[name])))
    assert num_choices(fused) == 1


@pytest.mark.parametrize("name", ["three kinds in mixed order", "in order", "settings", "in place"])
def test_lanes_keep_their_order_in_memory(name: str) -> None:
    require_parity(build(Turned, copy.deepcopy(ACTIVATIONS[name])))


@pytest.mark.parametrize(
    "functions",
    [
        [torch.relu, F.gelu, torch.relu, torch.tanh],
        [torch.relu, nn.Tanh(), Own(1.5)],
        [partial(F.leaky_relu, negative_slope=0.1), partial(F.leaky_relu, negative_slope=0.3), F.relu],
        [lambda x, p=power: x.abs() ** p for power in (1.5, 2.0, 1.5)],
    ],
    ids=["torch", "with modules", "partial", "lambda"],
)
def test_a_function_that_the_model_keeps_may_differ(functions: list[Any]) -> None:
    assert num_choices(require_parity(build(Net, functions))) == 1


@pytest.mark.parametrize("way", ["looped", "side by side", "product"])
def test_images_keep_their_layout_and_pooling_may_differ(way: str) -> None:
    strategies = Strategies(preset=(way, "looped"))
    choices = [
        (nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        (nn.GELU(), nn.AvgPool2d(2)),
        (nn.Softmax(dim=1), nn.MaxPool2d(2)),
    ]
    require_parity(build(Images, choices), IMAGES, strategies)
    choices = [(nn.ReLU(), nn.MaxPool2d(2)), (nn.GELU(), nn.MaxPool2d(2)), (nn.ReLU(), nn.MaxPool2d(2))]
    require_parity(build(Images, choices), IMAGES, strategies)


def test_models_that_agree_get_no_choice() -> None:
    assert num_choices(require_parity(build(stacked, [nn.LeakyReLU(0.3), nn.LeakyReLU(0.3)]))) == 0
    assert num_choices(repeat_model(stacked(nn.ReLU()), 3)) == 0


def test_only_the_modules_that_differ_become_choices() -> None:
    fused = fuse_models([nn.Sequential(nn.Tanh(), stacked(activation)) for activation in (nn.ReLU(), nn.GELU())])
    assert [name for name, module in fused.named_modules() if isinstance(module, LaneChoice)] == ["1.1"]


def test_lanes_with_one_pointwise_module_are_one_call() -> None:
    calls: list[int] = []

    def spy(x: Tensor) -> Tensor:
        calls.append(len(x))
        return x

    fused = fuse_models(build(stacked, [nn.ReLU(), nn.Tanh(), nn.ReLU(), nn.ReLU()]))
    for module in (each for each in fused.modules() if type(each) in (nn.ReLU, nn.Tanh)):
        module.forward = spy
    with make_mode(4):
        fused(X)
    assert calls == [3, 1]


class Sick(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * ctx.factor, None


@pytest.mark.parametrize("sick", [1, 2])
def test_a_gradient_of_nan_stays_in_its_lane(sick: int) -> None:
    strategies = Strategies(preset=LANE_BY_LANE)  # not by measured times, so that both runs round alike

    def train_with(factor: float) -> list[dict[str, Tensor]]:
        choices: list[Any] = [torch.relu, torch.tanh, torch.relu, F.gelu]
        choices[sick] = lambda x: Sick.apply(x, factor)  # type: ignore[no-untyped-call]  # torch's
        fused = fuse_models(build(Net, choices))
        with make_mode(4, strategies):
            train(fused, X)
        return [lane_state(fused, lane) for lane in range(4)]

    for lane, (well, ill) in enumerate(zip(train_with(1.0), train_with(math.nan), strict=True)):
        assert all(torch.equal(well[name], ill[name]) for name in well) == (lane != sick)
        assert bool(ill["hidden.weight"].isnan().all()) == (lane == sick)


def test_lanes_may_leave_and_a_copy_of_the_model_follows() -> None:
    models = build(stacked, [nn.ReLU(), nn.Tanh(), nn.Softmax(dim=1), nn.GELU(), nn.Tanh()])
    with torch.no_grad():  # a graph would hold the memory of the weights
        expected = [model(X) for model in models]
    mode = make_mode(5)
    fused = fuse_models(models)
    with mode:
        kept = copy.deepcopy(fused)
        before = kept[0](X)  # type: ignore[index]  # a Sequential
        mode.roster.narrow([1, 3, 4])
        with torch._C.DisableTorchFunction():
            narrow_model(fused, [1, 3, 4], mode.roster)
        answers = fused(X), kept[2](kept[1](before))  # type: ignore[index]  # a Sequential
    for answer in answers:
        for lane, own in enumerate([1, 3, 4]):
            torch.testing.assert_close(stack_of(answer)[lane], expected[own])


def test_a_narrowed_model_has_the_choices_of_the_lanes_that_stay() -> None:
    models = build(stacked, [nn.ReLU(), nn.Tanh(), nn.GELU()])
    with torch.no_grad():  # a graph would hold the memory of the weights
        expected = [model(X) for model in models]
    fused = fuse_models(models)
    mode = make_mode(3)
    mode.roster.narrow([1, 2])
    narrow_model(fused, [1, 2], mode.roster)
    with mode:
        torch.testing.assert_close(stack_of(fused(X)), torch.stack(expected[1:]))


def test_states_are_loaded_lane_by_lane() -> None:
    states = [model.state_dict() for model in build(stacked, [nn.ReLU(), nn.Tanh()])]
    fused = fuse_models([model.double() for model in (stacked(nn.ReLU()), stacked(nn.Tanh()))])
    load_lane_states(fused, states)
    for lane, state in enumerate(states):
        assert all(torch.equal(lane_state(fused, lane)[name], state[name]) for name in state)


def test_switching_between_training_and_evaluation_reaches_the_choices() -> None:
    fused = fuse_models([stacked(nn.Dropout(0.2)), stacked(nn.Dropout(0.5))])
    assert not any(module.training for module in fused.eval().modules())


def test_settings_that_differ_by_lane_are_each_lanes_own_inside_a_choice() -> None:
    mode = make_mode(3)
    slope = PerLane((0.1, 0.2, 0.3), mode.roster)
    choices = [nn.LeakyReLU(slope), nn.Tanh(), nn.LeakyReLU(slope)]  # type: ignore[arg-type]  # as configured
    models = build(stacked, choices)
    alone = [stacked(nn.LeakyReLU(0.1)), stacked(nn.Tanh()), stacked(nn.LeakyReLU(0.3))]
    expected = []
    for model, own in zip(models, alone, strict=True):
        own.double().load_state_dict(model.state_dict())
        expected.append(own(X))
    fused = fuse_models(models)
    with mode:
        torch.testing.assert_close(stack_of(fused(X)), torch.stack(expected))


def test_a_first_call_without_gradients_does_not_hinder_training() -> None:
    fused = fuse_models(build(stacked, [nn.ReLU(), nn.Tanh(), nn.ReLU()]))
    with make_mode(3):
        with torch.inference_mode():
            fused(X)
        fused(X).sum().backward()
        assert all(parameter.grad is not None for parameter in fused.parameters())


def test_a_tensor_that_is_no_buffer_is_each_lanes_own() -> None:
    models = [nn.Linear(4, 2) for _ in range(3)]
    for lane, model in enumerate(models):
        model.setting = torch.full((2,), float(lane))
    expected = [model(torch.ones(4)) * model.setting for model in models]
    fused = fuse_models(models)
    with make_mode(3):
        answer = fused(torch.ones(4)) * fused.setting
    torch.testing.assert_close(stack_of(answer), torch.stack(expected))


CLASHES: dict[str, tuple[list[nn.Module], str]] = {
    "draws": ([nn.Dropout(0.5), nn.Identity(), nn.Identity()], "random numbers"),
    "shapes": ([nn.AdaptiveAvgPool1d(2), nn.AdaptiveAvgPool1d(3), nn.AdaptiveAvgPool1d(3)], "different shapes"),
    "writes": ([nn.Sequential(nn.ReLU(inplace=True)), nn.Tanh(), nn.Tanh()], "writes into its input"),
}


@pytest.mark.parametrize("name", CLASHES)
def test_where_choices_clash_lanes_part_by_what_the_factory_asked_for(name: str) -> None:
    choices, reason = CLASHES[name]
    roster = Roster([{"size": 1, "kind": "a"}, {"size": 2, "kind": "b"}, {"size": 3, "kind": "b"}])
    for key in ("size", "kind"):
        roster.note(Recipe(key, Key((key,))))
    fused = fuse_models(build(stacked, choices), roster)
    with LaneMode(roster, RULES), pytest.raises(LanesPart, match=reason):
        fused(X)
    assert roster.question is not None
    assert roster.question.recipe is not None
    assert roster.question.recipe.label == "kind"


def test_lanes_that_would_lie_in_memory_in_different_orders_are_refused() -> None:
    fused = fuse_models(build(Turned, [nn.ReLU(), nn.Softmax(dim=1)]))
    with make_mode(2), pytest.raises(CannotFuseError, match="different orders"):
        fused(X)


def test_where_nothing_was_asked_for_choices_that_clash_train_apart() -> None:
    mode = make_mode(2)
    fused = fuse_models(build(stacked, [nn.Dropout(0.5), nn.Identity()]))
    with mode, pytest.raises(CannotFuseError, match="random numbers"):
        fused(X)
    assert mode.roster.question is not None


def test_torch_gets_the_numbers_of_the_lane_that_is_built() -> None:
    mode = make_mode(2)
    size = PerLane((2, 3), mode.roster, Recipe("size", Constant(0)))
    with mode:
        for place, own in enumerate((2, 3)):
            with answering_for(mode.roster, place):
                assert nn.Linear(4, size).weight.shape == (own, 4)  # type: ignore[arg-type]  # as configured
                assert torch.full((1,), size).item() == own  # type: ignore[call-overload]  # as configured
        with pytest.raises(LanesPart):
            nn.Linear(4, size)  # type: ignore[arg-type]  # as configured
