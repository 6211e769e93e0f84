"""Where the configurations of new trials come from."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

from headwater.errors import StudyError
from headwater.search.problem import Problem
from headwater.search.stages import Lesson
from headwater.search.tried import Tried
from headwater.space import Config
from headwater.trials import Segment

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

Suggest: TypeAlias = "str | BaseSampler"
"""A name, or an Optuna sampler."""

NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"random": (), "tpe": (), "gp": ("scipy", "torch"), "cmaes": ("cmaes",), "qmc": ("scipy",), "nsga2": ()}
)
"""What can suggest, and the packages that Optuna needs for it besides its own requirements."""


class Suggester(Protocol):
    """Suggests configurations, and may learn from what came of them.

    It is called in the order that the study is to keep to, virtual or of arrival, and need not care which. Built with
    what the record holds, it suggests for a known trial what that trial had.
    """

    def suggest(self, number: int) -> Config | None:
        """Return a configuration for trial `number` that no trial has had; None when there is none left."""

    def learn(self, lesson: Lesson) -> None:
        """Learn what a trial reached; a trial that is compared several times gives several lessons."""


class RandomSuggester:
    """Draws at random, as random search does."""

    def __init__(self, tried: Tried, recorded: Mapping[int, Config]) -> None:
        self._tried = tried
        self._recorded = recorded

    def suggest(self, number: int) -> Config | None:
        """Draw a configuration."""
        config = self._recorded.get(number)
        if config is None:
            return self._tried.draw(number)
        self._tried.add(config)
        return config

    def learn(self, lesson: Lesson) -> None:
        """Learn nothing: draws are independent."""


class Intake:
    """Numbers new trials, from 0 up to the number that the study wants."""

    def __init__(self, problem: Problem, suggester: Suggester) -> None:
        self._num_trials = problem.num_trials
        self._suggester = suggester
        self._number = 0
        self._has_more = True

    def enter(self) -> Segment | None:
        """Return a new trial, without an end yet; None when there are enough or the space has no more."""
        if self._number == self._num_trials or not self._has_more:
            return None
        config = self._suggester.suggest(self._number)
        self._has_more = config is not None
        return None if config is None else self.enter_as(config)

    def enter_as(self, config: Config, parent: int | None = None) -> Segment:
        """Return a new trial with this configuration; only while `next_number` is not None."""
        assert self._number != self._num_trials
        self._number += 1
        return Segment(number=self._number - 1, config=config, parent=parent)

    def enter_many(self, count: int | None) -> list[Segment]:
        """Return as many new trials as there may be, at most `count`."""
        trials: list[Segment] = []
        while len(trials) != count and (trial := self.enter()) is not None:
            trials.append(trial)
        return trials

    @property
    def next_number(self) -> int | None:
        """The number of the next new trial; None when there are enough."""
        return None if self._number == self._num_trials else self._number

    def learn(self, lesson: Lesson) -> None:
        """Pass on what a trial reached."""
        self._suggester.learn(lesson)


def build_suggester(
    suggest: Suggest,
    problem: Problem,
    tried: Tried,
    settings: Mapping[str, Any] | None = None,  # Any: what Optuna's samplers take
) -> Suggester:
    """Build what a name, with more settings of Optuna's, or an Optuna sampler stands for."""
    check_suggest(suggest)
    recorded = problem.given
    for point in problem.points.values():
        tried.add(point)
    if suggest == "random":
        return RandomSuggester(tried, recorded)
    from headwater.search.optuna_suggesting import FreshSuggester, ReplayedSuggester

    if suggest == "tpe":
        return FreshSuggester(problem, tried, recorded, settings or {})
    return ReplayedSuggester(suggest, problem, tried, recorded, settings or {})


def build_intake(suggest: Suggest, problem: Problem) -> Intake:
    """Build the source of new trials of a search."""
    return Intake(problem, build_suggester(suggest, problem, Tried(problem.space, problem.seed)))


def check_suggest(suggest: object) -> None:
    """Refuse what cannot suggest, or lacks a package for it."""
    if is_sampler(suggest):
        return
    if not isinstance(suggest, str) or suggest not in NEEDED:
        names = ", ".join(map(repr, NEEDED))
        raise StudyError(f"suggest is {suggest!r}; possible are {names}, or a sampler of Optuna's")
    missing = [name for name in NEEDED[suggest] if find_spec(name) is None]
    if missing:
        raise StudyError(f"{suggest!r} needs {' and '.join(missing)}; pip install {' '.join(missing)}")


def learns(suggest: Suggest) -> bool:
    """Whether suggestions depend on results."""
    return suggest not in ("random", "qmc")


def is_sampler(suggest: object) -> TypeGuard[BaseSampler]:
    """Whether this is one of Optuna's samplers, or a user's own; the class of one is not."""
    methods = ("infer_relative_search_space", "sample_relative", "sample_independent")
    return all(hasattr(suggest, name) for name in methods) and not isinstance(suggest, type)
