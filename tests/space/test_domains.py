"""Domains draw what they contain, and list, count and print what they are."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SpaceError
from headwater.space import (
    Domain,
    QLogUniform,
    QUniform,
    choice,
    grid,
    lograndint,
    loguniform,
    qloguniform,
    quniform,
    randint,
    sample_from,
    uniform,
)


def draw_even(rng: Random) -> int:
    return 2 * rng.randrange(100)


DOMAINS: list[Domain] = [
    uniform(-1.5, 2),
    loguniform(1e-6, 10),
    quniform(0, 1, 0.1),
    qloguniform(1e-3, 10, 1e-3),
    randint(-3, 4),
    lograndint(1, 30),
    choice(["a", None, int, (1, 2)]),
    grid([16, 32]),
    sample_from(draw_even),
]
every_domain = pytest.mark.parametrize("domain", DOMAINS, ids=str)

finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=1e-300, max_value=1e300)
steps = st.sampled_from([0.1, 0.01, 0.25, 0.3, 1e-4, 7.0, 1, 8])


@every_domain
def test_a_domain_is_valid_and_contains_what_it_draws(domain: Domain) -> None:
    domain.validate()
    rng = Random(0)
    assert all(domain.contains(domain.sample(rng)) for _ in range(200))


@every_domain
def test_the_same_generator_draws_the_same(domain: Domain) -> None:
    first, second = ([domain.sample(rng) for _ in range(20)] for rng in (Random(3), Random(3)))
    assert first == second


@every_domain
def test_a_finite_domain_draws_all_the_values_it_lists(domain: Domain) -> None:
    values = domain.values()
    if values is None:
        assert domain.num_values() is None
        return
    rng = Random(0)
    assert domain.num_values() == len(values)
    assert len(values) > 1000 or {domain.sample(rng) for _ in range(1000)} == set(values)


@every_domain
def test_a_domain_survives_pickling(domain: Domain) -> None:
    assert pickle.loads(pickle.dumps(domain)) == domain


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (uniform(0, 1.5), "uniform(0, 1.5)"),
        (loguniform(1e-4, 1.0), "loguniform(0.0001, 1.0)"),
        (quniform(0, 1, 0.1), "quniform(0, 1, 0.1)"),
        (qloguniform(1, 100, 5), "qloguniform(1, 100, 5)"),
        (randint(0, 9), "randint(0, 9)"),
        (lograndint(1, 9), "lograndint(1, 9)"),
        (sample_from(draw_even), "sample_from(draw_even)"),
        (choice(["a", None, dict, (1,)]), "choice(['a', None, dict, (1,)])"),
        (grid([128, 256]), "grid([128, 256])"),
    ],
)
def test_a_domain_prints_as_the_call_that_builds_it(domain: Domain, text: str) -> None:
    assert str(domain) == text


def test_numpy_numbers_become_plain_ones() -> None:
    domain = quniform(np.int64(0), np.float64(1), np.float64(0.25))  # type: ignore[arg-type]  # numpy's int is a number to users
    assert repr(domain.values()) == "(0.0, 0.25, 0.5, 0.75, 1.0)"


@pytest.mark.parametrize("value", [True, "0.5", None, math.nan, math.inf, 10**400, 1j, [0.5]])
@pytest.mark.parametrize("domain", DOMAINS[:5], ids=str)
def test_a_range_contains_only_finite_numbers(domain: Domain, value: object) -> None:
    assert not domain.contains(value)


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        (uniform(0, 1), [0, 0.0, 1, 0.3], [-0.1, 1.1]),
        (loguniform(0.1, 10), [0.1, 10], [0, 10.1]),
        (quniform(0.05, 1, 0.1), [0.1, 0.3, 1.0], [0.05, 0.0, 0.1 * 3, 1.1]),
        (randint(0, 3), [0, 2, np.int64(1)], [3, -1, 1.0, 0.5]),
        (choice([1, "a"]), [1, 1.0, "a"], [True, "b", None, [1]]),
    ],
    ids=str,
)
def test_membership_is_exact(domain: Domain, inside: list[object], outside: list[object]) -> None:
    assert [domain.contains(value) for value in inside] == [True] * len(inside)
    assert [domain.contains(value) for value in outside] == [False] * len(outside)


@given(low=finite, high=finite, seed=st.integers())
def test_uniform_stays_within_its_bounds(low: float, high: float, seed: int) -> None:
    low, high = sorted((low, high))
    assert low <= uniform(low, high).sample(Random(seed)) <= high


@given(low=positive, high=positive, seed=st.integers())
def test_loguniform_stays_within_its_bounds(low: float, high: float, seed: int) -> None:
    low, high = sorted((low, high))
    assert low <= loguniform(low, high).sample(Random(seed)) <= high


def test_loguniform_draws_every_order_of_magnitude_alike() -> None:
    rng, domain = Random(0), loguniform(1e-4, 1)
    magnitudes = Counter(math.floor(math.log10(domain.sample(rng))) for _ in range(4000))
    assert all(magnitudes[magnitude] == pytest.approx(1000, rel=0.15) for magnitude in (-4, -3, -2, -1))


def test_quniform_draws_its_bounds_as_often_as_the_rest() -> None:
    rng, domain = Random(0), quniform(0, 1, 0.25)
    drawn = Counter(domain.sample(rng) for _ in range(5000))
    assert all(drawn[value] == pytest.approx(1000, rel=0.15) for value in (0, 0.25, 0.5, 0.75, 1))


@given(low=st.floats(1e-3, 1e3), span=st.integers(1, 500), q=steps, seed=st.integers(), is_log=st.booleans())
def test_quantised_values_are_exact_decimal_multiples(low: float, span: int, q: float, seed: int, is_log: bool) -> None:
    domain: QUniform | QLogUniform = (qloguniform if is_log else quniform)(low, low + span * q + q / 2, q)
    domain.validate()
    value = domain.sample(Random(seed))
    factor = round(value / q)
    assert value == float(Decimal(repr(q)) * factor)
    assert domain.low <= value <= domain.high
    assert domain.contains(value)


def test_steps_of_a_tenth_leave_no_dust() -> None:
    assert quniform(0, 1, 0.1).values() == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def test_whole_bounds_and_step_give_whole_numbers() -> None:
    values = quniform(16, 70, 16).values()
    assert values == (16, 32, 48, 64)
    assert all(type(value) is int for value in values)


def test_counting_a_vast_domain_takes_no_memory() -> None:
    assert randint(0, 10**30).num_values() == 10**30
    assert quniform(0, 10**9, 1e-9).num_values() == 10**18 + 1


@pytest.mark.parametrize(
    ("nearest", "expected"),
    [
        (uniform(0, 1).nearest(1.5), 1.0),
        (loguniform(0.1, 1).nearest(0), 0.1),
        (quniform(0, 1, 0.1).nearest(0.30000000000000004), 0.3),
        (quniform(0.05, 1, 0.1).nearest(-7), 0.1),
        (qloguniform(1, 100, 10).nearest(97), 100),
        (randint(0, 5).nearest(9.2), 4),
        (randint(0, 5).nearest(2.6), 3),
    ],
)
def test_nearest_finds_the_closest_member(nearest: float, expected: float) -> None:
    assert nearest == expected


def test_options_come_from_anything_with_an_order() -> None:
    assert choice(range(3)).options == (0, 1, 2)
    assert choice(x * x for x in range(3)).options == (0, 1, 4)
    assert choice({"a": 1}.keys()).options == ("a",)


def test_options_without_a_plain_equality_are_told_apart_by_identity() -> None:
    first, second = np.zeros(2), np.zeros(2)
    domain = choice([first, second])
    domain.validate()
    assert domain.contains(second)
    assert not domain.contains(np.ones(2))


def test_validate_works_without_a_space() -> None:
    with pytest.raises(SpaceError, match=r"uniform\(3, 1\): low 3 is not below high 1; give the smaller number first"):
        uniform(3, 1).validate()


def test_fractions_are_taken_as_numbers() -> None:
    assert uniform(Fraction(1, 4), 1).low == 0.25  # type: ignore[arg-type]  # a Fraction is a number to users


def test_whole_numbers_are_drawn_over_orders_of_magnitude() -> None:
    rng = Random(0)
    drawn = [lograndint(1, 1000).sample(rng) for _ in range(3000)]
    shares = [sum(low <= value < 10 * low for value in drawn) / len(drawn) for low in (1, 10, 100)]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.04)


@pytest.mark.parametrize(
    ("domain", "told"),
    [
        (lograndint(0, 5), "low is 0, which has no logarithm; raise it to 1, or use randint"),
        (lograndint(1, 5.5), "high is 5.5, not a whole number"),  # type: ignore[arg-type]  # a user's mistake
        (sample_from(3), "3 is no function"),  # type: ignore[arg-type]  # a user's mistake
        (sample_from(lambda: 1), "it must take one argument"),  # type: ignore[arg-type,misc]  # a user's mistake
    ],
)
def test_what_cannot_be_drawn_from_is_refused(domain: Domain, told: str) -> None:
    with pytest.raises(SpaceError, match=told):
        domain.validate()


def test_a_function_that_draws_no_number_is_refused_when_it_draws() -> None:
    with pytest.raises(SpaceError, match="it must draw finite numbers"):
        sample_from(lambda rng: "text").sample(Random(0))
    with pytest.raises(SpaceError, match=r"it is given a random\.Random, and no configuration"):
        sample_from(lambda spec: spec.config.lr).sample(Random(0))  # type: ignore[attr-defined]  # a user's mistake
    with pytest.raises(SpaceError, match=r"raised TypeError: .* it is given a random\.Random, and no configuration"):
        sample_from(lambda config: config["lr"]).sample(Random(0))  # type: ignore[index]  # a user's mistake
