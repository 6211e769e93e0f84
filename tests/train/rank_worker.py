"""One rank, as a process: `python -m tests.train.rank_worker RANK FOLDER` trains what the tests ask for."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import torch
from tests.train import rank_tasks
from tests.train.lab import Notebook, open_lanes
from tests.train.rank_lab import Done, Task

from headwater.devices import count_devices, find_accelerator
from headwater.store import StateFiles
from headwater.train.ranks import RankGroup, Ranks
from headwater.train.running import TrainingSetup, run_group
from headwater.train.state_store import StateStore
from headwater.trials import Decision, Outcome, StatesPlace, TrialGroup


def work(rank: int, folder: Path) -> None:
    """Do all tasks in which this rank takes part, one after the other."""
    tasks: list[Task] = pickle.loads((folder / "tasks").read_bytes())
    done = [_train(task, rank, folder, f"meeting-{place}") for place, task in enumerate(tasks) if rank < task.num_ranks]
    with (folder / f"done-{rank}").open("wb") as file:
        _HostPickler(file).dump(done)


def _train(task: Task, rank: int, folder: Path, meeting: str) -> Done:
    device = _choose_device(rank)
    group = RankGroup(Ranks(rank, task.num_ranks), f"file://{folder / meeting}", device=device, timeout_s=60)
    place = StatesPlace(url=str(folder / (task.states or "none")), study="ranks")
    files, store = StateFiles(place), StateStore(place)
    states = [store.load(0, files.find_epoch(0, 99))] if 0 in files else None
    control = Notebook(lambda report: Decision.PAUSE if report.epoch == task.until else Decision.CONTINUE)
    lanes = open_lanes({0: {}}, states[0].epoch if states else 0)
    function = dict(rank_tasks.every_function())[task.function]
    setup = TrainingSetup(function, device=device, micro_batches=task.micro_batches)
    ending = run_group(setup, TrialGroup(lanes=lanes), control, states, ranks=group)
    if control.states and task.until:
        store.put(0, control.states[0])
    group.gather_numbers(0) if ending.outcome is Outcome.DONE else None  # until the state is there for all
    group.close()
    return Done(task, ending, control.reports, control.states.get(0))


class _HostPickler(pickle.Pickler):
    """Pickles tensors of devices as tensors of the host: torch takes the memory of an unknown device for the host's."""

    def reducer_override(self, value: Any) -> Any:
        is_elsewhere = isinstance(value, torch.Tensor) and value.device.type != "cpu"
        return value.cpu().__reduce_ex__(pickle.DEFAULT_PROTOCOL) if is_elsewhere else NotImplemented


def _choose_device(rank: int) -> torch.device:
    """Return the CPU, or where there are accelerators one of them."""
    accelerator = find_accelerator()
    return torch.device("cpu") if accelerator is None else torch.device(accelerator.type, rank % count_devices())


if __name__ == "__main__":
    torch.set_num_threads(1)
    work(int(sys.argv[1]), Path(sys.argv[2]))
