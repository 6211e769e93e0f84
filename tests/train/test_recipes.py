"""Whatever parts lanes is data: it can be sent to another process, recorded and read again, and gives the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.programs import draw_program
from tests.fuzz.running import act_on_program
from tests.train.lab import run
from tests.train.questions import ABOUT_CONFIGURATIONS, ABOUT_NUMBERS, ABOUT_SIZES, ABOUT_THINGS, RATES, SIZES, WORDS
from tests.train.recipes import answer, require_round_trip

from headwater.train import Trial
from headwater.trials import Recipe

Config = Mapping[str, Any]
Train = Callable[[Trial], Any]
FUZZ_SEED, NUM_PROGRAMS = 11, 40
MIXED = [
    {"rate": rate, "word": word, "maybe": maybe} for rate in (0.1, 0.2) for word in WORDS[:2] for maybe in (None, 2)
]


def part(function: Train, configs: Sequence[Config]) -> Iterator[Recipe]:
    """Run a function for lanes, and again for those that agree on what parted them, and yield all that did."""
    question = run(function, list(configs), checks=False).ending.question
    if question is None or question.recipe is None:
        return
    yield question.recipe
    by_answer: dict[str, list[Config]] = {}
    for config in configs:
        by_answer.setdefault(answer(question.recipe, config), []).append(config)
    for configs_alike in by_answer.values():
        if 1 < len(configs_alike) < len(configs):
            yield from part(function, configs_alike)


def require_all_portable(function: Train, configs: Sequence[Config]) -> int:
    recipes = [*part(function, configs)]
    for recipe in recipes:
        require_round_trip(recipe, configs)
    return len(recipes)


def train_on(ask: Callable[[Any], Any], key: str | None = "x") -> Train:
    def train(trial: Trial) -> None:
        trial.report(answer=ask(trial.config if key is None else trial.config[key]))

    return train


@pytest.mark.parametrize("name", ABOUT_NUMBERS)
def test_what_parts_numbers_is_data(name: str) -> None:
    require_all_portable(train_on(ABOUT_NUMBERS[name]), [{"x": rate} for rate in RATES])


@pytest.mark.parametrize("name", ABOUT_SIZES)
def test_what_parts_whole_numbers_is_data(name: str) -> None:
    require_all_portable(train_on(ABOUT_SIZES[name]), [{"x": size} for size in SIZES])


@pytest.mark.parametrize("name", ABOUT_THINGS)
def test_what_parts_things_is_data(name: str) -> None:
    values, ask = ABOUT_THINGS[name]
    require_all_portable(train_on(ask), [{"x": value} for value in values])


@pytest.mark.parametrize("name", ABOUT_CONFIGURATIONS)
def test_what_parts_configurations_is_data(name: str) -> None:
    require_all_portable(train_on(ABOUT_CONFIGURATIONS[name], key=None), MIXED)


def test_what_parts_generated_programs_is_data(tmp_path: Path) -> None:
    num_recipes = 0
    programs = (draw_program(FUZZ_SEED, index) for index in count())
    for program in islice((program for program in programs if program.chains), NUM_PROGRAMS):
        num_recipes += act_on_program(program, tmp_path, lambda m: require_all_portable(m.train, m.CONFIGS))
    assert num_recipes > NUM_PROGRAMS / 2


def test_a_key_function_of_the_users_own_is_no_part_of_a_recipe_and_lanes_split_by_their_answers() -> None:
    def train(trial: Trial) -> None:
        nearest = min([trial.config["x"], 0.3], key=lambda value: -value)
        trial.report(answer=1.0 if nearest > 0.25 else 2.0)
        range(int(10 * nearest))

    configs = [{"x": rate} for rate in RATES]
    question = run(train, configs, checks=False).ending.question
    assert question is not None
    assert question.recipe is None
    assert question.answers == ("3", "3", "4", "8")


def test_a_reflected_operator_of_a_users_class_leaves_the_recipe_of_its_body() -> None:
    class Unknown:
        def __radd__(self, other: float) -> int:
            return int(other * 10)

    def train(trial: Trial) -> None:
        range(trial.config["x"] + Unknown())

    recipes = [*part(train, [{"x": rate} for rate in RATES])]
    assert [recipe.is_portable() for recipe in recipes] == [True]
