from __future__ import annotations

import pytest

from headwater.errors import SpaceError
from headwater.search import GridSearch
from headwater.space import Space, choice, grid, loguniform


def test_configurations_come_in_the_order_of_definition() -> None:
    space = Space({"a": grid([1, 2]), "b": choice(["x", "y"])})
    configs = [dict(segment.config) for segment in GridSearch(space).propose(10)]
    assert configs == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]


def test_an_endless_space_is_refused_at_once_and_the_key_named() -> None:
    with pytest.raises(SpaceError, match="'lr'"):
        GridSearch(Space({"lr": loguniform(1e-4, 1.0)}))
