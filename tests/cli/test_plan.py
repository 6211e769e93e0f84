"""`headwater plan`: what it prints, and what it says of input that makes no sense."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import CliRunner, Result

from headwater.cli import app

PROFILE = """
instance: {devices: 4, dollars_per_hour: 12.24, provision_s: 15, initialise_s: 15}
seconds_per_epoch: {1: 111, 2: 59.48, 4: 31.877, 8: 25.5, 12: 21.25, 16: 18.216, 24: 14.168, 32: 11.592}
"""
STAGES = "32x1,10x3,3x9,1x37"


def test_plans_are_printed_as_json(empty_place: Path) -> None:
    answer = json.loads(_plan(empty_place, PROFILE, "--deadline", "30m", "--json").stdout)
    assert list(answer)[:4] == ["static", "naive", "elastic", "exact"]
    assert sum(stage["cost_dollars"] for stage in answer["stages"]) == pytest.approx(answer["exact"]["cost_dollars"])
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
        (PROFILE, ["--budget", "0"], "'0' is no amount to spend"),
        (PROFILE, ["--budget", "fifteen"], "'fifteen' is no amount to spend"),
        (PROFILE, ["--budget", "-1"], "'-1' is no amount to spend"),
        (PROFILE, ["--instance", "p3.8xlarge", "--spot", "--deadline", "1m"], "the fastest takes"),
        (PROFILE, ["--stages", "32x"], "--stages is '32x'"),
        (PROFILE, ["--stages", "0x3"], "0 trials"),
        ("seconds_per_epoch: {1: 1}", [], "needs `instance:"),
        ("[]", [], "holds a list"),
        ("a: [", [], "cannot be read"),
        (PROFILE + "colour: red\n", [], "'colour'"),
        (PROFILE + "billing: guess\n", [], "'guess'"),
        ("", [], "it holds nothing"),
        (PROFILE.replace("4,", "four,"), [], "devices of instance is 'four'; it must be a whole number"),
        (PROFILE.replace("devices: 4", "devices: 2.5"), [], "devices of instance is 2.5; it must be a whole number"),
        (PROFILE.replace("devices: 4", "devices: true"), [], "devices of instance is True"),
        (PROFILE.replace("devices: 4, ", ""), [], "instance lacks devices"),
        (PROFILE.replace("12.24", "$12"), [], "dollars_per_hour of instance is '$12'; it must be a number"),
        (PROFILE.replace("12.24", ".nan"), [], "dollars_per_hour of instance is nan"),
        (PROFILE.replace("2: 59.48", "1: 59.48"), [], "'1' is there twice"),
        (PROFILE.replace("2: 59.48", "2.5: 59.48"), [], "a count of seconds_per_epoch is 2.5"),
        (PROFILE.replace("59.48", "fast"), [], "seconds_per_epoch of 2 is 'fast'"),
        (PROFILE.replace("32: 11", "999999999: 11"), [], "at most 4,096 can be planned"),
        ("instance: p3.8xlarge\nseconds_per_epoch: {1: 1}", [], "instance is 'p3.8xlarge'; it must be names"),
        ("instance: {devices: 1, dollars_per_hour: 1}\nseconds_per_epoch: 111", [], "seconds_per_epoch is 111"),
        (PROFILE + "spread: wide\n", [], "spread is 'wide'"),
        (PROFILE + "start_up_s: {spread: 1}\n", [], "the mean of start_up_s is None"),
        (PROFILE + "widths: {8: 3}\n", [], "a width is 3"),
        (PROFILE, ["--stages", "99999999999999999999x1"], "at most 100,000 trials"),
        (PROFILE, ["--stages", f"1x{10**400}"], "at most 100,000 trials"),
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


SPOT = PROFILE.replace("12.24", "12.24, spot_dollars_per_hour: 3.06")
PAST = {"metadata": {"gap_seconds": 60}, "data": ([8] * 30 + [2] * 5) * 20}


def _plan_spot(place: Path, past: object, *options: str, profile: str = SPOT) -> Result:
    (place / "past.json").write_text(past if isinstance(past, str) else json.dumps(past))
    return _plan(place, profile, "--spot", "--deadline", "40m", *options)


def test_the_answer_says_by_what_spot_nodes_will_be_chosen(empty_place: Path) -> None:
    answer = json.loads(_plan_spot(empty_place, PAST, "--spot-history", "past.json", "--json").stdout)
    nodes = max(answer["exact"]["instances"])
    told = f"spot nodes are chosen by odds: {nodes} instances at once could be had in 600 of 700 steps of 60 s"
    assert answer["instance"]["is_spot"]
    assert answer["instance"]["spot_history"] == "past.json"
    assert answer["spot_rule"] == f"{told} (past.json)"
    shown = _plan_spot(empty_place, PAST, "--spot-history", "past.json").stdout
    assert told in shown
    without = json.loads(_plan_spot(empty_place, PAST, "--json").stdout)
    assert without["spot_rule"] == "spot nodes are chosen by uniform progress, without a spot history"
    coarse = {**PAST, "metadata": {"gap_seconds": 3000}}
    shown = _plan_spot(empty_place, coarse, "--spot-history", "past.json").stdout
    assert "by uniform progress, not by odds: beside the training the deadline leaves 0 of the history's steps" in shown


def test_a_profile_or_a_catalogue_names_a_history_that_lies_beside_it(empty_place: Path) -> None:
    folder = empty_place / "prices"
    folder.mkdir()
    (folder / "past.json").write_text(json.dumps(PAST))
    (folder / "own.yaml").write_text(
        "lab: {devices: 4, dollars_per_hour: 9, spot_dollars_per_hour: 1, spot_history: past.json}"
    )
    chosen = ["--instance", "lab", "--catalogue", "prices/own.yaml", "--json"]
    answer = json.loads(_plan_spot(empty_place, "", *chosen).stdout)
    assert answer["spot_rule"].startswith("spot nodes are chosen by odds")
    named = SPOT.replace("12.24,", "12.24, spot_history: prices/past.json,")
    answer = json.loads(_plan_spot(empty_place, "", "--json", profile=named).stdout)
    assert answer["instance"]["spot_history"] == "prices/past.json"
    (empty_place / "profile.yaml").write_text(named)
    on_demand = ["plan", "--stages", STAGES, "--profile", "profile.yaml", "--json"]
    answer = json.loads(CliRunner().invoke(app, on_demand).stdout)
    assert (answer["spot_rule"], answer["instance"]["spot_history"]) == (None, None)


@pytest.mark.parametrize(
    ("past", "options", "said"),
    [
        ("", [], "the spot history 'past.json' is no JSON"),
        ("[", [], "the spot history 'past.json' is no JSON"),
        ({**PAST, "data": []}, [], "its data are empty"),
        ({**PAST, "data": [1, float("nan")]}, [], "its data have nan"),
        ({**PAST, "data": [1, -1]}, [], "its data have -1"),
        ({**PAST, "data": [8, 8, 8]}, [], "8 were always to be had in it"),
        ({**PAST, "data": [0, 0, 0]}, [], "no spot instance was ever to be had in it"),
        (PAST, ["--spot-history", "nowhere.json"], "the spot history 'nowhere.json' cannot be read"),
        (PAST, ["--instance", "p3.8xlarge", "--instance", "p3.2xlarge"], "is that of one type, and 2 are compared"),
    ],
)
def test_a_history_that_makes_no_sense_gets_one_clear_line(
    empty_place: Path, past: object, options: list[str], said: str
) -> None:
    result = _plan_spot(empty_place, past, "--spot-history", "past.json", *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout


def test_a_history_is_for_spot_instances(empty_place: Path) -> None:
    result = _plan(empty_place, SPOT, "--spot-history", "past.json")
    assert result.exit_code == 2
    assert "--spot-history is for spot instances; ask for them with --spot" in result.stderr


SEARCHED = """
import headwater as hw

