"""The verb `plan`: what a search would take and cost on instances that can be had for money, before any is spent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from headwater.errors import PlanError
from headwater.plan.elastic import Limits, Prediction, plan_fastest, plan_greedily, plan_naively, plan_static
from headwater.plan.frontier import plan_exactly, trace_prices
from headwater.plan.jobs import Billing, EpochSeconds, Instance, Job, JobStage
from headwater.plan.simulation import forecast
from headwater.terminal import JsonOption, open_out, print_json, telling_errors

CURVE_FACTORS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
"""The price over the deadline is shown at these multiples of the fastest plan's time."""
PLANNERS = {"static": plan_static, "naive": plan_naively, "elastic": plan_greedily, "exact": plan_exactly}
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
_INSTANCE_KEYS = ("devices", "dollars_per_hour", "provision_s", "initialise_s", "minimum_s", "launch_dollars", "name")


def plan(
    stages: Annotated[
        str, typer.Option(metavar="NxE,...", help="Trials x epochs of each stage, such as 32x1,10x3,3x9,1x37.")
    ],
    profile: Annotated[
        Path, typer.Option(metavar="FILE", help="A YAML file: what an instance costs, how long epochs take.")
    ],
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="When to be done, such as 90s, 30m or 1h30m.")
    ] = None,
    budget: Annotated[float | None, typer.Option(metavar="DOLLARS", help="What may be spent.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan which stage of a search gets how many devices: at the least price by a deadline, or soonest within a budget.

    Beside the plan stand the best cluster of one size and the plan in which every trial keeps its number of devices.
    Nothing is trained and nothing is launched.
    """
    with telling_errors():
        job = read_profile(profile, parse_stages(stages))
        limits = Limits(deadline_s=None if deadline is None else parse_seconds(deadline), budget_dollars=budget)
        plans = {name: planner(job, limits) for name, planner in PLANNERS.items()}
        if plans["exact"] is None:
            raise PlanError(_explain_impossible(job, limits))
        if as_json:
            answer = {name: None if one is None else asdict(one) for name, one in plans.items()}
            print_json(answer)
            return
        _show(job, limits, plans)


def parse_stages(text: str) -> list[JobStage]:
    """Read stages such as `32x1,10x3`.

    Raises:
        PlanError: That is no list of stages.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d+x\d+", part) for part in parts):
        raise PlanError(f"--stages is {text!r}; give trials x epochs of each stage, for instance 32x1,10x3,3x9,1x37")
    pairs = [part.split("x") for part in parts]
    return [JobStage(num_trials=int(trials), num_epochs=int(epochs)) for trials, epochs in pairs]


def parse_seconds(text: str) -> float:
    """Read a time such as `30m`, `1h30m`, `90s` or `90`.

    Raises:
        PlanError: That is no time, or none at all.
    """
    found = _DURATION.fullmatch(text.strip())
    hours, minutes, seconds = ((float(part) if part else 0.0) for part in found.groups()) if found else (0.0,) * 3
    total = 3600 * hours + 60 * minutes + seconds
    if total <= 0:
        raise PlanError(f"{text!r} is no time to plan for; write it as 90s, 30m or 1h30m")
    return total


def read_profile(path: Path, stages: list[JobStage]) -> Job:
    """Read what an instance costs and how long epochs take.

    Raises:
        PlanError: The file cannot be read, or says something that makes no sense.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PlanError(f"the profile {str(path)!r} cannot be read: {' '.join(str(error).split())}") from error
    try:
        return _build_job(content, stages)
    except PlanError as error:
        raise PlanError(f"the profile {str(path)!r}: {error}") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise PlanError(
            f"the profile {str(path)!r} needs `instance: {{devices, dollars_per_hour, provision_s, initialise_s}}` and "
            f"`seconds_per_epoch: {{number of devices: seconds}}`, all numbers; reading it ended with {error!r}"
        ) from error


def _build_job(content: Mapping[str, Any], stages: list[JobStage]) -> Job:  # Any: what a YAML file holds
    known = {"instance", "seconds_per_epoch", "seconds_per_epoch_by_lanes", "spread", "billing", "max_instances"}
    if unknown := [key for key in content if key not in known]:
        raise PlanError(f"it has {', '.join(map(repr, unknown))}; it may have {', '.join(sorted(known))}")
    given = dict(content["instance"])
    if unknown := [key for key in given if key not in _INSTANCE_KEYS]:
        raise PlanError(f"its instance has {', '.join(map(repr, unknown))}; it may have {', '.join(_INSTANCE_KEYS)}")
    instance = Instance(
        name=str(given.pop("name", "instance")),
        num_devices=int(given.pop("devices")),
        **{key: float(value) for key, value in {"dollars_per_hour": given.pop("dollars_per_hour"), **given}.items()},
    )
    seconds, by_lanes = (
        {int(count): float(value) for count, value in given.items()}
        for given in (content["seconds_per_epoch"], content.get("seconds_per_epoch_by_lanes", {}))
    )
    billing = content.get("billing", "instance")
    if billing not in list(Billing):
        raise PlanError(f"its billing is {billing!r}; it must be 'instance' or 'function'")
    most = content.get("max_instances")
    return Job(
        stages=stages,
        epoch_seconds=EpochSeconds(by_devices=seconds, by_lanes=by_lanes, spread=float(content.get("spread", 0.0))),
        instance=instance,
        billing=Billing(billing),
        max_instances=None if most is None else int(most),
    )


def _explain_impossible(job: Job, limits: Limits) -> str:
    """Say why no plan keeps to the limits, and what would."""
    fastest, cheapest = plan_fastest(job), plan_exactly(job, Limits())
    assert cheapest is not None
    asked = [] if limits.deadline_s is None else [f"a deadline of {show_seconds(limits.deadline_s)}"]
    asked += [] if limits.budget_dollars is None else [f"a budget of ${limits.budget_dollars:.2f}"]
    return (
        f"no plan keeps to {' and '.join(asked)}: the fastest takes {show_seconds(fastest.seconds)} for "
        f"${fastest.cost_dollars:.2f}, the cheapest {show_seconds(cheapest.seconds)} for ${cheapest.cost_dollars:.2f}; "
        "allow more, or plan fewer trials or epochs"
    )


def show_seconds(seconds: float) -> str:
    """Write a time as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {rest:02}s" if minutes else f"{rest}s"


def _show(job: Job, limits: Limits, plans: Mapping[str, Prediction | None]) -> None:
    out = open_out()
    exact, greedy = plans["exact"], plans["elastic"]
    assert exact is not None
    out.print(_stage_table(job, exact))
    out.print(_comparison(plans))
    ahead = forecast(job, exact.devices)
    if job.epoch_seconds.spread:
        low, high = ahead.seconds_range
        out.print(f"nine runs of ten take {show_seconds(low)} to {show_seconds(high)}", end="")
        out.print(f" and cost ${ahead.cost_range[0]:.2f} to ${ahead.cost_range[1]:.2f}")
    if greedy is not None and limits.rank(exact)[0] > 0:
        gap = limits.rank(greedy)[0] / limits.rank(exact)[0] - 1
        out.print(f"the plan is the best there is; a greedy search comes within {100 * gap:.1f} % of it")
    fastest = plan_fastest(job).seconds
    out.print(_price_table(trace_prices(job, [factor * fastest * (1 + 1e-9) for factor in CURVE_FACTORS])))


def _stage_table(job: Job, plan: Prediction) -> Table:
    table = Table("stage", "trials", "epochs", "devices", "per trial", job.instance.name, title="the plan, by stages")
    rows = zip(job.stages, plan.devices, plan.instances, strict=True)
    for number, (stage, devices, instances) in enumerate(rows, start=1):
        length = job.chain_length(stage, devices)
        width = str(job.devices_per_trial(stage, devices))
        if length > 1:
            num_rounds = job.epoch_seconds.of_chain(length)[1]
            lanes = -(-length // num_rounds)
            width = f"1, {length} in turn" if lanes == 1 else f"1 for {lanes} lanes"
        cells = (number, stage.num_trials, stage.num_epochs, devices, width, instances)
        table.add_row(*map(str, cells))
    return table


def _comparison(plans: Mapping[str, Prediction | None]) -> Table:
    names = {"static": "one size throughout", "naive": "same devices per trial", "elastic": "greedy", "exact": "best"}
    table = Table("plan", "time", "price", "devices", title="beside other plans")
    for name, plan in plans.items():
        if plan is None:
            table.add_row(names[name], "does not keep to the limits", "", "")
            continue
        devices = ", ".join(map(str, plan.devices))
        table.add_row(names[name], show_seconds(plan.seconds), f"${plan.cost_dollars:.2f}", devices)
    return table


def _price_table(curve: list[tuple[float, Prediction]]) -> Table:
    table = Table("deadline", "price", "devices", title="price over the deadline")
    for deadline, plan in curve:
        table.add_row(show_seconds(deadline), f"${plan.cost_dollars:.2f}", ", ".join(map(str, plan.devices)))
    return table
