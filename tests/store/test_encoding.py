"""How values become text."""

from __future__ import annotations

import math

import pytest

from headwater.store.encoding import decode_json, encode_json, encode_numbers

ODD = [0.1, -0.0, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, 3, True, 2**53 + 1]


@pytest.mark.parametrize("value", ODD)
def test_numbers_are_written_as_any_value_is(value: float) -> None:
    numbers = {"loss": value, 'a "name" with ümlauts \n \ud800': 1.5}
    others = {"100 %": value, "%s": 2.5}
    expected = [encode_json({name: float(one) for name, one in each.items()}) for each in (numbers, others, numbers)]
    assert encode_numbers([numbers, others, numbers]) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_come_back(value: float) -> None:
    (text,) = encode_numbers([{"loss": value, "accuracy": 0.5}])
    found = decode_json(text)
    assert repr(found) == repr({"loss": value, "accuracy": 0.5})


def test_of_no_numbers_there_is_an_empty_mapping() -> None:
    assert encode_numbers([{}, {"loss": 1.0}]) == ["{}", '{"loss": 1.0}']
