"""Suggestions of Optuna's samplers, through ask and tell on a study in memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, QMCSampler, TPESampler
from optuna.trial import Trial, TrialState, create_trial

from headwater.search.axes import Axes
from headwater.search.problem import Problem
from headwater.search.stages import Lesson
from headwater.search.tried import Tried
from headwater.space import Config

if TYPE_CHECKING:
    from headwater.search.suggesting import Suggest

Settings: TypeAlias = Mapping[str, Any]  # Any: what Optuna's samplers take
"""More of a sampler's settings."""
Violations: TypeAlias = dict[int, tuple[float, ...]]
"""By how much trials break constraints, by their numbers in Optuna's study: samplers ask for it when they are told."""

CONSTRAINED = ("tpe", "nsga2", "gp")
"""Samplers that learn from constraints."""
NUM_ASKS = 4
"""How often a sampler that suggests what was tried already is asked again before the next trial is drawn at random."""


class Board:
    """An Optuna study in memory, in which parameters stand for the configurations of a space. Small scores are good."""

    def __init__(
        self, axes: Axes, sampler: BaseSampler | None = None, num_others: int = 0, violations: Violations | None = None
    ) -> None:
        self._axes = axes
        self._violations = violations
        self._num_others = num_others
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(sampler=sampler, directions=["minimize"] * (1 + num_others))
        optuna.logging.set_verbosity(verbosity)
        self._num_trials = 0

    def ask(self, number: int, sampler: BaseSampler | None = None) -> tuple[Trial, Config]:
        """Ask for a configuration for our trial `number`."""
        self._study.sampler = sampler or self._study.sampler
        trial = self._study.ask()
        self._num_trials += 1
        return trial, self._axes.resolve(lambda name, distribution: _suggest(trial, name, distribution), number)

    def add(self, config: Config) -> int:
        """Enter a configuration as that of a running trial, and return its number here."""
        params, distributions = self._axes.locate(config)
        self._study.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=distributions))
        self._num_trials += 1
        return self._num_trials - 1

    def tell(self, trial: Trial | int, lesson: Lesson) -> None:
        """Tell the scores; an infeasible trial is told as one that was given up, the worst there is.

        Where several metrics count Optuna knows no such trials: there, it has failed. So has one of which it is not
        known whether it keeps to the constraints.
        """
        scores, is_known = [lesson.score, *lesson.others], all(map(math.isfinite, lesson.violations))
        if self._violations is not None:
            self._violations[trial if isinstance(trial, int) else trial.number] = lesson.violations
        if is_known and all(map(math.isfinite, scores)):
            self._study.tell(trial, scores)
        else:
            has_failed = self._num_others or not is_known
            self._study.tell(trial, state=TrialState.FAIL if has_failed else TrialState.PRUNED)

    def withdraw(self, trial: Trial) -> None:
        """Tell that nothing came of a question."""
        self._study.tell(trial, state=TrialState.FAIL)


class ReplayedSuggester:
    """Asks one sampler throughout, whatever it keeps to itself.

    To resume, all questions are asked and all scores told again, so the sampler must be a seeded one to go on exactly
    as it would have. Where its answer is not what the record holds, the record counts.
    """

    def __init__(
        self, suggest: Suggest, problem: Problem, tried: Tried, recorded: Mapping[int, Config], settings: Settings
    ) -> None:
        violations = open_violations(problem) if suggest in CONSTRAINED else None
        settings = add_constraints(settings, violations)
        sampler = make_sampler(suggest, problem.seed, settings) if isinstance(suggest, str) else deepcopy(suggest)
        self._board = Board(Axes(problem.space, problem.seed), sampler, len(problem.also), violations)
        self._tried = tried
        self._recorded = recorded
        self._asked: dict[int, Trial | int] = {}

    def suggest(self, number: int) -> Config | None:
        """Ask the sampler until it suggests something new, and draw at random if it does not."""
        recorded = self._recorded.get(number)
        for _ in range(NUM_ASKS):
            trial, config = self._board.ask(number)
            is_wanted = self._tried.add(config) if recorded is None else self._tried.is_same(config, recorded)
            if is_wanted:
                self._tried.add(config)
                self._asked[number] = trial
                return config
            self._board.withdraw(trial)
        return self._enter(number, self._tried.draw(number) if recorded is None else recorded)

    def learn(self, lesson: Lesson) -> None:
        """Tell what the trial reached when it was first compared; later lessons are at another length of training."""
        trial = self._asked.pop(lesson.number, None)
        if trial is not None:
            self._board.tell(trial, lesson)

    def _enter(self, number: int, config: Config | None) -> Config | None:
        if config is not None:
            self._tried.add(config)
            self._asked[number] = self._board.add(config)
        return config


