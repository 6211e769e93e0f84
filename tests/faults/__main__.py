"""Let faults befall studies: `python -m tests.faults --num 220 --seed 0`; one of them: see what a failure prints."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TextIO

from tests.faults.campaign import Verdict, list_cases, try_fault
from tests.faults.kinds import KINDS, can_be_tried
from tests.faults.runs import Case
from tests.faults.subjects import EXECUTORS, SEARCHES


def main() -> int:
    """Run what the command line asks for; 1 where a study did not end as one left alone."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--num", type=int, default=220, help="how many faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--kind", nargs="+", choices=list(KINDS), help="only these kinds")
    parser.add_argument("--search", nargs="+", choices=list(SEARCHES), help="only these studies")
    parser.add_argument("--executor", nargs="+", choices=EXECUTORS, help="only these executors")
    options = parser.parse_args()
    kinds = options.kind or [kind for kind in KINDS if can_be_tried(kind)]
    cases = list_cases(options.num, options.seed, kinds, options.search or [*SEARCHES], options.executor or EXECUTORS)
    verdicts: list[Verdict] = []
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
        for verdict in pool.map(try_safely, cases):
            verdicts.append(verdict)
            if verdict.problem:
                say(f"python -m tests.faults --num 1 {verdict.case}\n    {verdict.problem}", sys.stderr)
            else:
                what = "hit" if verdict.was_hit else "not hit"
                say(f"{len(verdicts)} of {len(cases)} held, {what}: {verdict.case}", sys.stderr)
    say("\n".join([*tabulate("kind", verdicts), "", *tabulate("study", verdicts)]))
    return int(any(verdict.problem for verdict in verdicts))


def try_safely(case: Case) -> Verdict:
    """Try a fault; what goes wrong in trying is a failure too."""
    try:
        return try_fault(case)
    except Exception:
        return Verdict(case, was_hit=False, problem=traceback.format_exc())


def tabulate(name: str, verdicts: Sequence[Verdict]) -> list[str]:
    """Count verdicts by kind, or by search and executor."""
    rows = [f"| {name} | tried | hit | held | failed | epochs trained again |", "|---|---|---|---|---|---|"]
    keys = [one.case.kind if name == "kind" else f"{one.case.search}, {one.case.executor}" for one in verdicts]
    for key in [*dict.fromkeys(keys), "all"]:
        those = [one for one, its in zip(verdicts, keys, strict=True) if key in (its, "all")]
        failed = sum(bool(one.problem) for one in those)
        hit = sum(one.was_hit for one in those)
        again = max(one.num_again for one in those)
        rows.append(f"| {key} | {len(those)} | {hit} | {len(those) - failed} | {failed} | {again} |")
    return rows


def say(text: str, stream: TextIO = sys.stdout) -> None:
    """Print."""
    print(text, file=stream, flush=True)


if __name__ == "__main__":
    sys.exit(main())
