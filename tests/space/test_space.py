"""A space draws, walks, stores and describes configurations."""

from __future__ import annotations

import itertools
import json
import pickle
from random import Random
from typing import Any  # Any: configurations hold anything

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.errors import SpaceError
from headwater.space import (
    Config,
    Domain,
    Kind,
    Space,
    SpaceRow,
    choice,
    grid,
    loguniform,
    qloguniform,
    quniform,
    randint,
    uniform,
)


class SGD:
    """Stands for an optimizer."""


class Adam:
    """Stands for another."""


def momentum(config: Config) -> Domain | float:
    return uniform(0.5, 0.99) if config["opt"]["kind"] is SGD else 0.0


def scaled_rate(config: Config) -> float:
    return float(config["lr"]) * float(config["batch_size"]) / 128


SPACE = Space(
    {
        "scaled": scaled_rate,
        "lr": loguniform(1e-5, 1),
        "opt": {"kind": choice([SGD, Adam]), "momentum": momentum, "decay": quniform(0, 0.3, 0.1)},
        "batch_size": choice([128, 256]),
        "depth": randint(1, 4),
        "width": qloguniform(8, 256, 8),
        "activation": choice([None, "relu", (1, 2), len]),
        "epochs": 20,
    }
)


def test_a_configuration_has_the_keys_in_the_order_of_definition() -> None:
    config = SPACE.sample(Random(0))
    assert list(config) == ["scaled", "lr", "opt", "batch_size", "depth", "width", "activation", "epochs"]
    assert list(config["opt"]) == ["kind", "momentum", "decay"]
    assert config["epochs"] == 20


def test_the_same_generator_draws_the_same_configuration() -> None:
    assert SPACE.sample(Random(5)) == SPACE.sample(Random(5))
    assert SPACE.sample(Random(5)) != SPACE.sample(Random(6))


def test_a_configuration_of_plain_values_is_plain() -> None:
    config = Space({"lr": uniform(0, 1), "net": {"width": choice([8, 16])}}).sample(Random(0))
    assert pickle.loads(pickle.dumps(config)) == config
    assert json.loads(json.dumps(config)) == config


@given(seed=st.integers())
def test_conditions_follow_the_drawn_values(seed: int) -> None:
    config = SPACE.sample(Random(seed))
    assert config["scaled"] == config["lr"] * config["batch_size"] / 128
    assert (config["opt"]["momentum"] == 0.0) == (config["opt"]["kind"] is Adam)


def test_a_condition_reads_the_conditions_above_it() -> None:
    space = Space({"b": lambda config: config["a"] + 1, "c": lambda config: config["b"] + 1, "a": 1})
    assert space.sample(Random(0)) == {"b": 2, "c": 3, "a": 1}


def test_a_condition_may_return_a_class() -> None:
    assert Space({"kind": lambda config: SGD}).sample(Random(0)) == {"kind": SGD}


def test_later_changes_to_the_definition_do_not_reach_the_space() -> None:
    definition: dict[str, Any] = {"net": {"width": choice([8])}}
    space = Space(definition)
    definition["net"]["width"] = uniform(3, 1)
    assert space.sample(Random(0)) == {"net": {"width": 8}}


def test_a_space_of_a_space_is_the_same() -> None:
    assert Space(SPACE).sample(Random(0)) == SPACE.sample(Random(0))


def test_resolve_asks_for_every_domain_by_its_dotted_key() -> None:
    asked = []

    def draw(key: str, domain: Domain) -> object:
        asked.append(key)
        return domain.sample(Random(0))

    space = Space({"m": lambda config: grid([1, 2]), "lr": uniform(0, 1), "opt": {"kind": choice([SGD])}})
    config = space.resolve(draw)
    assert asked == ["lr", "opt.kind", "m"]
    assert list(config) == ["m", "lr", "opt"]


def test_domains_are_listed_without_those_of_conditions() -> None:
    assert list(SPACE.domains) == ["lr", "opt.kind", "opt.decay", "batch_size", "depth", "width", "activation"]


# Walking


