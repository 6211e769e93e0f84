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
from tests.faults.kinds import KINDS, Where, mount
from tests.faults.records import compare, describe, list_failed
from tests.faults.runs import DONE, ENDED, HIT, REFUSED, SAID, Case, count_alone, resume, run_alone, run_into_fault
from tests.faults.subjects import EXECUTORS, NUM_TRIALS, SEARCHES, build_study


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a fault."""

    case: Case
    was_hit: bool
    """Whether it ended a process; the run may have come to its end before, or have done without what it lost."""
    problem: str = ""


def list_cases(num: int, seed: int, kinds: Sequence[str]) -> list[Case]:
    """Draw faults, as many of each kind as of the others, over all searches and executors."""
    pairs = {kind: _list_pairs(kind) for kind in kinds}
    cases = []
    for index in range(num):
        kind, turn = kinds[index % len(kinds)], index // len(kinds)
        search, executor = pairs[kind][turn % len(pairs[kind])]
        cases.append(Case(kind, search, executor, seed + index))
    return cases


def try_fault(case: Case) -> Verdict:
    """Run a study into a fault, make an end of that, resume the study and compare."""
    load_everything()
    expected = _find_undisturbed(case.search, case.executor, case.kind if case.flows else "")
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
    status = run_into_fault(case, folder, num_calls)
    kind.end(folder)
    was_hit = status != DONE or (folder / HIT).exists()
    allowed = {-9} if kind.kills else {ENDED}
    said = (folder / SAID).read_text() if (folder / SAID).exists() else ""
    if status not in {DONE, *allowed}:
        return Verdict(case, was_hit, f"the run ended with status {status}: {said}")
    if failed := list_failed(folder):
        return Verdict(case, was_hit, f"trials {failed} are said to have failed")
    statuses = resume(case, folder)
    if DONE not in statuses or not {*statuses} <= {DONE, REFUSED}:
        said = (folder / SAID).read_text() if (folder / SAID).exists() else ""
        return Verdict(case, was_hit, f"resuming ended with {statuses}: {said}")
    return Verdict(case, was_hit, compare(describe(folder), expected))


@cache
def load_everything() -> None:
    """Run every kind of study once in this process, so that those which are forked from it need not import anything."""
    torch.set_num_threads(1)
    for search in SEARCHES:
        build_study(search, "inline", None).run(num_trials=NUM_TRIALS[search])


def _list_pairs(kind: str) -> list[tuple[str, str]]:
    """Return the searches and executors that a kind can befall."""
    where = KINDS[kind].where
    executors = ("processes",) if where is Where.WORKER else EXECUTORS
    searches = [name for name in SEARCHES if name not in KINDS[kind].spares]
    return [(search, executor) for search in searches for executor in executors]


@cache
def _find_undisturbed(search: str, executor: str, kind: str) -> Any:  # Any: a JSON value
    """Return the description of the study that was left alone."""
    with _lend_folder() as folder:
        status = run_alone(Case(kind, search, executor, 0), folder)
        assert status == DONE, (folder / SAID).read_text()
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
