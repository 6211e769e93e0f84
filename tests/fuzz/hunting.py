"""Running many programs, in processes that are forked for some hundred of them each."""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.fuzz.comparing import compare_ways, is_told
from tests.fuzz.programs import Program, draw_program
from tests.fuzz.running import LANES, WAYS, Hangs, Run, Way, Ways, choose_ways, run_program
from tests.fuzz.shrinking import find_culprits

CHUNK = 100


class Verdict(StrEnum):
    """What came of a program."""

    SAME = "same"
    DIFFERENT = "different"
    HANGS = "hangs"
    ENDS_THE_STUDY = "ends the study"
    KILLS_THE_PROCESS = "kills the process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The dimensions of a hunt that can be switched off."""

    pauses: bool = True
    unknown_code: bool = True


ALL = Dimensions()


class Course(StrEnum):
    """How the lanes of a program trained."""

    FUSED = "fused from beginning to end"
    SPLIT = "split by a value"
    SEPARATE = "separate"
    HALVED = "failed in a group, and halved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of one program."""

    index: int
    verdict: Verdict
    differences: tuple[str, ...] = ()
    culprits: tuple[str, ...] = ()
    """The parts by which it differs."""
    ways: tuple[str, ...] = ()
    """The ways in which it differs."""
    is_trained: bool = False
    """Whether every trial came to its end in plain PyTorch."""
    course: Course = Course.FUSED
    refusals: tuple[str, ...] = ()
    """The messages with which studies said that a paused trial cannot continue."""
    seconds: float = 0.0


def judge_program(program: Program, folder: Path, ways: Sequence[Way] = WAYS) -> Finding:
    """Run a program in these ways, and name the parts by which they differ."""
    start = time.process_time()
    try:
        ran = run_program(program, folder, ways)
    except Hangs:
        return Finding(index=program.index, verdict=Verdict.HANGS, culprits=program.labels)
    except Exception as error:  # a study that raises is what is looked for
        text = f"{type(error).__name__}: {error}"
        return Finding(
            index=program.index, verdict=Verdict.ENDS_THE_STUDY, differences=(text,), culprits=program.labels
        )
    differences = compare_ways(ran)
    differing = tuple(way for way in ways if any(text.startswith(f"{way.name}: ") for text in differences))
    culprits = find_culprits(program, lambda part: differs(part, folder, differing)) if differences else ()
    return Finding(
        index=program.index,
        verdict=Verdict.DIFFERENT if differences else Verdict.SAME,
        differences=tuple(differences),
        culprits=culprits,
        ways=tuple(way.name for way in differing),
        is_trained=_is_trained(ran),
        course=find_course(ran.runs[LANES]),
        refusals=tuple(run.refusal for way, run in ran.runs.items() if run.refusal and is_told(way, run)),
        seconds=time.process_time() - start,
    )


def find_course(run: Run) -> Course:
    """Read off the notes how the lanes of a study without pauses trained."""
    text = "\n".join(run.notes)
    for course, words in _WORDS.items():
        if any(word in text for word in words):
            return course
    return Course.FUSED


_WORDS = {
    Course.HALVED: ("in halves",),
    Course.SEPARATE: ("train apart", "separately"),
    Course.SPLIT: ("lanes part", "lanes split", "split by"),
}
"""Words of the notes, of which the first that occurs decides."""


def differs(program: Program, folder: Path, ways: Sequence[Way] = WAYS) -> bool:
    """Whether a program differs in one of these ways from plain PyTorch."""
    try:
        return bool(compare_ways(run_program(program, folder, ways)))
    except (Hangs, Exception):
        return True


def _is_trained(ways: Ways) -> bool:
    return all(trial.status != "failed" for trial in ways.plain)


def judge_many(
    seed: int, indices: Sequence[int], num_processes: int, dimensions: Dimensions = ALL
) -> Iterator[Finding]:
    """Judge programs in as many processes at a time, and yield what came of each in any order."""
    waiting = [indices[start : start + CHUNK] for start in range(0, len(indices), CHUNK)]
    running: dict[Connection, list[int]] = {}
    while waiting or running:
        while waiting and len(running) < num_processes:
            chunk = waiting.pop(0)
            running[_start(seed, chunk, dimensions)] = list(chunk)
        for reader in wait(list(running)):
            assert isinstance(reader, Connection)
            try:
                finding = reader.recv()
            except EOFError:
                rest = running.pop(reader)
                if rest:  # the process died of the first
                    yield Finding(index=rest[0], verdict=Verdict.KILLS_THE_PROCESS)
                    waiting.insert(0, rest[1:])
                continue
            running[reader].remove(finding.index)
            yield finding


def _start(seed: int, indices: Sequence[int], dimensions: Dimensions) -> Connection:
    reader, writer = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    sys.stdout.flush()
    context.Process(target=_judge_chunk, args=(seed, indices, dimensions, writer), daemon=True).start()
    writer.close()
    return reader


def _judge_chunk(seed: int, indices: Sequence[int], dimensions: Dimensions, writer: Connection) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for index in indices:
            program = draw_program(seed, index, has_unknown_code=dimensions.unknown_code)
            ways = choose_ways(program, has_pauses=dimensions.pauses)
            writer.send(judge_program(program, Path(folder), ways))
    writer.close()
