"""The number that leads: the target's where trials were of surrogates. The word for trials that a search has left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.page_studies import finish_search, write_plain, write_traded, write_transferred
from typer.testing import CliRunner

from headwater.cli import app
from headwater.report.page.report_file import describe_study
from headwater.report.page.study_page import StudyPage
from headwater.store import open_store


@pytest.fixture
def record(empty_place: Path) -> Path:
    return empty_place / "headwater.db"


def ask(*arguments: str) -> str:
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


# The target


def test_the_list_of_studies_leads_with_the_target(record: Path) -> None:
    write_transferred(record)
    row = next(line for line in ask("ls").splitlines() if line.startswith("plain "))
    assert "accuracy 0.9875 (target); best" in row
    listed = json.loads(ask("ls", "--json"))["studies"]
    assert [one["target"] for one in listed] == [{"value": 0.9875}, None]


def test_a_study_is_shown_with_its_target_before_its_trials(record: Path) -> None:
    write_transferred(record)
    heads = [line.split("  ")[0] for line in ask("show", "plain").splitlines()]
    assert heads.index("target") < heads.index("trials") < heads.index("best surrogate")
    assert ask("best", "plain").startswith("target accuracy 0.9875 after 1 epoch")


def test_the_page_of_a_study_has_its_target_in_the_head(record: Path) -> None:
    write_transferred(record)
    assert describe_study(str(record), "plain")["head"]["target"] == {"study": "plain.target-21", "value": 0.9875}
    assert describe_study(str(record), "plain.target-21")["head"]["target"] is None


# Statuses


def test_a_finished_search_has_stopped_trials_early(record: Path) -> None:
    write_plain(record)
    finish_search(record, ended_early=None)
    assert "2 stopped early" in ask("show", "plain")
    assert "trial 1  stopped early" in ask("show", "plain", "--trial", "1")
    assert "stopped early" in ask("best", "plain", "--count", "100")
    assert describe_study(str(record), "plain")["head"]["is_over"] is True
    shown = json.loads(ask("show", "plain", "--json"))
    assert (shown["statuses"]["paused"], shown["is_over"]) == (2, True), "for programs the values stay"


@pytest.mark.parametrize("reason", ["the time is over", None])
def test_a_search_that_may_go_on_has_paused_them(record: Path, reason: str | None) -> None:
    write_plain(record)
    if reason is not None:  # else its run has not ended
        finish_search(record, ended_early=reason)
    assert "stopped early" not in ask("show", "plain")
    assert describe_study(str(record), "plain")["head"]["is_over"] is False
    assert json.loads(ask("show", "plain", "--json"))["ended_early"] == reason


# The front


def test_the_front_is_shown_and_follows_new_trials(record: Path) -> None:
    front = write_traded(record)
    assert f"{len(front)} trials of accuracy, loss: {', '.join(map(str, front))}" in ask("show", "traded")
    assert json.loads(ask("show", "traded", "--json"))["front"] == front
    with open_store(record, create=False) as store:
        page = StudyPage(store, store.study("traded"))
        page.refresh()
        assert page.head["front"] == front


def test_a_study_of_one_metric_has_no_front(record: Path) -> None:
    write_plain(record)
    assert describe_study(str(record), "plain")["head"]["front"] is None
    assert json.loads(ask("show", "plain", "--json"))["front"] is None
