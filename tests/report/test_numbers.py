"""Numbers read well: short, alike within a column, never a lie."""

from __future__ import annotations

import math

import pytest

from headwater.report.numbers import (
    draw_sparkline,
    show_bytes,
    show_cells,
    show_clock,
    show_column,
    show_count,
    show_number,
    show_seconds,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.98237, "0.9824"), (1e-5, "1e-5"), (0.00034567, "3.457e-4"), (1234567.0, "1.235e6"), (128, "128"),
        (100.0, "100"), (0.0, "0"), (-0.5, "-0.5"), (math.nan, "nan"), (math.inf, "inf"), (1e-10, "1e-10"),
    ],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert show_number(value) == text


def test_a_column_has_as_many_decimals_for_all() -> None:
    assert show_column([0.9, 0.98123, 0.5]) == ["0.9000", "0.9812", "0.5000"]
    assert show_column([12.5, 3.25]) == ["12.50", "3.25"]


def test_a_column_over_orders_of_magnitude_keeps_the_digits_of_the_small_ones() -> None:
    assert show_column([1e-5, 0.5]) == ["1e-5", "0.5"]


def test_whole_numbers_stay_whole() -> None:
    assert show_column([16, 128]) == ["16", "128"]


def test_values_that_are_not_finite_do_not_hide_the_others() -> None:
    assert show_column([math.nan, 0.25, math.inf]) == ["nan", "0.2500", "inf"]


def test_cells_of_any_kind_are_text() -> None:
    assert show_cells(["relu", None, True, 0.5, [1, 2]]) == ["relu", "None", "True", "0.5", "[1, 2]"]
    assert len(show_cells(["x" * 100])[0]) < 30


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5e-8, "50 ns"),
        (8.5e-5, "85 µs"),
        (0.0123, "12.3 ms"),
        (3.21, "3.2 s"),
        (250, "4 min 10 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_times_have_the_unit_a_person_would_take(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(7.9, "0:07"), (750, "12:30"), (3723, "1:02:03")])
def test_clocks(seconds: float, text: str) -> None:
    assert show_clock(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (640 * 1024, "640 KiB"), (1.25 * 2**30, "1.25 GiB")])
def test_sizes(count: float, text: str) -> None:
    assert show_bytes(count) == text


def test_one_is_singular() -> None:
    assert (show_count(1, "lane"), show_count(2000, "lane")) == ("1 lane", "2,000 lanes")


def test_a_sparkline_spans_the_values() -> None:
    assert draw_sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert draw_sparkline([3.0]) == "▁"
    assert draw_sparkline([]) == ""


def test_a_long_curve_is_thinned_and_ends_with_its_last_value() -> None:
    line = draw_sparkline([0.0] * 999 + [1.0], width=40)
    assert len(line) == 40
    assert line[-1] == "█"


def test_gaps_and_extremes_are_drawn() -> None:
    assert draw_sparkline([math.nan, 1.0, math.inf]) == "·▁·"
    assert draw_sparkline([-1.7e308, 1.7e308]) == "▁█"
