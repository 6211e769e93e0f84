from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import Optimizer, lr_scheduler

from headwater.errors import CannotScaleError
from headwater.fuse.per_lane import PerLane
from headwater.fuse.roster import Roster
from headwater.scale.parametrization import (
    Depth,
    Multipliers,
    SplitGroups,
    multipliers,
    scale_schedule,
    split_groups,
)
from headwater.scale.roles import Ratio, Role, find_ratios, shapes_of

mup: Any = importlib.import_module("mup")  # Microsoft's, untyped: an oracle for tests, never a dependency

Build = Callable[[int, Callable[..., nn.Module]], nn.Module]
ADAM_KINDS = ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "RMSprop"]


def build_mlp(width: int, readout: Callable[..., nn.Module] = nn.Linear) -> nn.Module:
    layers = [nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)]
    return nn.Sequential(*layers, nn.LayerNorm(width), readout(width, 3))


def build_cnn(width: int, readout: Callable[..., nn.Module] = nn.Linear) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, 3),
        nn.BatchNorm2d(width),
        nn.Conv2d(width, 4 * width, 3),
        nn.Conv2d(4 * width, 4 * width, 3, groups=4 * width),
        nn.Conv2d(4 * width, width, 1, bias=False),
        nn.Flatten(),
        readout(4 * width, 3),
    )


class Transformer(nn.Module):
    def __init__(self, width: int, readout: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        self.positions = nn.Parameter(0.02 * torch.randn(1, 5, width))
        self.block = nn.TransformerEncoderLayer(width, width // 4, 2 * width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = readout(width, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.block(self.embedding(tokens) + self.positions)))
        return logits


def build_transformer(width: int, readout: Callable[..., nn.Module] = nn.Linear) -> nn.Module:
    return Transformer(width, readout)


every_model = pytest.mark.parametrize("build", [build_mlp, build_cnn, build_transformer])
TARGET, WIDTH = 24, 8


def ratios_of(build: Build, width: int = WIDTH) -> dict[str, Ratio]:
    return find_ratios(build(width, nn.Linear), shapes_of(build(TARGET, nn.Linear)))


def settings_by_name(model: nn.Module, optimizer: Optimizer, key: str) -> dict[str, float]:
    by_id = {id(member): group[key] for group in optimizer.param_groups for member in group["params"]}
    return {name: by_id[id(parameter)] for name, parameter in model.named_parameters()}


def build_for_mup(build: Build) -> tuple[nn.Module, str]:
    """The surrogate with the target as mup's base, and the name of its readout's weight."""
    model: nn.Module = mup.set_base_shapes(build(WIDTH, mup.MuReadout), build(TARGET, mup.MuReadout))
    (name,) = [name for name, module in model.named_modules() if isinstance(module, mup.MuReadout)]
    return model.double(), f"{name}.weight"


def make_optimizer(kind: str, model: nn.Module, ratios: Mapping[str, Ratio], **options: Any) -> Optimizer:
    groups = split_groups(model, options, dict(model.named_parameters()), multipliers(kind, ratios, options=options))
    optimizer: Optimizer = getattr(torch.optim, kind)(groups.params, **options)
    return optimizer


@every_model
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_optimizers_get_the_rates_and_decays_of_mup_with_the_readouts_factor_in_its_weight(
    build: Build, kind: str
) -> None:
    options = {"lr": 0.5, "weight_decay": 0.25}
    theirs, readout = build_for_mup(build)
    their_optimizer = getattr(mup, f"Mu{kind}")(theirs.parameters(), **options)
    ours = build(WIDTH, nn.Linear)
    our_optimizer = make_optimizer(kind, ours, ratios_of(build), **options)
    folded = TARGET / WIDTH if kind != "SGD" else (TARGET / WIDTH) ** 2
    for key, factor in {"lr": folded, "weight_decay": 1 / folded}.items():
        if (kind, key) != ("Adam", "weight_decay"):  # coupled: see below
            expected = settings_by_name(theirs, their_optimizer, key)
            expected[readout] *= factor
            assert settings_by_name(ours, our_optimizer, key) == pytest.approx(expected)


@every_model
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}),
        ("Adam", {"lr": 0.01, "eps": 1e-14}),
        ("AdamW", {"lr": 0.01, "weight_decay": 0.1, "eps": 1e-14}),
    ],
)
def test_a_surrogate_trains_as_mup_trains_it(build: Build, kind: str, options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    theirs, readout = build_for_mup(build)
    ours = build(WIDTH, nn.Linear).double()
    ours.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        ours.get_parameter(readout).mul_(TARGET / WIDTH)
    pairs = [
        (theirs, getattr(mup, f"Mu{kind}")(theirs.parameters(), **options)),
        (ours, make_optimizer(kind, ours, ratios_of(build), **options)),
    ]
    inputs, answers = make_batch(build)
    for _ in range(8):
        outputs = []
        for model, optimizer in pairs:
            model.eval()  # no dropout
            optimizer.zero_grad()
            outputs.append(model(inputs).flatten(0, -2))
            F.cross_entropy(outputs[-1], answers).backward()
            optimizer.step()
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-6, atol=1e-9)


