"""What nodes cost, beside what was planned: for a line, a table and a study's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headwater.report.numbers import show_count, show_seconds
from headwater.trials import Spending, StageSpending


def show_spending(spending: Spending | None) -> str:
    """What is spent, foreseen and planned, for a line of progress; nothing where no node costs anything."""
    if spending is None:
        return ""
    parts = [f"${spending.cost_dollars:.2f} spent"]
    if spending.forecast_dollars is not None:
        parts.append(f"${spending.forecast_dollars:.2f} foreseen")
    if spending.planned_dollars is not None:
        parts.append(f"${spending.planned_dollars:.2f} planned")
    if spending.earlier_dollars:
        parts.append(f"${spending.earlier_dollars:.2f} in earlier runs")
    return f"{', '.join(parts)}, {show_count(spending.num_nodes, 'node')}"


def describe_spending(spending: Spending) -> Text:
    """What the whole took and cost against what was planned, and what it was to keep to."""
    text = f"${spending.cost_dollars:.2f} in {show_seconds(spending.seconds)}"
    if spending.planned_dollars is not None and spending.planned_s is not None:
        text += f"; planned were ${spending.planned_dollars:.2f} in {show_seconds(spending.planned_s)}"
        text += _show_deviation(spending)
    if spending.spot_dollars is not None:
        paid = spending.cost_dollars - spending.spot_dollars
        text += f"; ${spending.spot_dollars:.2f} at the spot price and ${paid:.2f} on demand"
    if spending.num_lost:
        text += f"; {show_count(spending.num_lost, 'node')} taken back or lost"
    if spending.num_nodes and spending.forecast_dollars is not None and spending.forecast_s is not None:
        text += f"; foreseen are ${spending.forecast_dollars:.2f} in {show_seconds(spending.forecast_s)}"
    if spending.earlier_dollars:
        text += f"; earlier runs took ${spending.earlier_dollars:.2f} and {show_seconds(spending.earlier_s)}"
    if spending.num_replanned:
        text += f"; planned anew {show_count(spending.num_replanned, 'time')}"
    limits = [] if spending.deadline_s is None else [f"a deadline of {show_seconds(spending.deadline_s)}"]
    limits += [] if spending.budget_dollars is None else [f"a budget of ${spending.budget_dollars:.2f}"]
    return Text(f"{text}; {' and '.join(limits)}" if limits else text)


def stages_table(spending: Spending) -> RenderableType:
    """The stages of a plan, each as it was planned and as it went."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("stage", "trials", "epochs", "nodes", "planned", "time", "planned", "cost", "planned"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, stage in enumerate(spending.stages, start=1):
        table.add_row(str(number), *_list_cells(stage))
    return Group(Text("nodes by the plan", style="bold"), table)


def nodes_table(nodes: Sequence[Mapping[str, Any]]) -> RenderableType:  # Any: JSON values
    """The nodes that studies have launched, one row each."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("node", "provider", "study", "instance", "state", "since", "lease"):
        table.add_column(name, no_wrap=name == "node")
    for one in nodes:
        left_s = one["lease_left_s"]
        lease = "ends with the study" if left_s is None else f"{show_seconds(max(left_s, 0))} left"
        kind = f"{one['instance']}, spot" if one["is_spot"] else one["instance"]
        cells = (one["node"], one["provider"], one["study"], kind, one["state"], show_seconds(one["seconds"]))
        table.add_row(*map(Text, cells), Text("over", style="bold red") if one["is_expired"] else Text(lease))
    return table


def _list_cells(stage: StageSpending) -> tuple[str, ...]:
    seconds = "" if stage.seconds is None else show_seconds(stage.seconds)
    cost = "" if stage.cost_dollars is None else f"${stage.cost_dollars:.2f}"
    held = "" if stage.seconds is None else str(stage.num_nodes)
    planned = str(stage.planned_nodes), show_seconds(stage.planned_s), f"${stage.planned_dollars:.2f}"
    return (
        str(stage.num_trials),
        str(stage.num_epochs),
        held,
        planned[0],
        seconds,
        planned[1],
        cost,
        planned[2],
    )


def _show_deviation(spending: Spending) -> str:
    """How far off the plan was, once it is over."""
    if spending.num_nodes or not spending.planned_dollars or not spending.planned_s:
        return ""
    dear = spending.cost_dollars / spending.planned_dollars - 1
    late = spending.seconds / spending.planned_s - 1
    return f" ({dear:+.0%} and {late:+.0%})"
