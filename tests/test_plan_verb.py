"""`headwater plan`: what it prints, and what it says of input that makes no sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app

PROFILE = """
instance: {devices: 4, dollars_per_hour: 12.24, provision_s: 15, initialise_s: 15}
seconds_per_epoch: {1: 111, 2: 59.48, 4: 31.877, 8: 25.5, 12: 21.25, 16: 18.216, 24: 14.168, 32: 11.592}
"""
STAGES = "32x1,10x3,3x9,1x37"


def test_plans_are_printed_as_json(empty_place: Path) -> None:
    answer = json.loads(_plan(empty_place, PROFILE, "--deadline", "30m", "--json").stdout)
    assert list(answer) == ["static", "naive", "elastic", "exact"]
    assert round(answer["static"]["cost_dollars"], 2) == 17.89
    assert round(answer["elastic"]["cost_dollars"], 2) == 13.40
    assert answer["exact"]["devices"] == [32, 20, 12, 4]
    assert answer["exact"]["instances"] == [8, 5, 3, 1]
    assert answer["exact"]["seconds"] <= 1800


def test_a_person_is_shown_stages_rivals_and_the_price_over_the_deadline(empty_place: Path) -> None:
    shown = _plan(empty_place, PROFILE + "spread: 0.1\n", "--deadline", "0.75h").stdout
    for part in ("the plan, by stages", "one size throughout", "nine runs of ten", "price over the deadline", "$"):
        assert part in shown


def test_a_budget_buys_the_fastest_plan_within_it(empty_place: Path) -> None:
    answer = json.loads(_plan(empty_place, PROFILE, "--budget", "15", "--json").stdout)
    assert answer["exact"]["cost_dollars"] <= 15
    assert answer["exact"]["seconds"] < answer["static"]["seconds"]


@pytest.mark.parametrize(
    ("profile", "options", "said"),
    [
        (PROFILE, ["--deadline", "1m"], "the fastest takes"),
        (PROFILE, ["--deadline", "soon"], "'soon' is no time"),
        (PROFILE, ["--deadline", "0m"], "'0m' is no time"),
        (PROFILE, ["--budget", "1"], "a budget of $1.00"),
        (PROFILE, ["--stages", "32x"], "--stages is '32x'"),
        (PROFILE, ["--stages", "0x3"], "0 trials"),
        ("seconds_per_epoch: {1: 1}", [], "needs `instance:"),
        ("[]", [], "needs `instance:"),
        ("a: [", [], "cannot be read"),
        (PROFILE + "colour: red\n", [], "'colour'"),
        (PROFILE + "billing: guess\n", [], "'guess'"),
        (PROFILE.replace("4,", "four,"), [], "all numbers"),
        (PROFILE.replace("1: 111, ", ""), [], "it needs one for 1"),
    ],
)
def test_what_makes_no_sense_gets_one_clear_line(
    empty_place: Path, profile: str, options: list[str], said: str
) -> None:
    result = _plan(empty_place, profile, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout


def test_a_profile_that_is_not_there_is_named(empty_place: Path) -> None:
    result = CliRunner().invoke(app, ["plan", "--stages", STAGES, "--profile", "nowhere.yaml"])
    assert result.exit_code == 2
    assert "nowhere.yaml" in result.stderr


def _plan(place: Path, profile: str, *options: str) -> Result:
    (place / "profile.yaml").write_text(profile)
    given = options if "--stages" in options else ("--stages", STAGES, *options)
    return CliRunner().invoke(app, ["plan", "--profile", "profile.yaml", *given])