def make_batch(build: Build) -> tuple[Tensor, Tensor]:
    if build is build_transformer:
        tokens = torch.randint(11, (6, 5))
        return tokens, tokens.roll(1, 1).flatten()
    shape = (12, 6) if build is build_mlp else (12, 1, 8, 8)
    return torch.randn(shape, dtype=torch.float64), torch.randint(3, (12,))


IN, OUT = 1 / 4, 1 / 8
ROLES = {
    "input": Ratio(role=Role.INPUT, m_out=OUT),
    "hidden": Ratio(role=Role.HIDDEN, m_in=IN, m_out=OUT),
    "readout": Ratio(role=Role.READOUT, m_in=IN),
    "vector": Ratio(role=Role.VECTOR, m_out=OUT),
    "readout bias": Ratio(role=Role.FIXED),
}
SGD_RATES = {"input": OUT, "hidden": OUT / IN, "readout": 1 / IN, "vector": OUT, "readout bias": 1.0}
ADAM_RATES = {"input": 1.0, "hidden": 1 / IN, "readout": 1 / IN, "vector": 1.0, "readout bias": 1.0}


def test_rates_of_sgd_are_those_of_the_table() -> None:
    assert multipliers("SGD", ROLES).lr == SGD_RATES


@pytest.mark.parametrize("kind", ADAM_KINDS)
def test_rates_of_the_adam_family_are_those_of_the_table(kind: str) -> None:
    assert multipliers(kind, ROLES).lr == ADAM_RATES


def test_decays_of_adamw_are_those_of_the_table() -> None:
    assert multipliers("AdamW", ROLES).decay == {
        "input": 1.0, "hidden": IN, "readout": IN, "vector": 1.0, "readout bias": 1.0
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_weights_shrink_alike_in_every_width(kind: str) -> None:
    found = multipliers(kind, ROLES)
    assert {name: found.lr[name] * found.decay[name] for name in ROLES} == dict.fromkeys(ROLES, 1.0)


def test_the_exponent_of_the_decay_is_a_setting() -> None:
    assert multipliers("AdamW", ROLES, decay_exponent=0.5).decay["hidden"] == IN**0.5


@pytest.mark.parametrize("kind", sorted(set(ADAM_KINDS) - {"AdamW"}))
def test_coupled_decay_keeps_its_proportion_to_the_gradient(kind: str) -> None:
    gradients = {name: 1 / ratio.m_out for name, ratio in ROLES.items()}
    weights = {name: 1 / ratio.m_in for name, ratio in ROLES.items()}
    assert multipliers(kind, ROLES).decay == {name: gradients[name] / weights[name] for name in ROLES}


@pytest.mark.parametrize("kind", ["Adam", "NAdam", "RAdam"])
def test_decay_may_be_decoupled_by_an_option(kind: str) -> None:
    decoupled = multipliers(kind, ROLES, options={"decoupled_weight_decay": True})
    assert decoupled.decay == multipliers("AdamW", ROLES).decay
    assert multipliers(kind, ROLES, options={"decoupled_weight_decay": False}).decay == multipliers("SGD", ROLES).decay


def test_eps_goes_as_gradients_do() -> None:
    assert multipliers("Adam", ROLES).eps == {
        "input": 1 / OUT, "hidden": 1 / OUT, "readout": 1.0, "vector": 1 / OUT, "readout bias": 1.0
    }  # fmt: skip
    assert set(multipliers("SGD", ROLES).eps.values()) == {1.0}


@pytest.mark.parametrize("kind", ["LBFGS", torch.optim.Muon, type("Adam", (torch.optim.Adam,), {})])
def test_an_optimizer_without_a_rule_is_refused(kind: type[Optimizer] | str) -> None:
    with pytest.raises(CannotScaleError, match="known are Adagrad, Adam, AdamW"):
        multipliers(kind, ROLES)


def test_depth_follows_completep() -> None:
    depth = Depth(ratio=4.0, parameters={"hidden", "vector"})
    adam, half = (multipliers("AdamW", ROLES, depth=part) for part in (depth, Depth(**_fields(depth, alpha=0.5))))
    assert depth.branch_factor == 1 / 4
    assert adam.lr == multipliers("AdamW", ROLES).lr
    assert adam.eps["hidden"] == 1 / OUT / 4
    assert half.lr["vector"] == 1 / 2
    assert half.lr["input"] == 1
    assert multipliers("SGD", ROLES, depth=depth).lr["hidden"] == OUT / IN * 4


def _fields(depth: Depth, alpha: float) -> dict[str, Any]:
    return {"ratio": depth.ratio, "parameters": depth.parameters, "alpha": alpha}


def make_groups(params: Any, options: Mapping[str, Any], kind: str = "AdamW") -> list[dict[str, Any]]:
    """The groups of an MLP whose `params` are given by a function of it."""
    model = build_mlp(WIDTH)
    found = multipliers(kind, ratios_of(build_mlp))
    groups: Any = split_groups(params(model), options, dict(model.named_parameters()), found).params
    return list(groups)


@pytest.mark.parametrize(
    "params",
    [
        lambda model: model,
        lambda model: model.parameters(),
        lambda model: list(model.parameters()),
        lambda model: model.named_parameters(),
        lambda model: [{"params": model.parameters()}],
        lambda model: [{"params": model.named_parameters()}],
    ],
)
def test_whatever_an_optimizer_takes_is_split(params: Callable[[nn.Module], Any]) -> None:
    groups = make_groups(params, {"lr": 0.5})
    optimizer = torch.optim.AdamW(groups, lr=0.5)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.5, 1.5, 1.5, 0.5])
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 10


