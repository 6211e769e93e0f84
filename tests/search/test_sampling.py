"""Suggestions of Optuna's samplers: what they see, and what becomes of what they say."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from tests.search.harness import SearchLoop

from headwater.errors import StudyError
from headwater.search import ASHA, BOHB, Problem, RungModel, SyncBOHB, build_searcher
from headwater.search.sampling import OptunaSearch
from headwater.space import Config, Space, choice, loguniform, quniform, uniform
from headwater.trials import TrialRecord

SPACE = Space({"x": uniform(-5, 5), "y": uniform(-5, 5)})
PROBLEM = Problem(space=SPACE, metric="loss", mode="min", seed=1, num_trials=30, max_epochs=9)


def bowl(config: Config, epoch: int) -> float:
    return float(config["x"] ** 2 + config["y"] ** 2) + 1 / epoch


class Witness(RandomSampler):
    """Suggests at random, and notes what it could have known."""

    seen: list[list[tuple[TrialState, float | None]]]

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        others = [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
        Witness.seen.append([(other.state, other.value) for other in others])
        return super().infer_relative_search_space(study, trial)


def run_witness(search: Any, curve: Any, **machine: Any) -> tuple[list[Any], tuple[TrialRecord, ...]]:
    Witness.seen = []
    records = SearchLoop(PROBLEM, curve, num_epochs=9).run(search, **machine)
    return Witness.seen, records


@pytest.mark.parametrize("concurrency", [1, 4, 30])
def test_a_suggestion_sees_exactly_the_results_that_are_virtually_in(concurrency: int) -> None:
    search = OptunaSearch(Witness(seed=0), concurrency=concurrency)
    seen, records = run_witness(search, bowl, slots=7, seed=3)
    for number, states in enumerate(seen):
        num_known = max(0, number - concurrency + 1)
        told = [(TrialState.COMPLETE, record.value("loss")) for record in records[:num_known]]
        assert states == told + [(TrialState.RUNNING, None)] * (number - num_known)


def test_a_maximum_is_told_as_a_minimum() -> None:
    problem = Problem(space=SPACE, metric="accuracy", mode="max", num_trials=3)
    Witness.seen = []
    SearchLoop(problem, lambda config, epoch: 0.25).run(OptunaSearch(Witness(seed=0), concurrency=1))
    assert Witness.seen[-1] == [(TrialState.COMPLETE, -0.25)] * 2


def test_trials_that_diverge_or_fail_are_told_as_given_up() -> None:
    def stumble(config: Config, epoch: int) -> float:
        if config["x"] > 2:
            raise RuntimeError("out of memory")
        return math.nan if config["x"] > 0 else bowl(config, epoch)

    seen, records = run_witness(OptunaSearch(Witness(seed=0), concurrency=1), stumble)
    states = [state for state, _ in seen[-1]]
    expected = [TrialState.PRUNED if record.config["x"] > 0 else TrialState.COMPLETE for record in records[:-1]]
    assert states == expected


def test_early_stopping_tells_what_a_trial_reached_at_the_first_rung() -> None:
    seen, records = run_witness(ASHA(suggest=Witness(seed=0), concurrency=1), bowl)
    told = {value for state, value in seen[-1] if state is TrialState.COMPLETE}
    assert told == {record.history[0].metrics["loss"] for record in records[:-1]}


def test_a_sampler_is_not_changed_by_a_study() -> None:
    sampler = TPESampler(seed=3)
    first, second = (SearchLoop(PROBLEM, bowl, num_epochs=2).run(OptunaSearch(sampler)) for _ in range(2))
    assert first == second


def test_a_sampler_can_be_given_as_it_is() -> None:
    searcher = build_searcher(RandomSampler(seed=5), PROBLEM)
    assert searcher.propose(3) == OptunaSearch(RandomSampler(seed=5))(PROBLEM).propose(3)


class Parrot(BaseSampler):
    """Always says the same."""

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return 1


def test_a_sampler_that_repeats_itself_is_helped_out_at_random() -> None:
    space = Space({"a": choice([1, 2, 3]), "b": choice([4, 5])})
    problem = Problem(space=space, metric="loss", mode="min", num_trials=None)
    records = SearchLoop(problem, lambda config, epoch: 1.0).run(OptunaSearch(Parrot(), concurrency=2), slots=3)
    assert records[0].config == {"a": 2, "b": 5}
    assert len({repr(record.config) for record in records}) == len(records) == 6


@pytest.mark.parametrize("name", ["tpe", "cmaes"])
def test_suggestions_get_better_than_chance(name: str) -> None:
    problem = Problem(space=SPACE, metric="loss", mode="min", seed=0, num_trials=60)
    learnt = SearchLoop(problem, bowl, num_epochs=1).run(OptunaSearch(name, concurrency=2), slots=2)
    losses = [record.value("loss") for record in learnt]
    assert sum(losses[30:]) < 0.5 * sum(losses[:30])


def test_a_gaussian_process_does_not_depend_on_parallelism_and_can_be_resumed() -> None:
    problem = Problem(space=SPACE, metric="loss", mode="min", seed=0, num_trials=5)
    search = OptunaSearch("gp", concurrency=2, num_startup=2)
    whole = SearchLoop(problem, bowl, num_epochs=2).run(search)
    assert SearchLoop(problem, bowl, num_epochs=2).run(search, slots=3, seed=1) == whole
    study = SearchLoop(problem, bowl, num_epochs=2)
    study.run(search, slots=2, seed=0, max_reports=7)
    assert study.run(search) == whole


@pytest.mark.parametrize("search", [BOHB(concurrency=1), SyncBOHB()])
def test_bohb_draws_from_a_model_of_the_highest_rung_with_enough_results(search: BOHB | SyncBOHB) -> None:
    def turn(config: Config, epoch: int) -> float:
        """What is good after one epoch is not what is good later."""
        return float(abs(config["x"] - (-4 if epoch == 1 else 4)))

    problem = Problem(space=SPACE, metric="loss", mode="min", seed=0, num_trials=150, max_epochs=9)
    records = SearchLoop(problem, turn, num_epochs=9).run(search, slots=4, seed=0)
    early, late = records[:20], records[90:]
    near = [sum(abs(record.config["x"] - 4) < 2 for record in part) / len(part) for part in (early, late)]
    assert near[1] > near[0] + 0.2


def test_all_of_bohbs_trials_can_be_drawn_at_random() -> None:
    problem = Problem(space=SPACE, metric="loss", mode="min", seed=0, num_trials=40)
    drawn = SearchLoop(problem, bowl, num_epochs=9).run(BOHB(model=RungModel(random_fraction=1.0)))
    plain = SearchLoop(problem, bowl, num_epochs=9).run(ASHA())
    assert [record.config for record in drawn] == [record.config for record in plain]


@pytest.mark.parametrize(("name", "cure"), [("gp", "scipy torch"), ("cmaes", "cmaes"), ("qmc", "scipy")])
def test_a_missing_package_is_named_with_the_cure(name: str, cure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.search.suggesting.find_spec", lambda package: None)
    with pytest.raises(StudyError, match=f"'{name}' needs .*; pip install {cure}$"):
        build_searcher(name, PROBLEM)


def test_an_unknown_suggestion_is_answered_with_what_is_possible() -> None:
    with pytest.raises(StudyError, match="suggest is 'bayes'; possible are 'random', 'tpe'"):
        ASHA(suggest="bayes")


def test_optuna_stays_as_talkative_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    before = optuna.logging.get_verbosity()
    SearchLoop(PROBLEM, bowl, num_epochs=1).run(OptunaSearch("tpe"))
    assert optuna.logging.get_verbosity() == before
    assert capsys.readouterr().err == ""


def test_a_domain_of_ones_own_is_drawn_from_at_random() -> None:
    class Gaussian:
        """A domain that Optuna knows nothing of."""

        def validate(self) -> None: ...

        def sample(self, rng: Random) -> float:
            return rng.gauss(0, 1)

        def contains(self, value: object) -> bool:
            return isinstance(value, float)

        def num_values(self) -> None: ...

        def values(self) -> None: ...

    space = Space({"x": Gaussian(), "y": quniform(0.0, 1.0, 0.1), "z": loguniform(1e-3, 1)})
    problem = Problem(space=space, metric="loss", mode="min", num_trials=20)
    runs = [
        SearchLoop(problem, lambda config, epoch: config["x"]).run(OptunaSearch("tpe", concurrency=2), slots=slots)
        for slots in (1, 5)
    ]
    assert runs[0] == runs[1]
    assert len({record.config["x"] for record in runs[0]}) == 20
