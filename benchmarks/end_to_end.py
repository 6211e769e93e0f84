"""The whole tuning job, the target's training included: Headwater against Ray Tune and Optuna on two cores.

Run `python benchmarks/end_to_end.py --peers-python PATH`, where PATH is an interpreter that has torch, safetensors,
numpy, Optuna and Ray Tune (some 25 minutes). Every run has a process of its own. The tables go to standard output as
Markdown, what Headwater says on its way to standard error; the committed ones are in benchmarks/end_to_end.md.
"""

import argparse
import json
import math
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from measuring import heading
from workloads import MAX_EPOCHS, NUM_WORKERS, REDUCTION, WORKLOADS, Config, Examples, train_plainly


@dataclass(frozen=True, kw_only=True)
class Request:
    """One run."""

    who: str
    workload: str
    search: str
    num_trials: int
    seed: int = 0
    scale: int | None = 8
    lanes: int | str = "auto"
    eager: bool = True


@dataclass(frozen=True, kw_only=True)
class Outcome:
    seconds: float
    seconds_to_start: float
    """How long it took until the first trial began."""
    loss: float
    """The validation loss of what is handed back."""
    cpu_seconds: float
    """What all cores spent; of the peers, only their training functions are counted."""
    num_finished: int
    num_epochs: int
    agreement: float | None = None


def run_headwater(request: Request) -> Outcome:
    from torch.utils.data import TensorDataset

    import headwater as hw

    torch.set_num_threads(1)
    work = WORKLOADS[request.workload]
    train_x, train_y, valid_x, valid_y = work.load(work.num_examples)
    dataset = TensorDataset(train_x, train_y)

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(work.build())
        loader = trial.prepare_data_loader(dataset, batch_size=work.batch_size, shuffle=True)
        optimizer = trial.prepare_optimizer(work.optimizer, model, **trial.config)
        for _ in trial.epochs(MAX_EPOCHS):
            for x, y in islice(loader, work.steps_per_epoch):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y.flatten()).backward()
                optimizer.step()
            with torch.no_grad():
                trial.report(loss=F.cross_entropy(model(valid_x), valid_y.flatten()))

    with tempfile.TemporaryDirectory() as folder:
        study = hw.Study(
            train,
            space={
                **{key: hw.loguniform(*ends) for key, ends in work.logarithmic.items()},
                **{key: hw.uniform(*ends) for key, ends in work.even.items()},
            },
            metric="loss",
            search=request.search,
            max_epochs=MAX_EPOCHS,
            storage=Path(folder) / "record.db",
            executor="processes",
            lanes=request.lanes,
            seed=request.seed,
            surrogate=None if request.scale is None else hw.Surrogate(scale=request.scale, eager=request.eager),
        )
        begin, cpu_before = time.perf_counter(), time.process_time()
        result = study.run(num_trials=request.num_trials, watcher=Clock(begin))
        seconds = time.perf_counter() - begin
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"{seconds:7.1f} s  end; best {result.best.config}", file=sys.stderr)
    return Outcome(
        seconds=seconds,
        seconds_to_start=0.0,
        loss=result.best.value("loss"),
        cpu_seconds=sum(one.ru_utime + one.ru_stime for one in used) - cpu_before,
        num_finished=sum(trial.epochs == MAX_EPOCHS for trial in result.trials),
        num_epochs=sum(trial.epochs for trial in result.trials),
        agreement=result.trust.agreement if result.trust else None,
    )


class Clock:
    """Prints when a study says what."""

    def __init__(self, begin: float) -> None:
        self._begin = begin
        self._num_done = 0

    def start(self, study: str, metric: str, num_trials: int | None) -> None:
        self.tell(f"start of {study}: {num_trials} trials")

    def pulse(self, pulse: Any) -> None:  # Any: headwater.report.Pulse, where there is Headwater
        if pulse.num_done != self._num_done:
            self._num_done = pulse.num_done
            self.tell(f"{pulse.num_done} done, {pulse.num_lanes} lanes, best {pulse.best_value}")

    def tell(self, text: str) -> None:
        print(f"{time.perf_counter() - self._begin:7.1f} s  {text}", file=sys.stderr, flush=True)

    def end(self) -> None:
        self.tell("end of stage")


