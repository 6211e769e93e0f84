"""What options and the record have in the place of a study's own settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import headwater as hw
from headwater.cli.recorded_settings import as_recorded, override
from headwater.errors import StudyError


def train(trial: hw.Trial) -> None:
    for _ in trial.epochs(2):
        trial.report(loss=trial.config["lr"])


@pytest.fixture
def study(tmp_path: Path) -> hw.Study:
    return hw.Study(train, space={"lr": hw.uniform(0.1, 1)}, metric="loss", storage=tmp_path / "s.db", lanes=1)


def test_only_what_is_given_takes_the_place_of_a_setting(study: hw.Study) -> None:
    changed = override(study, {"seed": 7, "search": None})
    assert (changed.seed, changed.search) == (7, study.search)


def test_a_study_goes_on_as_it_was_recorded(study: hw.Study) -> None:
    replace(study, seed=7, search="asha", max_epochs=2, executor="inline").run(num_trials=2)
    again = as_recorded(study, None, None)
    assert (again.seed, again.search, again.max_epochs) == (7, "asha", 2)
    with pytest.raises(StudyError, match="--max-epochs is 3"):
        as_recorded(study, 3, None)
    with pytest.raises(StudyError, match="--order is arrival"):
        as_recorded(study, None, "arrival")
