"""Each lane draws the random numbers that it would draw alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import Agreement, Parity, make_mode
from torch import Tensor, distributions, nn

from headwater.errors import CannotFuseError, LanesPart
from headwater.fuse.per_lane import PerLane
from headwater.torch_private import lanes_of

SHARES = (0.1, 0.5, 0.9)

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "plain": (lambda: nn.Dropout(0.4), (4, 5)),
    "in-place": (lambda: nn.Dropout(0.4, inplace=True), (4, 5)),
    "nothing": (lambda: nn.Dropout(0.0), (4, 5)),
    "everything": (lambda: nn.Dropout(1.0), (4, 5)),
    "1d": (lambda: nn.Dropout1d(0.4), (4, 5, 3)),
    "2d": (lambda: nn.Dropout2d(0.4), (4, 5, 3, 3)),
    "2d-in-place": (lambda: nn.Dropout2d(0.4, inplace=True), (4, 5, 3, 3)),
    "3d": (lambda: nn.Dropout3d(0.4), (2, 5, 3, 3, 2)),
    "alpha": (lambda: nn.AlphaDropout(0.4), (4, 5)),
    "feature-alpha": (lambda: nn.FeatureAlphaDropout(0.4), (4, 5, 3)),
}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("num_lanes", [1, 2, 7])
@pytest.mark.parametrize("name", LAYERS)
def test_a_dropout_layer_drops_what_it_drops_alone(name: str, num_lanes: int, train: bool) -> None:
    layer, shape = LAYERS[name]
    x = torch.randn(shape, dtype=torch.float64)
    Parity().check(lambda: nn.ModuleList([nn.Linear(1, 1), layer()]), drop(x), num_lanes, train=train)


def drop(x: Tensor) -> Callable[[Any], Any]:
    return lambda m: m[1](x * m[0].weight[0, 0])


PROBABILITIES: dict[str, Callable[[Tensor, Any], Any]] = {
    "plain": lambda x, p: F.dropout(x * 2, p),
    "in-place": lambda x, p: F.dropout(x * 1, p, inplace=True),
    "of-a-shared-tensor": lambda x, p: F.dropout(torch.ones(4, 4), p),
    "of-a-shared-tensor-in-place": lambda x, p: [F.dropout(shared := torch.ones(4, 4), p, inplace=True), shared],
    "1d": lambda x, p: F.dropout1d(x.view(2, 5, 4), p),
    "2d": lambda x, p: F.dropout2d(x.view(2, 5, 2, 2), p),
    "2d-in-place": lambda x, p: F.dropout2d((x * 1).view(2, 5, 2, 2), p, inplace=True),
    "3d": lambda x, p: F.dropout3d(x.view(1, 5, 2, 2, 2), p),
    "alpha": lambda x, p: F.alpha_dropout(x, p, True),
    "feature-alpha": lambda x, p: F.feature_alpha_dropout(x.view(2, 5, 4), p, True),
    "evaluated": lambda x, p: F.dropout(x, p, training=False),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_the_probability_may_differ_by_lane(name: str) -> None:
    Agreement().check(PROBABILITIES[name], chances(), numbers=[SHARES])


@pytest.mark.parametrize("shares", [(0.0, 0.5, 0.5), (0.5, 1.0, 0.5)])
def test_lanes_part_where_only_some_of_them_draw(shares: tuple[float, ...]) -> None:
    mode = make_mode(3)
    with mode, pytest.raises(LanesPart):
        F.dropout(lanes_of(chances()), PerLane(shares, mode.roster))  # type: ignore[arg-type]  # as configured
    assert mode.roster.question is not None


DRAWS: dict[str, Callable[[Tensor], Any]] = {
    "bernoulli": torch.bernoulli,
    "bernoulli-in-place": lambda p: torch.empty_like(p).bernoulli_(p.detach()),
    "bernoulli-into-a-shared-tensor": lambda p: torch.empty(40, dtype=p.dtype).bernoulli_(p.detach()),
    "multinomial": lambda p: torch.multinomial(p, 5),
    "multinomial-with-replacement": lambda p: torch.multinomial(p, 50, replacement=True),
    "normal-around-lanes": lambda p: torch.normal(p, 0.5),
    "normal-as-wide-as-lanes": lambda p: torch.normal(0.5, p),
    "rand-like": torch.rand_like,
    "randn-like-transposed": lambda p: torch.randn_like(p.view(5, 8).t()),
    "randint-like": lambda p: torch.randint_like(p, 10),
    "gumbel-softmax": lambda p: F.gumbel_softmax(p.view(5, 8), hard=True),
    "randperm": lambda p: p[torch.randperm(40)],
    "distribution-normal": lambda p: distributions.Normal(p, 1.0).rsample(),
    "distribution-categorical": lambda p: distributions.Categorical(logits=p).sample(torch.Size((7,))),
    "distribution-bernoulli": lambda p: distributions.Bernoulli(logits=p).sample(),
    **{
        f"{name}{suffix}": lambda p, name=name, shape=shape, args=args: getattr(shape(p.detach().clone()), name)(*args)  # type: ignore[misc]  # mypy cannot type defaults of a lambda
        for name, args in {
            "normal_": (0.1, 2), "uniform_": (), "exponential_": (), "geometric_": (0.3,), "cauchy_": (),
            "log_normal_": (), "random_": (0, 10), "bernoulli_": (0.3,),
        }.items()
        for suffix, shape in {"": lambda x: x, "-transposed": lambda x: x.view(5, 8).t()}.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_lanes_draw_as_alone(name: str) -> None:
    Agreement().check(DRAWS[name], chances())


def test_a_generator_of_the_users_own_is_shared_too() -> None:
    def program(p: Tensor) -> Any:
        own = torch.Generator().manual_seed(3)
        first = torch.bernoulli(p, generator=own), torch.multinomial(p, 3, generator=own)
        return *first, torch.rand(3, generator=own), torch.empty_like(p).normal_(generator=own)

    Agreement().check(program, chances())


def test_draws_whose_number_depends_on_the_lane_are_refused() -> None:
    with make_mode(3), pytest.raises(CannotFuseError, match="how many random numbers"):
        F.rrelu(lanes_of(chances()) - 0.5, training=True)


def test_initialisation_of_lanes_draws_as_for_one_model() -> None:
    def program(w: Tensor) -> Any:
        own = w.detach().clone().view(5, 8)
        return [getattr(nn.init, name)(own).clone() for name in INITIALISERS]

    Agreement().check(program, chances())


INITIALISERS = (
    "normal_", "uniform_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_",
    "trunc_normal_", "eye_", "ones_", "zeros_",
)  # fmt: skip


def chances() -> Tensor:
    return torch.randn(3, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64).sigmoid()
