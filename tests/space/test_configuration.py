"""Configurations go from flat to nested and back."""

from __future__ import annotations

import pytest

from headwater.space.configuration import find_values, freeze, nest

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
