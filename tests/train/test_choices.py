"""A factory builds what each trial asks for; trials whose models differ without weights train in one group.

PYTEST_DONT_REWRITE: lanes run functions in variants of their source, and functions with rewritten asserts have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.train.lab import open_lanes, require_equal_states, run, run_alone, run_done
from tests.train.workout import DATA
from torch import Tensor, nn

from headwater.fuse.choices import LaneChoice
from headwater.fuse.per_lane import PerLane
from headwater.train import Trial
from headwater.train.profiling import profile_lanes
from headwater.train.running import TrainingSetup
from headwater.trials import Decision, Outcome, Report

NAMES = ["ReLU", "Tanh", "ReLU", "GELU", "Tanh"]
FUNCTIONS: dict[str, Any] = {"ReLU": torch.relu, "Tanh": torch.tanh, "GELU": F.gelu}
CONFIGS: dict[int, dict[str, Any]] = {
    number: {
        "activation": name,
        "function": FUNCTIONS[name],
        "lr": 0.02 * (number + 1),
        "dropout": 0.1 * (number + 1),
        "width": 8,
    }
    for number, name in enumerate(NAMES)
}


def train_with(build: Callable[[Trial], Callable[[], nn.Module]]) -> Callable[[Trial], None]:
    """Return a function that trains the model of a factory for a few epochs with momentum."""

    def train(trial: Trial) -> None:
        model = trial.prepare_model(build(trial))
        loader = trial.prepare_data_loader(DATA, batch_size=8, shuffle=True)
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9)
        for _ in trial.epochs(5):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model.train()(x), y)
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                trial.report(loss=F.cross_entropy(model.eval()(DATA.tensors[0]), DATA.tensors[1]))

    return train


def net(*middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.Linear(8, 3)).double()


class Own(nn.Module):
    def __init__(self, power: float) -> None:
        super().__init__()
        self.power = power

    def forward(self, x: Tensor) -> Tensor:
        return x.abs() ** self.power


class Keeping(nn.Module):
    """Keeps a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = function
        self.hidden, self.output = nn.Linear(6, 8), nn.Linear(8, 3)
        self.double()

    def forward(self, x: Tensor) -> Any:
        return self.output(self.activation(self.hidden(x)))


def read_inside(trial: Trial) -> Callable[[], nn.Module]:
    return lambda: net(getattr(nn, trial.config["activation"])())


def read_before(trial: Trial) -> Callable[[], nn.Module]:
    name = trial.config["activation"]
    return lambda: net(getattr(nn, name)())


def look_up(trial: Trial) -> Callable[[], nn.Module]:
    name = trial.config["activation"]
    return lambda: Keeping(FUNCTIONS[name])


def keep(trial: Trial) -> Callable[[], nn.Module]:
    return lambda: Keeping(trial.config["function"])


def keep_what_was_read_before(trial: Trial) -> Callable[[], nn.Module]:
    function = trial.config["function"]
    return lambda: Keeping(function)


def branch(trial: Trial) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        if trial.config["activation"] == "ReLU":
            return net(Own(trial.config["lr"] + 1))
        match trial.config["activation"]:
            case "GELU":
                return net(nn.Softmax(dim=1))
            case _:
                return net(nn.LeakyReLU(trial.config["lr"] * 10))

    return build


def drop(trial: Trial) -> Callable[[], nn.Module]:
    return lambda: net(getattr(nn, trial.config["activation"])(), nn.Dropout(trial.config["dropout"]))


def start_from_a_number(trial: Trial) -> Callable[[], nn.Module]:
    lr = trial.config["lr"]

    def build() -> nn.Module:
        model = net(nn.PReLU(init=lr), nn.ReLU() if lr > 0.05 else nn.Tanh())
        nn.init.normal_(model[0].weight, std=lr)  # type: ignore[index]  # a Sequential
        return model

    return build


FACTORIES = [
    read_inside, read_before, look_up, keep, keep_what_was_read_before, branch, drop,
    start_from_a_number,
]  # fmt: skip


