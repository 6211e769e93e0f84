"""Histories of spot instances: what a file says of them, and what is wrong with one that says nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.errors import PlanError
from headwater.plan.spot_history import SpotHistory, read_history

GAP = '{"metadata": {"gap_seconds": 300}, "data": '


def test_a_file_says_when_so_many_could_be_had(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [0, 5, 16, 16, 8.0]}))
    history = read_history(path)
    assert (history.step_s, history.counts, history.source) == (300, (0, 5, 16, 16, 8), str(path))
    assert history.is_there(1) == [False, True, True, True, True]
    assert history.is_there(8) == [False, False, True, True, True]


def test_of_longer_steps_those_count_throughout_which_they_could_be_had() -> None:
    history = SpotHistory(step_s=60, counts=(1, 1, 0, 1, 1))
    assert history.is_there(1, 2) == [True, False, True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no JSON"),
        ("gap_seconds: 300", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "lacks metadata.gap_seconds or data"),
        ('{"data": [1, 0]}', "lacks metadata.gap_seconds or data"),
        ('{"metadata": {"gap_seconds": 300}}', "lacks metadata.gap_seconds or data"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1, 0]}', "gap_seconds is 0; it must be above 0"),
        ('{"metadata": {"gap_seconds": NaN}, "data": [1, 0]}', "gap_seconds is nan"),
        ('{"metadata": {"gap_seconds": "soon"}, "data": [1, 0]}', "gap_seconds is 'soon'"),
        (GAP + "[]}", "its data are empty"),
        (GAP + "[1, NaN, 0]}", "its data have nan; each must be a whole number"),
        (GAP + "[1, Infinity, 0]}", "its data have inf"),
        (GAP + "[1, 0.5]}", "its data have 0.5"),
        (GAP + "[true, false]}", "its data have True"),
        (GAP + "[1, null]}", "its data have None"),
        (GAP + "[1, -1]}", "its data have -1; no count is below 0"),
        (GAP + "[0, 0, 0]}", "no spot instance was ever to be had in it"),
        (GAP + "[16, 16]}", "16 were always to be had in it"),
    ],
)
def test_a_history_that_makes_no_sense_gets_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "history.json"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        read_history(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(PlanError, match=r"the spot history 'nowhere.json' cannot be read: No such file"):
        read_history("nowhere.json")
