"""Generated programs give the same in plain PyTorch, one by one and in lanes; and the hunt would see if they did not."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fuzz.comparing import compare_ways
from tests.fuzz.hunting import Course, Verdict, find_course, judge_many, judge_program
from tests.fuzz.loop_state import LOOP_STATE
from tests.fuzz.pausing import PausingSearch
from tests.fuzz.process_state import PROCESS_STATE
from tests.fuzz.programs import COMPUTED_PAIRS, FEATURES, GIVEN_PAIRS, Program, draw_program, write_program
from tests.fuzz.running import LANES, MOVED, PAUSED, PAUSED_ALONE, Ended, Run, Way, Ways, run_program
from tests.fuzz.shrinking import shrink
from tests.fuzz.slots import Part, part
from tests.fuzz.unknown_calls import CALLS
from tests.fuzz.unknown_code import PLACES, place_call
from tests.fuzz.unknown_objects import OBJECTS

from headwater.trials import Decision, Report, Status

SEED = 0


def _program_with(feature: Part) -> Program:
    configs = tuple({"lr": rate} for rate in ("0.1", "0.05", "0.2"))
    return Program(seed=SEED, index=0, chains=(), features=(feature,), configs=configs, leavers=frozenset())


def test_a_seed_and_an_index_always_give_the_same_program() -> None:
    assert write_program(draw_program(3, 17)) == write_program(draw_program(3, 17))
    assert write_program(draw_program(3, 17)) != write_program(draw_program(4, 17))


def test_all_parts_of_the_tables_come_up() -> None:
    programs = [draw_program(SEED, index) for index in range(2000)]
    drawn = {(feature.family, feature.name.split(" (")[0]) for program in programs for feature in program.features}
    assert {
        (one.family, one.name.split(" (")[0]) for one in (*OBJECTS, *LOOP_STATE, *PROCESS_STATE, *FEATURES)
    } <= drawn
    assert {one.name.split(" (")[0] for one in CALLS} <= {name for _, name in drawn}


def test_pairs_of_a_value_and_a_construct_do_not_come_up_twice_in_a_round() -> None:
    programs = [draw_program(SEED, index) for index in range(2000)]
    drawn = [(chain.kind, chain.construct) for program in programs for chain in program.chains]
    assert len(drawn) == len(set(drawn)) == 400
    assert set(drawn) <= {*GIVEN_PAIRS, *COMPUTED_PAIRS}


def test_more_than_100_calls_and_objects_are_unknown_to_the_rewriting() -> None:
    assert len({one.name for one in CALLS}) > 100
    assert len({one.name for one in OBJECTS}) > 90


@pytest.mark.parametrize("place", PLACES)
def test_every_call_at_every_place_is_python(place: str) -> None:
    for call in CALLS:
        program = _program_with(place_call(call, place, "loss by hyperparameter", "begun"))
        ast.parse(write_program(program)["main"])


def test_every_program_is_python() -> None:
    for index in range(500):
        for text in write_program(draw_program(SEED, index)).values():
            ast.parse(text.replace("@other", "other"))


def test_the_pausing_search_proposes_every_epoch_with_other_mates() -> None:
    search = PausingSearch([{"lr": 0.1}] * 4, frozenset({3}))
    waves = []
    for _ in range(4):
        segments = search.propose(9)
        assert search.propose(9) == []
        waves.append([(segment.number, segment.until) for segment in segments])
        for segment in segments:
            report = Report(number=segment.number, epoch=segment.until or 0, metrics={"loss": 1.0})
            has_left = search.observe(report) is Decision.STOP
            search.finish(segment.number, Status.STOPPED if has_left else Status.PAUSED)
    assert waves == [[(0, 1), (1, 1), (2, 1), (3, 1)], [(2, 2), (0, 2)], [(1, 2)], [(0, 3), (1, 3), (2, 3)]]


def _ways(way: Way, run: Run, status: str = "completed") -> Ways:
    plain = Ended(status=status, error="", history=((1, {"loss": 0.5}), (2, {"loss": 0.25})))
    return Ways(plain=(plain,), runs={way: run})


@pytest.mark.parametrize("way", [PAUSED_ALONE, PAUSED])
def test_a_number_that_changes_by_a_pause_is_a_difference(way: Way) -> None:
    changed = Ended(status="completed", error="", history=((1, {"loss": 0.5}), (2, {"loss": 0.3})))
    (text,) = compare_ways(_ways(way, Run(trials=(changed,))))
    assert text.startswith(f"{way.name}: trial 0")


def test_a_refusal_that_names_a_way_out_is_no_difference() -> None:
    refusal = "trial 0 cannot continue: `file` (train.py, line 3) is an open file; use trial.keep(file=...)"
    assert compare_ways(_ways(PAUSED, Run(refusal=refusal))) == []
    assert compare_ways(_ways(LANES, Run(refusal=refusal))) != []
    assert compare_ways(_ways(PAUSED, Run(refusal="something is wrong"))) != []


def test_a_study_may_end_with_an_error_where_every_trial_fails_in_plain_pytorch() -> None:
    assert compare_ways(_ways(LANES, Run(refusal="every trial failed"), status="failed")) == []


def test_notes_tell_how_lanes_trained() -> None:
    assert find_course(Run()) is Course.FUSED
    assert find_course(Run(notes=frozenset({"lanes train apart: `id` of a tensor"}))) is Course.SEPARATE
    assert find_course(Run(notes=frozenset({"lanes part by `config['x']`: a branch"}))) is Course.SPLIT


def test_moved_trials_train_in_more_than_one_process(tmp_path: Path) -> None:
    program = _program_with(part("process", "number", ended='metrics["process"] = os.getpid()'))
    run = run_program(program, tmp_path, [MOVED]).runs[MOVED]
    assert any(len({metrics["process"] for _, metrics in trial.history}) > 1 for trial in run.trials)


def test_a_program_that_tells_plain_pytorch_from_a_study_is_found(tmp_path: Path) -> None:
    liar = _program_with(part("lies", "looks", ended='metrics["loss"] += type(trial).__name__ == "PlainTrial"'))
    assert len(compare_ways(run_program(liar, tmp_path))) == 12
    assert judge_program(liar, tmp_path).verdict is Verdict.DIFFERENT


def test_a_program_that_tells_one_lane_from_several_is_found(tmp_path: Path) -> None:
    liar = _program_with(part("lies", "counts", ended='metrics["loss"] += len(getattr(trial, "lanes", "1"))'))
    differences = compare_ways(run_program(liar, tmp_path, [LANES]))
    assert [text.split(": ")[:2] for text in differences] == [["lanes", f"trial {number}"] for number in range(3)]


def test_a_trial_that_fails_in_a_study_alone_is_found(tmp_path: Path) -> None:
    liar = _program_with(part("lies", "raises", ended='{"PlainTrial": 0}[type(trial).__name__]'))
    differences = compare_ways(run_program(liar, tmp_path, [LANES]))
    assert len(differences) == 3
    assert all("completed" in text and "failed" in text and "KeyError" in text for text in differences)


def test_a_program_that_never_ends_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.running.MAX_SECONDS", 0.2)
    endless = _program_with(part("lies", "waits", ended="while True:\n    pass"))
    assert judge_program(endless, tmp_path).verdict is Verdict.HANGS


def test_shrinking_keeps_what_differs_and_drops_the_rest(tmp_path: Path) -> None:
    lie = part("lies", "counts", ended='metrics["loss"] += len(getattr(trial, "lanes", "1"))')
    program = next(one for one in (draw_program(SEED, index) for index in range(50)) if len(one.labels) == 2)
    liar = replace(program, features=(*program.features, lie))
    small = shrink(liar, lambda one: lie in one.features)
    assert small.labels == ("lies: counts",)
    assert len(small.configs) == 2


def test_programs_in_processes_come_to_the_same(tmp_path: Path) -> None:
    indices = [3, 4, 9]
    there = {finding.index: finding.verdict for finding in judge_many(SEED, indices, 2)}
    assert there == {index: judge_program(draw_program(SEED, index), tmp_path).verdict for index in indices}
