"""How much each hyperparameter matters."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest
from tests.page_studies import write_plain

from headwater.report.page.importance import choose_epoch, measure_importance
from headwater.store import Batch, StudyInfo, open_store
from headwater.trials import Lane, Report, Status, TrialRecord


def reached(*epochs: int) -> list[TrialRecord]:
    return [
        TrialRecord(
            number=number,
            config={},
            status=Status.STOPPED,
            history=tuple(Report(number=number, epoch=epoch, metrics={}) for epoch in range(1, last + 1)),
        )
        for number, last in enumerate(epochs)
    ]


@pytest.mark.parametrize(
    ("epochs", "wanted"), [((), 0), ((3,), 3), ((1, 1, 1, 9), 1), ((3, 3, 3, 1), 3), ((9, 9, 9, 9, 3, 3, 3, 1), 3)]
)
def test_trials_are_compared_where_three_quarters_have_come(epochs: tuple[int, ...], wanted: int) -> None:
    assert choose_epoch(reached(*epochs)) == wanted


def test_what_decides_comes_first(tmp_path: Path) -> None:
    write_plain(tmp_path / "record.db", num_trials=40)
    found = measure_importance(str(tmp_path / "record.db"), "plain")
    assert [key for key, _ in found["shares"]] == ["lr", "opt.name"]
    assert found["shares"][0][1] > 0.8
    assert (found["method"], found["epoch"], found["num_trials"]) == ("fANOVA", 2, 39)


def test_of_few_trials_nothing_is_said(tmp_path: Path) -> None:
    write_plain(tmp_path / "record.db", num_trials=6)
    found = measure_importance(str(tmp_path / "record.db"), "plain")
    assert found["shares"] == []
    assert "it takes 8" in found["reason"]


def test_trials_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    write_plain(path, num_trials=30)
    connection = sqlite3.connect(path)
    connection.execute("update trials set config = '{\"shown\": {}}' where number < 3")
    connection.commit()
    connection.close()
    assert measure_importance(str(path), "plain")["shares"][0][0] == "lr"


def test_without_keys_that_vary_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    with open_store(path) as store:
        key = store.create_study(StudyInfo(name="s", metric="loss", mode="min", seed=0, space=None))
        for number in range(10):
            store.add_trials(key, [Lane(number=number, config={"codes": {}, "shown": {}}, seed=0)])
            report = Report(number=number, epoch=1, metrics={"loss": math.sqrt(number)})
            store.write(key, Batch(reports=(report,)))
    assert measure_importance(str(path), "s")["reason"] == "no key varies"
