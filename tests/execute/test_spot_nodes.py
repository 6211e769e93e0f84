"""Spot nodes that are really taken back: raylets that are told of their end, and killed."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.execute.lab import assert_same
from tests.execute.test_elastic import JOB, REPLACED, train_in

import headwater as hw
from headwater.cloud.local_cluster import LocalCluster, list_local_nodes
from headwater.cloud.protocol import Node
from headwater.cloud.spot_rule import AWAY_S
from headwater.plan.jobs import EpochSeconds
from headwater.plan.spot_history import read_history
from headwater.report import Callback
from headwater.search.halving import SHA
from headwater.store import open_store
from headwater.trials import Report

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(500)

NAME = "spot-run"
SPOT = replace(JOB.instance, dollars_per_hour=9.0, is_spot=True, on_demand_dollars_per_hour=36.0)
SPOT_JOB = replace(JOB, instance=SPOT, epoch_seconds=EpochSeconds(by_devices={1: 600.0}))
DEADLINE_S = 7500.0
"""Two nodes for two stages are the cheapest that come up to it, with a quarter of an hour to spare."""


class LateClock:
    """The time, from some moment on so much later that a run is behind."""

    def __init__(self) -> None:
        self.offset_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.offset_s


class SpotCluster:
    """Spot nodes of this machine, of which there are no more from some moment on, or until some were refused."""

    def __init__(
        self, folder: Path, clock: LateClock, *, is_drained: bool = False, back_after: int | None = None
    ) -> None:
        self.launches: list[tuple[int, bool]] = []
        self.has_spot = True
        self.told: str | None = None
        self.num_refused = 0
        self._num_looks = 0
        """How often was looked since some were refused."""
        self._clock = clock
        self._back_after = back_after
        self._mark = folder / REPLACED
        self._is_drained = is_drained
        self._cluster = LocalCluster(is_spot=True, clock=clock)
        self.start, self.close, self.release = self._cluster.start, self._cluster.close, self._cluster.release

    def list_nodes(self) -> list[Node]:
        """Return what lives; what waits goes on when there are others, or when who was told of its end is dead."""
        nodes = self._cluster.list_nodes()
        self._num_looks += 1
        if self.num_refused and self._num_looks == 2:
            self._clock.offset_s += AWAY_S  # after which they are asked for again
        if self.told and (self._is_drained or self.told not in [node.id for node in nodes]) and len(self.launches) > 1:
            self._mark.touch()
        return nodes

    def launch(self, count: int, *, on_demand: bool = False) -> int:
        if not on_demand and not self.has_spot:
            self.num_refused += 1
            self.has_spot = self.num_refused == self._back_after
            self._num_looks = 0
            return 0
        self.launches.append((count, on_demand))
        return self._cluster.launch(count, on_demand=on_demand)

    def interrupt(self) -> None:
        """Take a node back, after a minute in which it can be left, or at once."""
        self.told = self._cluster.list_nodes()[0].id
        self._cluster.interrupt(self.told, 60.0 if self._is_drained else 0.0)


class TakeNode(Callback):
    """Takes a node back in the middle of the second stage, when no other spot node is to be had and the run is late."""

    def __init__(self, cluster: SpotCluster, clock: LateClock, late_s: float = DEADLINE_S) -> None:
        self._cluster, self._clock, self._late_s = cluster, clock, late_s

    def on_reports(self, reports: Sequence[Report]) -> None:
        if reports[0].epoch == 2 and self._cluster.told is None:
            self._cluster.has_spot = False
            self._clock.offset_s = self._late_s
            self._cluster.interrupt()


def make_study(place: Path, folder: Path, executor: hw.ElasticExecutor, taker: TakeNode) -> hw.Study:
    return hw.Study(
        train_in(folder),
        space={"lr": hw.loguniform(1e-3, 0.5)},
        metric="loss",
        search=SHA(reduction=3),
        storage=place / "study.db",
        name=NAME,
        lanes=1,
        packing=None,
        max_epochs=9,
        executor=executor,
        callbacks=[taker],
    )


def read_notes(place: Path) -> list[str]:
    with open_store(place / "study.db", create=False) as store:
        return [note.text for note in store.notes(store.study(NAME).id)]


@pytest.mark.parametrize("is_drained", [True, False])
def test_spot_nodes_that_are_taken_back_give_way_to_ones_on_demand(tmp_path: Path, *, is_drained: bool) -> None:
    folder, clock = tmp_path / "processes", LateClock()
    folder.mkdir()
    cluster = SpotCluster(tmp_path, clock, is_drained=is_drained)
    executor = hw.ElasticExecutor(cluster, SPOT_JOB, deadline_s=DEADLINE_S, clock=clock)
    study = make_study(tmp_path, folder, executor, TakeNode(cluster, clock))
    assert executor.plan is not None
    assert executor.plan.instances == (2, 2, 1)
    result = study.run(num_trials=6)
    assert cluster.launches[:2] == [(2, False), (2, True)], "nothing is left to chance any more"
    assert list_local_nodes(NAME) == []
    plain = replace(study, executor="inline", storage=None, callbacks=())
    assert_same(result, plain.run(num_trials=6), tolerance=0.0)
    spending = result.spending
    assert spending is not None
    assert spending.num_lost == 1
    assert spending.spot_dollars is not None
    assert 0 < spending.spot_dollars < spending.cost_dollars
    notes = read_notes(tmp_path)
    assert "no time is left for the loss of a spot node: all nodes are on demand from now on" in notes
    assert any("will be taken back" in note for note in notes) or not is_drained


def test_a_run_that_knows_that_spot_nodes_are_soon_back_waits_for_them_where_it_would_have_paid(tmp_path: Path) -> None:
    folder, clock, past = tmp_path / "processes", LateClock(), tmp_path / "past.json"
    folder.mkdir()
    past.write_text(json.dumps({"metadata": {"gap_seconds": 60}, "data": ([2] * 20 + [1, 0]) * 50}))
    cluster = SpotCluster(tmp_path, clock, back_after=3)
    job = replace(SPOT_JOB, instance=replace(SPOT, spot_history=read_history(past)))
    executor = hw.ElasticExecutor(cluster, job, deadline_s=8200.0, clock=clock)
    study = make_study(tmp_path, folder, executor, TakeNode(cluster, clock, late_s=3050.0))
    assert executor.plan is not None
    assert executor.plan.instances == (2, 2, 1)
    result = study.run(num_trials=6)
    assert cluster.num_refused == 3
    assert cluster.launches == [(2, False), (1, False)], "an even pace would have had one on demand"
    assert list_local_nodes(NAME) == []
    plain = replace(study, executor="inline", storage=None, callbacks=())
    assert_same(result, plain.run(num_trials=6), tolerance=0.0)
    spending = result.spending
    assert spending is not None
    assert spending.num_lost == 1
    assert spending.spot_dollars == spending.cost_dollars
    told = "spot nodes are chosen by odds: 2 instances at once could be had in 1000 of 1100 steps of 60 s"
    notes = read_notes(tmp_path)
    assert sum(note.startswith(told) for note in notes) == 1
    assert "the run is early enough to wait for spot nodes" in notes