class FreshSuggester:
    """Asks a new Parzen estimator for each trial, for it works from the trials' scores alone.

    The one for trial n is seeded by n, so nothing has to be asked again to resume.
    """

    def __init__(self, problem: Problem, tried: Tried, recorded: Mapping[int, Config], settings: Settings) -> None:
        violations = open_violations(problem)
        self._settings = add_constraints(settings, violations)
        first = make_sampler("tpe", problem.seed, self._settings)  # that is told what the record holds
        self._board = Board(Axes(problem.space, problem.seed), first, len(problem.also), violations)
        self._seed = problem.seed
        self._tried = tried
        self._recorded = recorded
        self._running: dict[int, int] = {}

    def suggest(self, number: int) -> Config | None:
        """Ask until there is something new, and draw at random if there is not."""
        config = self._recorded.get(number)
        if config is None:
            sampler = make_sampler("tpe", mix_seed(self._seed, number), self._settings)
            config = ask_untried(self._board, number, sampler, self._tried) or self._tried.draw(number)
        if config is not None:
            self._tried.add(config)
            self._running[number] = self._board.add(config)
        return config

    def learn(self, lesson: Lesson) -> None:
        """Tell what the trial reached when it was first compared."""
        trial = self._running.pop(lesson.number, None)
        if trial is not None:
            self._board.tell(trial, lesson)


def open_violations(problem: Problem) -> Violations | None:
    """Return where a board is to say how far trials break constraints; None where there are none."""
    return {} if problem.constraints else None


def add_constraints(settings: Settings, violations: Violations | None) -> Settings:
    """Let a sampler ask how far trials break constraints."""
    return settings if violations is None else {**settings, "constraints_func": lambda one: violations[one.number]}


def ask_untried(board: Board, number: int, sampler: BaseSampler, tried: Tried) -> Config | None:
    """Ask a sampler for a configuration that no trial has had; None if it insists on one that was."""
    for _ in range(NUM_ASKS):
        trial, config = board.ask(number, sampler)
        board.withdraw(trial)
        if tried.add(config):
            return config
    return None


def make_sampler(name: str, seed: int, settings: Settings) -> BaseSampler:
    """Build the sampler of a name, quiet about what is not news to a user of ours."""
    kinds: dict[str, Callable[..., BaseSampler]] = {
        "tpe": TPESampler,
        "nsga2": NSGAIISampler,
        "gp": lambda **given: GPSampler(warn_independent_sampling=False, **given),
        "cmaes": lambda **given: CmaEsSampler(warn_independent_sampling=False, **given),
        "qmc": lambda **given: QMCSampler(scramble=True, warn_independent_sampling=False, **given),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.simplefilter("ignore", FutureWarning)  # of constraints_func, which Optuna 4 has no other way for
        return kinds[name](seed=seed, **settings)


def _suggest(trial: Trial, name: str, distribution: BaseDistribution) -> Any:  # Any: a parameter is a number
    if isinstance(distribution, FloatDistribution):
        return trial.suggest_float(name, distribution.low, distribution.high, log=distribution.log)
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(name, distribution.low, distribution.high, log=distribution.log)
    assert isinstance(distribution, CategoricalDistribution)
    return trial.suggest_categorical(name, distribution.choices)


def mix_seed(seed: int, number: int) -> int:
    """Return a seed for one trial."""
    return Random(f"{seed}:{number}:sampler").getrandbits(32)
