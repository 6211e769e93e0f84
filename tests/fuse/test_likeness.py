"""What makes two models unlike, and what was only made twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.fuse.test_choices import num_choices, stacked
from torch import Tensor, nn

from headwater.errors import CannotFuseError
from headwater.fuse.likeness import alike, sort_alike
from headwater.fuse.models import fuse_models


class Tied(nn.Module):
    def __init__(self, is_tied: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        if is_tied:
            self.second.weight = self.first.weight


class Widths(nn.Module):
    """Names the function that it calls with its own method."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 4)
        self.run = getattr(self, name)

    def once(self, x: Tensor) -> Tensor:
        answer: Tensor = self.hidden(x)
        return answer

    def twice(self, x: Tensor) -> Tensor:
        return self.once(self.once(x))


def freeze(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


def with_setting(value: Any) -> nn.Module:
    module = nn.Linear(4, 2)
    module.setting = value
    return module


UNLIKE: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], str]] = {
    "widths": (lambda: nn.Linear(4, 2), lambda: nn.Linear(4, 3), r"weight \(\(2, 4\) float32 and \(3, 4\) float32\)"),
    "types": (lambda: nn.Linear(4, 2), lambda: nn.Linear(4, 2).double(), "float32 and .* float64"),
    "depths": (lambda: nn.Sequential(nn.Linear(2, 2)), lambda: nn.Sequential(nn.ReLU(), nn.Linear(2, 2)), "none"),
    "more modules": (lambda: nn.Sequential(nn.Linear(2, 2)), lambda: stacked(nn.ReLU())[:2], "weights"),  # type: ignore[index]  # a Sequential
    "frozen": (lambda: nn.Linear(4, 2), lambda: freeze(nn.Linear(4, 2)), "frozen"),
    "tied": (lambda: Tied(False), lambda: Tied(True), "tied to first.weight"),
    "layers": (lambda: stacked(nn.PReLU()), lambda: stacked(nn.ReLU()), "1.weight"),
    "layers with weights": (
        lambda: stacked(nn.LayerNorm(6)), lambda: stacked(nn.GroupNorm(1, 6)), "in 1: LayerNorm and GroupNorm",
    ),
    "settings of layers": (lambda: nn.Conv2d(1, 1, 3), lambda: nn.Conv2d(1, 1, 3, stride=2), r"stride: .*1.*2"),
    "settings": (lambda: with_setting(1), lambda: with_setting(2), "setting: 1 and 2"),
    "settings in a list": (lambda: with_setting([1, {2: "a"}]), lambda: with_setting([1, {2: "b"}]), "setting"),
    "classes": (lambda: with_setting(nn.ReLU), lambda: with_setting(nn.GELU), "setting: ReLU and GELU"),
    "methods": (lambda: Widths("once"), lambda: Widths("twice"), "run: once and twice"),
    "whole models": (nn.ReLU, nn.Tanh, "the model: ReLU and Tanh"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLIKE)
def test_models_that_differ_in_more_are_refused_with_what_differs(name: str) -> None:
    first, second, reason = UNLIKE[name]
    with pytest.raises(CannotFuseError, match=reason):
        fuse_models([first(), second()])


def test_what_is_only_made_anew_is_no_difference() -> None:
    def make(factor: float) -> nn.Module:
        class Local(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layers, self.table = nn.LSTM(4, 3), {"a": [1, math.nan]}
                self.scale: Callable[[Tensor], Tensor] = lambda x: x * factor
                self.register_forward_pre_hook(lambda *_: None)

            def forward(self, x: Tensor) -> Any:
                return self.scale(self.layers(x)[0])

        return Local()

    assert num_choices(fuse_models([make(1.0), make(1.0)])) == 0
    assert num_choices(fuse_models([make(1.0), make(2.0)])) == 1
    assert not alike(make(1.0), make(2.0))


MADE_ANEW: dict[str, Callable[[], nn.Module]] = {
    "compiled": lambda: torch.compile(stacked(nn.ReLU())),  # type: ignore[dict-item,return-value]  # torch says: a callable
    "scripted": lambda: torch.jit.script(stacked(nn.ReLU())),
    "recurrent": lambda: nn.LSTM(4, 4, 2),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, activation="gelu"),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
    "spectral norm": lambda: nn.utils.spectral_norm(nn.Linear(3, 3)),
    "opaque": lambda: with_setting([object(), torch.Generator(), iter([1])]),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch's own, of compiling
@pytest.mark.parametrize("name", MADE_ANEW)
def test_modules_that_keep_more_than_settings_are_alike(name: str) -> None:
    torch.manual_seed(0)
    assert num_choices(fuse_models([MADE_ANEW[name]() for _ in range(3)])) == 0


def test_values_are_numbered_by_what_they_are_alike_to() -> None:
    values = [nn.ReLU(), nn.LeakyReLU(0.1), nn.ReLU(), nn.LeakyReLU(0.2), nn.LeakyReLU(0.1)]
    assert sort_alike(values) == [0, 1, 0, 2, 1]
