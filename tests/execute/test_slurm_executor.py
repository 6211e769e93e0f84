"""Studies on a Slurm cluster: two real nodes on this machine, as .ci/with_slurm starts them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.execute.clusters import STORE_BYTES, await_truth
from tests.execute.lab import STUDY, assert_same, train
from tests.spans import assert_no_overlap

import headwater as hw
from headwater.cloud.protocol import NodeState
from headwater.cloud.slurm import SlurmCluster
from headwater.errors import StudyError
from headwater.report import Callback
from headwater.trials import Report, Result

NUM_TRIALS = 6
LATER = {"begin": "now+1hour", "output": "/dev/null"}
"""Options of jobs that wait."""
HAS_SLURM = "SLURM_CONF" in os.environ and shutil.which("sbatch") is not None
needs_slurm = pytest.mark.skipif(
    not HAS_SLURM and os.environ.get("CI") != "true", reason="no Slurm is here; run .ci/with_slurm pytest"
)


def ask(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def list_jobs() -> dict[str, str]:
    """Return the jobs that have not ended, with their nodes."""
    lines = ask("squeue", "--noheader", "--array", "--format=%A|%N|%T").splitlines()
    return {job: node for job, node, state in (line.split("|") for line in lines) if state != "COMPLETING"}


def list_children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [process for child in map(int, found) for process in (child, *list_children(child))]


def kill_node(node: str) -> None:
    """End a node as if it had lost its power: its daemon, and all that its jobs have started."""
    folder = Path(os.environ["SLURM_CONF"]).parent
    daemon = int((folder / f"slurmd-{node}.pid").read_text())
    steps = [int(pid) for pid in ask("pgrep", "-f", "slurmstepd: .*").split()]
    of_node = [pid for pid in steps if f"spool-{node}" in str(Path(f"/proc/{pid}/cwd").resolve()) or _names(pid, node)]
    os.kill(daemon, signal.SIGKILL)
    for pid in [process for step in of_node for process in (*list_children(step), step)]:
        os.kill(pid, signal.SIGKILL)


def _names(pid: int, node: str) -> bool:
    return any(_read_environment(child).get("SLURMD_NODENAME") == node for child in list_children(pid))


def _read_environment(pid: int) -> dict[str, str]:
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def start_node(node: str) -> None:
    """Start the daemon of a node again; it ends with the cluster."""
    subprocess.run(["slurmd", "-N", node], check=True)
    await_truth(lambda: ask("sinfo", "--noheader", "--nodes", node, "--format=%t").strip() == "idle")


class AtReport(Callback):
    """Does something once, when so many reports have come."""

    def __init__(self, num_left: int, act: Callable[[], None]) -> None:
        self._num_left = num_left
        self._act = act

    def on_reports(self, reports: Sequence[Report]) -> None:
        self._num_left -= 1
        if self._num_left == 0:
            self._act()


def train_on_node(trial: hw.Trial) -> None:
    """Train, and say on which node."""
    report = trial.report
    node = float(os.environ["SLURMD_NODENAME"].removeprefix("n"))
    trial.report = lambda **metrics: report(node=node, **metrics)  # type: ignore[method-assign]
    train(trial)


def list_nodes(result: Result) -> set[float]:
    return {report.metrics["node"] for trial in result.trials for report in trial.history}


def make_executor(partition: str | None = None, **settings: Any) -> hw.SlurmExecutor:
    return hw.SlurmExecutor(partition, listen="127.0.0.1:0", store_bytes=STORE_BYTES, **settings)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[hw.SlurmExecutor]:
    options = {"output": str(tmp_path / "slurm-%a.out")}
    yield make_executor(max_workers=2, options=options)
    if HAS_SLURM:
        await_truth(lambda: list_jobs() == {})


@pytest.fixture(scope="module")
def plain() -> Result:
    return replace(STUDY, lanes=1).run(num_trials=NUM_TRIALS)


@needs_slurm
@pytest.mark.timeout(600)
def test_a_study_with_a_requeue_and_a_node_that_dies_comes_to_the_same(
    executor: hw.SlurmExecutor, tmp_path: Path, plain: Result
) -> None:
    requeued: list[str] = []

    def requeue_one() -> None:
        requeued.extend([job for job, node in list_jobs().items() if node == "n1"])
        ask("scontrol", "requeue", *requeued)

    steps = [AtReport(3, requeue_one), AtReport(12, lambda: kill_node("n2"))]
    study = replace(STUDY, train=train_on_node, lanes=1, executor=executor, storage=tmp_path / "s.db", callbacks=steps)
    try:
        result = study.run(num_trials=NUM_TRIALS)
    finally:
        start_node("n2")
    assert len(requeued) == 1
    assert list_nodes(result) == {1.0, 2.0}
    assert_same(result, plain, tolerance=0.0)
    assert_no_overlap(tmp_path / "s.db")


@needs_slurm
@pytest.mark.timeout(600)
def test_a_job_whose_time_is_over_leaves_with_everything_saved_and_is_queued_again(
    executor: hw.SlurmExecutor, tmp_path: Path, plain: Result
) -> None:
    flag = tmp_path / "queued again"

    def await_requeue() -> None:
        await_truth(lambda: "1" in ask("squeue", "--noheader", "--array", "--Format=RestartCnt").split())
        flag.touch()

    def tell_time() -> None:
        (first, *_) = list_jobs()
        ask("scancel", "--batch", "--signal=USR1", first)  # as Slurm does before the end
        watching.start()

    def train_last_after_requeue(trial: hw.Trial) -> None:
        if trial.number == NUM_TRIALS - 1:  # it starts after the signal, on the node that stays
            await_truth(flag.exists)
        train_on_node(trial)

    watching = threading.Thread(target=await_requeue)
    study = replace(STUDY, train=train_last_after_requeue, lanes=1, executor=executor, storage=tmp_path / "s.db")
    result = replace(study, callbacks=[AtReport(3, tell_time)]).run(num_trials=NUM_TRIALS)
    watching.join()
    assert "Local node finished draining" in "".join(path.read_text() for path in tmp_path.glob("slurm-*.out"))
    assert_same(result, plain, tolerance=0.0)
    assert result.num_lane_steps == plain.num_lane_steps
    assert_no_overlap(tmp_path / "s.db")


@needs_slurm
def test_jobs_that_all_end_at_once_end_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.cloud.slurm.LOOK_EVERY_S", 0.2)
    monkeypatch.setattr("headwater.cloud.slurm.SCRIPT", "#!/bin/bash\nexit 1\n")
    executor = make_executor(max_workers=1, options={"output": "/dev/null"})
    with pytest.raises(StudyError, match="3 jobs of Slurm in a row have ended within 60 s"):
        replace(STUDY, executor=executor).run(num_trials=1)


@needs_slurm
def test_a_job_that_waits_is_a_node_in_the_queue_and_a_cancelled_one_is_none() -> None:
    cluster = SlurmCluster(listen="127.0.0.1:0", store_bytes=STORE_BYTES, options=LATER)
    cluster.start("held")
    try:
        cluster.launch(2)
        first, second = cluster.list_nodes()
        assert {first.state, second.state} == {NodeState.QUEUED}
        assert (first.study, first.num_devices) == ("held", 1)
        cluster.release([first])
        assert [node.id for node in cluster.list_nodes()] == [second.id]
        assert len(list_jobs()) == 1
    finally:
        cluster.close()
    await_truth(lambda: list_jobs() == {})


@needs_slurm
def test_a_study_whose_jobs_wait_ends_when_its_time_is_over() -> None:
    study = replace(STUDY, executor=make_executor(options=LATER))
    result = study.run(num_trials=NUM_TRIALS, time_budget=0.5)
    assert "time budget" in str(result.ended_early)
    assert list_jobs() == {}


@needs_slurm
def test_nobody_without_the_token_of_the_study_gets_onto_its_cluster() -> None:
    cluster = SlurmCluster(listen="127.0.0.1:0", store_bytes=STORE_BYTES)
    address = cluster.start("private")
    try:
        script = "import ray, sys; ray.init(address=sys.argv[1], logging_level='ERROR')"
        stranger = {**os.environ, "RAY_AUTH_TOKEN": "0" * 64, "RAY_gcs_rpc_server_reconnect_timeout_s": "1"}
        command = [sys.executable, "-c", script, address]
        refused = subprocess.run(command, env=stranger, capture_output=True, text=True, check=False)
        assert refused.returncode != 0
        known = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, check=False)
        assert known.returncode == 0, known.stderr
    finally:
        cluster.close()
    assert "RAY_AUTH_TOKEN" not in os.environ


@needs_slurm
def test_what_slurm_refuses_is_told() -> None:
    with pytest.raises(StudyError, match="partition"):
        replace(STUDY, executor=make_executor("no-such-partition")).run(num_trials=1)


def test_where_slurm_is_not_the_study_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StudyError, match="sbatch is not on this machine"):
        replace(STUDY, executor=make_executor()).run(num_trials=1)


@pytest.mark.parametrize(
    ("gres", "option"), [(None, "--num-cpus=1"), ("gpu", "--num-gpus=1"), ("gpu:a100:2", "--num-gpus=2")]
)
def test_a_job_starts_a_node_with_the_devices_that_it_has(
    gres: str | None, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    cluster = SlurmCluster(gres=gres, listen="127.0.0.1:0", store_bytes=STORE_BYTES)
    address = cluster.start("small")
    try:
        script = cluster.write_script()
    finally:
        cluster.close()
    assert f"--address={address} {option} " in script
    assert cluster.kind == ("cpu" if gres is None else "cuda")
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize("listen", ["nowhere", "no.such.host.invalid:0", "127.0.0.1:port"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(StudyError, match="must be HOST:PORT"):
        SlurmCluster(listen=listen)
