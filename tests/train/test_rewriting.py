"""While a group runs, and only then, the user's functions ask for every lane; without lanes they do what they did."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import traceback
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from tests.train import user_module, user_module_with_types
from tests.train.lab import run
from torch import nn
from torch.nn.utils import clip_grad

from headwater.errors import LanesPart
from headwater.fuse.per_lane import PerLane, PerLaneText
from headwater.fuse.rewriting import Rewrites
from headwater.fuse.roster import Roster
from headwater.fuse.tools import answering
from headwater.trials import Outcome, Recipe
from headwater.trials.recipes import Key

ROSTER = Roster([{"x": 2.5}, {"x": 4.0}])


X: Any = PerLane([2.5, 4.0], ROSTER, Recipe("x", Key(("x",))))


def test_calls_go_lane_by_lane() -> None:
    with answering(user_module.compute, ROSTER):
        found = user_module.compute(X, 3)
    assert {name: value.values for name, value in found.items() if isinstance(value, PerLane)} == {
        "float": (2.5, 4.0),
        "int": (2, 4),
        "max": (3, 4.0),
        "max of a list": (3, 4.0),
        "min": (2, 2),
        "sqrt": (math.sqrt(2.5), 2.0),
        "power": (6.25, 16.0),
    }
    assert found["pi"] == math.pi


def test_plain_numbers_go_the_plain_way() -> None:
    with answering(user_module.compute, ROSTER):
        found = user_module.compute(2.5, 3)
    assert found == user_module.compute(2.5, 3)
    assert type(found["int"]) is int


def test_the_answer_follows_from_the_configuration() -> None:
    with answering(user_module.compute, ROSTER):
        answer = user_module.compute(X, 3)["int"]
    assert answer.recipe is not None
    assert answer.recipe.label == "int(x)"
    assert answer.recipe.evaluate({"x": 7.9}) == 7


def test_the_code_is_restored() -> None:
    functions: list[Any] = [user_module.compute, user_module.Caller.method, nn.utils.clip_grad_norm_]
    before = [function.__code__ for function in functions]
    with answering(user_module.compute, ROSTER):
        assert user_module.compute.__code__ is not before[0]
    assert [function.__code__ for function in functions] == before
    assert vars(user_module)["math"] is math
    assert "float" not in vars(user_module)


def test_the_code_is_restored_after_an_exception() -> None:
    before = user_module.compute.__code__
    with pytest.raises(ZeroDivisionError), answering(user_module.compute, ROSTER):
        raise ZeroDivisionError
    assert user_module.compute.__code__ is before


def test_the_code_stays_until_the_last_group_has_ended() -> None:
    before = user_module.compute.__code__
    both_run, one_ends = Barrier(2), Barrier(2)
    seen: list[bool] = []

    def run_group() -> None:
        with answering(user_module.compute, Roster([{}, {}])):
            both_run.wait(20)
        one_ends.wait(20)

    thread = Thread(target=run_group)
    thread.start()
    with answering(user_module.compute, ROSTER):
        both_run.wait(20)
        one_ends.wait(20)
        seen.append(user_module.compute.__code__ is before)
    thread.join()
    assert seen == [False]
    assert user_module.compute.__code__ is before


def test_outside_of_a_group_one_value_is_asked_for() -> None:
    with pytest.raises(LanesPart):
        user_module.compute(X, 3)


def test_a_module_may_speak_of_types_too() -> None:
    with answering(user_module_with_types.to_float, ROSTER):
        assert user_module_with_types.is_float(1.0)
        assert user_module_with_types.is_float(X)
        assert user_module_with_types.to_float(X).values == (2.5, 4.0)
        assert user_module_with_types.annotate.__annotations__ == {"x": "int", "return": "int"}


def test_all_forms_of_functions_are_found_and_work_as_ever() -> None:
    module: Any = user_module_with_types
    with answering(module.to_float, ROSTER):
        assert [value.values for value in module.decorated(X)] == [(2, 4), (2, 4)]
        assert module.Derived(X).hidden.values == (2.5, 4.0)
        assert module.Derived(1).names == ["__class__", "self", "x"]
        assert type(module.Derived.build(X)) is module.Derived
        assert module.Base.text(X).values == ("<2.5>", "<4.0>")
        assert module.closure(X).values == (4.0, 8.0)
        assert [value.values for value in [*module.generate(X)]] == [(2.5, 4.0), (3.5, 5.0)]
        assert module.Record(X).x.values == (2.5, 4.0)


def test_a_traceback_shows_the_users_lines() -> None:
    def lines_of(caught: pytest.ExceptionInfo[ZeroDivisionError]) -> list[tuple[str, int | None]]:
        return [
            (frame.line or "", frame.colno)
            for frame in traceback.extract_tb(caught.tb)
            if frame.filename == user_module_with_types.__file__
        ]

    with pytest.raises(ZeroDivisionError) as plain:
        user_module_with_types.fail(2)
    for value in (2, X):
        with answering(user_module_with_types.fail, ROSTER), pytest.raises(ZeroDivisionError) as caught:
            user_module_with_types.fail(value)
        assert lines_of(caught) == lines_of(plain)


@pytest.mark.parametrize(
    "function",
    [partial(user_module.compute, y=3), user_module.Caller(), user_module.Caller().method],
    ids=["partial", "object", "method"],
)
def test_a_function_in_any_form_has_its_module_found(function: Any) -> None:
    before = user_module.compute.__code__
    with answering(function, ROSTER):
        assert user_module.compute.__code__ is not before


def test_a_function_without_source_is_run_as_it_is() -> None:
    scope: dict[str, Any] = {}
    exec("def train(trial): return float(trial)", scope)  # noqa: S102 - a function as a shell makes it
    with answering(scope["train"], ROSTER):
        assert scope["train"](1) == 1.0
        with pytest.raises(LanesPart):
            scope["train"](X)
    with answering(len, ROSTER):
        pass


def test_a_file_that_was_edited_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "edited_module.py"
    monkeypatch.syspath_prepend(tmp_path)
    answers = []
    for number, place in ((3, 1), (5, 2)):
        file.write_text(f"def scale(x):\n    return float(x) * {number}\n")
        os.utime(file, (place, place))
        spec = importlib.util.spec_from_file_location("edited_module", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "edited_module", module)
        spec.loader.exec_module(module)
        with answering(module.scale, ROSTER):
            answers.append(module.scale(X).values)
    assert answers == [(7.5, 12.0), (12.5, 20.0)]


def test_a_name_of_the_users_own_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(*numbers: float) -> str:
        return "mine"

    monkeypatch.setattr(user_module, "max", own, raising=False)
    with answering(user_module.compute, ROSTER):
        assert user_module.compute(1, 2)["max"] == "mine"
    assert vars(user_module)["max"] is own


def test_a_group_reads_its_tensors_lane_by_lane() -> None:
    done = run(user_module.train, [{"x": 4}, {"x": 9}])
    assert done.outcome is Outcome.DONE, done.ending
    assert [done.notes.history(number, "best") for number in (0, 1)] == [[4.0], [9.0]]
    assert [done.notes.history(number, "root") for number in (0, 1)] == [[2.0], [3.0]]


def test_text_of_all_lanes_can_be_read() -> None:
    text = PerLaneText(["a", "b"], ROSTER)
    assert str(text) == "[a b]"


def test_of_another_module_only_what_is_written_there_gets_a_variant() -> None:
    rewrites = Rewrites(object())

    functions = rewrites.open(len, clip_grad)
    rewrites.close(functions)

    assert {each.__code__.co_filename for each in functions} == {clip_grad.__file__}
    assert {"clip_grad_norm_", "clip_grad_value_"} <= {each.__name__ for each in functions}
