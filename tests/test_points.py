"""Configurations that a user wants tried: before anything else, or next in a study that goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from optuna.samplers import TPESampler

import headwater as hw
from headwater.errors import SpaceError, StudyError
from headwater.search import ASHA, SEARCHES, RandomSearch
from headwater.space import Config, Space
from headwater.trials import Result

SPACE = {"lr": hw.uniform(0, 1), "kind": hw.choice([dict, list, None]), "deep": {"width": hw.randint(1, 9)}, "same": 3}


def report_lr(trial: hw.Trial) -> None:
    for epoch in trial.epochs(4):
        trial.report(loss=trial.config["lr"] / (epoch + 1))


STUDY = hw.Study(report_lr, space=SPACE, metric="loss", storage=None, lanes=1, max_epochs=4)


def rates(result: Result) -> list[float]:
    return [round(trial.config["lr"], 6) for trial in result.trials]


@pytest.mark.parametrize("search", [name for name in SEARCHES if name != "grid"])
def test_every_search_begins_with_the_points(search: str) -> None:
    study = replace(STUDY, search=search, points=[{"lr": 0.5, "kind": list}, {"deep": {"width": 4}}])
    study.enqueue({"lr": 0.25})
    result = study.run(num_trials=6)
    first, second, third = (trial.config for trial in result.trials[:3])
    assert first["lr"] == 0.5
    assert first["kind"] is list
    assert second["deep"]["width"] == 4
    assert third["lr"] == 0.25
    assert len(result.trials) == 6


def test_a_grid_has_its_points_first_and_each_configuration_once() -> None:
    study = replace(STUDY, space={"lr": hw.grid([0.1, 0.2, 0.3, 0.4])}, search="grid", points=[{"lr": 0.3}])
    assert rates(study.run()) == [0.3, 0.1, 0.2, 0.4]


def test_a_point_that_was_tried_is_not_tried_again() -> None:
    study = replace(STUDY, space={"lr": hw.grid([0.1, 0.2, 0.3])}, points=[{"lr": 0.3}, {"lr": 0.3}])
    assert sorted(rates(study.run())) == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("search", ["random", "tpe", TPESampler(seed=1), "asha"])
@pytest.mark.parametrize("order", ["virtual", "arrival"])
def test_points_of_a_study_that_is_cut_are_tried_when_it_goes_on(tmp_path: Path, search: str, order: str) -> None:
    points: list[Config] = [{"lr": 0.9}, {"kind": None}, {"lr": 0.8}]
    study = replace(STUDY, search=search, order=order, points=points, storage=tmp_path / "a.db", name="one")
    whole = replace(study, storage=tmp_path / "b.db").run(num_trials=8)
    study.run(num_trials=8, target=0.9)
    assert rates(study.resume()) == rates(whole)


def test_a_study_that_is_done_goes_on_with_what_is_enqueued(tmp_path: Path) -> None:
    study = replace(STUDY, storage=tmp_path / "a.db", name="one", points=[{"lr": 0.9}])
    study.run(num_trials=2)
    study.enqueue({"lr": 0.7}, {"lr": 0.6})
    assert rates(study.resume())[2:] == [0.7, 0.6]
    assert rates(study.resume())[2:] == [0.7, 0.6]
    assert len(study.resume(num_trials=6).trials) == 6


def test_the_best_of_an_earlier_study_is_taken_as_far_as_it_fits(tmp_path: Path) -> None:
    earlier = replace(STUDY, storage=tmp_path / "a.db", name="earlier").run(num_trials=5)
    narrow = {"lr": hw.uniform(0, 1), "kind": hw.choice([list, dict, None]), "deep": {"width": hw.randint(100, 200)}}
    study = replace(STUDY, space=narrow, storage=tmp_path / "a.db", name="later")
    taken = study.enqueue_best("earlier", count=2)
    best = [trial.config for trial in earlier.ranked[:2]]
    assert taken == [{"lr": config["lr"], "kind": config["kind"]} for config in best]
    assert rates(study.run(num_trials=3))[:2] == [round(config["lr"], 6) for config in best]


def test_the_best_of_a_result_is_taken() -> None:
    study, earlier = replace(STUDY), STUDY.run(num_trials=4)
    study.enqueue_best(earlier)
    assert rates(study.run(num_trials=1)) == [round(earlier.best.config["lr"], 6)]


@pytest.mark.parametrize(
    ("point", "told"),
    [
        ({"lr": 2}, "point key 'lr' is 2; choose a value in uniform"),
        ({"rate": 1}, "point key 'rate' is not in the space, which has 'lr', 'kind', 'deep.width', 'same'"),
        ({"kind": "dict"}, "point key 'kind' is 'dict'"),
        ({"same": 4}, "configuration key 'same' is 4, but this space says 3"),
    ],
)
def test_a_point_that_is_not_of_the_space_is_refused_and_not_kept(point: dict[str, object], told: str) -> None:
    study = replace(STUDY)
    with pytest.raises(SpaceError, match=told):
        study.enqueue(point)
    assert study.points == ()


def test_points_that_nobody_would_take_up_are_refused() -> None:
    own = RandomSearch(Space(SPACE), 0, 3)
    with pytest.raises(StudyError, match="points are for searches that Headwater builds"):
        replace(STUDY, search=own, points=[{"lr": 0.5}])
    with pytest.raises(StudyError, match="must be a list of configurations"):
        replace(STUDY, points={"lr": 0.5})  # type: ignore[arg-type]  # a user's mistake
    with pytest.raises(StudyError, match="say where 'earlier' is with storage="):
        replace(STUDY).enqueue_best("earlier")


def test_points_are_averaged_over_seeds_like_any_trial(tmp_path: Path) -> None:
    study = replace(STUDY, num_seeds=2, storage=tmp_path / "a.db", search=ASHA(), points=[{"lr": 0.9}, {"lr": 0.8}])
    assert rates(study.run(num_trials=3))[:2] == [0.9, 0.8]
    study.enqueue({"lr": 0.7})
    assert rates(study.resume())[3:] == [0.7]


def test_a_script_that_is_started_again_goes_on_by_name(tmp_path: Path) -> None:
    study = replace(STUDY, storage=tmp_path / "a.db", name="one")
    cut = study.run(num_trials=6, target=1.0, resume="auto")
    assert cut.ended_early is not None
    whole = study.run(num_trials=6, resume="auto")
    assert whole.ended_early is None
    assert rates(whole) == rates(replace(STUDY).run(num_trials=6))
    assert rates(study.run(num_trials=6, resume="auto")) == rates(whole)


def test_a_study_without_a_name_cannot_be_found_again(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="give the study name= and storage="):
        replace(STUDY, storage=tmp_path / "a.db").run(num_trials=1, resume="auto")
    with pytest.raises(StudyError, match="resume is 'always'; it must be one of 'never', 'auto'"):
        replace(STUDY, storage=tmp_path / "a.db", name="one").run(num_trials=1, resume="always")
