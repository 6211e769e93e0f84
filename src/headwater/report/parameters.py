"""What was drawn for trials, and from what, in Optuna's words: by the record alone, without the space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.distributions import BaseDistribution

from headwater.errors import StoreError
from headwater.report.distributions import Names, find_parameter, read_distribution

UNSOUND = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Raised by a row that somebody has changed: Optuna and `ast` check what they are given."""


class Parameters:
    """Turns stored configurations of one study into parameters of Optuna's."""

    def __init__(self, space: Any) -> None:  # Any: a JSON value, as a rule the stored rows of a space
        self.names = Names()
        rows = space if isinstance(space, list) else []
        self._space = {row["key"]: row for row in rows if isinstance(row, dict) and isinstance(row.get("key"), str)}
        self._distributions: dict[tuple[str, int | None], BaseDistribution | None] = {}

    def locate(
        self, config: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:  # Any: parameters
        """Return what was drawn for a trial, and from what, by name.

        Raises:
            StoreError: The record does not say so.
        """
        try:
            return self._locate(config)
        except UNSOUND as error:
            raise StoreError(f"its domains cannot be read ({type(error).__name__}: {error!s:.80})") from error

    def _locate(
        self, config: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:  # Any: parameters
        described = self._space | config.get("domains", {})
        parameters: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        for key, code in config["codes"].items():
            text, num_values = described[key]["text"], described[key]["num_values"]
            if (text, num_values) not in self._distributions:
                self._distributions[text, num_values] = read_distribution(text, num_values)
            distribution = self._distributions[text, num_values]
            if distribution is not None:
                name = self.names.choose(key, text, distribution)
                parameters[name] = find_parameter(distribution, code)
                distributions[name] = distribution
        return parameters, distributions


@contextmanager
def quietly() -> Iterator[None]:
    """Keep Optuna from telling about studies that nobody asked it for."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)
