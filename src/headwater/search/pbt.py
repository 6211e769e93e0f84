"""Population based training: the worst of a population are replaced by altered copies of the best."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from headwater.errors import StudyError
from headwater.search.ledger import INFEASIBLE, Ledger
from headwater.search.problem import Problem
from headwater.search.protocol import Searcher
from headwater.search.rungs import choose_max_epochs
from headwater.search.scheduled import ScheduledSearch
from headwater.search.stages import Course, Lesson, Stages
from headwater.search.suggesting import Intake, Suggest, build_suggester, check_suggest
from headwater.search.tried import Tried
from headwater.settings import read_number, set_whole
from headwater.space import Choice, Config, Domain, Grid, LogUniform, QLogUniform, QUniform, RandInt, Space, Uniform
from headwater.trials import Segment

NUM_GENERATIONS = 10
"""How many stretches a training is cut into where the user does not say."""
NUM_TRIES = 16
"""How often a copy is altered until its configuration is one that no trial has had."""


@dataclass(frozen=True, kw_only=True)
class PBT:
    """Population based training, as in Jaderberg et al., "Population Based Training of Neural Networks".

    All members train for `interval` epochs; then each of the worst is replaced by a new trial that starts from the
    weights and the optimizer state of one of the best, with an altered configuration. Copies count as trials. When a
    population is done and the study wants more trials, another one begins.
    """

    interval: int | None = None
    """How many epochs lie between comparisons; None for a tenth of the training."""
    max_epochs: int | None = None
    """How long members train; None for the study's limit, or the training function's own end."""
    population: int = 16
    quantile: float = 0.25
    """Which part of the members is replaced, and which part is copied."""
    factors: tuple[float, float] = (0.8, 1.2)
    """By what a number is multiplied, to lower or to raise it."""
    resample: float = 0.25
    """How likely a value is drawn anew instead."""
    mutate: tuple[str, ...] | None = None
    """Dotted keys that copies alter; None for all that hold fractions, for weights fit another learning rate, but not
    another width."""
    suggest: Suggest = "random"

    def __post_init__(self) -> None:
        for name in ("interval", "max_epochs", "population"):
            set_whole(self, name, 1)
        read_number("quantile", self.quantile, 0, 0.5)
        read_number("resample", self.resample, 0, 1)
        self._check_altering()
        check_suggest(self.suggest)

    def _check_altering(self) -> None:
        factors: object = self.factors
        if not isinstance(factors, list | tuple) or len(factors) != 2:
            raise StudyError(f"factors is {factors!r}; it must be two numbers, such as (0.8, 1.2)")
        for factor in factors:
            read_number("a factor of PBT", factor, 0)
        keys: object = self.mutate
        if keys is not None and not isinstance(keys, list | tuple):
            raise StudyError(f"mutate is {keys!r}; it must be keys of the space, such as ('lr',), or None")

    def __call__(self, problem: Problem) -> Searcher:
        """Build the searcher."""
        max_epochs = choose_max_epochs(self.max_epochs, problem)
        if self.interval is None and max_epochs is None:
            raise StudyError(
                "PBT was told neither how long trials train nor how often to compare them; "
                "pass max_epochs to the study, or write search=PBT(interval=...)"
            )
        interval = self.interval or max(1, (max_epochs or 0) // NUM_GENERATIONS)
        ledger = Ledger(problem)
        nursery = _Nursery(self, problem)
        courses = _open_populations(nursery, ledger, interval, max_epochs)
        return ScheduledSearch(Stages(courses, ledger, 1, nursery.intake.learn), ledger)


def _open_populations(nursery: _Nursery, ledger: Ledger, interval: int, max_epochs: int | None) -> Iterator[Course]:
    while members := nursery.intake.enter_many(nursery.settings.population):
        yield _train_population(members, nursery, ledger, interval, max_epochs)


def _train_population(
    members: Sequence[Segment], nursery: _Nursery, ledger: Ledger, interval: int, max_epochs: int | None
) -> Course:
    lessons: list[Lesson] = []
    until = 0
    while members and until != max_epochs:
        until = until + interval if max_epochs is None else min(until + interval, max_epochs)
        scores = yield [replace(member, until=until) for member in members]
        found = list(zip(scores, members, strict=True))
        lessons += [Lesson(number=member.number, epochs=until, score=score) for score, member in found]
        if until != max_epochs:
            members = _replace_worst(found, until, nursery, ledger)
    return lessons


def _replace_worst(
    found: Sequence[tuple[float, Segment]], until: int, nursery: _Nursery, ledger: Ledger
) -> list[Segment]:
    """Return the next generation: copies first, for they need the weights that the best have now."""
    ranked = sorted(found, key=lambda item: (item[0], item[1].number))
    alive = [item[1] for item in ranked if item[0] < INFEASIBLE and not ledger.has_completed(item[1].number, until)]
    lost = [item[1] for item in ranked if item[0] == INFEASIBLE]
    num_replaced = min(math.ceil(len(found) * nursery.settings.quantile), len(alive) // 2)
    best, worst = alive[:num_replaced] or alive[:1], alive[len(alive) - num_replaced :]
    are_here = all(ledger.num_epochs(donor.number) == until for donor in best)
    copies = []
    for member in sorted([*lost, *worst], key=lambda member: member.number):
        copy = nursery.copy_one_of(best, are_here=are_here)
        if copy is not None:
            copies.append(copy)
            ledger.drop(member.number)
            alive = [other for other in alive if other is not member]
    return copies + sorted((replace(member, parent=None) for member in alive), key=lambda member: member.number)


class _Nursery:
    """Brings up new trials: fresh ones for a population, and altered copies."""

    def __init__(self, settings: PBT, problem: Problem) -> None:
        self.settings = settings
        self._seed = problem.seed
        self._space = problem.space
        self._recorded = {record.number: record.config for record in problem.known}
        self._tried = Tried(problem.space, problem.seed)
        self.intake = Intake(problem, build_suggester(settings.suggest, problem, self._tried))
        unknown = sorted(set(settings.mutate or ()) - {row.key for row in problem.space.describe()})
        if unknown:
            names = ", ".join(map(repr, unknown))
            raise StudyError(f"PBT should alter {names}, which the space lacks; it is {problem.space}")

    def copy_one_of(self, donors: Sequence[Segment], *, are_here: bool) -> Segment | None:
        """Return a new trial that goes on from one of the donors with an altered configuration, if there may be one.

        Donors that have trained on are still good for copies that the record holds, but not for new ones. That is so
        when a study that had reached its number of trials is given more: these form a population of their own.
        """
        number = self.intake.next_number
        if number is None or not donors or not (are_here or number in self._recorded):
            return None
        rng = Random(f"{self._seed}:{number}")
        donor = rng.choice(donors)
        for _ in range(NUM_TRIES):
            config = _alter(donor.config, self._space, self.settings, rng)
            if self._tried.add(config):
                return self.intake.enter_as(self._recorded.get(number, config), parent=donor.number)
        return None


def _alter(config: Config, space: Space, settings: PBT, rng: Random) -> Config:
    given = space.flatten(config)

    def draw(key: str, domain: Domain) -> Any:  # Any: as for Config
        value = given[key]
        may_change = key in settings.mutate if settings.mutate is not None else _holds_fractions(domain)
        if not domain.contains(value):  # a condition gives another domain now
            return domain.sample(rng)
        return _perturb(domain, value, settings, rng) if may_change else value

    return space.resolve(draw)


def _perturb(domain: Domain, value: Any, settings: PBT, rng: Random) -> Any:  # Any: as for Config
    is_raised = rng.random() < 1 / 2
    if rng.random() < settings.resample:
        return domain.sample(rng)
    if isinstance(domain, Choice | Grid):
        index = next(index for index, option in enumerate(domain.options) if option is value or option == value)
        return domain.options[min(max(index + (1 if is_raised else -1), 0), len(domain.options) - 1)]
    if isinstance(domain, Uniform | LogUniform | QUniform | QLogUniform | RandInt):
        return domain.nearest(value * settings.factors[is_raised])
    return domain.sample(rng)


def _holds_fractions(domain: Domain) -> bool:
    if isinstance(domain, QUniform | QLogUniform):
        return any(isinstance(number, float) for number in (domain.low, domain.high, domain.q))
    return isinstance(domain, Uniform | LogUniform)
