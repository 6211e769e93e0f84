from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from headwater.errors import CannotScaleError
from headwater.scale.checks import CoordinateCheck, check_coordinates, draw_svg
from headwater.scale.initialisation import spread_weights
from headwater.scale.parametrization import multipliers, split_groups
from headwater.scale.roles import find_ratios, shapes_of

WIDTHS = (64, 256, 1024)
SEEDS = (0, 1, 2, 3)  # two models of width 64 may differ by more than the limit from their weights alone
OPTIMIZERS = [
    pytest.param("SGD", {"lr": 2.0, "weight_decay": 0.01}, id="SGD"),
    pytest.param("SGD", {"lr": 1.5, "momentum": 0.9}, id="SGD with momentum"),
    pytest.param("Adam", {"lr": 2e-3}, id="Adam"),
    pytest.param("Adam", {"lr": 2e-3, "weight_decay": 1e-4}, id="Adam with coupled decay"),
    pytest.param("AdamW", {"lr": 2e-3, "weight_decay": 0.1}, id="AdamW"),
    pytest.param("NAdam", {"lr": 1e-3}, id="NAdam"),
    pytest.param("Adamax", {"lr": 2e-3}, id="Adamax"),
    pytest.param("Adagrad", {"lr": 2e-3}, id="Adagrad"),
    pytest.param("RMSprop", {"lr": 2e-4}, id="RMSprop"),
]


def read_digits() -> tuple[Tensor, Tensor]:
    images, digits = load_digits(return_X_y=True)
    return torch.tensor(images[:128] / 16 - 0.3, dtype=torch.float32), torch.tensor(digits[:128])


def build_mlp(width: int) -> nn.Sequential:
    hidden = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


def build_scaled(width: int) -> nn.Module:
    """The surrogate of this width, started from blocks of the widest model's weights, its readout from zero."""
    model, target = build_mlp(width), build_mlp(WIDTHS[-1] + 64)
    for parameter in target[-1].parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        for small, large in zip(model.parameters(), target.parameters(), strict=True):
            small.copy_(large[tuple(slice(size) for size in small.shape)])
    spread_weights(model, find_ratios(model, shapes_of(target)))
    return model


def make_build(
    kind: str, options: dict[str, Any], *, scaled: bool, is_decoupled: bool = False
) -> Callable[[int], tuple[nn.Module, Callable[[], object]]]:
    images, digits = read_digits()

    def build(width: int) -> tuple[nn.Module, Callable[[], object]]:
        model = build_scaled(width) if scaled else build_mlp(width)
        params: Any = model.parameters()
        if scaled:
            ratios = find_ratios(model, shapes_of(build_mlp(WIDTHS[0])))
            found = multipliers(kind, ratios, options={"decoupled_weight_decay": is_decoupled})
            params = split_groups(params, options, dict(model.named_parameters()), found).params
        optimizer = getattr(torch.optim, kind)(params, **options)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(images), digits).backward()
            optimizer.step()

        return model, step

    return build


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
def test_activations_keep_their_size_where_plain_ones_drift(kind: str, options: dict[str, Any]) -> None:
    scaled = check_coordinates(make_build(kind, options, scaled=True), WIDTHS, seeds=SEEDS)
    plain = check_coordinates(make_build(kind, options, scaled=False), WIDTHS)
    assert scaled.is_flat(1.2), scaled.describe(1.2)
    assert plain.drift > 4


@pytest.mark.parametrize(("is_decoupled", "least", "most"), [(False, 0.5, 1.5), (True, 5.0, math.inf)])
def test_coupled_decay_that_suits_the_base_suits_a_wider_model(is_decoupled: bool, least: float, most: float) -> None:
    def train(width: int) -> float:
        torch.manual_seed(0)
        model, step = build(width)
        for _ in range(80):
            step()
        images, digits = read_digits()
        return float(F.cross_entropy(model(images), digits).detach())

    # The mup package treats coupled decay by the rule for decoupled decay.
    build = make_build("Adam", {"lr": 2e-3, "weight_decay": 1e-2}, scaled=True, is_decoupled=is_decoupled)
    assert least < train(256) / train(64) < most


def make_check() -> CoordinateCheck:
    return CoordinateCheck(
        widths=(10, 100, 1000),
        sizes={
            "flat": {10: (0.5, 2.0, 2.0), 100: (50.0, 2.0, 2.0), 1000: (9.0, 2.2, 2.0)},
            "grows": {10: (1.0, 1.0, 1.0), 100: (1.0, 10.0, 1.0), 1000: (1.0, 100.0, 1.0)},
            "quiet": {10: (0.0, 0.0, 0.0), 100: (0.0, 0.0, 0.0), 1000: (0.0, 0.0, 0.0)},
        },
    )


