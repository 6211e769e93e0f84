"""Hunt for silent differences: `python -m tests.fuzz --num 5000 --seed 0`; one program: `--only INDEX`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.comparing import compare_ways
from tests.fuzz.hunting import Dimensions, Finding, Verdict, differs, judge_many
from tests.fuzz.programs import draw_program, write_program
from tests.fuzz.running import Hangs, choose_ways, run_program
from tests.fuzz.shrinking import shrink
from tests.fuzz.tables import show_coverage, show_culprits, show_kinds, show_refusals, show_summary


def main() -> int:
    """Run what the command line asks for; 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--num", type=int, default=5000, help="how many programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the index of the first")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--only", type=int, help="run this program alone, and show the smallest that still differs")
    parser.add_argument("--no-pauses", action="store_true", help="do not pause, regroup or move trials")
    parser.add_argument("--no-unknown-code", action="store_true", help="do not draw code that Headwater need not know")
    parser.add_argument("--whole", action="store_true", help="with --only: do not make the program smaller")
    options = parser.parse_args()
    dimensions = Dimensions(pauses=not options.no_pauses, unknown_code=not options.no_unknown_code)
    if options.only is not None:
        return show_one(options.seed, options.only, options.whole, dimensions)
    return hunt(options.seed, range(options.start, options.start + options.num), options.jobs, dimensions)


def hunt(seed: int, indices: range, num_processes: int, dimensions: Dimensions) -> int:
    """Judge many programs; print each difference, then tables."""
    findings: list[Finding] = []
    start = time.monotonic()
    for finding in judge_many(seed, indices, num_processes, dimensions):
        findings.append(finding)
        if finding.verdict is not Verdict.SAME:
            first = finding.differences[0] if finding.differences else ""
            say(f"{finding.verdict} ({'; '.join(finding.ways)}): {', '.join(finding.culprits)}\n    {first[:300]}")
            say(f"    python -m tests.fuzz --seed {seed} --only {finding.index}")
        if len(findings) % 100 == 0:
            num_bad = sum(one.verdict is not Verdict.SAME for one in findings)
            speed = len(findings) / (time.monotonic() - start)
            say(f"{len(findings)} of {len(indices)} programs, {num_bad} with a difference, {speed:.2f} per second")
    tables = (show_coverage(seed, findings, dimensions), show_refusals(findings), show_culprits(findings))
    say("\n\n".join(["", *tables, show_kinds(findings), show_summary(findings)]))
    return int(any(finding.verdict is not Verdict.SAME for finding in findings))


def show_one(seed: int, index: int, is_whole: bool, dimensions: Dimensions) -> int:
    """Print a program and its differences."""
    program = draw_program(seed, index, has_unknown_code=dimensions.unknown_code)
    ways = choose_ways(program, has_pauses=dimensions.pauses)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not is_whole and differs(program, folder, ways):
            program = shrink(program, lambda smaller: differs(smaller, folder, ways))
        for text in reversed(write_program(program).values()):
            say(text.replace("@other", "other"))
        try:
            ran = run_program(program, folder, ways)
        except (Hangs, Exception):
            say(traceback.format_exc())
            return 1
    differences = compare_ways(ran)
    say("\n".join(["It differs:", *differences]) if differences else "No difference.")
    for way, run in ran.runs.items():
        say("\n".join([f"{way.name}: {text}" for text in (run.refusal, *sorted(run.notes)) if text]))
    errors = {trial.note for trials in (ran.plain, *(run.trials for run in ran.runs.values())) for trial in trials}
    say("\n".join(sorted(errors)))
    return int(bool(differences))


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
