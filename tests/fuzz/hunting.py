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

from tests.fuzz.comparing import compare_ways
from tests.fuzz.programs import Program, draw_program
from tests.fuzz.running import Hangs, Ways, run_program
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
class Finding:
    """What came of one program."""

    index: int
    verdict: Verdict
    differences: tuple[str, ...] = ()
    culprits: tuple[str, ...] = ()
    """The parts by which it differs."""
    is_trained: bool = False
    """Whether every trial came to its end in plain PyTorch."""
    has_parted: bool = False
    """Whether some of its lanes did not train as one from beginning to end."""
    seconds: float = 0.0


def judge_program(program: Program, folder: Path) -> Finding:
    """Run a program in all ways, and name the parts by which they differ."""
    start = time.process_time()
    try:
        ways = run_program(program, folder)
    except Hangs:
        return Finding(index=program.index, verdict=Verdict.HANGS, culprits=program.labels)
    except Exception as error:  # a study that raises is what is looked for
        text = f"{type(error).__name__}: {error}"
        return Finding(
            index=program.index, verdict=Verdict.ENDS_THE_STUDY, differences=(text,), culprits=program.labels
        )
    differences = compare_ways(ways)
    culprits = find_culprits(program, lambda part: differs(part, folder)) if differences else ()
    return Finding(
        index=program.index,
        verdict=Verdict.DIFFERENT if differences else Verdict.SAME,
        differences=tuple(differences),
        culprits=culprits,
        is_trained=_is_trained(ways),
        has_parted=ways.num_apart > 0,
        seconds=time.process_time() - start,
    )


def differs(program: Program, folder: Path) -> bool:
    """Whether a program does not give the same in all ways."""
    try:
        return bool(compare_ways(run_program(program, folder)))
    except (Hangs, Exception):
        return True


def _is_trained(ways: Ways) -> bool:
    return all(trial.status != "failed" for trial in ways.plain)


def judge_many(seed: int, indices: Sequence[int], num_processes: int) -> Iterator[Finding]:
    """Judge programs in as many processes at a time, and yield what came of each in any order."""
    waiting = [indices[start : start + CHUNK] for start in range(0, len(indices), CHUNK)]
    running: dict[Connection, list[int]] = {}
    while waiting or running:
        while waiting and len(running) < num_processes:
            chunk = waiting.pop(0)
            running[_start(seed, chunk)] = list(chunk)
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


def _start(seed: int, indices: Sequence[int]) -> Connection:
    reader, writer = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    sys.stdout.flush()
    context.Process(target=_judge_chunk, args=(seed, indices, writer), daemon=True).start()
    writer.close()
    return reader


def _judge_chunk(seed: int, indices: Sequence[int], writer: Connection) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for index in indices:
            writer.send(judge_program(draw_program(seed, index), Path(folder)))
    writer.close()
