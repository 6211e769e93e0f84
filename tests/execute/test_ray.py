"""What a user sees of a study does not depend on Ray, nor on what dies on a cluster of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.execute.calling import python_environment
from tests.execute.clusters import add_node, await_truth, count_reserved, open_cluster
from tests.execute.lab import StayingExecutor
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.errors import StudyError
from headwater.report import Callback
from headwater.trials import Report, Result, Status

ray: Any = pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(400)

torch.manual_seed(0)
LARGE = torch.randn(2000, 6, dtype=torch.float64)


def train(trial: hw.Trial) -> None:
    """Add to the data that it was sent, which nobody else may notice."""
    model = trial.prepare_model(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3)).double())
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
    targets = LARGE.sum(1).gt(0).long()
    for _ in trial.epochs(9):
        for start in range(0, 2000, 500):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(LARGE[start : start + 500]), targets[start : start + 500])
            loss.backward()
            optimizer.step()
        trial.report(loss=loss)


STUDY = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-3, 0.5)},
    metric="loss",
    storage=None,
    lanes=4,
    max_epochs=9,
    packing=None,
    executor="inline",
)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the nodes of this module have their copies of data files."""
    return tmp_path_factory.mktemp("copies")


@pytest.fixture(scope="module")
def cluster(copies: Path) -> Iterator[Any]:
    with open_cluster(copies) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def executor(cluster: Any, copies: Path) -> Iterator[StayingExecutor]:
    executor = StayingExecutor(hw.RayExecutor())
    yield executor
    executor.end()
    await_truth(lambda: count_reserved() == 0)  # Ray gives them back in its own time
    assert not list(copies.glob("headwater-copies-*/*"))


def assert_same(first: Result, second: Result, lanes: int) -> None:
    assert all(trial.status is not Status.FAILED for trial in second.trials)
    for mine, other in zip(first.trials, second.trials, strict=True):
        assert (mine.number, mine.status, mine.epochs) == (other.number, other.status, other.epochs)
        assert mine.config == other.config
        values, wanted = ([report.metrics["loss"] for report in trial.history] for trial in (mine, other))
        assert values == (wanted if lanes == 1 else pytest.approx(wanted, rel=1e-9))


class After(Callback):
    """Does something once, after so many reports, as soon as it can be done."""

    def __init__(self, num_reports: int, act: Callable[[], bool | None]) -> None:
        self.is_done = False
        self._num_left = num_reports
        self._act = act

    def on_reports(self, reports: Sequence[Report]) -> None:
        self._num_left -= 1
        if self._num_left <= 0 and not self.is_done:
            self.is_done = self._act() is not False


def test_the_best_model_comes_back(executor: StayingExecutor, tmp_path: Path) -> None:
    study = replace(STUDY, storage=tmp_path / "study.db", lanes=1)
    there = replace(study, executor=executor, name="there").run(num_trials=2)
    here = replace(study, name="here").run(num_trials=2)
    for mine, other in zip(there.load_best_model().parameters(), here.load_best_model().parameters(), strict=True):
        assert torch.equal(mine, other)


def test_data_can_be_written_to_and_nobody_else_sees_it(executor: StayingExecutor) -> None:
    def spoil(trial: hw.Trial) -> None:
        before = LARGE.sum().item()
        LARGE.add_(1.0)
        trial.report(loss=before)

    study = replace(STUDY, train=spoil, space={"lr": hw.uniform(0.0, 1.0)}, executor=executor)
    first = study.run(num_trials=1)
    assert first.best.value("loss") == LARGE.sum().item()
    assert study.run(num_trials=1).best.value("loss") == LARGE.sum().item()


def test_what_is_wrong_with_the_study_ends_it_and_leaves_nothing(executor: StayingExecutor) -> None:
    with pytest.raises(StudyError, match="'loss'"):
        replace(STUDY, metric="accuracy", executor=executor).run(num_trials=2)
    await_truth(lambda: count_reserved() == 0)


def test_the_target_of_a_surrogate_study_trains_on_both_nodes_as_ranks(
    executor: StayingExecutor, tmp_path: Path
) -> None:
    def wide(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2)).double())
        loader = trial.prepare_data_loader(TensorDataset(LARGE, LARGE.sum(1).gt(0).long()), batch_size=500)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        (tmp_path / str(os.getpid())).touch()
        for _ in trial.epochs(2):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            trial.report(loss=loss)

    surrogate = hw.Surrogate(scale=4, spread="ranks")
    study = replace(STUDY, train=wide, surrogate=surrogate, lanes=2, max_epochs=2, executor="inline")
    there = replace(study, executor=executor).run(num_trials=4)
    assert len([*tmp_path.iterdir()]) == 2
    here = study.run(num_trials=4)
    assert there.best.config == here.best.config
    assert there.best.value("loss") == pytest.approx(here.best.value("loss"), rel=1e-9)


