"""Loops as people bring them: do they run, do lanes fuse, are the numbers those of single trials, what does it cost?

Run `python benchmarks/loops.py` (about half an hour), or with `--only mnist vae` for some of them. Each loop of
`benchmarks/loop_scripts` trains in processes of its own: six trials with `lanes=1` and `lanes=6` in double precision,
whose reports are compared, the same with a pause after every epoch, then 24 trials with `lanes=1`, `lanes=24` and
`lanes="auto"` in single precision, whose CPU time is. The table goes to standard output as Markdown.

In pieces: `--rows FILE` adds what each loop gave to a file and passes over those that it has, and `--seconds 180`
begins no loop later than that; started again and again, the same command comes to the end, and then prints the table.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import json
import logging
import math
import multiprocessing
import os
import re
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy  # noqa: F401 - children are forked, and find what takes long to import
import sklearn.metrics  # noqa: F401
import torch
import torch.utils.tensorboard
from measuring import heading

import headwater as hw
from headwater.report import Silence
from headwater.search.problem import Problem
from headwater.space import Config
from headwater.trials import Decision, Report, Segment, Status

MODULES = (
    "images", "sequences", "generative", "measured", "recorded", "methods", "schedules",
    "agents", "pairs", "translation",
)  # fmt: skip
NUM_COMPARED, NUM_TRIALS, NUM_LANES_PAUSED = 6, 24, 4
SAME = 1e-8
"""How far a number may be from that of a single trial, in double precision, relative to the larger."""
HALF_PRECISE = {"autocast_scaler": 1e-2}
"""Loops that compute in bfloat16 whatever the default is."""
MOST_S = 300
RESTART = re.compile("from (its|the) beginning")
"""Finds the note of a study on trials that cannot be continued."""

EXPLANATION = f"""\
*runs*: how many of {NUM_COMPARED} trials completed in a group. *fused*: whether all of them trained to their end in one
group; else the first note. *difference*: the largest between a report of a trial in a group and alone, relative, in
double precision. *paused*: the same difference where every trial pauses after each epoch and groups are formed anew,
with one lane and with {NUM_LANES_PAUSED}; "restarts" where the study says that a state cannot be continued. *fused CPU*
and *auto CPU*: CPU time of a study of {NUM_TRIALS} trials with `lanes={NUM_TRIALS}` and with `lanes="auto"`, measuring
included, divided by that with `lanes=1`: below 1, they take less.
"""


@dataclass(frozen=True)
class EveryEpoch:
    """A search that pauses every trial after each epoch, and proposes the trials in another order for the next."""

    configs: Sequence[Config]

    def __call__(self, problem: Problem) -> EveryEpochSearch:
        """Build the searcher."""
        return EveryEpochSearch(self.configs)


class EveryEpochSearch:
    """Proposes the next epoch of all trials once the last epoch of all has ended."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._next = deque(Segment(number=number, config=config, until=1) for number, config in enumerate(configs))
        self._under_way: dict[int, Segment] = {}
        self._paused: list[Segment] = []

    def propose(self, count: int) -> Sequence[Segment]:
        """Return the next epoch of trials."""
        if not self._next and not self._under_way:
            self._next.extend(sorted(self._paused, key=lambda segment: segment.number))
            self._next.rotate(self._next[0].until or 0 if self._next else 0)
            self._paused = []
        segments = [self._next.popleft() for _ in range(min(count, len(self._next)))]
        self._under_way |= {segment.number: segment for segment in segments}
        return segments

    def observe(self, report: Report) -> Decision:
        """Let every trial reach the end of its epoch."""
        return Decision.CONTINUE

    def finish(self, number: int, status: Status) -> None:
        """Propose a paused trial again."""
        segment = self._under_way.pop(number)
        if status is Status.PAUSED:
            self._paused.append(replace(segment, until=(segment.until or 0) + 1))


@dataclass(frozen=True)
class Run:
    """Result of one study."""

    statuses: tuple[str, ...]
    history: tuple[Any, ...]
    notes: tuple[str, ...]
    seconds: float
    error: str = ""
    configs: tuple[Any, ...] = ()