@pytest.mark.parametrize("build", FACTORIES)
def test_each_lane_trains_as_its_trial_alone(build: Callable[[Trial], Callable[[], nn.Module]]) -> None:
    group = run_done(train_with(build), CONFIGS)
    assert group.num_lanes_by_step == [5] * 15
    for number, config in CONFIGS.items():
        alone = run_alone(train_with(build), config, number)
        assert group.history(number) == pytest.approx(alone.history(number), rel=1e-9)
        require_equal_states(group.states[number], alone.states[number], 1e-9)


def test_lanes_leave_in_the_middle() -> None:
    def leave(report: Report) -> Decision:
        return Decision.STOP if (report.number, report.epoch) in ((0, 1), (3, 2), (2, 3)) else Decision.CONTINUE

    group = run_done(train_with(drop), CONFIGS, decide=leave)
    assert group.num_lanes_by_step == [5] * 3 + [4] * 3 + [3] * 3 + [2] * 6
    for number, config in CONFIGS.items():
        alone = run_alone(train_with(drop), config, number)
        assert group.history(number) == pytest.approx(alone.history(number)[: len(group.history(number))], rel=1e-9)


def test_a_lane_goes_on_from_a_saved_state_in_another_group() -> None:
    def pause(report: Report) -> Decision:
        return Decision.STOP if report.epoch == 2 else Decision.CONTINUE

    first = run_done(train_with(drop), CONFIGS, decide=pause)
    numbers = [4, 0, 3]
    second = run_done(
        train_with(drop), {number: CONFIGS[number] for number in numbers}, states=[first.states[n] for n in numbers]
    )
    for number in numbers:
        alone = run_alone(train_with(drop), CONFIGS[number], number)
        assert second.history(number) == pytest.approx(alone.history(number)[2:], rel=1e-9)


WIDTHS = {number: {**config, "width": 8 if number < 3 else 12} for number, config in CONFIGS.items()}


def test_lanes_part_by_what_makes_weights_differ_and_not_by_the_activation() -> None:
    def build(trial: Trial) -> Callable[[], nn.Module]:
        def make() -> nn.Module:
            activation = getattr(nn, trial.config["activation"])()
            return nn.Sequential(nn.Linear(6, trial.config["width"]), activation)

        return make

    done = run(train_with(build), WIDTHS)
    assert done.outcome is Outcome.PARTED
    assert done.label == "width"
    assert "0.weight ((8, 6) float32 and (12, 6) float32)" in done.reason


