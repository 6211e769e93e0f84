"""What the engine costs: a placement on a warm worker, a report of a group, and 1,000 trials that only report.

Run `python benchmarks/engine_overheads.py --peers-python PATH`, where PATH is an interpreter that has Ray Tune too. All
take turns in one run, each in a process of its own with one worker. Trials say when they report, on the clock that all
processes of a machine share, so that nothing but the gaps between reports is measured:

- *a report* is the time from one report of a trial to its next, with nothing in between;
- *a placement* is the time from the last report of a trial to the first line of the next one's function: that report,
  the end of the trial, what the record and the search make of it, and the start of the next.

Where the machine has other work too, a process often waits for a core, so the fastest tenth is shown with the median.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

NUM_REPORTS = 20
"""Of a trial whose reports are timed."""
LANES = (1, 8, 32)
NUM_GROUPS = 16
NUM_WHOLE = 1000
AIMS_MS = {"inline": ("", "1"), "processes": ("5", "3"), "ray": ("20", "10")}
"""Of a placement and of a report."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One study, on one worker."""

    num_trials: int
    num_reports: int
    lanes: int | str = 1


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What the gaps of a study took."""

    placements_s: Sequence[float]
    reports_s: Sequence[float]
    whole_s: float
    """From before the first trial to after the last, the start of the worker included; of `NUM_WHOLE` trials."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Somebody who runs trials."""

    run: Callable[[str, Request], Costs]
    timed: Sequence[Request]
    """What placements and reports are timed by."""
    whole: Request
    is_peer: bool = True


Stamps = Sequence[tuple[float, Sequence[float]]]
"""When trials, or groups of them, began and reported."""


def summarize(stamps: Stamps, num_trials: int, whole_s: float) -> Costs:
    """Return the gaps; those before the second trial are left out, for the worker was not warm."""
    ordered = sorted(stamps)
    periods_s = [after - before for (before, _), (after, _) in pairwise(ordered[1:])]
    num_more = NUM_WHOLE - num_trials
    return Costs(
        placements_s=[begin - times[-1] for (_, times), (begin, _) in pairwise(ordered[1:])],
        reports_s=[after - before for _, times in ordered[1:] for before, after in pairwise(times)],
        whole_s=whole_s + (num_more * statistics.mean(periods_s) if num_more > 0 else 0.0),
    )


def run_headwater(executor: str, request: Request) -> Costs:
    import torch

    import headwater as hw

    torch.set_num_threads(1)
    num_reports = request.num_reports

    def train(trial: hw.Trial) -> None:
        import time

        began = time.perf_counter()
        for _ in trial.epochs(num_reports):
            trial.report(loss=trial.config["lr"], began=began, at=time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        study = hw.Study(
            train, space={"lr": hw.loguniform(1e-5, 1.0)}, metric="loss", storage=Path(folder) / "record.db",
            executor=executor, devices=None if executor == "inline" else 1, lanes=request.lanes, packing=None,
            save_every=None,
        )  # fmt: skip
        begin = time.perf_counter()
        result = study.run(request.num_trials)
        whole_s = time.perf_counter() - begin
    groups = {
        trial.history[0].metrics["began"]: [report.metrics["at"] for report in trial.history] for trial in result.trials
    }
    assert len(result.ranked) == request.num_trials
    return summarize(list(groups.items()), request.num_trials, whole_s)


def run_ray_tune(who: str, request: Request) -> Costs:
    import ray
    from ray import tune
    from ray.tune.search import BasicVariantGenerator

    num_reports = request.num_reports

    def train(config: Mapping[str, float]) -> None:
        import time

        began = time.perf_counter()
        for _ in range(num_reports):
            tune.report({"loss": config["lr"], "began": began, "at": time.perf_counter()})

    os.environ |= {"RAY_worker_niceness": "0"}
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        times = ReportTimes(tune.Callback)
        tuner = tune.Tuner(
            tune.with_resources(train, {"cpu": 1}),
            param_space={"lr": tune.loguniform(1e-5, 1.0)},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", num_samples=request.num_trials, reuse_actors="reuse" in who,
                search_alg=BasicVariantGenerator(max_concurrent=1, random_state=0),
            ),
            run_config=tune.RunConfig(storage_path=folder, verbose=0, callbacks=[times.callback]),
        )  # fmt: skip
        begin = time.perf_counter()
        results = tuner.fit()
        whole_s = time.perf_counter() - begin
        assert not results.errors
    ray.shutdown()
    return summarize(list(times.found.items()), request.num_trials, whole_s)


class ReportTimes:
    """Hears when the trials of Ray Tune began and reported."""

    def __init__(self, base: type) -> None:
        self.found: dict[float, list[float]] = {}

        def hear(callback: object, *args: object, result: Mapping[str, float], **rest: object) -> None:
            self.found.setdefault(result["began"], []).append(result["at"])

        self.callback = type("Hearing", (base,), {"on_trial_result": hear})()


