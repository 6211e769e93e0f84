"""What the record says of a domain is enough for Optuna."""

from __future__ import annotations

import itertools
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

import headwater as hw
from headwater.report.distributions import Names, find_parameter, read_distribution
from headwater.space import Domain, Space


class Adam:
    """Stands for an optimizer."""

    def __init__(self, size: int = 0) -> None: ...


class Odd:
    def __repr__(self) -> str:
        return "one, two ("


@pytest.mark.parametrize(
    ("domain", "distribution"),
    [
        (hw.uniform(-1, 2.5), FloatDistribution(-1, 2.5)),
        (hw.loguniform(1e-5, 1), FloatDistribution(1e-5, 1, log=True)),
        (hw.quniform(0.05, 1, 0.1), FloatDistribution(0.1, 1.0, step=0.1)),
        (hw.quniform(3, 17, 4), IntDistribution(4, 16, step=4)),
        (hw.qloguniform(10, 300, 16), IntDistribution(16, 288, log=True)),
        (hw.qloguniform(0.1, 1.0, 0.1), FloatDistribution(0.1, 1.0, log=True)),
        (hw.randint(2, 6), IntDistribution(2, 5)),
        (hw.lograndint(2, 6), IntDistribution(2, 5, log=True)),
        (hw.choice([128, 0.5, None, True, "a, b"]), CategoricalDistribution((128, 0.5, None, True, "a, b"))),
        (hw.grid([Adam, len, (1, 2)]), CategoricalDistribution(("Adam", "len", "(1, 2)"))),
        (hw.choice([partial(Adam, 3), lambda x: x]), CategoricalDistribution(("Adam(3)", "<lambda>"))),
        (hw.choice(np.array([0.1, 0.2])), CategoricalDistribution((0.1, 0.2))),
        (hw.choice([Adam()]), CategoricalDistribution(("<tests.Adam object>",))),
        (hw.choice([1, True]), CategoricalDistribution((1, "True (1)"))),
        (hw.choice([lambda x: x, lambda y: y]), CategoricalDistribution(("<lambda>", "<lambda> (1)"))),
        (hw.choice([Odd(), 3]), CategoricalDistribution(("option 0", "option 1"))),
    ],
    ids=itertools.count(),  # an object's address is no name that two test processes agree on
)  # fmt: skip
def test_each_domain_has_its_distribution(domain: Domain, distribution: BaseDistribution) -> None:
    text = str(domain).replace(f"{Adam.__module__}.Adam object", "tests.Adam object")
    assert read_distribution(text, domain.num_values()) == distribution


@pytest.mark.parametrize(
    "domain", [hw.quniform(0.05, 0.9, 0.1), hw.qloguniform(7, 300, 16), hw.randint(-3, 4), hw.choice(["a", None, 2])]
)
def test_what_was_drawn_is_within_the_distribution(domain: Domain) -> None:
    space = Space({"x": domain})
    distribution = read_distribution(str(domain), domain.num_values())
    assert distribution is not None
    for number in range(50):
        config = space.sample(Random(number))
        parameter = find_parameter(distribution, space.encode(config)["x"])
        assert parameter == config["x"]
        assert distribution._contains(distribution.to_internal_repr(parameter))


@pytest.mark.parametrize("text", ["mydomain(3)", "nothing at all", "", "choice(", "__import__('os')"])
def test_a_domain_that_is_not_ours_is_left_out(text: str) -> None:
    assert read_distribution(text, None) is None


def test_unlike_domains_of_one_key_have_names_of_their_own() -> None:
    names = Names()
    chosen: list[str] = []
    for domain in (hw.uniform(0, 1), hw.uniform(0, 5), hw.choice(["a"]), hw.loguniform(1, 2), hw.uniform(1, 2)):
        distribution: Any = read_distribution(str(domain), domain.num_values())
        chosen.append(names.choose("m", str(domain), distribution))
    assert chosen == ["m", "m", "m in choice(['a'])", "m in loguniform(1, 2)", "m"]