def test_configurations_are_the_product_with_the_last_key_fastest() -> None:
    space = Space({"a": grid([1, 2]), "b": {"c": choice(["x", "y"]), "d": randint(0, 2)}, "e": 0})
    walked = [(c["a"], c["b"]["c"], c["b"]["d"]) for c in space.configurations()]
    assert walked == list(itertools.product([1, 2], ["x", "y"], [0, 1]))
    assert space.size == 8


def test_conditional_domains_are_walked_where_they_apply() -> None:
    space = Space({"kind": choice([SGD, Adam]), "m": lambda c: choice([1, 2, 3]) if c["kind"] is SGD else None})
    walked = [(config["kind"], config["m"]) for config in space.configurations()]
    assert walked == [(SGD, 1), (SGD, 2), (SGD, 3), (Adam, None)]
    assert space.size == 4


def test_a_space_of_constants_has_one_configuration() -> None:
    space = Space({"a": 1, "b": {"c": "x"}})
    assert list(space.configurations()) == [{"a": 1, "b": {"c": "x"}}]
    assert space.size == 1


def test_a_continuous_key_cannot_be_walked() -> None:
    space = Space({"a": choice([1]), "opt": {"lr": loguniform(1e-4, 1)}})
    assert space.size is None
    with pytest.raises(SpaceError) as caught:
        space.configurations()
    message = str(caught.value)
    assert all(part in message for part in ("'opt.lr'", "loguniform(0.0001, 1)", "use grid([...])"))


def test_a_continuous_condition_cannot_be_walked() -> None:
    space = Space({"kind": choice([Adam, SGD]), "m": lambda c: uniform(0, 1) if c["kind"] is SGD else None})
    walk = space.configurations()
    assert space.size is None
    assert next(walk) == {"kind": Adam, "m": None}
    with pytest.raises(SpaceError, match="space key 'm'"):
        next(walk)


@pytest.mark.parametrize("condition", [lambda config: 1, lambda config: randint(0, 10**12)])
def test_conditions_over_a_vast_space_are_not_counted(condition: object) -> None:
    assert Space({"a": randint(0, 10**5), "b": condition}).size is None


def test_a_vast_space_without_conditions_is_counted() -> None:
    assert Space({"a": randint(0, 10**12), "b": choice([1, 2])}).size == 2 * 10**12


# Grids under random search


def test_trials_take_the_cells_of_the_grid_in_turn() -> None:
    space = Space({"a": grid([1, 2]), "lr": uniform(0, 1), "b": {"c": grid(["x", "y", "z"])}})
    rng = Random(0)
    configs = [space.sample(rng, number) for number in range(12)]
    cells = list(itertools.product([1, 2], ["x", "y", "z"]))
    assert space.grid_size == 6
    assert [(config["a"], config["b"]["c"]) for config in configs] == cells * 2
    assert len({config["lr"] for config in configs}) == 12


def test_without_a_number_grids_are_drawn_from() -> None:
    rng = Random(0)
    space = Space({"a": grid([1, 2, 3])})
    assert {space.sample(rng)["a"] for _ in range(50)} == {1, 2, 3}


def test_a_space_without_grids_has_one_cell() -> None:
    assert SPACE.grid_size == 1
    assert SPACE.sample(Random(0), 7) == SPACE.sample(Random(0))


# Encoding


@given(seed=st.integers())
def test_a_configuration_survives_json(seed: int) -> None:
    config = SPACE.sample(Random(seed))
    restored = SPACE.decode(json.loads(json.dumps(SPACE.encode(config), allow_nan=False)))
    assert restored == config
    assert restored["activation"] is config["activation"]
    assert repr(restored) == repr(config)


@given(low=st.floats(-1e300, 1e300), high=st.floats(-1e300, 1e300), seed=st.integers())
def test_floats_survive_json_to_the_last_bit(low: float, high: float, seed: int) -> None:
    assume(low < high)
    space = Space({"x": uniform(low, high)})
    config = space.sample(Random(seed))
    assert space.decode(json.loads(json.dumps(space.encode(config)))) == config


def test_only_what_was_drawn_is_encoded() -> None:
    space = Space({"kind": choice([SGD, Adam]), "lr": uniform(0, 1), "n": 3, "m": lambda config: 4})
    assert space.encode({"kind": Adam, "lr": 0.25, "n": 3, "m": 4}) == {"kind": 1, "lr": 0.25}


