"""Studies on a Slurm cluster: two real nodes on this machine, as .ci/with_slurm starts them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.execute.clusters import await_truth
from tests.execute.lab import STUDY, assert_same, train
from tests.spans import assert_no_overlap

import headwater as hw
from headwater.errors import StudyError
from headwater.report import Callback
from headwater.trials import Report, Result

NUM_TRIALS = 6
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


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[hw.SlurmExecutor]:
    options = {"output": str(tmp_path / "slurm-%a.out")}
    yield hw.SlurmExecutor(max_workers=2, options=options, listen="127.0.0.1:0", key_file=tmp_path / "key")
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
    def tell_time() -> None:
        (first, *_) = list_jobs()
        ask("scancel", "--batch", "--signal=USR1", first)  # as Slurm does before the end

    study = replace(STUDY, train=train_on_node, lanes=1, executor=executor, storage=tmp_path / "s.db")
    result = replace(study, callbacks=[AtReport(3, tell_time)]).run(num_trials=NUM_TRIALS)
    assert "asked to leave" in "".join(path.read_text() for path in tmp_path.glob("slurm-*.out"))
    assert_same(result, plain, tolerance=0.0)
    assert result.num_lane_steps == plain.num_lane_steps
    assert_no_overlap(tmp_path / "s.db")


@needs_slurm
def test_jobs_that_all_end_without_joining_end_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.execute.slurm_executor.LOOK_EVERY_S", 0.2)
    executor = hw.SlurmExecutor(
        max_workers=1, options={"output": "/dev/null"}, listen="127.0.0.1:0", key_file=tmp_path / "key"
    )
    study = replace(STUDY, executor=executor)
    executor.list_devices()
    (tmp_path / "key").chmod(0o644)  # which the worker refuses
    with pytest.raises(StudyError, match="all jobs of the Slurm array"):
        study.run(num_trials=1)


@needs_slurm
def test_what_slurm_refuses_is_told(tmp_path: Path) -> None:
    executor = hw.SlurmExecutor("no-such-partition", listen="127.0.0.1:0", key_file=tmp_path / "key")
    with pytest.raises(StudyError, match="partition"):
        replace(STUDY, executor=executor).run(num_trials=1)


def test_where_slurm_is_not_the_study_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    executor = hw.SlurmExecutor(listen="127.0.0.1:0", key_file=tmp_path / "key")
    with pytest.raises(StudyError, match="sbatch is not on this machine"):
        replace(STUDY, executor=executor).run(num_trials=1)


def test_a_job_runs_a_worker_that_joins_this_study(tmp_path: Path) -> None:
    executor = hw.SlurmExecutor(gres="gpu:1", listen="127.0.0.1:0", key_file=tmp_path / "key")
    script = executor.write_script()
    executor.close()
    assert f"--key-file {tmp_path / 'key'} --device cuda" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
