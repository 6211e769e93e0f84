"""Rules for spot instances on traces of what was really to be had, against a clairvoyant; nothing is launched.

    python benchmarks/spot.py FOLDER [--hours 24] [--windows 16] [--nodes 8] [--whole] [--only NAME]
    python benchmarks/spot.py FOLDER --apart | --zones | --short [--only NAME]

FOLDER holds traces of skypilot-org/spot-traces (github.com), the data of "Can't Be Late" (NSDI 2024): JSON files with
`metadata.gap_seconds` and `data`, the number of spot instances that could be had at each moment. With `--whole`, odds
are read off the whole trace, future included, to see whether better odds would help. With `--apart`, each of the nodes
of a trace of 16 decides for itself, as those of a search can, whose trials do not wait for each other: the first has a
spot instance where one is to be had, the eighth where there are eight. With `--zones`, a task may train in any zone of
which there is a trace of the same days, and change to another as it changes to on demand; no run does that yet. Without
it, both rules are asked as a run asks them, `choose_markets` with the rule that `choose_rule` makes of a history. With
`--short`, tasks take an hour or two, starts less than a step of the trace, and rules are asked every 15 seconds: how
many steps must a deadline leave for odds to pay?
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from spot_trials import Decide, choose_ages, decide_as_run, keep_pace, run_on_traces

from headwater.plan.catalogue import load_catalogue
from headwater.plan.spot import SpotTask, follow_progress
from headwater.plan.spot_choice import choose_rule, follow_odds
from headwater.plan.spot_history import SpotHistory, read_history
from headwater.plan.spot_odds import Prices, SpotOdds, SpotPolicy, bound_cost

SLACKS = (0.1, 0.25, 0.5, 1.0)
PAST = 0.4
"""This share of a trace is the past that odds are read off; windows begin after it."""
SWITCH_STEPS = 2
INSTANCE = "p3.2xlarge"
OFTEN_S = 15.0
SHORT_SWITCH_S = 105.0
"""What the catalogue has an instance take until it is ready."""


@dataclass(frozen=True, slots=True)
class Trace:
    name: str
    history: SpotHistory
    num_nodes: int
    """So many must be there."""
    is_foreseen: bool = False
    """Whether odds are read off the whole of it, or off its beginning alone."""

    @property
    def step_s(self) -> float:
        return self.history.step_s

    @property
    def available(self) -> Sequence[bool]:
        return self.history.is_there(self.num_nodes)

    @property
    def first(self) -> int:
        return int(PAST * len(self.history.counts))

    @property
    def known(self) -> SpotHistory:
        return self.history if self.is_foreseen else replace(self.history, counts=self.history.counts[: self.first])


@dataclass(frozen=True, slots=True)
class Window:
    evenly: float
    by_odds: float
    bound: float
    num_late: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--zones", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.apart:
        print_apart(options)
        return
    traces = [trace for trace in read_traces(options.folder, options.nodes) if options.only in trace.name]
    if options.zones or options.short:
        (print_zones if options.zones else print_short)(traces, options)
        return
    print_spot([replace(trace, is_foreseen=options.whole) for trace in traces], options)


def print_spot_of(folder: Path) -> None:
    print_spot(read_traces(folder, 8), argparse.Namespace(folder=folder, hours=24.0, windows=16, nodes=8))


def print_spot(traces: Sequence[Trace], options: argparse.Namespace) -> None:
    folder, hours, num_windows, nodes = options.folder, options.hours, options.windows, options.nodes
    if not traces:
        sys.exit(f"{folder} has no availability-*.json; get them from skypilot-org/spot-traces on GitHub")
    prices = find_prices()
    print(f"\n## Spot: {hours:g} hours of training on traces of 2023, {num_windows} windows each\n")
    print(
        f"On demand ${prices.on_demand:.2f} an hour, spot ${prices.spot:.2f}; a start takes {SWITCH_STEPS} steps of "
        f"the trace (6.5 or 10 min). Of traces of 16 nodes, {nodes} must be there."
    )
    print("\n| trace | there | slack | on demand | uniform progress | by odds | clairvoyant ", end="")
    print("| above it, even / odds | worst window | saved | on demand / odds | late |")
    print("|---" * 12 + "|")
    for trace in traces:
        for slack in SLACKS:
            print_row(trace, slack, hours, num_windows, prices)
    print(
        "\nPublished: uniform progress saves 27 to 84 % against on demand on its authors' traces; SkyNomad (several "
        "regions) costs 1.25 to 3.96 times less than the rules it compares itself with."
    )


def print_apart(options: argparse.Namespace) -> None:
    by_node = [read_traces(options.folder, number) for number in range(1, options.nodes + 1)]
    whole = read_traces(options.folder, options.nodes)
    prices = find_prices()
    print(f"\n## Node by node: {options.nodes} nodes of {options.hours:g} hours each, {options.windows} windows\n")
    print("| trace | slack | all at once, by odds | clairvoyant | node by node, by odds | clairvoyant ", end="")
    print("| above it | against all at once | late |")
    print("|---" * 9 + "|")
    for place, trace in enumerate(whole):
        nodes = [traces[place] for traces in by_node]
        if options.only in trace.name and any(node.available != trace.available for node in nodes):
            for slack in SLACKS:
                task = make_task(trace, slack, options.hours)
                together, *apart = (run_windows([one], task, options.windows, prices) for one in (trace, *nodes))
                print_beside(f"{trace.name} | {slack:.0%}", together, [window for one in apart for window in one])


def print_beside(name: str, together: Sequence[Window], apart: Sequence[Window]) -> None:
    (once, once_bound), (each, each_bound) = (
        (fmean(window.by_odds for window in windows), fmean(window.bound for window in windows))
        for windows in (together, apart)
    )
    costs = " | ".join(f"${cost:.2f}" for cost in (once, once_bound, each, each_bound))
    late = sum(window.num_late for window in (*together, *apart))
    print(f"| {name} | {costs} | {each / each_bound - 1:.0%} | {each / once - 1:+.0%} | {late} |", flush=True)


def print_zones(traces: Sequence[Trace], options: argparse.Namespace) -> None:
    prices = find_prices()
    print(f"\n## Several zones at once: {options.hours:g} hours of training, {options.windows} windows\n")
    print(
        "| days | zones | slack | uniform progress | by odds | clairvoyant | above it, even / odds | worst window ",
        end="",
    )
    print("| by odds in one zone | clairvoyant in one zone | on demand / odds | late |")
    print("|---" * 12 + "|")
    for days in dict.fromkeys(trace.name[:10] for trace in traces):
        zones = [trace for trace in traces if trace.name.startswith(days)]
        for slack in SLACKS if len(zones) > 1 else ():
            task = make_task(zones[0], slack, options.hours)
            together = run_windows(zones, task, options.windows, prices)
            apart = [run_windows([zone], task, options.windows, prices) for zone in zones]
            dear = (task.work_s + task.switch_s) / 3600 * prices.on_demand
            evenly, by_odds, bound = average(together)
            alone = min((average(windows) for windows in apart), key=lambda means: means[1])
            worst = max(window.by_odds / window.bound for window in together)
            cells = [
                days,
                str(len(zones)),
                f"{slack:.0%}",
                *(f"${value:.2f}" for value in (evenly, by_odds, bound)),
                f"{100 * (evenly / bound - 1):.0f} / {100 * (by_odds / bound - 1):.0f} %",
                f"{100 * (worst - 1):.0f} %",
                f"${alone[1]:.2f}",
                f"${alone[2]:.2f}",
                f"{dear / by_odds:.2f}",
                str(sum(window.num_late for window in together)),
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


def print_short(traces: Sequence[Trace], options: argparse.Namespace) -> None:
    prices = find_prices()
    print(f"\n## Short deadlines: asked every {OFTEN_S:g} s, a start takes {SHORT_SWITCH_S:g} s\n")
    print("| trace | hours | slack | steps to spare | uniform progress | by odds | difference | a run goes by | late |")
    print("|---" * 9 + "|")
    for trace in traces:
        for hours in (0.25, 0.5, 1.0, 2.0):
            for slack in SLACKS[1:]:
                work_s = hours * 3600
                task = SpotTask(work_s=work_s, deadline_s=(1 + slack) * work_s, switch_s=SHORT_SWITCH_S)
                print_short_row(f"{trace.name} | {hours:g} | {slack:.0%}", trace, task, prices, options.windows)


def print_short_row(name: str, trace: Trace, task: SpotTask, prices: Prices, num_windows: int) -> None:
    known = trace.known
    table = SpotPolicy(task, [SpotOdds.fit(known.is_there(trace.num_nodes), known.step_s)], prices)
    rules = [decide_as_run(rule, OFTEN_S) for rule in (follow_progress, follow_odds(table))]
    length, first = math.ceil(task.deadline_s / trace.step_s), trace.first
    there, often = trace.available, round(trace.step_s / OFTEN_S)
    runs = []
    for start in range(first, len(there) - length, (len(there) - length - first) // num_windows):
        cut = [is_there for is_there in there[start : start + length] for _ in range(often)]
        runs.append([run_on_traces(task, [cut], OFTEN_S, prices, rule) for rule in rules])
    evenly, by_odds = (fmean(run[place].cost_dollars for run in runs) for place in (0, 1))
    is_chosen = choose_rule(known, task, trace.num_nodes).odds is not None
    cells = [
        name,
        str(int((task.deadline_s - task.work_s) / trace.step_s)),
        f"${evenly:.2f}",
        f"${by_odds:.2f}",
        f"{100 * (by_odds / evenly - 1):+.0f} %",
        "odds" if is_chosen else "progress",
        str(sum(run.is_late for pair in runs for run in pair)),
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def average(windows: Sequence[Window]) -> tuple[float, float, float]:
    """Return the mean costs of uniform progress, of the rule by odds, and of a clairvoyant."""
    return (
        fmean(window.evenly for window in windows),
        fmean(window.by_odds for window in windows),
        fmean(window.bound for window in windows),
    )


def find_prices() -> Prices:
    offer = load_catalogue()[INSTANCE]
    return Prices(spot=offer.rent(is_spot=True).dollars_per_hour, on_demand=offer.dollars_per_hour)


def make_task(trace: Trace, slack: float, hours: float) -> SpotTask:
    num_steps = round(hours * 3600 / trace.step_s)
    return SpotTask(
        work_s=num_steps * trace.step_s,
        deadline_s=round((1 + slack) * num_steps) * trace.step_s,
        switch_s=SWITCH_STEPS * trace.step_s,
    )


def read_traces(folder: Path, nodes: int) -> list[Trace]:
    traces = []
    for path in sorted(folder.glob("availability-*.json")):
        name = path.stem.partition("aws-")[2].removesuffix("_v100_1")
        traces.append(Trace(name, read_history(path), nodes if "16-node" in path.name else 1))
    return traces


def print_row(trace: Trace, slack: float, hours: float, num_windows: int, prices: Prices) -> None:
    task = make_task(trace, slack, hours)
    windows = run_windows([trace], task, num_windows, prices)
    dear = (task.work_s + task.switch_s) / 3600 * prices.on_demand
    evenly, by_odds, bound = average(windows)
    worst = max(window.by_odds / window.bound for window in windows)
    there = fmean(trace.available)
    cells = [
        trace.name,
        f"{there:.0%}",
        f"{slack:.0%}",
        *(f"${value:.2f}" for value in (dear, evenly, by_odds, bound)),
        f"{100 * (evenly / bound - 1):.0f} / {100 * (by_odds / bound - 1):.0f} %",
        f"{100 * (worst - 1):.0f} %",
        f"{100 * (1 - by_odds / dear):.0f} %",
        f"{dear / by_odds:.2f}",
        str(sum(window.num_late for window in windows)),
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def run_windows(zones: Sequence[Trace], task: SpotTask, num_windows: int, prices: Prices) -> list[Window]:
    step_s, first = zones[0].step_s, zones[0].first
    length, whole = round(task.deadline_s / step_s), min(len(zone.available) for zone in zones)
    rules = make_rules(zones, task, prices)
    stride = max(1, (whole - length - first) // num_windows)
    windows = []
    there = [zone.available for zone in zones]
    for start in list(range(first, whole - length, stride))[:num_windows]:
        cut = [one[start : start + length] for one in there]
        runs = [run_on_traces(task, cut, step_s, prices, decide) for decide in rules]
        bound = bound_cost(task, cut, step_s, prices)
        windows.append(Window(runs[0].cost_dollars, runs[1].cost_dollars, bound, sum(run.is_late for run in runs)))
    return windows


def make_rules(zones: Sequence[Trace], task: SpotTask, prices: Prices) -> tuple[Decide, Decide]:
    """Return uniform progress and the rule by odds; in one zone, as a run follows them."""
    step_s = zones[0].step_s
    if len(zones) == 1:
        chosen = choose_rule(zones[0].known, task, zones[0].num_nodes)
        assert chosen.odds is not None, chosen.told
        by_odds = chosen.make_rule(task, prices)
        return decide_as_run(follow_progress, step_s), decide_as_run(by_odds, 0.0)  # a table counts steps itself
    ages = choose_ages(len(zones))
    odds = [SpotOdds.fit(zone.known.is_there(zone.num_nodes), step_s, ages) for zone in zones]
    return keep_pace(step_s), SpotPolicy(task, odds, prices).decide


if __name__ == "__main__":
    main()
