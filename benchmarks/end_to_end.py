"""The whole tuning job, the target's training included: Headwater against Ray Tune and Optuna on two cores.

Run `python benchmarks/end_to_end.py --peers-python PATH`, where PATH is an interpreter that has torch, safetensors,
numpy, Optuna and Ray Tune (about an hour). With `--deadlines 60 120`, everyone gets so many seconds instead, and the
table shows how good what they have then is on examples that nobody chose by. Every run has a process of its own. The
tables go to standard output as Markdown, what Headwater says on its way to standard error; the committed ones are in
benchmarks/end_to_end.md.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from statistics import mean

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from measuring import heading
from tuners import RUNNERS, Outcome, Request
from workloads import NUM_WORKERS, WORKLOADS

Run = tuple[Request, Outcome]
MANY = 10**6
"""More trials than anybody has time for."""


def run_apart(python: str, request: Request) -> Outcome:
    """Run in a process of its own, and echo what it says."""
    print(f"--- {time.strftime('%X')}, load {os.getloadavg()[0]:.1f}: {request}", file=sys.stderr, flush=True)
    command = [python, __file__, "--request", json.dumps(vars(request))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    outcome = Outcome(**json.loads(done.stdout.splitlines()[-1], parse_constant=float))
    print(f"--- {outcome}", file=sys.stderr, flush=True)
    return outcome


def extrapolate(outcome: Outcome, num_run: int, num_wanted: int) -> float:
    """Stretch the time of the trials, but not the time to start, to more of them."""
    return outcome.seconds_to_start + (outcome.seconds - outcome.seconds_to_start) * num_wanted / num_run


def compare(options: argparse.Namespace) -> None:
    columns = ["workload", "search", "who", "seed", "trials run", "their epochs", "wall s", "CPU s"]
    columns += [f"s for {options.trials}", "at best", "x Headwater", "at best", "loss", "held out"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    remarks = []
    for workload in options.workloads:
        for search in options.searches:
            runs = run_all(options, workload, search)
            ours = [run for run in runs if run[0].who == "Headwater"]
            first_scale = ours[0][0].scale
            base = mean(outcome.seconds for request, outcome in ours if request.scale == first_scale)
            for run in runs:
                print(show_row(run, options.trials, base), flush=True)
                if run[1].plain is not None:
                    print(show_plain(run), flush=True)
            remarks += summarize(runs, options.trials)
    print("\nIn short, means over seeds:\n")
    print("\n".join(remarks), flush=True)


def run_all(options: argparse.Namespace, workload: str, search: str) -> list[Run]:
    """Let everyone do the job, under as many seeds as asked for."""
    pythons = {"Ray Tune": options.peers_python, "Optuna": sys.executable}
    count = min(options.random_trials if search == "random" else options.asha_trials, options.trials)
    base = Request(
        who="Headwater", workload=workload, search=search, num_trials=options.trials, num_examples=options.examples
    )
    runs = []
    for seed in range(options.seeds):
        for scale in options.scales or [WORKLOADS[workload].scale]:
            request = replace(base, seed=seed, scale=scale)
            runs.append((request, run_apart(sys.executable, request)))
        for who in options.peers if seed < options.peer_seeds else ():
            request = replace(base, who=who, seed=seed, num_trials=count)
            runs.append((request, run_apart(pythons[who], request)))
    return sorted(runs, key=lambda run: name_of(run[0]))


def name_of(request: Request) -> str:
    return f"Headwater, S = {request.scale}" if request.who == "Headwater" else request.who


def show_row(run: Run, num_wanted: int, ours: float) -> str:
    """Show the time as measured, and for the peers what it is at best: their training alone, spread evenly on cores."""
    request, outcome = run
    seconds = extrapolate(outcome, request.num_trials, num_wanted)
    at_best = outcome.cpu_seconds * num_wanted / request.num_trials / NUM_WORKERS
    mark = "" if request.num_trials == num_wanted else " (extrapolated)"
    is_ours = request.who == "Headwater"
    return (
        f"| {WORKLOADS[request.workload].title} | {request.search} | {name_of(request)} | {request.seed} "
        f"| {request.num_trials} | {outcome.num_epochs} | {outcome.seconds:.1f} | {outcome.cpu_seconds:.1f} "
        f"| {seconds:.0f}{mark} | {'-' if is_ours else f'{at_best:.0f}'} "
        f"| {seconds / ours:.1f} | {'-' if is_ours else f'{at_best / ours:.1f}'} "
        f"| {outcome.loss:.3f} | {outcome.held_out:.3f} |"
    )


def show_plain(run: Run) -> str:
    """Show what the configuration that won comes to without Headwater, on batches in another order."""
    request, outcome = run
    assert outcome.plain is not None
    loss, held_out, _ = outcome.plain
    return (
        f"| {WORKLOADS[request.workload].title} | {request.search} | winning configuration in a plain script "
        f"| {request.seed} | 1 | - | - | - | - | - | - | - | {loss:.3f} | {held_out:.3f} |"
    )


def meet_deadlines(options: argparse.Namespace) -> None:
    """Give everyone the same time, in turns, and show what they have at its end."""
    print("\n## Accuracy at a deadline\n")
    columns = ["workload", "search", "budget s", "seed", "who", "ended after", "trials begun", "finished", "epochs"]
    columns += ["loss", "held-out loss", "held-out accuracy", "in a plain script", "load before"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    pythons = {"Headwater": sys.executable, "Ray Tune": options.peers_python, "Optuna": options.peers_python}
    for workload, search, budget_s, seed, who in product(
        options.workloads, options.searches, options.deadlines, range(options.seeds), ["Headwater", *options.peers]
    ):
        request = Request(
            who=who, workload=workload, search=search, num_trials=MANY, seed=seed, budget_s=budget_s,
            scale=WORKLOADS[workload].scale,
        )  # fmt: skip
        load = os.getloadavg()[0]
        outcome = run_apart(pythons[who], request)
        plain = "-" if outcome.plain is None else f"{outcome.plain[2]:.1%}"
        print(
            f"| {WORKLOADS[workload].title} | {search} | {budget_s:g} | {seed} | {name_of(request)} "
            f"| {outcome.seconds:.1f} | {outcome.num_begun} | {outcome.num_finished} | {outcome.num_epochs} "
            f"| {outcome.loss:.3f} | {outcome.held_out:.3f} | {outcome.accuracy:.1%} | {plain} | {load:.1f} |",
            flush=True,
        )


def summarize(runs: Sequence[Run], num_wanted: int) -> list[str]:
    """Say what everyone took and came to."""
    lines = []
    for name in dict.fromkeys(name_of(request) for request, _ in runs):
        own = [run for run in runs if name_of(run[0]) == name]
        seconds = mean(extrapolate(outcome, request.num_trials, num_wanted) for request, outcome in own)
        losses = [outcome.held_out for _, outcome in own]
        spread = f" ({min(losses):.3f} to {max(losses):.3f})" if len(losses) > 1 else ""
        title = f"{own[0][0].workload}, {own[0][0].search}, {name}"
        lines.append(f"- {title}: {seconds:.0f} s, held-out loss {mean(losses):.3f}{spread}")
    return lines


def ablate(num_trials: int, num_alone: int) -> None:
    """Take Headwater apart: random search for the MLP."""
    print(f"\n## What contributes what\n\nThe MLP, random search, {num_trials} trials, Headwater alone.\n")
    columns = ["surrogate", "lanes", "eager", "trials run", "seconds", "loss", "held out", "rank agreement"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    for scale, lanes, eager in (
        (16, "auto", True), (16, "auto", False), (16, 1, True), (None, "auto", False), (None, 1, False),
        (2, "auto", True), (4, "auto", True), (8, "auto", True), (32, "auto", True),
    ):  # fmt: skip
        count = num_trials if scale else min(num_alone, num_trials)
        request = Request(
            who="Headwater", workload="MLP", search="random", num_trials=count, scale=scale, lanes=lanes, eager=eager
        )
        outcome = run_apart(sys.executable, request)
        seconds = extrapolate(outcome, count, num_trials)
        mark = "" if count == num_trials else " (extrapolated)"
        agreement = "-" if outcome.agreement is None else f"{outcome.agreement:.2f}"
        print(
            f"| {f'1/{scale}' if scale else 'none'} | {lanes} | {'yes' if eager else 'no'} | {count} "
            f"| {seconds:.1f}{mark} | {outcome.loss:.3f} | {outcome.held_out:.3f} | {agreement} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="*", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--searches", nargs="*", choices=["random", "asha"], default=["random", "asha"])
    parser.add_argument("--peers", nargs="*", choices=["Ray Tune", "Optuna"], default=["Ray Tune", "Optuna"])
    parser.add_argument("--peers-python", default=sys.executable, help="the interpreter that has Ray")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--random-trials", type=int, default=20, help="how many of them the peers run at random search")
    parser.add_argument("--asha-trials", type=int, default=60, help="how many of them the peers run at ASHA")
    parser.add_argument("--scales", nargs="*", type=int, help="Headwater searches at 1/SCALE of the width")
    parser.add_argument("--examples", type=int, help="how many there are to train on; the workload's by default")
    parser.add_argument("--seeds", type=int, default=3, help="under how many seeds Headwater runs")
    parser.add_argument("--peer-seeds", type=int, default=1, help="and the peers")
    parser.add_argument("--ablation", type=int, default=60, metavar="TRIALS", help="0 for none")
    parser.add_argument("--deadlines", nargs="*", type=float, metavar="SECONDS", help="give everyone so long instead")
    parser.add_argument("--request", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.request:
        request = Request(**json.loads(options.request))
        print(json.dumps(vars(RUNNERS[request.who](request))))
        return
    torch.set_num_threads(1)
    print(heading("The whole tuning job, target included"))
    if options.deadlines:
        meet_deadlines(options)
        return
    if options.workloads:
        compare(options)
    if options.ablation:
        ablate(options.ablation, 10)


if __name__ == "__main__":
    main()