def test_a_group_keeps_its_own_settings() -> None:
    def params(model: nn.Module) -> Any:
        first, *others = model.parameters()
        return [{"params": [first], "lr": 2.0}, {"params": others, "weight_decay": 0.5, "betas": (0.8, 0.9)}]

    groups = make_groups(params, {"lr": 1.0, "weight_decay": 0.1})
    assert groups[0]["lr"] == 2.0
    assert "weight_decay" not in groups[0]
    hidden = next(group for group in groups[1:] if "lr" in group)
    assert hidden["lr"] == pytest.approx(3.0)
    assert hidden["weight_decay"] == pytest.approx(0.5 / 3)
    assert hidden["betas"] == (0.8, 0.9)


def test_a_setting_that_nobody_gives_is_the_optimizers_own() -> None:
    hidden = next(group for group in make_groups(lambda model: model, {}) if "lr" in group)
    assert hidden["lr"] == pytest.approx(0.003)
    assert hidden["weight_decay"] == pytest.approx(0.01 / 3)


def test_the_rate_that_stays_comes_first() -> None:
    assert [group.get("lr") for group in make_groups(lambda model: model, {"lr": 1.0}, "SGD")] == pytest.approx(
        [None, 1 / 3, 3.0]
    )


def test_settings_that_differ_by_lane_are_multiplied() -> None:
    lr = PerLane([0.5, 1.0], Roster([{}, {}]))
    hidden = next(group for group in make_groups(lambda model: model, {"lr": lr}) if "lr" in group)
    assert hidden["lr"].values == pytest.approx((1.5, 3.0))


def test_parameters_of_other_models_stay_as_they_are() -> None:
    stranger = nn.Parameter(torch.zeros(1))
    groups = make_groups(lambda model: [*model.parameters(), stranger], {"lr": 1.0}, "SGD")
    (home,) = [group for group in groups if any(member is stranger for member in group["params"])]
    assert "lr" not in home