def test_numpy_values_are_encoded_as_plain_numbers() -> None:
    space = Space({"x": uniform(0, 1), "n": randint(0, 9)})
    codes = space.encode({"x": np.float32(0.5), "n": np.int64(3)})
    assert json.dumps(codes) == '{"x": 0.5, "n": 3}'


SMALL = Space({"lr": uniform(0, 1), "opt": {"kind": choice([SGD, Adam])}, "n": 3})


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        ({"lr": 2.0, "opt": {"kind": SGD}, "n": 3}, ("'lr'", "2.0", "choose a value in uniform(0, 1)")),
        ({"lr": 0.5, "opt": {"kind": int}, "n": 3}, ("'opt.kind'", "int", "choice([SGD, Adam])")),
        ({"lr": 0.5, "opt": {"kind": SGD}, "n": 4}, ("'n'", "4", "3", "a constant does not vary")),
        ({"lr": 0.5, "opt": {"kind": SGD}}, ("'n'", "missing", "'lr', 'opt.kind', 'n'")),
        ({"lr": 0.5, "opt": SGD, "n": 3}, ("'opt'", "not in the space", "'lr', 'opt.kind', 'n'")),
        ({"lr": 0.5, "opt": {"kind": SGD, "x": 1}, "n": 3}, ("'opt.x'", "not in the space", "exactly those")),
    ],
)
def test_a_configuration_of_another_space_is_not_encoded(config: Config, parts: tuple[str, ...]) -> None:
    with pytest.raises(SpaceError) as caught:
        SMALL.encode(config)
    assert all(part in str(caught.value) for part in parts)


@pytest.mark.parametrize(
    ("codes", "parts"),
    [
        ({"lr": 0.5}, ("'opt.kind'", "None", "choice([SGD, Adam])")),
        ({"lr": 0.5, "opt.kind": 2}, ("'opt.kind'", "2", "use the space of that study")),
        ({"lr": 0.5, "opt.kind": -1}, ("'opt.kind'", "-1", "use the space of that study")),
        ({"lr": 0.5, "opt.kind": 1, "gone": 7}, ("'gone'", "7", "use the space of that study")),
    ],
)
def test_codes_of_another_space_are_not_decoded(codes: dict[str, float], parts: tuple[str, ...]) -> None:
    with pytest.raises(SpaceError) as caught:
        SMALL.decode(codes)
    assert all(part in str(caught.value) for part in parts)


def test_a_condition_that_draws_by_itself_is_found_out() -> None:
    rng = Random(0)
    space = Space({"lr": lambda config: rng.random()})
    with pytest.raises(SpaceError, match=r"'lr' is .* let it return a domain"):
        space.encode(space.sample(Random(0)))


def test_conditions_may_make_new_objects() -> None:
    space = Space({"net": lambda config: SGD(), "nan": lambda config: float("nan")})
    assert space.encode(space.sample(Random(0))) == {}


# Views


def test_flatten_gives_dotted_keys_and_leaves_options_whole() -> None:
    space = Space({"opt": {"lr": 0.1}, "net": choice([{"width": 3}])})
    assert space.flatten(space.sample(Random(0))) == {"opt.lr": 0.1, "net": {"width": 3}}


def test_show_gives_the_whole_configuration_in_values_that_json_holds() -> None:
    space = Space({"opt": {"kind": choice([SGD])}, "act": lambda config: choice([len]), "n": 3})
    shown = space.show(space.sample(Random(0)))
    assert json.loads(json.dumps(shown)) == {"opt": {"kind": "SGD"}, "act": "len", "n": 3}


def test_describe_has_a_row_for_each_key() -> None:
    space = Space({"scaled": scaled_rate, "lr": uniform(0, 1), "batch_size": choice([128, 256])})
    assert space.describe() == (
        SpaceRow(key="scaled", kind=Kind.CONDITION, text="scaled_rate", num_values=None),
        SpaceRow(key="lr", kind=Kind.DOMAIN, text="uniform(0, 1)", num_values=None),
        SpaceRow(key="batch_size", kind=Kind.DOMAIN, text="choice([128, 256])", num_values=2),
    )


def test_a_space_prints_its_keys() -> None:
    assert repr(SMALL) == "Space(lr: uniform(0, 1), opt.kind: choice([SGD, Adam]), n: 3)"
