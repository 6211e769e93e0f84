"""Numbers that people write into files are read, or refused by name."""

from __future__ import annotations

import pytest

from headwater.errors import PlanError
from headwater.plan.given_numbers import read_count, read_mapping, read_number, read_numbers


def test_what_is_a_number_is_read_as_text_too() -> None:
    assert read_number("price", "12.5") == 12.5
    assert read_count("devices", "4") == 4
    assert read_numbers("seconds", {"1": 111, 2: "59.5"}) == {1: 111.0, 2: 59.5}
    assert read_mapping("widths", {}) == {}


@pytest.mark.parametrize("given", [True, None, "much", [1], {}, 10**400, 1e308, float("nan"), ["x" * 1000]])
def test_what_is_no_number_is_refused_by_name(given: object) -> None:
    with pytest.raises(PlanError, match=r"^price is .{,70}; it must be a number of at most 1e\+30$"):
        read_number("price", given)


@pytest.mark.parametrize("given", [True, None, 2.5, 2.0, "2.5", [1], float("nan"), 10**10])
def test_what_is_no_count_is_refused_by_name(given: object) -> None:
    with pytest.raises(PlanError, match=r"^devices is .*; it must be a whole number of at most 1,000,000,000$"):
        read_count("devices", given)


@pytest.mark.parametrize("given", [None, 3, [1, 2], "a: 1"])
def test_what_has_no_names_is_refused(given: object) -> None:
    with pytest.raises(PlanError, match="it must be names with values"):
        read_numbers("seconds", given)