def test_lanes_part_by_the_number_of_layers_and_by_settings_of_layers() -> None:
    def stack(trial: Trial) -> nn.Module:
        return net(*[nn.Linear(8, 8) for _ in range(trial.config["width"] // 4)])

    def normalise(trial: Trial) -> nn.Module:
        return net(nn.LayerNorm(8, eps=1e-5 if trial.config["width"] == 8 else 1e-3))

    def choose(trial: Trial) -> nn.Module:
        return net(nn.LayerNorm(8) if trial.config["width"] == 8 else nn.GroupNorm(1, 8))

    reasons = {
        stack: "weights: 3.bias",
        normalise: "in 1.eps: 1e-05 and 0.001",
        choose: "in 1: LayerNorm and GroupNorm",
    }
    for build, reason in reasons.items():
        done = run(lambda trial, build=build: trial.prepare_model(lambda: build(trial)), WIDTHS)  # type: ignore[misc]  # mypy cannot type it
        assert done.outcome is Outcome.PARTED
        assert len({repr(answer) for answer in done.answers()}) == 2
        assert "width" in str(done.label)
        assert reason in done.reason


def test_lanes_part_where_only_some_draw_random_numbers() -> None:
    def build(trial: Trial) -> Callable[[], nn.Module]:
        return lambda: net(nn.Dropout(0.5) if trial.config["dropout"] > 0.25 else nn.Identity())

    done = run(train_with(build), CONFIGS)
    assert done.label == "dropout > 0.25"
    assert "random numbers Identity or Dropout draws" in done.reason


def test_an_instance_parts_as_before() -> None:
    done = run(lambda trial: trial.prepare_model(net(getattr(nn, trial.config["activation"])())), CONFIGS)
    assert done.outcome is Outcome.PARTED
    assert done.label == "activation"


def test_lanes_part_again_once_the_factory_has_returned() -> None:
    def train(trial: Trial) -> None:
        trial.prepare_model(read_inside(trial))
        getattr(nn, trial.config["activation"])

    assert run(train, CONFIGS).label == "activation"


def test_a_factory_that_raises_for_one_lane_is_an_ending() -> None:
    def train(trial: Trial) -> None:
        def build() -> nn.Module:
            if trial.config["activation"] == "GELU":
                raise ValueError("no GELU here")
            return net()

        trial.prepare_model(build)

    done = run(train, CONFIGS)
    assert done.outcome is Outcome.RAISED
    assert "no GELU here" in done.ending.error


def test_a_factory_that_failed_no_longer_answers_for_its_lane() -> None:
    def train(trial: Trial) -> None:
        with pytest.raises(KeyError):
            trial.prepare_model(lambda: {"ReLU": net()}[trial.config["activation"]])
        getattr(nn, trial.config["activation"])

    assert run(train, CONFIGS).label == "activation"


def test_a_factory_may_ask_for_keys_that_only_some_lanes_have() -> None:
    configs: dict[int, dict[str, Any]] = {
        0: {"lr": 0.1, "head": {"kind": "power", "power": 1.5}},
        1: {"lr": 0.2, "head": {"kind": "relu"}},
        2: {"lr": 0.3},
    }

    def build(trial: Trial) -> Callable[[], nn.Module]:
        def make() -> nn.Module:
            if "head" not in trial.config:
                return net(nn.Tanh())
            head = trial.config["head"]
            assert set(head) >= {"kind"}
            return net(Own(head["power"]) if head["kind"] == "power" else nn.ReLU())

        return make

    group = run_done(train_with(build), configs)
    for number, config in configs.items():
        alone = run_alone(train_with(build), config, number)
        assert group.history(number) == pytest.approx(alone.history(number), rel=1e-9)


ASKED: dict[str, Callable[[Any], Any]] = {
    "int": lambda value: "x" * int(value), "float": lambda value: {8.0: "a", 12.0: "b"}[float(value)],
    "hash": lambda value: {8: "a", 12: "b"}[value], "range": lambda value: [*range(value)],
    "bool": lambda value: "more" if value > 8 else "less", "text": lambda value: f"{value:03d} {value}",
    "place": lambda value: [*range(20)][value], "reciprocal": lambda value: float(1 / (value - 8) if value > 8 else 0),
    "attribute": lambda value: value.bit_length(),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_a_number_that_was_read_before_answers_for_the_lane_that_is_built(name: str) -> None:
    answers: list[Any] = []

    def train(trial: Trial) -> None:
        width = trial.config["width"]
        assert isinstance(width, PerLane)

        def build() -> nn.Module:
            answers.append(ASKED[name](width))
            return net()

        trial.prepare_model(build)

    run_done(train, WIDTHS)
    assert answers == [ASKED[name](config["width"]) for config in WIDTHS.values()]


def test_what_is_measured_has_the_activations_of_the_lanes() -> None:
    seen: list[int] = []

    def train(trial: Trial) -> None:
        model = trial.prepare_model(read_inside(trial))
        seen.append(sum(isinstance(module, LaneChoice) for module in model.modules()))
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        for _ in range(10):
            model(DATA.tensors[0]).sum().backward()
            optimizer.step()
        trial.report(loss=0.0)

    _, ending = profile_lanes(TrainingSetup(train), open_lanes(CONFIGS), share=math.inf)
    assert ending is None
    assert set(seen) == {0, 1}


def test_a_group_of_one_trains_as_its_trial_alone() -> None:
    alone = run_alone(train_with(read_before), CONFIGS[0])
    group = run_done(train_with(read_before), {0: CONFIGS[0]})
    assert group.history(0) == pytest.approx(alone.history(0), rel=1e-9)
