"""How much faster a step is on several ranks, each a process with one thread, and how well they use their cores.

Run `python benchmarks/ranks.py` on a machine with nothing else to do. The CPU time per step of all ranks, against that
of one process, says what dividing costs even on a busy machine; the wall time there says nothing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from measuring import heading
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.train.engines import LaneState
from headwater.train.ranks import RankGroup, Ranks
from headwater.train.running import TrainingSetup, run_group
from headwater.trials import Decision, Lane, Report, TrialGroup

NUM_WARM = 8
"""Steps that are not counted: the first and the eighth call are checked, and sizes of messages are learnt."""


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.layers(self.words(words)).mean(1))


def dense(width_in: int, width_out: int) -> list[nn.Module]:
    return [nn.Linear(width_in, width_out), nn.ReLU()]


def block(width_in: int, width_out: int) -> list[nn.Module]:
    return [nn.Conv2d(width_in, width_out, 3, padding=1), nn.BatchNorm2d(width_out), nn.ReLU(), nn.MaxPool2d(2)]


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "MLP, 3 x 1024": (
        lambda: nn.Sequential(*dense(256, 1024), *dense(1024, 1024), *dense(1024, 1024), nn.Linear(1024, 10)),
        lambda: torch.randn(2048, 256),
    ),
    "CNN with BatchNorm, 32-64-128": (
        lambda: nn.Sequential(*block(3, 32), *block(32, 64), *block(64, 128), nn.Flatten(), nn.Linear(2048, 10)),
        lambda: torch.randn(512, 3, 32, 32),
    ),
    "Transformer with dropout, 2 x 128, 64 words": (Words, lambda: torch.randint(1000, (512, 64))),
}  # fmt: skip
BATCH_SIZES = dict(zip(MODELS, (512, 64, 64), strict=True))


class Silent:
    def report(self, reports: Sequence[Report], capture: Callable[[int], LaneState | None]) -> list[Decision]:
        return [Decision.CONTINUE for _ in reports]

    def expect(self, num_epochs: int) -> None:
        pass

    def finish(self, reports: Any, capture: Any, *, goes_on: bool) -> None:
        pass

    def step(self, num_lanes: int) -> None:
        pass


def measure(name: str, num_steps: int, times: dict[str, float]) -> Callable[[hw.Trial], None]:
    def train(trial: hw.Trial) -> None:
        build, draw = MODELS[name]
        inputs = draw()
        data = TensorDataset(inputs, torch.arange(len(inputs)) % 10)
        loader = trial.prepare_data_loader(data, batch_size=BATCH_SIZES[name], shuffle=True, drop_last=True)
        model = trial.prepare_model(build())
        optimizer = trial.prepare_optimizer("SGD", model, lr=0.01, momentum=0.9)
        number = 0
        while number < NUM_WARM + num_steps:
            for x, y in loader:
                if number == NUM_WARM:
                    begin, begin_cpu = time.perf_counter(), time.process_time()
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                number += 1
                if number == NUM_WARM + num_steps:
                    break
        times["wall_ms"] = (time.perf_counter() - begin) / num_steps * 1e3
        times["cpu_ms"] = (time.process_time() - begin_cpu) / num_steps * 1e3
        trial.report(loss=0.0)

    return train


def work(name: str, num_steps: int, rank: int, num_ranks: int, meeting: str) -> None:
    """Be one rank, and print what it took."""
    group = RankGroup(Ranks(rank, num_ranks), meeting) if num_ranks > 1 else None
    times: dict[str, float] = {}
    lanes = (Lane(number=0, config={}, seed=0, start_epoch=0),)
    ending = run_group(TrainingSetup(measure(name, num_steps, times)), TrialGroup(lanes=lanes), Silent(), ranks=group)
    assert not ending.error, ending.error
    assert not ending.notes, ending.notes
    print(json.dumps(times))


def launch(name: str, num_steps: int, num_ranks: int) -> tuple[float, float]:
    """Return the wall time of a step, and the CPU time of all ranks together, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        options = [
            "--model",
            name,
            "--steps",
            str(num_steps),
            "--ranks",
            str(num_ranks),
            "--meeting",
            f"file://{folder}/all",
        ]
        commands = [[sys.executable, __file__, *options, "--rank", str(rank)] for rank in range(num_ranks)]
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        found: list[dict[str, Any]] = [json.loads(worker.communicate()[0]) for worker in workers]
    return max(times["wall_ms"] for times in found), sum(times["cpu_ms"] for times in found)


def show_rows(num_steps: int, num_runs: int, counts: Sequence[int]) -> Iterator[str]:
    """Yield the rows of the table, those of a model when it is done; the first of the counts must be 1."""
    head = ["model, batch size", "ranks", "wall ms per step", "speed-up", "efficiency", "CPU ms of all", "against one"]
    yield f"| {' | '.join(head)} |\n{'|---' * len(head)}|"
    for name in MODELS:
        runs = [{count: launch(name, num_steps, count) for count in counts} for _ in range(num_runs)]
        medians = {
            count: [statistics.median(run[count][place] for run in runs) for place in (0, 1)] for count in counts
        }
        wall_1, cpu_1 = medians[1]
        for count, (wall, cpu) in medians.items():
            speed = wall_1 / wall
            numbers = (
                f"{count}",
                f"{wall:.1f}",
                f"{speed:.2f}",
                f"{speed / count:.0%}",
                f"{cpu:.1f}",
                f"{cpu / cpu_1:.2f}",
            )
            yield f"| {name}, {BATCH_SIZES[name]} | {' | '.join(numbers)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rank", type=int, help="be this rank; what the benchmark itself calls")
    parser.add_argument("--model", choices=list(MODELS))
    parser.add_argument("--meeting", type=str, default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.rank is not None:
        work(options.model, options.steps, options.rank, options.ranks[0], options.meeting)
        return
    print(heading("A trial on several ranks"))
    print(f"Medians of {options.runs} interleaved runs of {options.steps} steps; one thread per rank, gloo; the load")
    print(f"was {os.getloadavg()[0]:.1f} at the beginning.\n", flush=True)
    for row in show_rows(options.steps, options.runs, options.ranks):
        print(row, flush=True)


if __name__ == "__main__":
    main()
