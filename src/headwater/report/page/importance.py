"""How much each hyperparameter matters: fANOVA, as Optuna has it.

Searchers stop most trials early, and a value after three epochs says little beside one after thirty. So all trials are
compared at one epoch: the latest that three quarters of them have reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, TypeAlias

from headwater.errors import StoreError
from headwater.report.parameters import UNSOUND, Parameters, quietly
from headwater.store import open_store
from headwater.trials import Status, TrialRecord, average_replicas

Json: TypeAlias = dict[str, Any]  # Any: JSON values

LEAST_TRIALS = 8
"""With fewer, nothing can be said."""
REACHED_SHARE = 0.75
MOST_TRIALS = 500
"""Of more trials, so many are looked at, evenly spread: the time that it takes grows faster than they do."""
NUM_TREES, MAX_DEPTH = 32, 8
"""Half as many trees as Optuna grows, and not as deep: the shares are the same to a few hundredths, in a quarter of the
time for 300 trials and less for more."""


def measure_importance(storage: str, name: str) -> Json:
    """Return the share of the variance that each hyperparameter explains, the largest first, and how that was found."""
    with open_store(storage, create=False) as store:
        info = store.study(name)
        records = average_replicas(store.trials(info.id, damaged=[]), info.num_seeds)
    records = tuple(record for record in records if record.status is not Status.FAILED and record.history)
    epoch = choose_epoch(records)
    pairs = [(record, _value_at(record, info.metric, epoch)) for record in records]
    pairs = [(record, value) for record, value in pairs if math.isfinite(value)]
    pairs = pairs[:: max(1, math.ceil(len(pairs) / MOST_TRIALS))]
    if len(pairs) < LEAST_TRIALS:
        return {"shares": [], "reason": f"{len(pairs)} trials have a finite {info.metric}; it takes {LEAST_TRIALS}"}
    parameters = Parameters(info.space)
    drawn = []
    for record, value in pairs:
        with suppress(StoreError):
            drawn.append((*parameters.locate(record.config), value))
    method, shares = _evaluate(drawn)
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    found = {"shares": [[key, float(share)] for key, share in ranked], "method": method}
    return {**found, "epoch": epoch, "num_trials": len(pairs), "reason": "" if shares else "no key varies"}


def choose_epoch(records: Sequence[TrialRecord]) -> int:
    """Return the latest epoch that three quarters of the trials have reached."""
    reached = sorted((record.epochs for record in records), reverse=True)
    return reached[math.ceil(len(reached) * REACHED_SHARE) - 1] if reached else 0


def _value_at(record: TrialRecord, metric: str, epoch: int) -> float:
    """Return what a trial had by an epoch; NaN where it has not come so far."""
    if record.epochs < epoch:
        return math.nan
    values = [report.metrics.get(metric, math.nan) for report in record.history if report.epoch <= epoch]
    return values[-1] if values else math.nan


def _evaluate(drawn: Sequence[tuple[Json, Json, float]]) -> tuple[str, dict[str, float]]:
    """Ask Optuna, of the parameters that all trials have and in which they differ."""
    import optuna
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator
    from optuna.trial import create_trial

    shared = set.intersection(*(set(parameters) for parameters, _, _ in drawn)) if drawn else set()
    varied = sorted(key for key in shared if len({repr(parameters[key]) for parameters, _, _ in drawn}) > 1)
    if not varied:
        return "", {}
    with quietly():
        study = optuna.study.create_study(storage=optuna.storages.InMemoryStorage())
    for parameters, distributions, value in drawn:
        with suppress(*UNSOUND):  # a value that its own domain does not have
            trial = create_trial(
                params={key: parameters[key] for key in varied},
                distributions={key: distributions[key] for key in varied},
                value=value,
            )
            study.add_trial(trial)
    if len(study.trials) < LEAST_TRIALS:
        return "", {}
    # fANOVA grows a forest, for which Optuna needs scikit-learn; PED-ANOVA does without.
    has_forest = find_spec("sklearn") is not None
    evaluator = (
        FanovaImportanceEvaluator(n_trees=NUM_TREES, max_depth=MAX_DEPTH, seed=0)
        if has_forest
        else PedAnovaImportanceEvaluator()
    )
    return "fANOVA" if has_forest else "PED-ANOVA", dict(evaluator.evaluate(study, params=varied))
