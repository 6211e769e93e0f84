from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from headwater.search.axes import Axes
from headwater.space import Space, choice, grid, lograndint, loguniform, qloguniform, quniform, randint, uniform

SPACE = Space(
    {
        "uniform": uniform(-1.0, 2.0),
        "loguniform": loguniform(1e-5, 1e-1),
        "tenths": quniform(0.0, 0.7, 0.1),
        "offset": quniform(0.05, 1.0, 0.3),
        "widths": quniform(16, 256, 16),
        "powers": qloguniform(1, 300, 1),
        "whole": randint(-3, 4),
        "whole log": lograndint(1, 400),
        "choice": choice(["a", None, len]),
        "grid": grid([1, 2.5]),
        "nested": {"deep": lambda config: uniform(0, 1) if config["whole"] > 0 else choice([3, 4])},
    }
)


def draw_param(rng: Random, distribution: BaseDistribution) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return rng.choice(distribution.choices)
    if isinstance(distribution, IntDistribution):
        return rng.randint(distribution.low, distribution.high)
    assert isinstance(distribution, FloatDistribution)
    return min(max(rng.uniform(distribution.low, distribution.high), distribution.low), distribution.high)


@given(st.integers(0, 10**9))
def test_configurations_of_the_space_come_out_and_go_back_in(seed: int) -> None:
    rng = Random(seed)
    config = Axes(SPACE, 0).resolve(lambda name, distribution: draw_param(rng, distribution), 0)
    assert SPACE.encode(config)
    params, distributions = Axes(SPACE, 0).locate(config)
    assert all(distributions[name]._contains(distributions[name].to_internal_repr(params[name])) for name in params)
    assert Axes(SPACE, 0).resolve(lambda name, distribution: params[name], 0) == config


@given(st.integers(0, 10**9))
def test_every_configuration_can_be_located(seed: int) -> None:
    config = SPACE.sample(Random(seed))
    params, _ = Axes(SPACE, 0).locate(config)
    assert Axes(SPACE, 0).resolve(lambda name, distribution: params[name], 0) == config


def test_a_key_keeps_one_distribution_however_a_condition_changes() -> None:
    seen: dict[str, set[str]] = {}
    for seed in range(50):
        _, distributions = Axes(SPACE, 0).locate(SPACE.sample(Random(seed)))
        for name, distribution in distributions.items():
            seen.setdefault(name, set()).add(repr(distribution))
    assert {len(kinds) for kinds in seen.values()} == {1}
    assert {name for name in seen if name.startswith("nested")} == {
        "nested.deep in uniform(0, 1)",
        "nested.deep in choice([3, 4])",
    }


@pytest.mark.parametrize(
    ("key", "lowest", "highest"), [("tenths", 0.0, 0.7), ("offset", 0.3, 0.9), ("widths", 16, 256)]
)
def test_multiples_keep_their_ends(key: str, lowest: float, highest: float) -> None:
    def ask(end: str, distribution: BaseDistribution) -> Any:
        if isinstance(distribution, CategoricalDistribution):
            return 0
        return getattr(distribution, end)

    axes = Axes(Space({key: SPACE.domains[key]}), 0)
    ends = [axes.resolve(lambda name, dist, end=end: ask(end, dist), 0)[key] for end in ("low", "high")]  # type: ignore[misc]
    assert ends == [lowest, highest]
