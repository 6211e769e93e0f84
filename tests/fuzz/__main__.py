"""Hunt for silent differences: `python -m tests.fuzz --num 5000 --seed 0`; one program: `--only INDEX`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from tests.fuzz.comparing import compare_ways
from tests.fuzz.hunting import Finding, Verdict, differs, judge_many
from tests.fuzz.programs import draw_program, write_program
from tests.fuzz.running import Hangs, run_program
from tests.fuzz.shrinking import shrink
from tests.fuzz.tables import show_coverage, show_culprits, show_summary


def main() -> int:
    """Run what the command line asks for; 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--num", type=int, default=5000, help="how many programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the index of the first")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--only", type=int, help="run this program alone, and show the smallest that still differs")
    parser.add_argument("--whole", action="store_true", help="with --only: do not make the program smaller")
    options = parser.parse_args()
    if options.only is not None:
        return show_one(options.seed, options.only, options.whole)
    return hunt(options.seed, range(options.start, options.start + options.num), options.jobs)


def hunt(seed: int, indices: range, num_processes: int) -> int:
    """Judge many programs; print each difference, then tables."""
    findings: list[Finding] = []
    for finding in judge_many(seed, indices, num_processes):
        findings.append(finding)
        if finding.verdict is not Verdict.SAME:
            first = finding.differences[0] if finding.differences else ""
            say(f"{finding.verdict}: {', '.join(finding.culprits)}\n    {first[:300]}")
            say(f"    python -m tests.fuzz --seed {seed} --only {finding.index}")
        if len(findings) % 100 == 0:
            num_bad = sum(one.verdict is not Verdict.SAME for one in findings)
            say(f"{len(findings)} of {len(indices)} programs, {num_bad} with a difference")
    say("\n".join(["", show_coverage(seed, findings), "", show_culprits(findings), "", show_summary(findings)]))
    return int(any(finding.verdict is not Verdict.SAME for finding in findings))


def show_one(seed: int, index: int, is_whole: bool) -> int:
    """Print a program and its differences."""
    program = draw_program(seed, index)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not is_whole and differs(program, folder):
            program = shrink(program, lambda smaller: differs(smaller, folder))
        for text in reversed(write_program(program).values()):
            say(text.replace("@other", "other"))
        try:
            ways = run_program(program, folder)
        except (Hangs, Exception):
            say(traceback.format_exc())
            return 1
    differences = compare_ways(ways)
    say("\n".join(["It differs:", *differences]) if differences else "No difference.")
    errors = {trial.note for trial in (*ways.plain, *ways.alone, *ways.lanes) if trial.note}
    say("\n".join(sorted(errors)))
    return int(bool(differences))


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