def run_ray(request: Request) -> Outcome:
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    work = WORKLOADS[request.workload]

    def train(config: Config, examples: Examples) -> None:
        began, cpu_before = time.time(), time.process_time()
        for loss in train_plainly(work, examples, config):
            tune.report({"loss": loss, "began": began, "cpu": time.process_time() - cpu_before})

    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    os.environ |= {"RAY_worker_niceness": "0"}  # by itself, Ray lets whatever else the machine does go first
    ray.init(num_cpus=NUM_WORKERS, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": environment})
    scheduler = ASHAScheduler(max_t=MAX_EPOCHS, grace_period=1, reduction_factor=REDUCTION)
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(tune.with_parameters(train, examples=work.load(work.num_examples)), {"cpu": 1}),
            param_space={
                **{key: tune.loguniform(*ends) for key, ends in work.logarithmic.items()},
                **{key: tune.uniform(*ends) for key, ends in work.even.items()},
            },
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", num_samples=request.num_trials,
                max_concurrent_trials=NUM_WORKERS, reuse_actors=True,
                scheduler=scheduler if request.search == "asha" else None,
            ),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )  # fmt: skip
        begin, clock = time.time(), time.perf_counter()
        results = tuner.fit()
        seconds = time.perf_counter() - clock
        if results.errors:
            raise results.errors[0]
        metrics = [result.metrics for result in results]
    ray.shutdown()
    return Outcome(
        seconds=seconds,
        seconds_to_start=min(one["began"] for one in metrics) - begin,
        loss=min(one["loss"] for one in metrics if math.isfinite(one["loss"])),
        cpu_seconds=sum(one["cpu"] for one in metrics),
        num_finished=sum(one["training_iteration"] == MAX_EPOCHS for one in metrics),
        num_epochs=sum(one["training_iteration"] for one in metrics),
    )