def train(trial):
    for _ in trial.epochs(9):
        trial.report(loss=trial.config["lr"])

study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", max_epochs=9, search=SEARCH, surrogate=SURROGATE)
NUM_TRIALS = 17
"""
WIDTHS = "widths: {8: {seconds_per_epoch: {1: 3}}, 4: {seconds_per_epoch: {1: 9, 2: 6}}}\n"


def _plan_searched(place: Path, search: str, surrogate: object, profile: str) -> Result:
    text = SEARCHED.replace("SEARCH", repr(search)).replace("SURROGATE", repr(surrogate))
    (place / "my_study.py").write_text(text)
    (place / "profile.yaml").write_text(profile)
    sys.modules.pop("my_study", None)  # another process would load it anew
    return CliRunner().invoke(app, ["plan", "my_study.py", "--profile", "profile.yaml", "--deadline", "3h", "--json"])


def test_brackets_follow_one_another(empty_place: Path) -> None:
    stages = json.loads(_plan_searched(empty_place, "hyperband", None, PROFILE).stdout)["stages"]
    shown = [(stage["num_trials"], stage["num_epochs"]) for stage in stages]
    assert shown == [(9, 1), (3, 2), (1, 6), (5, 3), (1, 6), (3, 9)]


def test_a_surrogate_study_is_planned_by_the_times_of_its_widths(empty_place: Path) -> None:
    stages = json.loads(_plan_searched(empty_place, "random", 8, PROFILE + WIDTHS).stdout)["stages"]
    assert [(stage["num_trials"], stage["num_epochs"]) for stage in stages] == [(17, 9), (6, 9), (1, 9)]
    assert stages[0]["num_devices"] <= 17, "more than one device is of no use to a trial at 1/8 of the width"


@pytest.mark.parametrize(
    ("search", "surrogate", "said"),
    [
        ("random", 8, "nothing says how long epochs take at 1/8 of the width"),
        ("random", "auto", "surrogate 'auto' chooses its width on the way, so it has no plan"),
        ("asha", None, "search 'asha' decides on the way which trials go on"),
    ],
)
def test_what_has_no_plan_is_said_in_one_line(empty_place: Path, search: str, surrogate: object, said: str) -> None:
    result = _plan_searched(empty_place, search, surrogate, PROFILE)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_profile_that_is_not_there_is_named(empty_place: Path) -> None:
    result = CliRunner().invoke(app, ["plan", "--stages", STAGES, "--profile", "nowhere.yaml"])
    assert result.exit_code == 2
    assert "nowhere.yaml" in result.stderr


def _plan(place: Path, profile: str, *options: str) -> Result:
    (place / "profile.yaml").write_text(profile)
    given = options if "--stages" in options else ("--stages", STAGES, *options)
    return CliRunner().invoke(app, ["plan", "--profile", "profile.yaml", *given])


STUDY = """
import torch
import headwater as hw

