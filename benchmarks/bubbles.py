"""What do trials in the bubbles of a pipeline cost the pipeline, and how fast are they?

Run `python benchmarks/bubbles.py` on a machine with two cores and nothing else to do: about two minutes. A real
training in two 1F1B stages over gloo, each on a core of its own, lends its bubbles, and a real study trains there.
Blocks of steps with and without the study alternate inside of one run, in random order, and are compared in pairs. The
control is the same study as `executor="processes"` would run it, on the same cores; it must fail the bound that bubbles
keep. The study's own process runs beside both. `--sessions` starts the stages in sessions of their own, as
torchrun does.

`--paper` prints what a study with one GPU of its own and the bubbles of 32 others would gain, by simulation.
"""

import argparse
import json
import math
import mmap
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import measuring

import headwater as hw

BOUND = 1.02
WIDTH = 512
NUM_LAYERS = 4
BATCH = 512
NUM_MICRO_BATCHES = 4
CONTROL_EVERY = 5
"""Of so many pairs, one has a control beside it."""
NUM_CHECKED = 50
"""So many steps are trained again without anybody beside them, to compare the losses."""


def train_stage(rank: int, meeting: str, folder: str) -> None:
    """Train one stage of the pipeline: as many steps as each line of the standard input says."""
    os.sched_setaffinity(0, {rank})
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    layers = nn.Sequential(*(layer for _ in range(NUM_LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))
    stage = PipelineStage(layers, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, NUM_MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(0)
    with hw.lend_bubbles(schedule, folder) if folder else nullcontext() as lending:
        for line in sys.stdin:
            times, losses = [], []
            waited_s = 0.0 if lending is None else lending.state.stalled_s
            for _ in range(int(line)):
                x, y = torch.randn(2, BATCH, WIDTH, generator=data)
                begin = time.perf_counter()
                found: list[torch.Tensor] = []
                optimizer.zero_grad()
                if rank == 0:
                    schedule.step(x)
                else:
                    schedule.step(target=y, losses=found)
                optimizer.step()
                times.append(time.perf_counter() - begin)
                losses += [loss.item().hex() for loss in found]
            share = 0.0 if lending is None else (lending.state.stalled_s - waited_s) / sum(times)
            print(json.dumps({"times": times, "losses": losses, "share": share}), flush=True)
    dist.destroy_process_group()


class Pipeline:
    """Two stages, each a process, that take steps when they are told to."""

    def __init__(self, folder: Path, *, lends: bool, has_sessions: bool) -> None:
        bubbles = str(folder / "bubbles") if lends else ""
        meeting = tempfile.mktemp(dir=folder)  # the stages make it
        self._stages = [
            subprocess.Popen(
                [sys.executable, __file__, "--stage", str(rank), "--meeting", meeting, "--folder", bubbles],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=has_sessions,
            )
            for rank in range(2)
        ]
        self.losses: list[str] = []
        self.shares: list[float] = [0.0, 0.0]

    def take(self, num_steps: int) -> float:
        """Take so many steps, and return how long one took."""
        for stage in self._stages:
            assert stage.stdin is not None
            stage.stdin.write(f"{num_steps}\n")
            stage.stdin.flush()
        said = [json.loads(stage.stdout.readline()) for stage in self._stages if stage.stdout is not None]
        self.losses += said[1]["losses"]
        self.shares = [one["share"] for one in said]
        return float(sum(said[0]["times"]) / num_steps)

    def close(self) -> None:
        """Let both come to their ends."""
        for stage in self._stages:
            assert stage.stdin is not None
            stage.stdin.close()
        for stage in self._stages:
            stage.wait()


def train_filler(trial: hw.Trial, folder: str) -> None:
    """Train a small network, and count its steps where others can see them."""
    import torch
    from torch import nn

    inputs, labels = torch.randn(64, 64), torch.randint(10, (64,))
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    path = Path(folder) / f"steps-{os.getpid()}"
    with path.open("w+b") as file:
        file.write(bytes(8))
        file.flush()
        with mmap.mmap(file.fileno(), 8) as counter:
            num_steps = 0
            for _ in trial.epochs(100_000):
                for _ in range(2000):
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(model(inputs), labels)
                    loss.backward()
                    optimizer.step()
                    num_steps += 1
                    struct.pack_into("<Q", counter, 0, num_steps)
                trial.report(loss=loss)


def run_study(folder: str, bubbles: str) -> None:
    """Run a study until it is killed: in bubbles, or as any study on two cores."""
    executor = hw.ProcessExecutor(0, bubbles=bubbles) if bubbles else hw.ProcessExecutor(2)
    study = hw.Study(
        partial(train_filler, folder=folder), space={"lr": hw.loguniform(1e-3, 0.1)}, metric="loss", lanes=1,
        executor=executor, storage=Path(folder) / "record.db", packing=None, allocation="fifo",
    )  # fmt: skip
    study.run(num_trials=2, watcher=hw.Silence())


class Fillers:
    """A study beside the pipeline, whose workers are stopped but for the blocks in which they are to train."""

    def __init__(self, folder: Path, bubbles: Path | None) -> None:
        folder.mkdir()
        self._folder = folder
        self._study = subprocess.Popen(
            [sys.executable, __file__, "--study", str(folder), "--folder", str(bubbles or "")],
        )
        self._is_lent = bubbles is not None
        self._workers: list[int] = []

    def await_steps(self) -> None:
        """Wait until both train, and stop them."""
        while len(self._list_counters()) < 2 or min(self.count()) < 200:
            if self._study.poll() is not None:
                raise RuntimeError("the study has ended")
            time.sleep(0.1)
        self._workers = [int(path.name.partition("-")[2]) for path in self._list_counters()]
        self.pause()
        if not self._is_lent:
            for core, pid in enumerate(self._workers):
                os.sched_setaffinity(pid, {core})
        self.classes = [os.sched_getscheduler(pid) for pid in self._workers]
        self.groups = [_read_autogroup(pid) for pid in self._workers]

    def go_on(self) -> None:
        for pid in self._workers:
            os.kill(pid, signal.SIGCONT)

    def pause(self) -> None:
        for path in self._list_counters():
            os.kill(int(path.name.partition("-")[2]), signal.SIGSTOP)

    def count(self) -> list[int]:
        return [struct.unpack("<Q", path.read_bytes())[0] for path in self._list_counters()]

    def close(self) -> None:
        self._study.kill()
        self._study.wait()
        self.go_on()  # they see that their parent is gone

    def _list_counters(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("steps-*") if path.stat().st_size == 8)


def _read_autogroup(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/autogroup").read_text().strip()
    except OSError:
        return "none"


class Blocks:
    """Blocks of one kind: what they cost the pipeline, and how many steps fillers took in them."""

    def __init__(self) -> None:
        self.ratios: list[float] = []
        self._steps = self._seconds = 0.0

    def add(self, before: Sequence[int], after: Sequence[int], seconds: float) -> None:
        self._steps += sum(after) - sum(before)
        self._seconds += seconds

    @property
    def per_s(self) -> float:
        return self._steps / self._seconds


def time_block(pipeline: Pipeline, fillers: Fillers, num_steps: int, blocks: Blocks) -> float:
    """Return how long a step takes with fillers."""
    before, begin = fillers.count(), time.perf_counter()
    fillers.go_on()
    step_s = pipeline.take(num_steps)
    fillers.pause()
    blocks.add(before, fillers.count(), time.perf_counter() - begin)
    return step_s


def time_alone(fillers: Fillers, seconds: float, blocks: Blocks) -> None:
    """See how fast fillers are while the pipeline waits."""
    before, begin = fillers.count(), time.perf_counter()
    fillers.go_on()
    time.sleep(seconds)
    fillers.pause()
    blocks.add(before, fillers.count(), time.perf_counter() - begin)


def compare(options: argparse.Namespace, folder: Path, *, has_sessions: bool) -> list[str]:
    """Alternate blocks with and without fillers, and return what came of it."""
    chance = random.Random(0)
    with ExitStack() as stack:
        pipeline = Pipeline(folder, lends=True, has_sessions=has_sessions)
        stack.callback(pipeline.close)
        pipeline.take(5)
        fillers = Fillers(folder / "lent", folder / "bubbles")
        stack.callback(fillers.close)
        naive = Fillers(folder / "naive", None)
        stack.callback(naive.close)
        for one in (naive, fillers):  # beside the first, the second would not get far
            one.await_steps()
        pipeline.take(5)
        shares, steps = pipeline.shares, []
        lent, control, exclusive = Blocks(), Blocks(), Blocks()
        for pair in range(options.pairs):
            for who, blocks in [(fillers, lent)] + [(naive, control)] * (pair % CONTROL_EVERY == 0):
                is_first = chance.random() < 0.5
                plain_s = 0.0 if is_first else pipeline.take(options.steps)
                filled_s = time_block(pipeline, who, options.steps, blocks)
                plain_s = pipeline.take(options.steps) if is_first else plain_s
                blocks.ratios.append(filled_s / plain_s)
                steps.append(plain_s)
            time_alone(fillers, 0.3, exclusive)
        losses = pipeline.losses
        classes, groups = fillers.classes, fillers.groups
    again = Pipeline(folder, lends=False, has_sessions=has_sessions)
    again.take(min(NUM_CHECKED, len(losses) // NUM_MICRO_BATCHES))
    again.close()
    if losses[: len(again.losses)] != again.losses:
        raise RuntimeError("the losses differ from those of the pipeline alone")
    return [
        *(_describe(name, ratios) for name, ratios in (("in bubbles", lent.ratios), ("naive", control.ratios))),
        f"a step of the pipeline takes {statistics.median(steps) * 1e3:.1f} ms; its stages wait "
        f"{' and '.join(f'{share:.0%}' for share in shares)} of the time without fillers",
        f"the two fillers take {lent.per_s:.0f} steps a second in bubbles and {exclusive.per_s:.0f} with "
        f"the cores to themselves, which is {lent.per_s / exclusive.per_s:.0%}; the control takes "
        f"{control.per_s:.0f}",
        f"fillers: class {'SCHED_IDLE' if set(classes) == {os.SCHED_IDLE} else classes}, {', '.join(groups)}",
        f"losses of the first {len(again.losses)} micro-batches: bit for bit those of the pipeline alone",
    ]


def _describe(name: str, ratios: Sequence[float]) -> str:
    low, high = bootstrap(ratios)
    verdict = "keeps" if high < BOUND else "fails"
    mean, median = statistics.mean(ratios), statistics.median(ratios)
    return f"| {name} | {len(ratios)} | {mean:.3f} | {low:.3f} to {high:.3f} | {median:.3f} | {verdict} |"


def bootstrap(ratios: Sequence[float], num_draws: int = 10_000) -> tuple[float, float]:
    """Return the 95 % interval of the mean."""
    chance = random.Random(0)
    means = sorted(statistics.fmean(chance.choices(ratios, k=len(ratios))) for _ in range(num_draws))
    return means[int(0.025 * num_draws)], means[int(0.975 * num_draws)]


def simulate() -> str:
    """Say what bubbles gain a study with one GPU of its own, by the paper's figures."""
    from headwater.execute import SimulatedExecutor, SimulatedTimes
    from headwater.trials import Device

    share, num_lent, num_epochs = 0.15, 32, 81
    own = [Device(name="gpu:0", kind="gpu")]
    lent = [Device(name=f"bubble:{place}", kind="bubble", is_ephemeral=True) for place in range(num_lent)]

    def time_epoch(config: Any, num_lanes: int, kind: str) -> float:
        return (10.0 + num_lanes) / (1.0 if kind == "gpu" else share)

    def curve(config: Any, epoch: int) -> dict[str, float]:
        return {"loss": abs(math.log10(config["lr"]) + 2.0) + 1.0 / epoch}

    times = SimulatedTimes(epoch_s=time_epoch, num_epochs=num_epochs, save_s=0.1)

    def run(devices: Sequence[Device], search: str, lanes: int, num_trials: int) -> float:
        study = hw.Study(
            partial(train_filler, folder=""), space={"lr": hw.loguniform(1e-4, 1.0)}, metric="loss", search=search,
            lanes=lanes, max_epochs=num_epochs, storage=None, packing=None,
            executor=SimulatedExecutor(devices, curve, times),
        )  # fmt: skip
        return study.run(num_trials, watcher=hw.Silence()).seconds

    rows = []
    for search, lanes, num_trials in (
        ("asha", 1, 200), ("asha", 16, 200), ("asha", 16, 1000), ("hyperband", 16, 1000), ("random", 1, 200),
    ):  # fmt: skip
        alone, helped = (run(devices, search, lanes, num_trials) for devices in (own, own + lent))
        hours = f"{alone / 3600:.1f} h | {helped / 3600:.1f} h"
        rows.append(f"| {search} | {num_trials} | {lanes} | {hours} | {alone / helped:.2f} |")
    bound = 1 + num_lent * share  # were no trial ever to wait for another
    head = (
        "| search | trials | lanes in a group | one GPU | and the bubbles | times faster |\n|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(rows) + f"\n\nNo more than {bound:.1f} times is possible; the paper has 2.7."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=36, help="how many pairs of blocks")
    parser.add_argument("--steps", type=int, default=8, help="how many steps a block has")
    parser.add_argument("--sessions", action="store_true", help="start the stages as torchrun does")
    parser.add_argument("--paper", action="store_true", help="simulate the paper's setting instead")
    for name in ("--stage", "--meeting", "--folder", "--study"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nobody is left stopped
    if options.stage is not None:
        train_stage(int(options.stage), options.meeting, options.folder)
    elif options.study is not None:
        run_study(options.study, options.folder)
    elif options.paper:
        print(f"{measuring.heading('The gaps of a large training, simulated')}\n{simulate()}")
    else:
        with tempfile.TemporaryDirectory() as folder:
            table, *others = _lay_out(compare(options, Path(folder), has_sessions=options.sessions))
        print(measuring.heading("The gaps of a pipeline"), table, *(f"- {line}" for line in others), sep="\n")


def _lay_out(lines: Sequence[str]) -> list[str]:
    head = "| fillers | pairs | a step takes | 95 % interval | median | below 1.02 |\n|---|---|---|---|---|---|\n"
    return [head + "\n".join(lines[:2]) + "\n", *lines[2:]]


if __name__ == "__main__":
    main()
