"""A space as Optuna sees it: a distribution for each key, and the way between its parameters and our values."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from headwater.space import Config, Domain, LogRandInt, LogUniform, QLogUniform, QUniform, RandInt, Space, Uniform
from headwater.space.domains import same_value

Ask: TypeAlias = Callable[[str, BaseDistribution], Any]  # Any: a parameter is a number
"""Answers with a parameter for the name of an axis and its distribution."""


class Axes:
    """Turns the domains of a space into distributions that never change, one by one as conditions ask for them.

    Multiples become whole numbers, and options their indices. A domain without end of which Optuna has no notion is
    drawn from at random.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed

    def resolve(self, ask: Ask, number: int) -> Config:
        """Build a configuration from the parameters that `ask` answers with."""

        def draw(key: str, domain: Domain) -> Any:  # Any: as for Config
            distribution = _find_distribution(domain)
            if distribution is None:
                return domain.sample(Random(f"{self._seed}:{number}:{key}"))
            return _to_value(domain, ask(self._name(key, domain), distribution))

        return self._space.resolve(draw)

    def locate(self, config: Config) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:  # Any: as for Ask
        """Return the parameters of a configuration, and their distributions."""
        given = self._space.flatten(config)
        params: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}

        def look_up(key: str, domain: Domain) -> Any:  # Any: as for Config
            distribution = _find_distribution(domain)
            if distribution is not None:
                name = self._name(key, domain)
                params[name] = _to_param(domain, given[key])
                distributions[name] = distribution
            return given[key]

        self._space.resolve(look_up)
        return params, distributions

    def _name(self, key: str, domain: Domain) -> str:
        """Name the axis; a condition may return several domains for one key, and each is an axis of its own.

        Addresses in memory are left out: samplers sort by name, and a resumed study must sort alike.
        """
        return key if key in self._space.domains else re.sub(r" at 0x[0-9a-fA-F]+", "", f"{key} in {domain}")


def _find_distribution(domain: Domain) -> BaseDistribution | None:
    if isinstance(domain, Uniform | LogUniform):
        return FloatDistribution(domain.low, domain.high, log=isinstance(domain, LogUniform))
    if isinstance(domain, QLogUniform):
        return FloatDistribution(domain.nearest(domain.low), domain.nearest(domain.high), log=True)
    if isinstance(domain, QUniform):
        return IntDistribution(0, domain.num_values() - 1)
    if isinstance(domain, RandInt):
        return IntDistribution(domain.low, domain.high - 1, log=isinstance(domain, LogRandInt))
    num_values = domain.num_values()
    return None if num_values is None else CategoricalDistribution(tuple(range(num_values)))


def _to_value(domain: Domain, param: Any) -> Any:  # Any: as for Ask and Config
    if isinstance(domain, QUniform):
        return domain.nearest(domain.nearest(domain.low) + param * domain.q)
    if isinstance(domain, Uniform | LogUniform | QLogUniform | RandInt):
        return domain.nearest(param)
    values = domain.values()
    assert values is not None
    return values[param]


def _to_param(domain: Domain, value: Any) -> Any:  # Any: as for Ask and Config
    if isinstance(domain, QUniform):
        return round((value - domain.nearest(domain.low)) / domain.q)
    if isinstance(domain, Uniform | LogUniform | QLogUniform | RandInt):
        return value
    return next(index for index, option in enumerate(domain.values() or ()) if same_value(option, value))