def run_optuna(who: str, request: Request) -> Costs:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found: dict[float, list[float]] = {}

    def train(trial: optuna.Trial) -> float:
        times = found.setdefault(time.perf_counter(), [])
        loss = trial.suggest_float("lr", 1e-5, 1.0, log=True)
        for epoch in range(request.num_reports):
            times.append(time.perf_counter())
            trial.report(loss, epoch)
            trial.should_prune()
        return loss

    with tempfile.TemporaryDirectory() as folder:
        study = optuna.create_study(
            storage=f"sqlite:///{folder}/record.db", sampler=optuna.samplers.RandomSampler(seed=0),
            pruner=optuna.pruners.SuccessiveHalvingPruner(),
        )  # fmt: skip
        begin = time.perf_counter()
        study.optimize(train, n_trials=request.num_trials)
        whole_s = time.perf_counter() - begin
    return summarize(list(found.items()), request.num_trials, whole_s)


TIMED = [Request(num_trials=NUM_GROUPS * lanes, num_reports=NUM_REPORTS, lanes=lanes) for lanes in LANES]
OURS = Loop(
    run=run_headwater, timed=TIMED, whole=Request(num_trials=NUM_WHOLE, num_reports=1, lanes="auto"), is_peer=False
)
LOOPS = {
    **dict.fromkeys(AIMS_MS, OURS),
    "Ray Tune": Loop(
        run=run_ray_tune,
        timed=[Request(num_trials=8, num_reports=NUM_REPORTS)],
        whole=Request(num_trials=8, num_reports=1),
    ),
    "Ray Tune, reuse_actors": Loop(run=run_ray_tune, timed=TIMED[:1], whole=Request(num_trials=40, num_reports=1)),
    "Optuna": Loop(run=run_optuna, timed=TIMED[:1], whole=Request(num_trials=100, num_reports=1)),
}


def measure(who: str) -> dict[str, Costs]:
    """Run all studies of a loop here."""
    loop = LOOPS[who]
    costs = {str(request.lanes): loop.run(who, request) for request in loop.timed}
    return {**costs, "whole": loop.run(who, loop.whole)}


def measure_apart(who: str, peers_python: str) -> dict[str, Costs]:
    """Run them in a process of their own."""
    python = peers_python if LOOPS[who].is_peer else sys.executable
    done = subprocess.run([python, __file__, "--loop", who], stdout=subprocess.PIPE, text=True, check=True)
    return {name: Costs(**costs) for name, costs in json.loads(done.stdout.splitlines()[-1]).items()}


def show_rows(loops: Sequence[str], rounds: Sequence[Mapping[str, Mapping[str, Costs]]]) -> Iterator[str]:
    yield "| loop | lanes | placement, ms | fastest tenth | aim | report of a group, ms | fastest tenth | aim |"
    yield "|---|---|---|---|---|---|---|---|"
    for who, loop in ((who, LOOPS[who]) for who in loops):
        aims = AIMS_MS.get(who, ("", ""))
        for request in loop.timed:
            costs = [each[who][str(request.lanes)] for each in rounds]
            placements = [gap for each in costs for gap in each.placements_s]
            reports = [gap for each in costs for gap in each.reports_s]
            cells = (*show_ms(placements), aims[0], *show_ms(reports), aims[1])
            yield f"| {who} | {request.lanes} | {' | '.join(cells)} |"
    yield f"\n| loop | {NUM_WHOLE} trials that report once, s | trials run |\n|---|---|---|"
    for who, loop in ((who, LOOPS[who]) for who in loops):
        whole_s = statistics.median(each[who]["whole"].whole_s for each in rounds)
        mark = "" if loop.whole.num_trials == NUM_WHOLE else ", extrapolated"
        yield f"| {who} | {whole_s:.1f}{mark} | {loop.whole.num_trials} |"


def show_ms(seconds: Sequence[float]) -> tuple[str, str]:
    """Return the median, and what only a tenth is below."""
    return f"{statistics.median(seconds) * 1e3:.2f}", f"{statistics.quantiles(seconds, n=10)[0] * 1e3:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers-python", default=sys.executable, help="an interpreter that has Ray Tune and Optuna")
    parser.add_argument("--loop", choices=list(LOOPS), help="run this one here; what the benchmark itself calls")
    parser.add_argument("--only", nargs="+", choices=list(LOOPS), default=list(LOOPS), help="leave the others out")
    options = parser.parse_args()
    if options.loop:
        print(json.dumps({name: vars(costs) for name, costs in measure(options.loop).items()}))
        return
    from measuring import heading

    print(heading("What a placement, a report and a trial cost"), flush=True)
    loads, rounds = [], []
    for _ in range(options.repeats):
        rounds.append({who: measure_apart(who, options.peers_python) for who in options.only})
        loads.append(f"{os.getloadavg()[1]:.1f}")
    print(f"{options.repeats} interleaved rounds, one worker each, on {os.cpu_count()} busy cores: the load")
    print(f"was {', '.join(loads)}. Headwater and Optuna write to SQLite files.\n")
    print("\n".join(show_rows(options.only, rounds)), flush=True)


if __name__ == "__main__":
    main()
