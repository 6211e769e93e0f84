"""A space with nothing to search is refused with the domain that was probably meant."""

from __future__ import annotations

import pytest

import headwater as hw
from headwater.errors import SpaceError, StudyError
from headwater.space.meant import guess_domain


def train(trial: hw.Trial) -> float:
    return float(trial.config["lr"])


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ((1e-3, 1.0), "hw.loguniform(0.001, 1.0)"),
        ((1, 10.0), "hw.loguniform(1, 10.0)"),
        ((0.5, 1.0), "hw.uniform(0.5, 1.0)"),
        ((0.0, 1.0), "hw.uniform(0.0, 1.0)"),
        ((-1.0, 1.0), "hw.uniform(-1.0, 1.0)"),
        ((1, 8), "hw.randint(1, 8)"),
        ((16, 256), "hw.lograndint(16, 256)"),
        ([1e-3, 1.0], "hw.choice([0.001, 1.0])"),
        ((1.0, 1e-3), "hw.choice([1.0, 0.001])"),
        ((True, False), "hw.choice([True, False])"),
        (["sgd", "adam"], "hw.choice(['sgd', 'adam'])"),
        ((32, 64, 128), "hw.choice([32, 64, 128])"),
        ({"b", "a"}, "hw.choice(['a', 'b'])"),
        (range(1, 4), "hw.choice(range(1, 4))"),
    ],
)
def test_a_study_without_a_domain_names_the_one_that_was_probably_meant(value: object, meant: str) -> None:
    with pytest.raises(SpaceError) as refused:
        hw.Study(train, space={"seed": 3, "lr": value}, metric="loss", storage=None)
    assert f"write 'lr': {meant} to search it" in str(refused.value)


def test_a_nested_key_is_named() -> None:
    with pytest.raises(SpaceError, match=r"'optimizer.lr' is \(0.001, 1.0\), which is a constant"):
        hw.Study(train, space={"optimizer": {"lr": (1e-3, 1.0)}}, metric="loss", storage=None)


@pytest.mark.parametrize("value", [0.1, "sgd", None, b"x", float("nan"), (float("nan"), 1.0)])
def test_plain_values_suggest_no_range(value: object) -> None:
    assert guess_domain(value) is None or "choice" in str(guess_domain(value))


def test_a_pair_of_numbers_is_a_constant_beside_a_domain() -> None:
    space = {"betas": (0.9, 0.999), "lr": hw.uniform(0, 1)}
    result = hw.Study(train, space=space, metric="loss", storage=None).run(num_trials=1)
    assert result.best.config["betas"] == (0.9, 0.999)


def test_a_pair_of_numbers_is_a_constant_beside_a_condition() -> None:
    hw.Study(train, space={"sizes": (1, 9), "lr": lambda config: 0.1}, metric="loss", storage=None)


def test_constants_train_one_trial_and_refuse_more() -> None:
    study = hw.Study(train, space={"lr": 0.1}, metric="loss", storage=None)
    assert len(study.run().trials) == len(study.run(num_trials=1).trials) == 1
    with pytest.raises(StudyError, match=r"num_trials is 100, but every key of the space is a constant \(.*lr: 0.1"):
        study.run(num_trials=100)
