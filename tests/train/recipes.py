"""What the tests of recipes share: all that part the lanes of a function, and whether these survive as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.trials import Recipe
from headwater.trials.constants import Options


def list_options(configs: Sequence[Mapping[str, Any]], parent: str = "") -> dict[str, list[Any]]:
    """Return the values by dotted key, as the space of these configurations would offer them."""
    options: dict[str, list[Any]] = {}
    for config in configs:
        for key, value in config.items():
            if isinstance(value, Mapping):
                options |= list_options([each[key] for each in configs if key in each], f"{parent}{key}.")
            else:
                options.setdefault(f"{parent}{key}", []).append(value)
    return options


def require_round_trip(recipe: Recipe, configs: Sequence[Mapping[str, Any]], options: Options | None = None) -> None:
    """Fail unless a recipe that was text for a while is the same and gives the same for every configuration."""
    options = list_options(configs) if options is None else options
    data = recipe.to_json(options)
    assert data is not None, f"{recipe.label} is not portable"
    back = Recipe.from_json(json.loads(json.dumps(data, allow_nan=False)), options)
    assert back is not None, data
    assert back == recipe
    assert hash(back) == hash(recipe)
    assert [answer(back, config) for config in configs] == [answer(recipe, config) for config in configs]


def answer(recipe: Recipe, config: Mapping[str, Any]) -> str:
    """Return what a recipe gives or raises, with its type."""
    try:
        value = recipe.evaluate(config)
    except Exception as error:
        return f"raises {error!r}"
    return f"{type(value).__name__} {value!r}"
