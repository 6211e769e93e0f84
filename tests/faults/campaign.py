"""One fault: a study runs, is hit at a drawn moment, is resumed, and must end as the one that was left alone."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tests.faults.clusters import find_cluster
from tests.faults.kinds import KINDS, Where, mount
from tests.faults.records import compare, describe, list_failed
from tests.faults.runs import DONE, ENDED, HIT, REFUSED, SAID, Case, count_alone, resume, run_alone, run_into_fault
from tests.faults.subjects import EXECUTORS, NUM_TRIALS, SAVE_EVERY, SEARCHES, build_study
from tests.faults.watching import await_parting, count_again


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a fault."""

    case: Case
    was_hit: bool
    """Whether it ended a process; the run may have come to its end before, or have done without what it lost."""
    problem: str = ""
    num_again: int = 0
    """How many epochs the trial that lost most has trained again."""


def list_cases(
    num: int,
    seed: int,
    kinds: Sequence[str],
    searches: Sequence[str] = tuple(SEARCHES),
    executors: Sequence[str] = EXECUTORS,
) -> list[Case]:
    """Draw faults, as many of each kind as of the others, over these searches and executors."""
    pairs = {kind: _list_pairs(kind, searches, executors) for kind in kinds}
    kinds = [kind for kind in kinds if pairs[kind]]
    cases = []
    for index in range(num):
        kind, turn = kinds[index % len(kinds)], index // len(kinds)
        search, executor = pairs[kind][turn % len(pairs[kind])]
        cases.append(Case(kind, search, executor, seed + index))
    return cases


def try_fault(case: Case) -> Verdict:
    """Run a study into a fault, make an end of that, resume the study and compare."""
    load_everything(case.search)
    if case.executor == "ray":
        find_cluster()  # processes that are forked from this one are to have the same
    here = "inline" if case.executor == "ray" else case.executor  # one table for all
    expected = _find_undisturbed(case.search, here, case.kind if case.flows else "")
    with _lend_folder() as folder:
        kind = KINDS[case.kind]
        kind.prepare(folder)
        try:
            return _judge(case, folder, expected)
        finally:
            if kind.prepare is mount:
                subprocess.run(["umount", str(folder)], check=True)


def _judge(case: Case, folder: Path, expected: Any) -> Verdict:  # Any: a JSON value
    kind = KINDS[case.kind]
    num_calls = _count_calls(case.search, case.executor) if kind.where is Where.STUDY else 0
    status, pid = run_into_fault(case, folder, num_calls)
    kind.end(folder)
    was_hit = status != DONE or (folder / HIT).exists()
    problem = _find_left(case, pid) or _judge_end(case, folder, status)
    if not problem and (status != DONE or kind.where is not Where.WORKER):
        problem = _resume(case, folder)
    problem = problem or compare(describe(folder), expected)
    num_again = count_again(folder)
    if kind.keeps_work and num_again > SAVE_EVERY:
        problem = problem or f"a trial has trained {num_again} epochs again, and {SAVE_EVERY} at most can be lost"
    return Verdict(case, was_hit, problem, num_again)


def _find_left(case: Case, pid: int) -> str:
    """Say what a study that is over has left behind; "" for nothing."""
    if case.executor != "ray":
        return await_parting(pid)
    if case.kind == "kill of a raylet":
        find_cluster().mend()
    return find_cluster().await_empty()


def _judge_end(case: Case, folder: Path, status: int) -> str:
    allowed = {-9} if KINDS[case.kind].kills else {ENDED}
    if status not in {DONE, *allowed}:
        return f"the run ended with status {status}: {_read_said(folder)}"
    failed = list_failed(folder)
    return f"trials {failed} are said to have failed" if failed else ""


def _resume(case: Case, folder: Path) -> str:
    """Resume a study to its end; say what went wrong, "" for nothing."""
    statuses = resume(case, folder)
    if DONE not in statuses or not {*statuses} <= {DONE, REFUSED}:
        return f"resuming ended with {statuses}: {_read_said(folder)}"
    return find_cluster().await_empty() if case.executor == "ray" else ""


def _read_said(folder: Path) -> str:
    return (folder / SAID).read_text() if (folder / SAID).exists() else ""


@cache
def load_everything(search: str) -> None:
    """Run a kind of study once in this process, so that those which are forked from it need not import anything."""
    torch.set_num_threads(1)
    build_study(search, "inline", None).run(num_trials=NUM_TRIALS[search])


def _list_pairs(kind: str, searches: Sequence[str], executors: Sequence[str]) -> list[tuple[str, str]]:
    """Return those of the searches and executors that a kind can befall."""
    befallen = [name for name in searches if name not in KINDS[kind].spares]
    return [(search, executor) for search in befallen for executor in KINDS[kind].executors if executor in executors]


@cache
def _find_undisturbed(search: str, executor: str, kind: str) -> Any:  # Any: a JSON value
    """Return the description of the study that was left alone."""
    with _lend_folder() as folder:
        status = run_alone(Case(kind, search, executor, 0), folder)
        assert status == DONE, (folder / SAID).read_text()
        assert count_again(folder) == 0
        return describe(folder)


@cache
def _count_calls(search: str, executor: str) -> int:
    with _lend_folder() as folder:
        return count_alone(Case("", search, executor, 0), folder)


@contextmanager
def _lend_folder() -> Iterator[Path]:
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None  # states are flushed to the disk, which takes its time
    folder = Path(tempfile.mkdtemp(prefix="headwater-faults-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
