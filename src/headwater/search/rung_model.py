"""The model of BOHB: Optuna's Parzen estimator, fed with the results of one rung."""

from __future__ import annotations

from random import Random

from headwater.search.axes import Axes
from headwater.search.ledger import INFEASIBLE
from headwater.search.optuna_suggesting import Board, ask_untried, make_sampler
from headwater.search.problem import Problem
from headwater.search.stages import Lesson
from headwater.search.tried import Tried
from headwater.space import Config


class RungModelSuggester:
    """Suggests from the results at the highest rung that has `min_results` of them, and now and then at random.

    Rung by rung there is a study of Optuna's that holds the results. Each question is put by a new sampler, seeded by
    the trial's number, so nothing has to be asked again to resume.
    """

    def __init__(self, problem: Problem, tried: Tried, random_fraction: float, min_results: int) -> None:
        self._seed = problem.seed
        self._axes = Axes(problem.space, problem.seed)
        self._tried = tried
        self._recorded = problem.given
        for point in problem.points.values():
            tried.add(point)
        self._random_fraction = random_fraction
        self._min_results = min_results
        self._configs: dict[int, Config] = {}
        self._boards: dict[int, Board] = {}
        self._num_sound: dict[int, int] = {}

    def suggest(self, number: int) -> Config | None:
        """Ask the model, or draw at random."""
        config = self._recorded.get(number)
        if config is None:
            config = self._ask(number) or self._tried.draw(number)
        if config is not None:
            self._tried.add(config)
            self._configs[number] = config
        return config

    def learn(self, lesson: Lesson) -> None:
        """Enter a result at its rung."""
        epochs = lesson.epochs or 0
        if epochs not in self._boards:
            self._boards[epochs] = Board(self._axes)
        board = self._boards[epochs]
        board.tell(board.add(self._configs[lesson.number]), lesson)
        self._num_sound[epochs] = self._num_sound.get(epochs, 0) + (lesson.score < INFEASIBLE)

    def _ask(self, number: int) -> Config | None:
        rng = Random(f"{self._seed}:{number}:model")
        enough = [epochs for epochs, num in self._num_sound.items() if num >= self._min_results]
        if not enough or rng.random() < self._random_fraction:
            return None
        sampler = make_sampler("tpe", rng.getrandbits(32), {"n_startup_trials": 0})
        return ask_untried(self._boards[max(enough)], number, sampler, self._tried)
