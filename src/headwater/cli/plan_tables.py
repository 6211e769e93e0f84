"""How a plan is shown: as tables, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from headwater.cli.plan_sources import Sources
from headwater.plan.choice import Chosen, name_rent
from headwater.plan.elastic import Limits, Prediction
from headwater.plan.elastic_plan import ElasticPlan
from headwater.plan.jobs import Billing, Instance, Job, Part
from headwater.plan.profiles import Basis
from headwater.plan.simulation import Forecast, is_uncertain

WAYS = {"static": "one size throughout", "naive": "same devices per trial", "elastic": "greedy", "exact": "best"}
BASES = {
    Basis.GIVEN: "epoch times as given in the profile",
    Basis.MEASURED: "epoch times measured on such devices",
    Basis.SCALED: "epoch times measured on other devices, scaled by --relative-speed",
    Basis.ESTIMATED: "epoch times ESTIMATED from operations and bytes by data sheets; expect a factor of two or three",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was planned."""

    sources: Sources
    limits: Limits
    chosen: Chosen
    greedy: Mapping[str, Prediction | None]
    """The greedy plan of each instance that was compared."""
    plan: ElasticPlan
    forecast: Forecast
    curve: Sequence[tuple[float, Prediction]]
    spot_rule: str | None = None
    """What will decide when there are spot nodes; None where there are none."""

    @property
    def basis(self) -> Basis:
        """What the times are based on."""
        return self.sources.bases[self.plan.instance.name]


def describe(outcome: Outcome) -> dict[str, Any]:  # Any: JSON values
    """Return an outcome as JSON has it."""
    chosen, instance = outcome.chosen, outcome.plan.instance
    offer = outcome.sources.offers[instance.name]
    return {
        **{name: _describe_plan(getattr(chosen, name)) for name in WAYS},
        "instance": {**_describe_instance(instance), "source": offer.source, "date": offer.date},
        "spot_rule": outcome.spot_rule,
        "basis": outcome.basis.value,
        "stages": [asdict(stage) for stage in outcome.plan.stages],
        "forecast": asdict(outcome.forecast),
        "greedy_gap": chosen.measure_gap(outcome.limits),
        "instances_compared": {name: _describe_plan(plan) for name, plan in outcome.greedy.items()},
        "price_over_deadline": [
            {"deadline_s": deadline, "cost_dollars": plan.cost_dollars, "devices": list(plan.devices)}
            for deadline, plan in outcome.curve
        ],
        "notes": list(outcome.sources.profile.notes),
    }


def draw_tables(outcome: Outcome) -> Iterator[RenderableType]:
    """Yield what a person is shown."""
    chosen, limits = outcome.chosen, outcome.limits
    yield _stage_table(chosen.job, outcome.plan)
    yield _comparison({name: getattr(chosen, name) for name in WAYS})
    if len(outcome.greedy) > 1:
        yield _instance_table(outcome)
    if is_uncertain(chosen.job):
        low, high = outcome.forecast.seconds_range
        cheap, dear = outcome.forecast.cost_range
        chance = outcome.forecast.chance_in_time
        in_time = "" if chance is None else f"; {chance:.0%} of all meet the deadline"
        range_s = f"{show_seconds(low)} to {show_seconds(high)}"
        yield f"nine runs of ten take {range_s} and cost ${cheap:.2f} to ${dear:.2f}{in_time}"
    gap = chosen.measure_gap(limits)
    if gap is not None:
        yield f"the plan is the best there is; a greedy search comes within {100 * gap:.1f} % of it"
    elif chosen.exact is None:
        yield "the plan is that of a greedy search; an exact one would take too long to find"
    yield _describe_sources(outcome)
    yield _price_table(outcome.curve)


def show_seconds(seconds: float) -> str:
    """Write a time as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {rest:02}s" if minutes else f"{rest}s"


def _describe_plan(plan: Prediction | None) -> dict[str, Any] | None:
    return None if plan is None else asdict(plan)


def _describe_instance(instance: Instance) -> dict[str, Any]:
    """Return an instance as JSON has it; of its history, where that comes from."""
    history = instance.spot_history
    plain = asdict(replace(instance, spot_history=None))
    return {**plain, "spot_history": None if history is None else history.source}


def _stage_table(job: Job, plan: ElasticPlan) -> Table:
    columns = ("stage", "trials", "epochs", "devices", "per trial", name_rent(job), "time", "price")
    table = Table(*columns, title="the plan, by stages")
    for number, (stage, planned) in enumerate(zip(job.stages, plan.stages, strict=True), start=1):
        length = job.chain_length(stage, planned.num_devices)
        width = str(job.devices_per_trial(stage, planned.num_devices))
        if length > 1:
            num_rounds = job.find_times(stage).of_chain(length)[1]
            lanes = -(-length // num_rounds)
            width = f"1, {length} in turn" if lanes == 1 else f"1 for {lanes} lanes"
        label = str(number) if stage.part is Part.SEARCH else f"{number} {stage.part.name.lower()}"
        cells = (label, stage.num_trials, stage.num_epochs, planned.num_devices, width, planned.num_instances)
        table.add_row(*map(str, cells), show_seconds(planned.seconds), f"${planned.cost_dollars:.2f}")
    return table


def _comparison(plans: Mapping[str, Prediction | None]) -> Table:
    table = Table("plan", "time", "price", "devices", title="beside other plans")
    for name, plan in plans.items():
        _add_plan(table, WAYS[name], plan)
    return table


def _instance_table(outcome: Outcome) -> Table:
    table = Table("instances", "time", "price", "devices", title="by type of instance, greedy plans")
    for name, plan in outcome.greedy.items():
        _add_plan(table, name, plan)
    return table


def _add_plan(table: Table, name: str, plan: Prediction | None) -> None:
    if plan is None:
        table.add_row(name, "does not keep to the limits", "", "")
        return
    devices = ", ".join(map(str, plan.devices))
    table.add_row(name, show_seconds(plan.seconds), f"${plan.cost_dollars:.2f}", devices)


def _describe_sources(outcome: Outcome) -> str:
    """Say where the numbers come from."""
    instance = outcome.plan.instance
    offer = outcome.sources.offers[instance.name]
    source = "median over zones, skypilot-catalog" if instance.is_spot else f"{offer.source}, {offer.date}"
    dated = f" ({source})" if offer.date else ""
    market = "at the spot price" if instance.is_spot else "on demand"
    billed = ", charged by the second of training" if outcome.chosen.job.billing is Billing.FUNCTION else ""
    lines = [
        f"{instance.name}: ${instance.dollars_per_hour:.2f} an hour {market}{dated}{billed}; "
        f"{instance.provision_s:g} s until it is there, {instance.initialise_s:g} s more until it is ready",
        BASES[outcome.basis] + "".join(f"; {note}" for note in outcome.sources.profile.notes),
    ]
    if instance.is_spot:
        lines.append(
            f"one is taken back {instance.interruptions_per_hour:g} times an hour; time for a change to on demand is "
            "kept at the end"
        )
    if outcome.spot_rule is not None:
        lines.append(outcome.spot_rule)
    return "\n".join(lines)


def _price_table(curve: Sequence[tuple[float, Prediction]]) -> Table:
    table = Table("deadline", "price", "devices", title="price over the deadline")
    for deadline, plan in curve:
        table.add_row(show_seconds(deadline), f"${plan.cost_dollars:.2f}", ", ".join(map(str, plan.devices)))
    return table
