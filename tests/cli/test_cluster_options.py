"""The options by which `run` trains on a cluster: what they refuse, and what they make a plan of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.cloud.conftest import ec2_url
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.cli.cluster_options import ClusterOptions, build_elastic, open_cluster
from headwater.cloud.ec2 import Ec2Cluster
from headwater.cloud.local_cluster import LocalCluster
from headwater.errors import HeadwaterError, PlanError

__all__ = ["ec2_url"]  # a fixture that is another folder's

FILE = """
import headwater as hw

def train(trial):
    for epoch in trial.epochs(20):
        trial.report(loss=trial.config["lr"] / (epoch + 1))

study = hw.Study(train, space={"lr": hw.uniform(0.1, 1)}, metric="loss", lanes=1)
NUM_TRIALS = 6
"""
PROFILE = """
instance: {name: local, devices: 2, dollars_per_hour: 36, initialise_s: 10}
seconds_per_epoch: {1: 60}
"""
EC2 = "provider: ec2\nimage: ami-12c6146b\ninstance: c5.large\nhead: 10.0.0.1:6379\nis_spot: true\n"


@pytest.fixture(autouse=True)
def place(empty_place: Path) -> Path:
    (empty_place / "my_study.py").write_text(FILE)
    (empty_place / "profile.yaml").write_text(PROFILE)
    return empty_place


def train(trial: hw.Trial) -> None:
    """Nothing is trained here."""


def make_study(search: str = "halving", max_epochs: int | None = 9) -> hw.Study:
    return hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", search=search, max_epochs=max_epochs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--deadline", "20m"], "--deadline is for a cluster; say which with --cluster local, ray or FILE"),
        (["--nodes", "2"], "--nodes is for a cluster"),
        (["--spot-history", "past.json"], "--spot-history is for a cluster"),
        (
            ["--cluster", "local", "--profile", "profile.yaml", "--deadline", "1h", "--spot-history", "past.json"],
            "it needs a --deadline, and is_spot: true in the file of --cluster",
        ),
        (["--cluster", "local", "--executor", "ray"], "--cluster and --executor both say where to train"),
        (["--cluster", "local", "--devices", "2"], "--cluster and --devices both say where to train"),
        (["--cluster", "local", "--budget", "3"], "give --instance NAME, or --profile FILE"),
        (["--cluster", "mars"], "--cluster is 'mars'; it must be local, ray, ray:ADDRESS, or a YAML file"),
        (["--cluster", "profile.yaml"], "needs provider: ec2, image, instance and head"),
        (
            ["--cluster", "local", "--max-epochs", "9", "--profile", "nowhere.yaml"],
            "the profile 'nowhere.yaml' cannot be read",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_launched(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["run", "my_study.py", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_plan_is_made_of_the_stages_and_the_profile(place: Path) -> None:
    options = ClusterOptions(cluster="local", deadline="12m", budget=None, profile=place / "profile.yaml", nodes=None)
    plan = build_elastic(make_study(), 9, options).plan
    assert plan is not None
    assert plan.seconds <= 720
    assert plan.instance.dollars_per_hour == 36
    with pytest.raises(PlanError, match="no plan keeps to a deadline of 60 s"):
        _ = build_elastic(make_study(), 9, replace(options, deadline="60s")).plan


def test_a_search_without_stages_has_no_plan_but_its_price(place: Path) -> None:
    options = ClusterOptions(cluster="local", deadline=None, budget=1.0, profile=place / "profile.yaml", nodes=3)
    executor = build_elastic(make_study("asha"), 9, options)
    assert executor.plan is None
    assert len(executor.list_devices()) == 6, "three nodes of two"
    named = replace(options, profile=None, instance="p3.8xlarge")
    assert len(build_elastic(make_study("asha"), 9, named).list_devices()) == 12, "by the catalogue, three of four"


@pytest.mark.usefixtures("ec2_url")
def test_spot_instances_are_planned_at_their_own_price(place: Path) -> None:
    options = ClusterOptions(cluster="ec2.yaml", deadline=None, budget=None, profile=place / "profile.yaml", nodes=None)
    (place / "profile.yaml").write_text(PROFILE.replace("36,", "36, spot_dollars_per_hour: 9,"))
    prices = []
    for is_spot in ("true", "false"):
        (place / "ec2.yaml").write_text(EC2.replace("true", is_spot))
        plan = build_elastic(make_study(), 9, options).plan
        assert plan is not None
        prices.append((plan.instance.dollars_per_hour, plan.is_spot))
    assert prices == [(9.0, True), (36.0, False)]


@pytest.mark.usefixtures("ec2_url")
def test_a_history_of_spot_instances_is_named_by_an_option_or_in_the_profile(place: Path) -> None:
    (place / "ec2.yaml").write_text(EC2)
    (place / "past.json").write_text('{"metadata": {"gap_seconds": 60}, "data": [1, 0, 1]}')
    options = ClusterOptions(cluster="ec2.yaml", deadline="1h", budget=None, profile=place / "profile.yaml", nodes=None)
    prices = PROFILE.replace("36,", "36, spot_dollars_per_hour: 9,")
    named = prices.replace("36,", "36, spot_history: past.json,")
    for profile, history in ((prices, place / "past.json"), (named, None)):
        (place / "profile.yaml").write_text(profile)
        plan = build_elastic(make_study(), 9, replace(options, spot_history=history)).plan
        assert plan is not None
        assert plan.instance.spot_history is not None
        assert plan.instance.spot_history.counts == (1, 0, 1)


@pytest.mark.parametrize("content", ["", "[]", '{"metadata": {"gap_seconds": 60}, "data": [0, 0]}'])
def test_a_history_that_makes_no_sense_ends_a_run_before_it_begins(place: Path, content: str) -> None:
    (place / "ec2.yaml").write_text(EC2)
    (place / "profile.yaml").write_text(PROFILE.replace("36,", "36, spot_dollars_per_hour: 9,"))
    (place / "past.json").write_text(content)
    arguments = ["--cluster", "ec2.yaml", "--profile", "profile.yaml", "--deadline", "1h", "--search", "halving"]
    spot = ["--max-epochs", "9", "--spot-history", "past.json"]
    result = CliRunner().invoke(app, ["run", "my_study.py", *arguments, *spot])
    assert result.exit_code == 2
    assert "the spot history 'past.json'" in result.stderr
    assert "Traceback" not in result.stderr


def test_spot_instances_without_a_price_are_refused(place: Path) -> None:
    (place / "ec2.yaml").write_text(EC2)
    options = ClusterOptions(cluster="ec2.yaml", deadline=None, budget=1.0, profile=place / "profile.yaml", nodes=None)
    for search in ("halving", "asha"):
        with pytest.raises(PlanError, match="no spot price of local is known; give spot_dollars_per_hour"):
            build_elastic(make_study(search), 9, options)


@pytest.mark.usefixtures("ec2_url")
def test_a_file_describes_instances_of_ec2(place: Path) -> None:
    (place / "ec2.yaml").write_text(EC2)
    assert isinstance(open_cluster("ec2.yaml", "cpu", 2), Ec2Cluster)
    assert isinstance(open_cluster("local", "cpu", 2), LocalCluster)
    for line in ("colour: red\n", "lease_s: soon\n"):
        (place / "ec2.yaml").write_text(EC2 + line)
        with pytest.raises(HeadwaterError, match=r"may have|make no sense"):
            open_cluster("ec2.yaml", "cpu", 2)


def test_a_study_that_goes_on_is_planned_from_where_its_trials_stand() -> None:
    begun = ["run", "my_study.py", "--search", "halving", "--max-epochs", "9", "--executor", "inline", "--quiet"]
    assert CliRunner().invoke(app, [*begun, "--trials", "9", "--target", "0.3"]).exit_code == 0
    resumed = ["resume", "my_study.py", "--cluster", "local", "--profile", "profile.yaml"]
    result = CliRunner().invoke(app, [*resumed, "--deadline", "60s"])
    assert result.exit_code == 2
    told = " ".join(result.stderr.split())
    assert "no plan for what is left of the study keeps to a deadline of 60 s: the nearest to that takes" in told
    result = CliRunner().invoke(app, ["resume", "my_study.py", "--deadline", "60s"])
    assert "--deadline is for a cluster" in " ".join(result.stderr.split())
