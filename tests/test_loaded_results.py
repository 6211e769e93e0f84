"""Results in Python: a study that is loaded from its record, shown, drawn and handed to pandas."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.page_studies import write_plain

import headwater as hw
from headwater.errors import StoreError, StudyError
from headwater.settings import STORAGE_VARIABLE
from headwater.store import Batch, Note, open_store
from headwater.trials import Report, Result, Status, TrialRecord


def train(trial: hw.Trial) -> None:
    trial.note(parameters=18)
    for epoch in trial.epochs(9):
        trial.report(loss=trial.config["lr"] / (epoch + 1), latency=1 - trial.config["lr"])


STUDY = hw.Study(
    train,
    space={"lr": hw.uniform(0.1, 1.0)},
    metric="loss",
    search="asha",
    max_epochs=9,
    lanes=1,
    name="one",
    storage=None,
)


@pytest.fixture
def record(empty_place: Path) -> Path:
    return empty_place / "record.db"


# load_study


def test_a_loaded_study_has_what_its_run_returned(record: Path) -> None:
    ran = replace(STUDY, storage=record).run(num_trials=9, watcher=hw.Silence())
    loaded = hw.load_study("one", record)
    assert loaded.trials == ran.trials
    assert loaded.best == ran.best
    assert (loaded.metric, loaded.mode, loaded.is_over, loaded.ended_early) == ("loss", "min", True, None)
    assert repr(loaded) == repr(ran)


def test_without_a_name_the_newest_study_is_loaded(record: Path) -> None:
    write_plain(record, name="first")
    write_plain(record, name="second")
    assert hw.load_study(storage=record).study == "second"


def test_loading_changes_no_file_and_makes_none(record: Path) -> None:
    with pytest.raises(StoreError, match="there is no file"):
        hw.load_study("one", record)
    assert not record.exists()
    write_plain(record)
    before = record.read_bytes()
    hw.load_study("plain", record)
    assert record.read_bytes() == before


def test_a_name_that_is_not_there_is_refused_with_those_that_are(record: Path) -> None:
    write_plain(record)
    with pytest.raises(StoreError, match=r"holds no study named 'plian'; there are 'plain'"):
        hw.load_study("plian", record)


def test_what_cannot_be_read_is_left_out_with_a_warning(record: Path) -> None:
    write_plain(record)
    with open_store(record) as store:
        store.write(1, Batch(notes=(Note(kind="attribute", text="no JSON", number=3),)))
    with pytest.warns(UserWarning, match=r"the record is damaged: trial 3 is left out"):
        result = hw.load_study("plain", record)
    assert 3 not in [trial.number for trial in result.trials]


def test_a_loaded_study_has_no_function_to_build_its_model_with(record: Path) -> None:
    write_plain(record)
    with pytest.raises(StudyError, match="has no training function"):
        hw.load_study("plain", record).load_best_model()


# HEADWATER_STORAGE


def test_the_variable_names_the_record_in_python_as_for_the_command(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, str(record))
    study = hw.Study(train, space={"lr": hw.uniform(0.1, 1.0)}, metric="loss", lanes=1, name="here")
    study.run(num_trials=2, watcher=hw.Silence())
    assert hw.load_study("here").storage == str(record)
    assert len(hw.load_study("here", record).trials) == 2
    assert not Path("headwater.db").exists()


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_the_record_is_in_this_directory(
    value: str | None, empty_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv(STORAGE_VARIABLE, value)
    assert hw.Study(train, space={"lr": hw.uniform(0.1, 1.0)}, metric="loss").storage == "headwater.db"
    write_plain(empty_place / "headwater.db")
    assert hw.load_study().study == "plain"


def test_a_storage_that_is_named_counts_more_than_the_variable(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plain(record)
    monkeypatch.setenv(STORAGE_VARIABLE, "other.db")
    assert hw.load_study("plain", storage=record).study == "plain"
    study = hw.Study(train, space={"lr": hw.uniform(0.1, 1.0)}, metric="loss", storage=record)
    assert study.storage == record


# statuses


def test_trials_that_a_finished_search_left_are_stopped_early(record: Path) -> None:
    ran = replace(STUDY, storage=record).run(num_trials=9, watcher=hw.Silence())
    left = [trial for trial in ran.trials if trial.status is Status.PAUSED]
    assert left
    for result in (ran, hw.load_study("one", record)):
        assert f"{len(left)} stopped early" in repr(result)
        assert "paused" not in repr(result)
        assert f"{len(left)} stopped early" in result._repr_html_()
    assert {trial.status for trial in hw.load_study("one", record).trials} == {"completed", "paused"}


def test_trials_of_a_search_that_was_cut_are_paused(record: Path) -> None:
    study = replace(STUDY, storage=record)
    cut = study.run(num_trials=9, target=0.5, watcher=hw.Silence())
    assert cut.ended_early is not None
    loaded = hw.load_study("one", record)
    assert (loaded.is_over, loaded.ended_early) == (False, cut.ended_early)
    assert "stopped early" not in repr(loaded)
    assert study.resume(watcher=hw.Silence()).is_over
    assert hw.load_study("one", record).is_over


# repr


def make_result(num_trials: int, num_keys: int, **settings: object) -> Result:
    trials = [
        TrialRecord(
            number=number,
            config={f"hyperparameter_{key}": number * 0.1 + key for key in range(num_keys)},
            status=Status.COMPLETED,
            history=(Report(number=number, epoch=1, metrics={"loss": float(number), "latency": -float(number)}),),
        )
        for number in range(num_trials)
    ]
    whole = Result(study="s", metric="loss", mode="min", trials=tuple(trials), storage="memory:")
    return replace(whole, **settings)  # type: ignore[arg-type]  # whatever a test sets


@pytest.mark.parametrize(("num_trials", "num_keys"), [(0, 0), (1, 1), (5, 3), (1000, 40)])
def test_a_result_shows_itself_on_one_screen(num_trials: int, num_keys: int) -> None:
    result = make_result(num_trials, num_keys, ended_early="long reason " * 200, also={"latency": "min"})
    lines = repr(result).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    assert str(result) == repr(result)


def test_hyperparameters_that_do_not_fit_are_counted() -> None:
    lines = repr(make_result(3, 40)).splitlines()
    assert lines[2].split()[:4] == ["rank", "trial", "loss", "hyperparameter_0"]
    shown = sum(word.startswith("hyperparameter_") for word in lines[2].split())
    assert lines[-1] == f"without {40 - shown} of 40 hyperparameters; result.best.config has all"


# figures


@pytest.mark.parametrize("kind", [None, "best", "curves", "parallel", "slice"])
def test_a_figure_is_shown_by_a_notebook_and_saved(kind: str | None, record: Path) -> None:
    write_plain(record)
    figure = hw.load_study("plain", record).plot(kind)
    assert ElementTree.fromstring(figure._repr_svg_()).tag.endswith("svg")
    figure.save("figure.svg")
    assert Path("figure.svg").read_text() == figure.svg
    assert repr(figure).startswith(f"Figure('{kind or 'best'} of study plain')")


def test_a_run_can_be_drawn_as_what_is_loaded(record: Path) -> None:
    ran = replace(STUDY, storage=record).run(num_trials=4, watcher=hw.Silence())
    assert ran.plot("curves") == hw.load_study("one", record).plot("curves")


def test_studies_that_ran_together_can_be_drawn(record: Path) -> None:
    studies = [replace(STUDY, search="random", lanes=2, storage=record, name=name) for name in ("one", "two")]
    drawn = [result.plot("curves") for result in hw.run_together(studies, 2)]
    assert [figure.title for figure in drawn] == ["curves of study one", "curves of study two"]


def test_a_study_in_memory_has_nothing_to_draw_from() -> None:
    with pytest.raises(StudyError, match="has no record that a figure can be made of"):
        make_result(3, 1).plot()


# tables for pandas


def test_without_pandas_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(StudyError, match=r"^to_dataframe needs pandas; pip install 'headwater\[pandas\]'$"):
        make_result(3, 1).to_dataframe()


def test_a_data_frame_has_a_row_for_each_trial_or_each_report(record: Path) -> None:
    pytest.importorskip("pandas")
    result = replace(STUDY, storage=record).run(num_trials=4, watcher=hw.Silence())
    frame = result.to_dataframe()
    assert list(frame["number"]) == [0, 1, 2, 3]
    assert list(frame["config.lr"]) == [trial.config["lr"] for trial in result.trials]
    assert list(frame["metrics.loss"]) == [trial.value("loss") for trial in result.trials]
    assert list(frame["note.parameters"]) == [18] * 4
    assert set(frame["status"]) <= set(Status)
    history = result.to_dataframe(history=True)
    assert len(history) == sum(len(trial.history) for trial in result.trials)
    assert list(history.columns) == ["number", "epoch", "metrics.loss", "metrics.latency"]