def test_drift_counts_from_the_second_step() -> None:
    check = make_check()
    assert check.drifts == pytest.approx({"flat": 1.1, "grows": 100.0, "quiet": 1.0})
    assert check.drift == pytest.approx(100.0)
    assert check.slopes["grows"] == pytest.approx(1.0)
    assert check.silent == ("quiet",)


def test_a_check_says_where_sizes_drift() -> None:
    text = make_check().describe()
    assert "1 of 3 modules (widths 10, 100, 1000, 3 steps)" in text
    assert "grows: 100.00 times, as width^+1.00" in text
    assert "zero in every step: quiet" in text
    assert "keep their size: at most 100.00" in make_check().describe(limit=200)


@pytest.mark.parametrize("odd", [0.0, math.nan, math.inf])
def test_a_size_that_is_lost_in_one_width_is_no_flat_one(odd: float) -> None:
    check = CoordinateCheck(widths=(1, 2, 3), sizes={"a": {1: (1.0, odd), 2: (1.0, 1.0), 3: (1.0, 1.0)}})
    assert check.drift == math.inf
    assert not check.is_flat()
    assert "inf" in check.describe()
    ElementTree.fromstring(draw_svg(check))


def test_outputs_of_every_kind_of_module_are_recorded() -> None:
    class Net(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, width)
            self.recurrent = nn.LSTM(width, width, batch_first=True)
            self.attention = nn.MultiheadAttention(width, 1, batch_first=True)
            self.scale = nn.Parameter(torch.ones(width))

        def forward(self, tokens_NT: Tensor) -> dict[str, Tensor]:
            x_NTD, _ = self.recurrent(self.embedding(tokens_NT))
            return {"tokens": tokens_NT, "x": self.attention(x_NTD, x_NTD, x_NTD)[0] * self.scale}

    def build(width: int) -> tuple[nn.Module, Callable[[], object]]:
        model = Net(width)
        return model, lambda: model(torch.zeros(2, 3, dtype=torch.long))

    check = check_coordinates(build, [4, 8, 16], num_steps=2)
    assert list(check.sizes) == ["embedding", "recurrent", "attention", "model"]
    assert check.num_steps == 2
    assert all(size > 0 for by_width in check.sizes.values() for sizes in by_width.values() for size in sizes)


def test_a_check_leaves_no_hook_behind() -> None:
    model = nn.Linear(2, 2)
    check_coordinates(lambda width: (model, lambda: model(torch.ones(width, 2))), [1, 2, 3])
    assert not model._forward_hooks


def test_too_few_widths_or_steps_are_refused() -> None:
    for widths, num_steps in (([4, 8, 8], 5), ([4, 8, 16], 1)):
        with pytest.raises(CannotScaleError, match="three widths and two steps"):
            check_coordinates(make_build("SGD", {}, scaled=False), widths, num_steps=num_steps)


def test_a_step_that_leaves_the_model_alone_is_refused() -> None:
    with pytest.raises(CannotScaleError, match="no module of the model ran"):
        check_coordinates(lambda width: (nn.Linear(1, width), lambda: None), [1, 2, 3])


def test_models_with_other_modules_are_refused() -> None:
    def build(width: int) -> tuple[nn.Module, Callable[[], object]]:
        model = nn.Sequential(*[nn.Identity() for _ in range(width)])
        return model, lambda: model(torch.ones(1))

    with pytest.raises(CannotScaleError, match="width 2 has other modules"):
        check_coordinates(build, [1, 2, 3])


def test_two_readouts_that_multiply_each_other_are_found_silent() -> None:
    class Product(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(width, 3), nn.Linear(width, 3)

        def forward(self, x_ND: Tensor) -> Tensor:
            product: Tensor = self.one(x_ND) * self.other(x_ND)
            return product

    def build(width: int) -> tuple[nn.Module, Callable[[], object]]:
        model = Product(width)
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            (model(torch.ones(2, width)) - 1).square().sum().backward()
            optimizer.step()

        return model, step

    assert check_coordinates(build, [2, 4, 8]).silent == ("one", "other", "model")


def test_a_drawing_has_a_panel_for_each_step_and_a_line_for_each_module() -> None:
    root = ElementTree.fromstring(draw_svg(make_check(), title="SGD & <Adam>"))
    space = {"svg": "http://www.w3.org/2000/svg"}
    words = [element.text for element in root.iterfind("svg:text", space)]
    assert {"SGD & <Adam>", "step 2", "step 3", "width", "mean |output|", "1000", "grows (100.00)"} <= set(words)
    assert "step 1" not in words
    assert len(root.findall("svg:polyline", space)) == 2 * 3


def test_a_drawing_names_the_modules_that_drift_most() -> None:
    sizes = {f"layer{place}": {1: (1.0, 1.0), 2: (1.0, 1.0), 4: (1.0, 1.0 + place)} for place in range(12)}
    text = draw_svg(CoordinateCheck(widths=(1, 2, 4), sizes=sizes))
    assert "layer11 (12.00)" in text
    assert "layer0 " not in text
    assert "4 others in grey" in text
