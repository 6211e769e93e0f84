"""Generated programs give the same in plain PyTorch, one by one and in lanes; and the hunt would see if they did not."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fuzz.comparing import compare_ways
from tests.fuzz.hunting import Verdict, judge_many, judge_program
from tests.fuzz.programs import CONSTRUCTS, FEATURES, GIVEN_PAIRS, Program, draw_program, write_program
from tests.fuzz.running import run_program
from tests.fuzz.shrinking import shrink
from tests.fuzz.slots import Part, part

SEED = 0


def _program_with(feature: Part) -> Program:
    configs = tuple({"lr": rate} for rate in ("0.1", "0.05", "0.2"))
    return Program(seed=SEED, index=0, chains=(), features=(feature,), configs=configs, leavers=frozenset())


def test_a_seed_and_an_index_always_give_the_same_program() -> None:
    assert write_program(draw_program(3, 17)) == write_program(draw_program(3, 17))
    assert write_program(draw_program(3, 17)) != write_program(draw_program(4, 17))


def test_all_pairs_of_a_value_and_a_construct_come_up() -> None:
    programs = [draw_program(SEED, index) for index in range(len(GIVEN_PAIRS))]
    drawn = {(program.chains[0].kind, program.chains[0].construct) for program in programs}
    assert drawn == set(GIVEN_PAIRS)
    assert {feature.name for program in programs for feature in program.features} == {one.name for one in FEATURES}


def test_every_program_is_python() -> None:
    for index in range(len(CONSTRUCTS)):
        for text in write_program(draw_program(SEED, index)).values():
            ast.parse(text.replace("@other", "other"))


def test_a_program_that_tells_plain_pytorch_from_a_study_is_found(tmp_path: Path) -> None:
    liar = _program_with(part("lies", "looks", ended='metrics["loss"] += type(trial).__name__ == "PlainTrial"'))
    assert all("plain PyTorch" in text for text in compare_ways(run_program(liar, tmp_path)))
    assert judge_program(liar, tmp_path).verdict is Verdict.DIFFERENT


def test_a_program_that_tells_one_lane_from_several_is_found(tmp_path: Path) -> None:
    liar = _program_with(part("lies", "counts", ended='metrics["loss"] += len(getattr(trial, "lanes", "1"))'))
    differences = compare_ways(run_program(liar, tmp_path))
    assert [text.split(":")[0] for text in differences] == ["trial 0", "trial 1", "trial 2"]
    assert all("lanes=3" in text for text in differences)


def test_a_trial_that_fails_in_a_study_alone_is_found(tmp_path: Path) -> None:
    liar = _program_with(part("lies", "raises", ended='{"PlainTrial": 0}[type(trial).__name__]'))
    differences = compare_ways(run_program(liar, tmp_path))
    assert len(differences) == 3
    assert all("completed" in text and "failed" in text and "KeyError" in text for text in differences)


def test_a_program_that_never_ends_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.running.MAX_SECONDS", 0.2)
    endless = _program_with(part("lies", "waits", ended="while True:\n    pass"))
    assert judge_program(endless, tmp_path).verdict is Verdict.HANGS


def test_shrinking_keeps_what_differs_and_drops_the_rest(tmp_path: Path) -> None:
    lie = part("lies", "counts", ended='metrics["loss"] += len(getattr(trial, "lanes", "1"))')
    program = next(one for one in (draw_program(SEED, index) for index in range(50)) if len(one.labels) == 3)
    liar = replace(program, features=(*program.features, lie))
    small = shrink(liar, lambda one: lie in one.features)
    assert small.labels == ("lies: counts",)
    assert len(small.configs) == 2


def test_programs_in_processes_come_to_the_same(tmp_path: Path) -> None:
    indices = [3, 4, 9]
    there = {finding.index: finding.verdict for finding in judge_many(SEED, indices, 2)}
    assert there == {index: judge_program(draw_program(SEED, index), tmp_path).verdict for index in indices}