def train(trial):
    model = trial.prepare_model(torch.nn.Linear(4, 1))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for epoch in trial.epochs(9):
        for step in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).square().mean()
            loss.backward()
            optimizer.step()
        trial.report(loss=loss.item())

study = hw.Study(train, space={"lr": hw.loguniform(1e-3, 0.1)}, metric="loss", search="halving", max_epochs=9,
                 executor="inline")
NUM_TRIALS = 9
"""
RENT = "mine: {devices: 4, dollars_per_hour: 12, kind: cpu, spot_dollars_per_hour: 3}\n"


def test_a_study_is_planned_by_what_its_record_knows(empty_place: Path) -> None:
    _write_study(empty_place)
    assert CliRunner().invoke(app, ["run", "my_study.py", "--quiet"]).exit_code == 0
    answer = json.loads(_plan_study("--instance", "mine", "--json").stdout)
    assert [(stage["num_trials"], stage["num_epochs"]) for stage in answer["stages"]] == [(9, 1), (3, 3), (1, 5)]
    assert answer["basis"] == "measured"
    assert answer["notes"] == ["from study train-1 in the record"]
    assert answer["instance"]["name"] == "mine"


def test_a_study_is_planned_by_a_measurement_which_is_kept(empty_place: Path) -> None:
    _write_study(empty_place)
    measured = _plan_study("--instance", "mine", "--measure", "--save-profile", "times.yaml", "--json")
    assert measured.exit_code == 0, measured.stderr
    first = json.loads(measured.stdout)
    assert first["basis"] == "measured"
    again = json.loads(_plan_study("--instance", "mine", "--profile", "times.yaml", "--json").stdout)
    assert again["exact"]["cost_dollars"] == pytest.approx(first["exact"]["cost_dollars"], rel=1e-3)
    assert not (empty_place / "headwater.db").exists()


WIDE_STUDY = """
import torch
import headwater as hw
from pathlib import Path

INPUTS = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))

def train(trial):
    layers = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 1))
    model = trial.prepare_model(layers)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for epoch in trial.epochs(9):
        if epoch == 1:
            Path(f"width-{model[0].out_features}").touch()
        optimizer.zero_grad()
        loss = model(INPUTS).square().mean()
        loss.backward()
        optimizer.step()
        trial.report(loss=loss.item())

study = hw.Study(train, space={"lr": hw.loguniform(1e-3, 0.1)}, metric="loss", search="halving", max_epochs=9,
                 surrogate=hw.Surrogate(scale=4, min_width=4), executor="inline")
