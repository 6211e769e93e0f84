"""`headwater cluster`: nodes that studies have launched are found and ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from tests.cloud.conftest import ec2_url
from tests.cloud.test_ec2 import SETTINGS
from tests.execute.clusters import await_truth
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.cloud.ec2 import LEASE_S, Ec2Cluster
from headwater.cloud.local_cluster import LocalCluster, list_local_nodes

__all__ = ["ec2_url"]  # a fixture that is another folder's


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["cluster", *arguments])


def list_ec2(*arguments: str) -> Any:
    return json.loads(invoke("ls", "--provider", "ec2", "--json", *arguments).stdout)["nodes"]


def launch(study: str, launched_s: float = 0.0) -> None:
    cluster = Ec2Cluster(SETTINGS, clock=lambda: time.time() + launched_s)
    cluster.start(study)
    cluster.launch(1)


@pytest.mark.usefixtures("ec2_url")
def test_instances_are_listed_with_their_studies_and_leases() -> None:
    launch("one")
    launch("two", -2 * LEASE_S)
    rows = list_ec2()
    assert sorted((row["study"], row["is_expired"], row["instance"]) for row in rows) == [
        ("one", False, "c5.large"),
        ("two", True, "c5.large"),
    ]
    shown = invoke("ls", "--provider", "ec2").stdout
    assert "headwater cluster sweep" in shown
    assert "over" in shown
    assert [row["study"] for row in list_ec2("--study", "one")] == ["one"]


@pytest.mark.usefixtures("ec2_url")
def test_a_sweep_ends_what_is_over_and_stop_what_is_named() -> None:
    launch("one")
    launch("two", -2 * LEASE_S)
    launch("three")
    ended = json.loads(invoke("sweep", "--json").stdout)["ended"]
    assert [row["study"] for row in ended] == ["two"]
    assert invoke("stop", "--study", "three").exit_code == 0
    assert [row["study"] for row in list_ec2()] == ["one"]
    assert invoke("stop", "--all", "--provider", "ec2").exit_code == 0
    assert list_ec2() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["burn"], "give one of ls, stop, sweep"),
        (["ls", "--provider", "gcp"], "it must be one of local, ec2"),
        (["stop"], "say whose with --study NAME, or --all"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.fixture
def local_study() -> Iterator[str]:
    study = f"listed-{uuid4().hex[:8]}"
    cluster = LocalCluster()
    try:
        cluster.start(study)
        cluster.launch(1)
        yield study
    finally:
        cluster.close()


@pytest.mark.timeout(300)
def test_raylets_of_this_machine_are_listed_and_ended(local_study: str) -> None:
    pytest.importorskip("ray")
    chosen = ("--provider", "local", "--study", local_study)
    rows = json.loads(invoke("ls", *chosen, "--json").stdout)["nodes"]
    assert [row["node"].split("-")[0].split("@")[0] for row in rows] == ["head", "local"]
    assert invoke("stop", *chosen).exit_code == 0
    await_truth(lambda: list_local_nodes(local_study) == [])
