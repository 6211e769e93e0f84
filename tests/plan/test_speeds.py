"""What sharing and scaling cost, and what is read off measured times."""

from __future__ import annotations

import pytest

from headwater.errors import PlanError
from headwater.plan.speeds import (
    Speeds,
    choose_max_devices,
    choose_max_sharing,
    count_fitting_lanes,
    fit_scaling,
    fit_sharing,
    measure_benefits,
)


@pytest.mark.parametrize(
    ("growth", "benefits", "chosen"),
    [
        (1.0, [1 / 2, 1 / 3, 1 / 4], 4),
        (1.2, [0.40, 0.20, 0.10, 0.04], 3),
        (1.5, [0.25, 0.0, -0.125], 2),
        (2.0, [0.0, -1 / 3, -1 / 2], 1),
        (10.0, [-4.0], 1),
    ],
)
def test_trials_share_a_device_as_long_as_each_saves_time(growth: float, benefits: list[float], chosen: int) -> None:
    measured = measure_benefits([growth**count for count in range(len(benefits) + 1)])
    assert measured == pytest.approx(benefits, abs=1e-12)
    assert choose_max_sharing(measured, least=0.1 + 1e-9) == chosen


def test_throughput_rises_with_sharing_until_it_no_longer_pays() -> None:
    speeds = Speeds(sharing=1.2, max_sharing=6)
    done = [count / speeds.factor(1 / count) for count in range(1, 7)]
    assert [round(value, 2) for value in done] == [1, 1.67, 2.08, 2.31, 2.41, 2.41]


def test_speed_rises_with_devices_at_a_falling_rate() -> None:
    speeds = Speeds(scaling=1.1, max_devices=10)
    gains = [1 / speeds.factor(count) for count in range(1, 11)]
    assert [round(value, 2) for value in gains] == [1, 1.82, 2.48, 3.01, 3.42, 3.73, 3.95, 4.11, 4.20, 4.24]


def test_time_is_continuous_at_one_device() -> None:
    assert Speeds(sharing=1.3, scaling=1.2, max_sharing=3, max_devices=3).factor(1) == 1


def test_rates_are_fitted_to_times_that_follow_them() -> None:
    assert fit_sharing([1.15**count for count in range(4)]) == pytest.approx(1.15)
    assert fit_scaling({count: 10 * 1.07 ** (count - 1) / count for count in (1, 2, 4, 8)}) == pytest.approx(1.07)


def test_devices_stop_where_one_more_is_no_faster() -> None:
    assert choose_max_devices({1: 10.0, 2: 6.0, 4: 5.0, 8: 5.5}) == 4


def test_lanes_fit_by_two_measurements_of_memory() -> None:
    assert count_fitting_lanes(2, 2.5, 80) == 157
    assert count_fitting_lanes(90, 95, 80) == 0


def test_memory_that_shrinks_with_lanes_is_refused() -> None:
    with pytest.raises(PlanError, match="measure them again"):
        count_fitting_lanes(2, 1, 80)


@pytest.mark.parametrize("wrong", [{"sharing": 0.5}, {"scaling": float("nan")}, {"max_sharing": 0}, {"max_devices": 0}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(PlanError):
        Speeds(**wrong)  # type: ignore[arg-type]  # some are whole numbers