NUM_TRIALS = 9
"""


def test_a_surrogate_study_is_measured_at_every_width_that_it_trains(empty_place: Path) -> None:
    _write_study(empty_place)
    (empty_place / "my_study.py").write_text(WIDE_STUDY)
    measured = _plan_study("--instance", "mine", "--measure", "--save-profile", "times.yaml", "--json")
    assert measured.exit_code == 0, measured.stderr
    assert {path.name for path in empty_place.glob("width-*")} == {"width-4", "width-8", "width-16"}
    saved = yaml.safe_load((empty_place / "times.yaml").read_text())
    assert set(saved["widths"]) == {4, 2}
    assert all(times["seconds_per_epoch"][1] > 0 for times in (saved, *saved["widths"].values()))
    first = json.loads(measured.stdout)
    again = json.loads(_plan_study("--instance", "mine", "--profile", "times.yaml", "--json").stdout)
    assert [stage["num_trials"] for stage in first["stages"]] == [9, 3, 1, 6, 1]
    assert again["exact"]["cost_dollars"] == pytest.approx(first["exact"]["cost_dollars"], rel=1e-3)


def test_a_study_without_a_record_says_what_to_do(empty_place: Path) -> None:
    _write_study(empty_place)
    _says_once(_plan_study("--instance", "mine"), "measure its function with --measure")
    assert not (empty_place / "headwater.db").exists()


def test_a_record_of_another_function_says_what_to_do(empty_place: Path) -> None:
    _write_study(empty_place)
    CliRunner().invoke(app, ["run", "my_study.py", "--quiet", "--trials", "1"])
    (empty_place / "my_study.py").write_text(STUDY.replace("range(3)", "range(4)"))
    _says_once(_plan_study("--instance", "mine"), "no earlier study of this function")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--search", "asha"], "search 'asha' decides on the way"),
        (["--instance", "p9.huge"], "there is no instance 'p9.huge'"),
        (["--instance", "c5.4xlarge", "--spot"], "no spot price of c5.4xlarge"),
        (["--stages", "3x1"], "give the file of a study, or --stages"),
        (["--relative-speed", "0"], "--relative-speed is 0.0"),
        (["--catalogue", "nowhere.yaml"], "the catalogue 'nowhere.yaml' cannot be read"),
    ],
)
def test_what_cannot_be_planned_of_a_study_gets_one_clear_line(
    empty_place: Path, options: list[str], said: str
) -> None:
    _write_study(empty_place)
    (empty_place / "profile.yaml").write_text("seconds_per_epoch: {1: 10}\n")
    named = options if "--instance" in options else ["--instance", "mine", *options]
    _says_once(_plan_study("--profile", "profile.yaml", *named), said)


def test_devices_of_another_kind_are_estimated_and_that_is_said(empty_place: Path) -> None:
    profile = "device: cuda Tesla V100-SXM2-16GB\nseconds_per_epoch: {1: 111, 2: 60, 4: 32}\n"
    shown = _plan(empty_place, profile, "--instance", "g4dn.12xlarge").stdout
    assert "ESTIMATED" in shown
    given = json.loads(_plan(empty_place, profile, "--instance", "g4dn.12xlarge", "--json").stdout)
    assert given["basis"] == "estimated"
    options = ("--instance", "g4dn.12xlarge", "--relative-speed", "0.5", "--json")
    scaled = json.loads(_plan(empty_place, profile, *options).stdout)
    assert scaled["basis"] == "scaled"
    assert scaled["exact"]["seconds"] < given["exact"]["seconds"]


def test_the_cheapest_of_several_instances_is_chosen_on_demand_or_spot(empty_place: Path) -> None:
    options = ("--instance", "p3.8xlarge", "--instance", "p3.16xlarge", "--deadline", "40m", "--json")
    on_demand = json.loads(_plan(empty_place, PROFILE, *options).stdout)
    assert set(on_demand["instances_compared"]) == {"p3.8xlarge", "p3.16xlarge"}
    spot = json.loads(_plan(empty_place, PROFILE, *options, "--spot").stdout)
    assert spot["instance"]["is_spot"]
    assert spot["exact"]["cost_dollars"] < on_demand["exact"]["cost_dollars"] / 2
    assert len(spot["instances_compared"]) == 4


def test_a_plan_is_drawn(empty_place: Path) -> None:
    assert _plan(empty_place, PROFILE, "--deadline", "30m", "-o", "plan.svg").exit_code == 0
    root = ElementTree.fromstring((empty_place / "plan.svg").read_text())
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "price over the deadline" in texts
    assert "instances over time" in texts
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 6
    nowhere = _plan(empty_place, PROFILE, "-o", "nowhere/plan.svg")
    _says_once(nowhere, "cannot be written")


def _write_study(place: Path) -> None:
    (place / "my_study.py").write_text(STUDY)
    (place / "rent.yaml").write_text(RENT)


def _plan_study(*options: str) -> Result:
    given = options if "--catalogue" in options else ("--catalogue", "rent.yaml", *options)
    sys.modules.pop("my_study", None)  # another process would load it anew
    return CliRunner().invoke(app, ["plan", "my_study.py", *given])


def _says_once(result: Result, said: str) -> None:
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout
