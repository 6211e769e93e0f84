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
from workloads import MAX_EPOCHS, NUM_WORKERS, REDUCTION, WORKLOADS, Config, Examples, Scores, score, train_plainly

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
    budget_s: float | None = None
    """How long it may take, instead of a number of trials; every epoch is tested then."""
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
    accuracy: float
    """The share of them that is right."""
    cpu_seconds: float
    """What all cores spent; of the peers, only their training functions are counted."""
    num_begun: int
    """How many trials have reported."""
    num_finished: int
    num_epochs: int
    agreement: float | None = None
    plain: tuple[float, float, float] | None = None
    """What the configuration that won comes to in a plain script: loss, held-out loss, accuracy."""


def run_headwater(request: Request) -> Outcome:
    from torch.utils.data import TensorDataset

    import headwater as hw
    from headwater.search import ASHA

    torch.set_num_threads(1)
    work = WORKLOADS[request.workload]
    examples = work.load(request.num_examples or work.num_examples)
    dataset = TensorDataset(*examples[:2])

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(work.build())
        loader = trial.prepare_data_loader(dataset, batch_size=work.batch_size, shuffle=True)
        optimizer = trial.prepare_optimizer(work.optimizer, model, **trial.config)
        for epoch in trial.epochs(MAX_EPOCHS):
            for x, y in islice(loader, work.steps_per_epoch):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y.flatten()).backward()
                optimizer.step()
            tests = request.budget_s is not None or epoch == MAX_EPOCHS - 1
            scores = score(model, examples, tests=tests)._asdict()
            trial.report(**(scores if tests else {"loss": scores["loss"]}))

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
        num_trials = request.num_trials if request.budget_s is None else None  # else nothing but time ends it
        result = study.run(num_trials=num_trials, time_budget=request.budget_s, watcher=Clock(begin))
        seconds = time.perf_counter() - begin
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"{seconds:7.1f} s  end; best {result.best.config}", file=sys.stderr)
    return Outcome(
        seconds=seconds,
        seconds_to_start=0.0,
        loss=result.best.value("loss"),
        held_out=result.best.value("held_out"),
        accuracy=result.best.value("accuracy"),
        cpu_seconds=sum(one.ru_utime + one.ru_stime for one in used) - cpu_before,
        num_begun=sum(trial.epochs > 0 for trial in result.trials),
        num_finished=sum(trial.epochs == MAX_EPOCHS for trial in result.trials),
        num_epochs=sum(trial.epochs for trial in result.trials),
        agreement=result.trust.agreement if result.trust else None,
        plain=tuple(list(train_plainly(work, examples, result.best.config))[-1]),
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
        for scores in train_plainly(work, examples, config, tests_always=request.budget_s is not None):
            tune.report({**scores._asdict(), "began": began, "cpu": time.process_time() - cpu_before})

    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    os.environ |= {"RAY_worker_niceness": "0"}  # by itself, Ray lets whatever else the machine does go first
    ray.init(
        address="local", num_cpus=NUM_WORKERS, include_dashboard=False, log_to_driver=False,
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
                metric="loss", mode="min", num_samples=-1 if request.budget_s else request.num_trials,
                time_budget_s=request.budget_s, reuse_actors=True,
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
        metrics = [result.metrics for result in results if "loss" in (result.metrics or {})]
    ray.shutdown()
    best = min((one for one in metrics if math.isfinite(one["loss"])), key=lambda one: one["loss"])
    return Outcome(
        seconds=seconds,
        seconds_to_start=min(one["began"] for one in metrics) - begin,
        loss=best["loss"],
        held_out=best["held_out"],
        accuracy=best["accuracy"],
        cpu_seconds=sum(one["cpu"] for one in metrics),
        num_begun=len(metrics),
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
        trials = [trial for trial in optuna.load_study(storage=url, study_name="study").trials if trial.user_attrs]
    last = {trial.intermediate_values[max(trial.intermediate_values)]: trial for trial in trials}
    loss = min(value for value in last if math.isfinite(value))
    return Outcome(
        seconds=seconds,
        seconds_to_start=0.0,
        loss=loss,
        held_out=last[loss].user_attrs["held_out"],
        accuracy=last[loss].user_attrs["accuracy"],
        cpu_seconds=sum(trial.user_attrs["cpu"] for trial in trials),
        num_begun=len(trials),
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
        scores, cpu_before = Scores(math.nan), time.process_time()
        all_scores = train_plainly(work, examples, config, tests_always=request.budget_s is not None)
        for epoch, scores in enumerate(all_scores, start=1):
            trial.report(scores.loss, epoch)
            is_pruned = trial.should_prune()
            if is_pruned or epoch == MAX_EPOCHS:
                trial.set_user_attr("cpu", time.process_time() - cpu_before)
                trial.set_user_attr("held_out", scores.held_out)
                trial.set_user_attr("accuracy", scores.accuracy)
            if is_pruned:
                raise optuna.TrialPruned
        return scores.loss

    ready.wait()
    limit = optuna.study.MaxTrialsCallback(request.num_trials, states=None)
    study.optimize(train, timeout=request.budget_s, callbacks=[] if request.budget_s else [limit])


RUNNERS = {"Headwater": run_headwater, "Ray Tune": run_ray, "Optuna": run_optuna}