def leave_pid(folder: Path) -> Callable[[hw.Trial], None]:
    """Return a training function that leaves the number of its process in a folder while it trains."""

    def train_there(trial: hw.Trial) -> None:
        file = folder / str(os.getpid())
        file.touch()
        try:
            train(trial)
        finally:
            file.unlink()

    return train_there


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_worker_that_is_killed_changes_nothing(executor: StayingExecutor, tmp_path: Path, lanes: int) -> None:
    def kill_one() -> bool:
        pids = [int(file.name) for file in tmp_path.iterdir()]
        for pid in pids[:1]:
            os.kill(pid, signal.SIGKILL)
        return bool(pids)

    study = replace(STUDY, search="asha", train=leave_pid(tmp_path), lanes=lanes, save_every=1)
    faulty = After(5, kill_one)
    result = replace(study, executor=executor, callbacks=[faulty]).run(num_trials=12)
    assert faulty.is_done
    assert_same(result, study.run(num_trials=12), lanes)


def test_a_worker_that_is_killed_counts_as_out_of_memory(executor: StayingExecutor) -> None:
    here, most_lanes = os.getpid(), 2

    def hunted(trial: hw.Trial) -> None:
        """Be killed, as Linux does, where there are too many lanes for a process that is not here."""
        if len(trial.lanes) > most_lanes and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        train(trial)

    study = replace(STUDY, train=hunted)
    result = replace(study, executor=executor).run(num_trials=12)
    notes = {note for trial in result.trials for note in trial.notes}
    assert any("in a group ran out of memory; at most 2 from now on" in note for note in notes)
    assert_same(result, study.run(num_trials=12), 4)


def test_a_node_that_dies_changes_nothing(executor: StayingExecutor, cluster: Any, tmp_path: Path) -> None:
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in cluster.list_all_nodes()}
    dead: list[int] = []

    def kill_node() -> bool:
        for worker in [file.name for file in tmp_path.iterdir()][:1]:
            dead.append(int(Path("/proc", worker, "stat").read_text().rpartition(")")[2].split()[1]))
            os.kill(dead[0], signal.SIGKILL)
        return bool(dead)

    study = replace(STUDY, lanes=1, search="asha", train=leave_pid(tmp_path))
    faulty = After(6, kill_node)
    result = replace(study, executor=executor, callbacks=[faulty]).run(num_trials=12)
    assert faulty.is_done
    assert_same(result, study.run(num_trials=12), 1)
    cluster.remove_node(raylets[dead[0]], allow_graceful=False)
    add_node(cluster)


def test_a_node_that_joins_is_used(executor: StayingExecutor, cluster: Any, tmp_path: Path) -> None:
    """The third trial can report only if a third worker runs it, while two wait for it."""
    all_reported = tmp_path / "all"

    def wait_for_all(trial: hw.Trial) -> None:
        trial.report(loss=1.0)
        await_truth(all_reported.exists)

    callbacks = [After(1, lambda: add_node(cluster)), After(3, all_reported.touch)]
    study = replace(STUDY, train=wait_for_all, lanes=1, save_every=None, executor=executor, callbacks=callbacks)
    result = study.run(num_trials=3)
    assert [trial.status for trial in result.trials] == [Status.COMPLETED] * 3


def test_nothing_outlives_a_study_that_is_killed(executor: StayingExecutor, cluster: Any, tmp_path: Path) -> None:
    executor.end()
    script = f"""
import os, headwater as hw
def train(trial):
    open({str(tmp_path)!r} + f"/{{os.getpid()}}", "w").close()
    for _ in trial.epochs(10**9):
        trial.report(loss=1.0)
hw.Study(train, space={{"lr": hw.uniform(0, 1)}}, metric="loss", storage=None, lanes=1,
         executor=hw.RayExecutor({cluster.address!r}, num_workers=1)).run(num_trials=1)
"""
    with subprocess.Popen([sys.executable, "-c", script], env=python_environment()) as study:
        try:
            await_truth(lambda: any(tmp_path.iterdir()))
            await_truth(lambda: count_reserved() == 1)
        finally:
            study.kill()
    await_truth(lambda: not any(Path("/proc", file.name).exists() for file in tmp_path.iterdir()))
    await_truth(lambda: count_reserved() == 0)


def test_a_cluster_of_its_own_ends_with_the_study(tmp_path: Path) -> None:
    script = f"""
import os
from pathlib import Path
import headwater as hw, ray
data = list(range(100))
def train(trial):
    Path({str(tmp_path)!r}, str(os.getpid())).touch()
    trial.report(loss=float(len(data)))
study = hw.Study(train, space={{"lr": hw.uniform(0, 1)}}, metric="loss", storage=None, executor="ray")
if __name__ == "__main__":
    print(study.run(num_trials=2).best.value("loss"), ray.is_initialized())
    children = Path(f"/proc/{{os.getpid()}}/task/{{os.getpid()}}/children").read_text().split()
    print(children)
"""
    file = tmp_path.with_suffix(".py")
    file.write_text(script)
    environment = {**python_environment(), "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(
        [sys.executable, str(file)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "100.0 False\n[]\n"
    assert any(tmp_path.iterdir())
    await_truth(lambda: not any(Path("/proc", file.name).exists() for file in tmp_path.iterdir()))


def test_the_absence_of_ray_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(StudyError, match=r"pip install 'headwater\[ray\]'"):
        replace(STUDY, executor="ray").run(num_trials=1)


def test_an_address_where_nothing_is_names_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(**settings: Any) -> None:
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", find_none)
    with pytest.raises(StudyError, match="no Ray cluster at 'auto': nobody answers; start one with `ray start --head`"):
        hw.RayExecutor("auto").list_devices()
