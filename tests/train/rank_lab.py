"""What the tests of ranks share: tasks, and processes to do them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.train.engines import LaneState
from headwater.trials import Ending, Report

TIMEOUT_S = 400
"""Some twenty times what all tasks take on an idle machine."""


@dataclass(frozen=True, slots=True)
class Task:
    """A training function by its name, and by how many ranks it is trained."""

    function: str
    num_ranks: int
    micro_batches: int = 1
    until: int | None = None
    """After which epoch the trial pauses; its state is then where the next task finds it."""
    states: str = ""
    """The folder of states to go on from, and to leave one in."""


@dataclass(frozen=True, slots=True)
class Done:
    """What one rank has of a task."""

    task: Task
    ending: Ending
    history: list[Report]
    state: LaneState | None


def train_together(tasks: Sequence[Task], folder: Path) -> dict[tuple[int, Task], Done]:
    """Do tasks in processes; return what each rank has of each."""
    (folder / "tasks").write_bytes(pickle.dumps(list(tasks)))
    num_ranks = max(task.num_ranks for task in tasks)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.train.rank_worker"]
    workers = [subprocess.Popen([*command, str(rank), str(folder)], env=environment) for rank in range(num_ranks)]
    try:
        codes = [worker.wait(TIMEOUT_S) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert codes == [0] * num_ranks
    files = [pickle.loads((folder / f"done-{rank}").read_bytes()) for rank in range(num_ranks)]
    return {(rank, done.task): done for rank, found in enumerate(files) for done in found}
