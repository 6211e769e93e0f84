"""Configurations go from flat to nested and back."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from headwater.space.configuration import find_values, freeze, nest, show_plain

FLAT = {"lr": 0.1, "opt.name": "sgd", "opt.deep.beta": None, "net": {"width": 3}}
NESTED = {"lr": 0.1, "opt": {"name": "sgd", "deep": {"beta": None}}, "net": {"width": 3}}


def test_dotted_keys_nest() -> None:
    assert nest(FLAT) == NESTED


def test_nested_values_are_found_as_deep_as_the_shape_goes() -> None:
    assert dict(find_values(NESTED, nest(dict.fromkeys(FLAT)))) == FLAT


def test_a_frozen_configuration_cannot_be_changed_at_any_depth() -> None:
    frozen = freeze(NESTED)
    with pytest.raises(TypeError):
        frozen["opt"]["deep"]["beta"] = 1


def test_plain_values_are_shown_as_they_are() -> None:
    values = {"a": [1, 0.5, None], "b": {"c": True, "d": "relu"}}
    assert show_plain(values) == values


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (dict, "dict"), (len, "len"), (partial(int, base=2), "int(base=2)"), (np.float32(0.5), 0.5), ((1, 2), [1, 2]),
        (object(), "<object object>"), (np.zeros((2, 1)), "array([[0.], [0.]])"),
    ],
)  # fmt: skip
def test_what_json_lacks_is_shown_by_name_or_as_one_line(value: object, shown: object) -> None:
    assert json.loads(json.dumps(show_plain(value))) == shown
