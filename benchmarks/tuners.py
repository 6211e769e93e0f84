"""The tuners that the end-to-end benchmark compares: Headwater, Ray Tune and Optuna, each on both cores."""

import math
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from workloads import MAX_EPOCHS, NUM_WORKERS, REDUCTION, WORKLOADS, Config, Examples, train_plainly

CONCURRENCY = 100
"""Of Headwater's ASHA: so many trials are open at once, which is what groups are made of."""


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
    num_examples: int | None = None
    """How many there are to train on; None: as many as the workload has."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    seconds: float
    seconds_to_start: float
    """How long it took until the first trial began."""
    loss: float
    """The loss, of what is handed back, on the examples that trials are chosen by."""
    held_out: float
    """And on examples that nothing was chosen by."""
    cpu_seconds: float
    """What all cores spent; of the peers, only their training functions are counted."""
    num_finished: int
    num_epochs: int
    agreement: float | None = None


def run_headwater(request: Request) -> Outcome:
    from torch.utils.data import TensorDataset

    import headwater as hw
    from headwater.search import ASHA

    torch.set_num_threads(1)
    work = WORKLOADS[request.workload]
    train_x, train_y, valid_x, valid_y, held_out_x, held_out_y = work.load(request.num_examples or work.num_examples)
    dataset = TensorDataset(train_x, train_y)

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(work.build())
        loader = trial.prepare_data_loader(dataset, batch_size=work.batch_size, shuffle=True)
        optimizer = trial.prepare_optimizer(work.optimizer, model, **trial.config)
        for epoch in trial.epochs(MAX_EPOCHS):
            for x, y in islice(loader, work.steps_per_epoch):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y.flatten()).backward()
                optimizer.step()
            with torch.no_grad():
                metrics = {"loss": F.cross_entropy(model(valid_x), valid_y.flatten())}
                if epoch == MAX_EPOCHS - 1:
                    metrics["held_out"] = F.cross_entropy(model(held_out_x), held_out_y.flatten())
                trial.report(**metrics)

    with tempfile.TemporaryDirectory() as folder:
        study = hw.Study(
            train,
            space={
                **{key: hw.loguniform(*ends) for key, ends in work.logarithmic.items()},
                **{key: hw.uniform(*ends) for key, ends in work.even.items()},
            },
            metric="loss",
            search=ASHA(reduction=REDUCTION, concurrency=CONCURRENCY) if request.search == "asha" else request.search,
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
        held_out=result.best.value("held_out"),
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
    from ray.tune.search import BasicVariantGenerator

    work = WORKLOADS[request.workload]

    def train(config: Config, examples: Examples) -> None:
        began, cpu_before = time.time(), time.process_time()
        for loss, held_out in train_plainly(work, examples, config):
            tune.report({"loss": loss, "held_out": held_out, "began": began, "cpu": time.process_time() - cpu_before})

    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    os.environ |= {"RAY_worker_niceness": "0"}  # by itself, Ray lets whatever else the machine does go first
    ray.init(
        "local", num_cpus=NUM_WORKERS, include_dashboard=False, log_to_driver=False,
        runtime_env={"env_vars": environment},
    )  # fmt: skip
    examples = work.load(request.num_examples or work.num_examples)
    scheduler = ASHAScheduler(max_t=MAX_EPOCHS, grace_period=1, reduction_factor=REDUCTION)
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(tune.with_parameters(train, examples=examples), {"cpu": 1}),
            param_space={
                **{key: tune.loguniform(*ends) for key, ends in work.logarithmic.items()},
                **{key: tune.uniform(*ends) for key, ends in work.even.items()},
            },
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", num_samples=request.num_trials, reuse_actors=True,
                search_alg=BasicVariantGenerator(max_concurrent=NUM_WORKERS, random_state=request.seed),
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
    best = min((one for one in metrics if math.isfinite(one["loss"])), key=lambda one: one["loss"])
    return Outcome(
        seconds=seconds,
        seconds_to_start=min(one["began"] for one in metrics) - begin,
        loss=best["loss"],
        held_out=best["held_out"],
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
    last = {trial.intermediate_values[max(trial.intermediate_values)]: trial for trial in trials}
    loss = min(value for value in last if math.isfinite(value))
    return Outcome(
        seconds=seconds,
        seconds_to_start=0.0,
        loss=loss,
        held_out=last[loss].user_attrs["held_out"],
        cpu_seconds=sum(trial.user_attrs["cpu"] for trial in trials),
        num_finished=sum(len(trial.intermediate_values) == MAX_EPOCHS for trial in trials),
        num_epochs=sum(len(trial.intermediate_values) for trial in trials),
    )


def work_for_optuna(request: Request, url: str, place: int, ready: Any) -> None:  # Any: a barrier has no public type
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    work = WORKLOADS[request.workload]
    examples = work.load(request.num_examples or work.num_examples)
    halving = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)
    study = optuna.load_study(
        storage=url,
        study_name="study",
        sampler=optuna.samplers.RandomSampler(seed=NUM_WORKERS * request.seed + place),
        pruner=halving if request.search == "asha" else optuna.pruners.NopPruner(),
    )

    def train(trial: optuna.Trial) -> float:
        config = {key: trial.suggest_float(key, *ends, log=True) for key, ends in work.logarithmic.items()}
        config |= {key: trial.suggest_float(key, *ends) for key, ends in work.even.items()}
        loss, cpu_before = math.nan, time.process_time()
        for epoch, (loss, held_out) in enumerate(train_plainly(work, examples, config), start=1):
            trial.report(loss, epoch)
            is_pruned = trial.should_prune()
            if is_pruned or epoch == MAX_EPOCHS:
                trial.set_user_attr("cpu", time.process_time() - cpu_before)
                trial.set_user_attr("held_out", held_out)
            if is_pruned:
                raise optuna.TrialPruned
        return loss

    ready.wait()
    study.optimize(train, callbacks=[optuna.study.MaxTrialsCallback(request.num_trials, states=None)])


RUNNERS = {"Headwater": run_headwater, "Ray Tune": run_ray, "Optuna": run_optuna}
