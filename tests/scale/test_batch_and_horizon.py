from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CannotScaleError
from headwater.scale.parametrization import rescale_for_batch, rescale_for_horizon


def test_sgd_takes_larger_batches_with_a_rate_that_is_as_much_larger() -> None:
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.2}
    assert rescale_for_batch("SGD", options, 4) == {**options, "lr": 0.4}


def test_adam_takes_larger_batches_by_the_square_root() -> None:
    scaled = rescale_for_batch("AdamW", {"lr": 0.1, "weight_decay": 0.2}, 4)
    assert scaled["lr"] == pytest.approx(0.2)
    assert scaled["betas"] == pytest.approx((0.6, 0.996))
    assert scaled["eps"] == pytest.approx(5e-9)
    assert scaled["weight_decay"] == pytest.approx(0.4)
    assert rescale_for_batch("Adam", {"weight_decay": 0.2}, 4)["weight_decay"] == 0.2
    assert rescale_for_batch("RMSprop", {}, 4) == pytest.approx({"lr": 0.02, "eps": 5e-9, "alpha": 0.96})


def test_a_batch_beyond_the_rule_is_refused_with_the_largest_that_is_not() -> None:
    with pytest.raises(CannotScaleError, match="up to 10 times"):
        rescale_for_batch("Adam", {}, 16)
    with pytest.raises(CannotScaleError, match="Adagrad"):
        rescale_for_batch("Adagrad", {}, 2)


@given(kappa=st.floats(0.1, 9.0), kind=st.sampled_from(["SGD", "Adam", "AdamW", "NAdam", "RMSprop"]))
def test_a_change_of_the_batch_can_be_taken_back(kappa: float, kind: str) -> None:
    options = rescale_for_batch(kind, {"lr": 0.1, "weight_decay": 0.2}, 1.5)
    there = rescale_for_batch(kind, options, kappa / 1.5)
    back = rescale_for_batch(kind, there, 1.5 / kappa)
    assert {**back, "betas": 0} == pytest.approx({**options, "betas": 0})


@given(ratio=st.floats(0.01, 100.0), kind=st.sampled_from(["SGD", "AdamW"]))
def test_longer_training_decays_less_per_step(ratio: float, kind: str) -> None:
    scaled = rescale_for_horizon(kind, {"lr": 0.1, "weight_decay": 0.2}, ratio)
    assert scaled["lr"] * scaled["weight_decay"] * ratio == pytest.approx(0.1 * 0.2)


def test_batch_and_horizon_agree_about_decoupled_decay() -> None:
    options = {"lr": 0.1, "weight_decay": 0.2}
    larger = rescale_for_batch("AdamW", options, 4)
    assert larger["lr"] * larger["weight_decay"] / 4 == pytest.approx(0.1 * 0.2)
    assert rescale_for_horizon("Adam", options, 4) == options