def names() -> list[str]:
    """List all loops, by importing their modules in a child."""
    return multiprocessing.get_context("fork").Pool(1).apply(_list)


def _list() -> list[str]:
    return [loop.name for loop in _loops()]


def _loops() -> Any:
    for module in MODULES:
        importlib.import_module(f"loop_scripts.{module}")
    return importlib.import_module("loop_scripts.catalogue").LOOPS


def run(name: str, lanes: Any, num_trials: int, *, double: bool, paused_configs: Sequence[Any] = ()) -> Run:
    """Train a loop in a process of its own; trials of the given configurations pause after every epoch."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_run, args=(theirs, name, lanes, num_trials, double, paused_configs))
    child.start()
    theirs.close()
    answer = Run((), (), (), math.nan, "took too long")
    try:
        if ours.poll(MOST_S):
            answer = ours.recv()
    except EOFError:
        answer = Run((), (), (), math.nan, "died")
    if child.is_alive() and answer.error == "took too long":
        child.kill()
    child.join()
    return answer


def _run(pipe: Any, name: str, lanes: Any, num_trials: int, double: bool, paused_configs: Sequence[Any]) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64 if double else torch.float32)
    warnings.simplefilter("ignore")
    logging.disable(logging.NOTSET)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(Path(os.devnull).open("w")):
            loop = next(each for each in _loops() if each.name == name)
            study = hw.Study(
                loop.train, space=loop.space, metric=loop.metric, mode=loop.mode, storage=None, lanes=lanes,
                executor="inline", search=EveryEpoch(paused_configs) if paused_configs else "random",
            )  # fmt: skip
            gc.collect()
            begin = time.process_time()
            result = study.run(num_trials, watcher=Silence())
            seconds = time.process_time() - begin
        pipe.send(
            Run(
                tuple(str(trial.status) for trial in result.trials),
                tuple(tuple((r.epoch, dict(r.metrics)) for r in trial.history) for trial in result.trials),
                tuple(note for trial in result.trials for note in trial.notes),
                seconds,
                next((trial.error for trial in result.trials if trial.error), ""),
                tuple(dict(trial.config) for trial in result.trials),
            )
        )
    except BaseException:  # the parent is told
        pipe.send(Run((), (), (), math.nan, traceback.format_exc()))


def difference(one: Run, other: Run) -> float:
    """Return the largest relative difference of two runs; infinite where they do not report the same things."""
    if [len(h) for h in one.history] != [len(h) for h in other.history] or one.statuses != other.statuses:
        return math.inf
    worst = 0.0
    for mine, yours in zip(one.history, other.history, strict=True):
        for (epoch, metrics), (other_epoch, others) in zip(mine, yours, strict=True):
            if epoch != other_epoch or [*metrics] != [*others]:
                return math.inf
            for a, b in zip(metrics.values(), others.values(), strict=True):
                worst = max(worst, _distance(a, b))
    return worst


def _distance(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    distance = abs(a - b) / max(abs(a), abs(b), 1e-3)
    return math.inf if math.isnan(distance) else distance


@dataclass(frozen=True)
class Row:
    """Results of one loop."""

    name: str
    num_done: int
    runs: bool
    fused: bool
    why: str
    """Why it did not fuse."""
    difference: float
    paused: float = math.nan
    restarts: bool = False
    """Whether the study said that a paused trial is trained again from its beginning."""
    fused_cost: float = math.nan
    auto_cost: float = math.nan

    @property
    def differs(self) -> bool:
        """Whether a number is not that of a single trial."""
        return max(self.difference, self.paused) > HALF_PRECISE.get(self.name, SAME)

    def __str__(self) -> str:
        shown = "yes" if self.fused else self.why.replace("|", "\\|")
        costs = " | ".join("" if math.isnan(cost) else f"{cost:.2f}" for cost in (self.fused_cost, self.auto_cost))
        paused = f"{self.paused:.1e}{', restarts' if self.restarts else ''}"
        return f"| {self.name} | {self.num_done} | {shown} | {self.difference:.1e} | {paused} | {costs} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="names of loops")
    parser.add_argument("--no-cost", action="store_true", help="compare, and measure no CPU time")
    parser.add_argument("--repeat", type=int, default=1, help="how often CPU time is measured; the least counts")
    parser.add_argument("--explain", action="store_true", help="also print notes and errors in full")
    parser.add_argument("--jobs", type=int, default=1, help="how many loops at the same time")
    parser.add_argument("--rows", type=Path, help="a file of the loops that were run, which those of this run go to")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no loop later")
    options = parser.parse_args()
    chosen = options.only or names()
    known = read_rows(options.rows)
    waiting = [name for name in chosen if name not in known]
    begin = time.monotonic()
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        while waiting and time.monotonic() - begin < options.seconds:
            piece, waiting = waiting[: options.jobs], waiting[options.jobs :]
            for row in pool.map(try_loop, piece, [options] * len(piece)):
                known[row.name] = row
                print(row, file=sys.stderr, flush=True)
                keep_row(options.rows, row)
    if waiting:
        print(f"{len(waiting)} of {len(chosen)} loops are left; start it again", file=sys.stderr)
    else:
        show_table([known[name] for name in chosen])


def read_rows(path: Path | None) -> dict[str, Row]:
    """Return the loops that a file has, by name; the last of each."""
    lines = [] if path is None or not path.exists() else path.read_text().splitlines()
    rows = [Row(**json.loads(line)) for line in lines]
    return {row.name: row for row in rows}


def keep_row(path: Path | None, row: Row) -> None:
    """Add a loop to the file, if there is one."""
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")


def show_table(rows: list[Row]) -> None:
    """Print all as Markdown, and what they come to."""
    print(heading("Loops as people bring them"))
    print(EXPLANATION)
    print("| loop | runs | fused | difference | paused | fused CPU | auto CPU |")
    print("|---|---|---|---|---|---|---|")
    print(*rows, sep="\n")
    num_runs, num_fused, num_differing = (sum(getattr(r, name) for r in rows) for name in ("runs", "fused", "differs"))
    print(f"\n{num_runs} of {len(rows)} run, {num_fused} fuse, {num_differing} differ.")
    costs, autos = (sorted(getattr(r, name) for r in rows) for name in ("fused_cost", "auto_cost"))
    if not any(map(math.isnan, costs + autos)):
        print(f"Median CPU: fused {costs[len(costs) // 2]:.2f}, auto {autos[len(autos) // 2]:.2f} of `lanes=1`; "
              f"auto above 1.1 in {sum(a > 1.1 for a in autos)}, worst {autos[-1]:.2f}.")  # fmt: skip


def try_loop(name: str, options: argparse.Namespace) -> Row:
    """Run one loop in all ways; return what came of it."""
    alone = run(name, 1, NUM_COMPARED, double=True)
    together = run(name, NUM_COMPARED, NUM_COMPARED, double=True)
    num_done = sum(status == "completed" for status in together.statuses)
    runs = num_done == NUM_COMPARED and not alone.error
    breaks = [
        run(name, lanes, NUM_COMPARED, double=True, paused_configs=alone.configs) for lanes in (1, NUM_LANES_PAUSED)
    ]
    paused = max(difference(alone, each) for each in breaks)
    restarts = any(RESTART.search(note) for each in breaks for note in each.notes)
    costs = () if options.no_cost else measure_costs(name, options.repeat)
    why = together.notes[0] if together.notes else (together.error.rstrip().splitlines() or ["?"])[-1]
    if options.explain:
        errors = (each.error for each in (alone, together, *breaks))
        for text in (*errors, *dict.fromkeys(note for each in (together, *breaks) for note in each.notes)):
            if text:
                print(text, file=sys.stderr)
    fused, apart = runs and not together.notes, difference(alone, together)
    return Row(name, num_done, runs, fused, why, apart, paused, restarts, *costs)


def measure_costs(name: str, num_times: int) -> tuple[float, float]:
    """Return the CPU time of a study with all lanes and of one that chooses, as parts of that with one lane."""
    times = [
        [run(name, lanes, NUM_TRIALS, double=False).seconds for lanes in (1, NUM_TRIALS, "auto")]
        for _ in range(num_times)
    ]
    base, lanes, auto = (min(one) for one in zip(*times, strict=True))
    return lanes / base, auto / base


if __name__ == "__main__":
    main()