def run_optuna(request: Request) -> Outcome:
    """Let two processes work on one study; the clock starts when both are ready."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/record.db"
        optuna.create_study(storage=url, study_name="study")
        ready = context.Barrier(NUM_WORKERS + 1)
        workers = [context.Process(target=work_for_optuna, args=(request, url, n, ready)) for n in range(NUM_WORKERS)]
        for worker in workers:
            worker.start()
        ready.wait()
        begin = time.perf_counter()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - begin
        trials = optuna.load_study(storage=url, study_name="study").trials
    last = [trial.intermediate_values.get(max(trial.intermediate_values)) for trial in trials]
    return Outcome(
        seconds=seconds,
        seconds_to_start=0.0,
        loss=min(value for value in last if math.isfinite(value)),
        cpu_seconds=sum(trial.user_attrs["cpu"] for trial in trials),
        num_finished=sum(len(trial.intermediate_values) == MAX_EPOCHS for trial in trials),
        num_epochs=sum(len(trial.intermediate_values) for trial in trials),
    )


def work_for_optuna(request: Request, url: str, place: int, ready: Any) -> None:  # Any: a barrier has no public type
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    work = WORKLOADS[request.workload]
    examples = work.load(work.num_examples)
    halving = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)
    study = optuna.load_study(
        storage=url,
        study_name="study",
        sampler=optuna.samplers.RandomSampler(seed=place),
        pruner=halving if request.search == "asha" else optuna.pruners.NopPruner(),
    )

    def train(trial: optuna.Trial) -> float:
        config = {key: trial.suggest_float(key, *ends, log=True) for key, ends in work.logarithmic.items()}
        config |= {key: trial.suggest_float(key, *ends) for key, ends in work.even.items()}
        loss, cpu_before = math.nan, time.process_time()
        for epoch, loss in enumerate(train_plainly(work, examples, config), start=1):
            trial.report(loss, epoch)
            is_pruned = trial.should_prune()
            if is_pruned or epoch == MAX_EPOCHS:
                trial.set_user_attr("cpu", time.process_time() - cpu_before)
            if is_pruned:
                raise optuna.TrialPruned
        return loss

    ready.wait()
    study.optimize(train, callbacks=[optuna.study.MaxTrialsCallback(request.num_trials, states=None)])


RUNNERS = {"Headwater": run_headwater, "Ray Tune": run_ray, "Optuna": run_optuna}


def run_apart(python: str, request: Request) -> Outcome:
    """Run in a process of its own, and echo what it says."""
    print(f"--- {time.strftime('%X')}, load {os.getloadavg()[0]:.1f}: {request}", file=sys.stderr, flush=True)
    command = [python, __file__, "--request", json.dumps(vars(request))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    outcome = Outcome(**json.loads(done.stdout.splitlines()[-1]))
    print(f"--- {outcome}", file=sys.stderr, flush=True)
    return outcome


def extrapolate(outcome: Outcome, num_run: int, num_wanted: int) -> float:
    """Stretch the time of the trials, but not the time to start, to more of them."""
    return outcome.seconds_to_start + (outcome.seconds - outcome.seconds_to_start) * num_wanted / num_run


def show_row(request: Request, outcome: Outcome, num_wanted: int, ours: float) -> str:
    """Show the time as measured, and for the peers what it is at best: their training alone, spread evenly on cores."""
    seconds = extrapolate(outcome, request.num_trials, num_wanted)
    at_best = outcome.cpu_seconds * num_wanted / request.num_trials / NUM_WORKERS
    mark = "" if request.num_trials == num_wanted else " (extrapolated)"
    is_ours = request.who == "Headwater"
    who = f"{request.who}, seed {request.seed}" if is_ours else request.who
    return (
        f"| {WORKLOADS[request.workload].title} | {request.search} | {who} "
        f"| {request.num_trials} | {outcome.num_epochs} | {outcome.seconds:.1f} | {outcome.cpu_seconds:.1f} "
        f"| {seconds:.0f}{mark} | {'-' if is_ours else f'{at_best:.0f}'} "
        f"| {seconds / ours:.1f} | {'-' if is_ours else f'{at_best / ours:.1f}'} | {outcome.loss:.3f} |"
    )


def compare(options: argparse.Namespace) -> None:
    columns = ["workload", "search", "who", "trials run", "their epochs", "wall s", "CPU s"]
    columns += [f"s for {options.trials}", "at best", "x Headwater", "at best", "loss"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    pythons = {"Ray Tune": options.peers_python, "Optuna": sys.executable}
    for name in options.workloads:
        for search in options.searches:
            show = partial(show_row, num_wanted=options.trials)
            ours = 0.0
            for seed in range(options.seeds):
                request = Request(
                    who="Headwater", workload=name, search=search, num_trials=options.trials, seed=seed,
                    scale=options.scale,
                )  # fmt: skip
                outcome = run_apart(sys.executable, request)
                ours = ours or outcome.seconds
                print(show(request, outcome, ours=ours), flush=True)
            for who in options.peers:
                count = options.random_trials if search == "random" else options.asha_trials
                request = Request(who=who, workload=name, search=search, num_trials=min(count, options.trials))
                print(show(request, run_apart(pythons[who], request), ours=ours), flush=True)


def ablate(num_trials: int, num_alone: int) -> None:
    """Take Headwater apart: random search for the MLP."""
    print(f"\n## What contributes what\n\nThe MLP, random search, {num_trials} trials, Headwater alone.\n")
    print("| surrogate | lanes | eager | trials run | seconds | loss | rank agreement |\n|---|---|---|---|---|---|---|")
    for scale, lanes, eager in (
        (8, "auto", True), (8, "auto", False), (8, 1, True),
        (4, "auto", True), (16, "auto", True), (None, "auto", False),
    ):  # fmt: skip
        count = num_trials if scale else min(num_alone, num_trials)
        request = Request(
            who="Headwater", workload="MLP", search="random", num_trials=count, scale=scale, lanes=lanes, eager=eager
        )
        outcome = run_apart(sys.executable, request)
        seconds = extrapolate(outcome, count, num_trials)
        mark = "" if count == num_trials else " (extrapolated)"
        agreement = "-" if outcome.agreement is None else f"{outcome.agreement:.2f}"
        print(
            f"| {f'1/{scale}' if scale else 'none'} | {lanes} | {'yes' if eager else 'no'} | {count} "
            f"| {seconds:.1f}{mark} | {outcome.loss:.4f} | {agreement} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="*", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--searches", nargs="*", choices=["random", "asha"], default=["random", "asha"])
    parser.add_argument("--peers", nargs="*", choices=["Ray Tune", "Optuna"], default=["Ray Tune", "Optuna"])
    parser.add_argument("--peers-python", default=sys.executable, help="the interpreter that has Ray")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--random-trials", type=int, default=20, help="how many of them the peers run at random search")
    parser.add_argument("--asha-trials", type=int, default=200, help="how many of them the peers run at ASHA")
    parser.add_argument("--scale", type=int, default=8, help="Headwater searches at 1/SCALE of the width")
    parser.add_argument("--seeds", type=int, default=1, help="under how many seeds Headwater runs")
    parser.add_argument("--ablation", type=int, default=60, metavar="TRIALS", help="0 for none")
    parser.add_argument("--request", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.request:
        request = Request(**json.loads(options.request))
        print(json.dumps(vars(RUNNERS[request.who](request))))
        return
    torch.set_num_threads(1)
    print(heading("The whole tuning job, target included"))
    if options.workloads:
        compare(options)
    if options.ablation:
        ablate(options.ablation, 10)


if __name__ == "__main__":
    main()
