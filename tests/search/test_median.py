from __future__ import annotations

import math
from random import Random
from statistics import mean, median

import pytest
from tests.search.harness import SearchLoop

from headwater.search import MedianStopping, Problem, RandomSearch
from headwater.space import Config, Space, uniform
from headwater.trials import Status

SPACE = Space({"x": uniform(0, 1)})
PROBLEM = Problem(space=SPACE, metric="accuracy", mode="max", seed=4, num_trials=60)


def learn(config: Config, epoch: int) -> float:
    rng = Random(repr(config))
    return rng.random() * (1 - math.exp(-epoch / rng.uniform(1, 10)))


def run_rule(configs: list[Config], concurrency: int, grace: int, min_trials: int) -> list[int]:
    """Return how long each configuration trains under the rule of Golovin et al., "Google Vizier"."""
    epochs: list[int] = []
    is_stopped: list[bool] = []
    for number, config in enumerate(configs):
        others = [configs[n] for n in range(max(0, number - concurrency + 1)) if not is_stopped[n]]
        curve: list[float] = []
        for epoch in range(1, 11):
            curve.append(learn(config, epoch))
            averages = [mean(learn(other, e) for e in range(1, epoch + 1)) for other in others]
            is_behind = epoch > grace and len(averages) >= min_trials and max(curve) < median(averages)
            if is_behind:
                break
        epochs.append(epoch)
        is_stopped.append(is_behind)
    return epochs


@pytest.mark.parametrize("concurrency", [1, 7, 16])
@pytest.mark.parametrize(("grace", "min_trials"), [(1, 5), (3, 1), (0, 2)])
def test_trials_are_stopped_by_the_rule_of_the_paper(concurrency: int, grace: int, min_trials: int) -> None:
    configs = [segment.config for segment in RandomSearch(SPACE, 4, 60).propose(60)]
    search = MedianStopping(grace_epochs=grace, min_trials=min_trials, concurrency=concurrency)
    records = SearchLoop(PROBLEM, learn, num_epochs=10).run(search, slots=5, seed=0)
    expected = run_rule(configs, concurrency, grace, min_trials)
    assert [record.epochs for record in records] == expected
    assert {Status.STOPPED, Status.COMPLETED} == {record.status for record in records}


def test_no_trial_is_ever_paused() -> None:
    study = SearchLoop(PROBLEM, learn, num_epochs=10)
    for cut in range(1, 200, 20):
        records = study.run(MedianStopping(), slots=9, seed=cut, max_reports=cut)
        assert Status.PAUSED not in {record.status for record in records}