@given(num_groups=st.integers(1, 4), width=st.integers(1, 40), kind=st.sampled_from(["SGD", *ADAM_KINDS]))
def test_each_parameter_is_in_one_group_with_its_own_rate(num_groups: int, width: int, kind: str) -> None:
    model = build_mlp(width)
    members = list(model.parameters())
    found = multipliers(kind, ratios_of(build_mlp, width))
    params = [{"params": members[place::num_groups], "lr": 2.0 + place} for place in range(num_groups)]
    optimizer = getattr(torch.optim, kind)(split_groups(params, {}, dict(model.named_parameters()), found).params)
    rates = settings_by_name(model, optimizer, "lr")
    expected = {
        name: (2.0 + place % num_groups) * found.lr[name] for place, name in enumerate(dict(model.named_parameters()))
    }
    assert rates == pytest.approx(expected)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(members)


def test_parameters_at_the_width_of_the_target_are_handed_back() -> None:
    model = build_mlp(TARGET)
    generator = model.parameters()
    found = multipliers("Adam", find_ratios(model, shapes_of(model)))
    groups = split_groups(generator, {"lr": 1.0}, dict(model.named_parameters()), found)
    assert groups.params is generator
    assert scale_schedule("OneCycleLR", {"max_lr": 1.0}, groups) == {"max_lr": 1.0}


@pytest.mark.parametrize("kind", ["SGD", *ADAM_KINDS])
def test_training_at_the_width_of_the_target_is_bit_identical_to_plain_training(kind: str) -> None:
    def train(scaled: bool) -> list[Tensor]:
        torch.manual_seed(3)
        model = build_mlp(TARGET)
        params: Any = model.parameters()
        options = {"lr": 0.01, "weight_decay": 0.1}
        if scaled:
            found = multipliers(kind, find_ratios(model, shapes_of(model)))
            params = split_groups(params, options, dict(model.named_parameters()), found).params
        optimizer = getattr(torch.optim, kind)(params, **options)
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(7, 6)), torch.randint(3, (7,))).backward()
            optimizer.step()
        return list(model.parameters())

    assert all(torch.equal(ours, plain) for ours, plain in zip(train(True), train(False), strict=True))


SPLIT = SplitGroups(params=[], factors=(1.0, 0.5, 4.0), origins=(0, 0, 1))


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("OneCycleLR", {"max_lr": 2.0, "pct_start": 0.1}, {"max_lr": [2.0, 1.0, 8.0], "pct_start": 0.1}),
        (lr_scheduler.OneCycleLR, {"max_lr": [2.0, 3.0]}, {"max_lr": [2.0, 1.0, 12.0]}),
        ("CyclicLR", {"base_lr": 1.0, "max_lr": 2.0}, {"base_lr": [1.0, 0.5, 4.0], "max_lr": [2.0, 1.0, 8.0]}),
        (lr_scheduler.ReduceLROnPlateau, {"min_lr": 0.2}, {"min_lr": [0.2, 0.1, 0.8]}),
        (lr_scheduler.LambdaLR, {"lr_lambda": [abs, int]}, {"lr_lambda": [abs, abs, int]}),
        (lr_scheduler.LambdaLR, {"lr_lambda": abs}, {"lr_lambda": abs}),
        ("OneCycleLR", {"max_lr": [1.0] * 7}, {"max_lr": [1.0] * 7}),
        ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.1}, {"T_max": 5, "eta_min": 0.1}),
        ("PolynomialLR", {"total_iters": 3}, {"total_iters": 3}),
    ],
)
def test_absolute_rates_of_a_schedule_follow_the_groups(kind: Any, options: Any, expected: Any) -> None:
    assert scale_schedule(kind, options, SPLIT) == expected


def test_a_scaled_one_cycle_keeps_the_ratios_of_rates_all_along() -> None:
    model = build_mlp(WIDTH)
    found = multipliers("SGD", ratios_of(build_mlp))
    groups = split_groups(model, {"lr": 1.0}, dict(model.named_parameters()), found)
    optimizer = torch.optim.SGD(groups.params, lr=1.0, momentum=0.9)  # type: ignore[arg-type]  # not a module any more
    schedule = lr_scheduler.OneCycleLR(
        optimizer, total_steps=9, **scale_schedule("OneCycleLR", {"max_lr": 2.0}, groups)
    )
    for _ in range(8):
        optimizer.step()
        schedule.step()
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates == pytest.approx([rates[0], rates[0] / 3, rates[0] * 3])


def test_multipliers_of_one_are_recognised() -> None:
    assert Multipliers(lr={"a": 1.0}, decay={"a": 1.0}, eps={"a": 1.0}).are_one
    assert not Multipliers(lr={"a": 1.0}, decay={"a": 2.0}, eps={"a": 1.0}).are_one
