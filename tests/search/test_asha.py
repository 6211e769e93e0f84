"""Asynchronous halving against the pseudo-code of the paper, run on as many workers as are imagined."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

import pytest
from tests.search.harness import Curve, SearchLoop

from headwater.search import ASHA, Dropping, Problem, RandomSearch
from headwater.space import Config, Space, uniform
from headwater.trials import Report, Status

SPACE = Space({"x": uniform(0, 1)})


def lose(config: Config, epoch: int) -> float:
    rng = Random(repr(config))
    return rng.random() + rng.random() * math.exp(-epoch / rng.uniform(1, 30))


def stumble(config: Config, epoch: int) -> float:
    return math.nan if Random(repr(config)).random() < 0.4 else lose(config, epoch)


def make_problem(num_trials: int, max_epochs: int | None) -> Problem:
    return Problem(space=SPACE, metric="loss", mode="min", seed=1, num_trials=num_trials, max_epochs=max_epochs)


@dataclass
class PlainASHA:
    """Algorithm 2 of Li et al., "A System for Massively Parallel Hyperparameter Tuning", word by word."""

    configs: list[Config]
    rungs: list[int]
    eta: int
    curve: Curve
    losses: list[dict[int, float]] = field(default_factory=list)
    promoted: list[set[int]] = field(default_factory=list)
    num_started: int = 0

    def run(self, num_workers: int) -> list[int]:
        """Return the rung that each configuration reaches; a job takes as long as it trains."""
        self.losses = [{} for _ in self.rungs]
        self.promoted = [set() for _ in self.rungs]
        jobs: list[tuple[int, int, int]] = []
        time = 0
        while True:
            while len(jobs) < num_workers and (job := self.get_job()) is not None:
                number, k = job
                jobs.append((time + self.rungs[k] - (self.rungs[k - 1] if k else 0), number, k))
            if not jobs:
                return [max(k for k, losses in enumerate(self.losses) if n in losses) for n in range(self.num_started)]
            time, number, k = min(jobs)
            jobs.remove((time, number, k))
            loss = self.curve(self.configs[number], self.rungs[k])
            self.losses[k][number] = loss if math.isfinite(loss) else math.inf

    def get_job(self) -> tuple[int, int] | None:
        for k in range(len(self.rungs) - 2, -1, -1):
            ranked = sorted(self.losses[k], key=lambda number: (self.losses[k][number], number))
            candidates = ranked[: len(ranked) // self.eta]
            promotable = [n for n in candidates if n not in self.promoted[k] and self.losses[k][n] < math.inf]
            if promotable:
                self.promoted[k].add(promotable[0])
                return promotable[0], k + 1
        if self.num_started == len(self.configs):
            return None
        self.num_started += 1
        return self.num_started - 1, 0


@pytest.mark.parametrize("concurrency", [1, 2, 5, 16, 200])
@pytest.mark.parametrize(("eta", "rungs"), [(3, [1, 3, 9, 27]), (2, [1, 2, 4, 8, 11]), (4, [2, 8, 32, 50])])
@pytest.mark.parametrize("curve", [lose, stumble])
def test_the_survivors_are_those_of_the_paper(concurrency: int, eta: int, rungs: list[int], curve: Curve) -> None:
    configs = [segment.config for segment in RandomSearch(SPACE, 1, 120).propose(120)]
    reached = PlainASHA(configs, rungs, eta, curve).run(concurrency)
    search = ASHA(reduction=eta, min_epochs=rungs[0], concurrency=concurrency)
    records = SearchLoop(make_problem(120, rungs[-1]), curve, num_epochs=1000).run(search, slots=9, seed=concurrency)
    is_sound = [math.isfinite(curve(config, 1)) for config in configs]
    assert [record.epochs for record in records] == [
        rungs[k] if sound else 1 for k, sound in zip(reached, is_sound, strict=True)
    ]


def test_without_a_limit_rungs_go_on_to_the_end_of_training() -> None:
    records = SearchLoop(make_problem(81, None), lose, num_epochs=20).run(ASHA(), slots=10, seed=0)
    assert {(record.epochs, record.status) for record in records} == {
        (1, Status.PAUSED),
        (3, Status.PAUSED),
        (9, Status.PAUSED),
        (20, Status.COMPLETED),
    }


def run_stopping_one_by_one(configs: list[Config], rungs: list[int], eta: int) -> list[int]:
    """Return how long each configuration trains if one follows the other."""
    seen: list[list[float]] = [[] for _ in rungs]
    epochs = []
    for config in configs:
        for k, rung in enumerate(rungs):
            losses = seen[k] = sorted([*seen[k], lose(config, rung)])
            if len(losses) >= eta and losses.index(lose(config, rung)) >= len(losses) / eta:
                break
        epochs.append(rung)
    return epochs


@pytest.mark.parametrize(("eta", "rungs"), [(3, [1, 3, 9, 27]), (2, [1, 2, 4, 8, 11])])
def test_the_stopping_variant_lets_the_best_of_each_rung_go_on_at_once(eta: int, rungs: list[int]) -> None:
    configs = [segment.config for segment in RandomSearch(SPACE, 1, 60).propose(60)]
    search = ASHA(reduction=eta, promote=False, concurrency=1)
    records = SearchLoop(make_problem(60, rungs[-1]), lose, num_epochs=1000).run(search, slots=3, seed=0)
    assert [record.epochs for record in records] == run_stopping_one_by_one(configs, rungs, eta)


def test_what_the_stopping_variant_stops_is_dropped_for_good() -> None:
    searcher = ASHA(promote=False, concurrency=4)(make_problem(4, 9))
    assert isinstance(searcher, Dropping)
    for segment in searcher.propose(4):
        searcher.observe(Report(number=segment.number, epoch=1, metrics={"loss": float(segment.number)}))
        searcher.finish(segment.number, Status.PAUSED)
    assert [segment.number for segment in searcher.propose(9)] == [0, 1]
    assert list(searcher.take_dropped()) == [2, 3]


def test_more_imagined_workers_start_more_trials_before_the_first_result() -> None:
    searchers = [ASHA(concurrency=concurrency)(make_problem(100, 9)) for concurrency in (4, 20)]
    assert [len(searcher.propose(1000)) for searcher in searchers] == [4, 20]


def test_a_missing_result_holds_up_those_that_come_after_it_in_virtual_time() -> None:
    searcher = ASHA(concurrency=4)(make_problem(100, 9))
    for segment in reversed(searcher.propose(4)):
        assert list(searcher.propose(4)) == []
        searcher.observe(Report(number=segment.number, epoch=1, metrics={"loss": 0.5}))
        searcher.finish(segment.number, Status.PAUSED)
    assert [(segment.number, segment.until) for segment in searcher.propose(9)] == [(4, 1), (5, 1), (0, 3), (6, 1)]
