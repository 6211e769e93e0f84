from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headwater.errors import StudyError
from headwater.search import ASHA, GridSearch, Problem, RandomSearch, build_searcher
from headwater.space import Space, choice

PROBLEM = Problem(space=Space({"a": choice([1, 2, 3])}), metric="accuracy", mode="max", seed=3, num_trials=2)


@pytest.mark.parametrize(("name", "kind"), [("random", RandomSearch), ("grid", GridSearch)])
def test_a_name_stands_for_a_searcher(name: str, kind: type) -> None:
    assert type(build_searcher(name, PROBLEM)) is kind


def test_a_searcher_is_taken_as_it_is() -> None:
    searcher = GridSearch(PROBLEM.space)
    assert build_searcher(searcher, PROBLEM) is searcher


def test_a_function_builds_from_the_problem() -> None:
    searcher = build_searcher(lambda problem: RandomSearch(problem.space, problem.seed, 1), PROBLEM)
    assert searcher.propose(5) == RandomSearch(PROBLEM.space, 3, 1).propose(5)


@pytest.mark.parametrize("search", ["asah", 3, None])
def test_an_unknown_search_is_answered_with_what_is_possible(search: Any) -> None:  # Any: what users may pass
    with pytest.raises(StudyError, match=f"there is no search {search!r}; possible are 'random', 'grid', 'tpe'"):
        build_searcher(search, PROBLEM)


def test_a_function_that_builds_something_else_is_an_error() -> None:
    wrong: Any = lambda problem: problem.space  # noqa: E731 - Any: the mistake under test
    with pytest.raises(StudyError, match="which lacks propose, observe or finish"):
        build_searcher(wrong, PROBLEM)


@pytest.mark.parametrize("num_trials", [0, -3])
def test_fewer_trials_than_one_are_refused(num_trials: int) -> None:
    with pytest.raises(StudyError, match=f"num_trials is {num_trials}; it must be a whole number of at least 1"):
        Problem(space=PROBLEM.space, metric="a", mode="max", num_trials=num_trials)


def test_importing_searches_loads_neither_torch_nor_optuna() -> None:
    code = "import sys, headwater.search; sys.exit(bool({'torch', 'optuna'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_search_shows_its_settings() -> None:
    assert repr(ASHA(max_epochs=27)).startswith("ASHA(reduction=3, min_epochs=1, max_epochs=27")
