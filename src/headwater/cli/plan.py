"""The verb `plan`: what a search would take and cost on instances that can be had for money, before any is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.plan_sources import Asked, Sources, collect_sources, parse_dollars, parse_seconds, save_profile
from headwater.cli.plan_tables import Outcome, describe, draw_tables, show_seconds
from headwater.cli.terminal import JsonOption, open_out, print_json, telling_errors
from headwater.cloud.spot_rule import tell_rule
from headwater.errors import PlanError
from headwater.plan.choice import MOST_STARTS, choose_plan, name_rent
from headwater.plan.elastic import Limits, plan_fastest
from headwater.plan.frontier import plan_exactly, trace_prices
from headwater.plan.simulation import forecast
from headwater.settings import STORAGE_VARIABLE

CURVE_FACTORS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
"""The price over the deadline is shown at these multiples of the fastest plan's time."""


def plan(  # noqa: PLR0913 - one parameter for each option
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The Python file that defines the study to plan.")
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option(metavar="NxE,...", help="Without FILE: trials x epochs of each stage, such as 32x1,10x3,3x9."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many trials; NUM_TRIALS in FILE by default.")
    ] = None,
    max_epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many epochs a trial trains at most.")
    ] = None,
    search: Annotated[str | None, typer.Option(metavar="NAME", help="How to search, such as halving.")] = None,
    study: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Which study of FILE to plan, if there are several.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar=STORAGE_VARIABLE, help="The record that knows how long epochs took."),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A YAML file: how long epochs take, what an instance costs.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Train a few epochs here to see how long they take.")
    ] = False,
    save_profile_to: Annotated[
        Path | None, typer.Option("--save-profile", metavar="FILE", help="Write how long epochs take for --profile.")
    ] = None,
    instance: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="What to rent, such as p3.8xlarge; several times to take the cheapest."),
    ] = None,
    catalogue: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A YAML file: other instances, or other prices.")
    ] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Consider spot prices too.")] = False,
    spot_history: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --spot: a JSON file, how many could be had when."),
    ] = None,
    relative_speed: Annotated[
        float | None,
        typer.Option(metavar="X", help="How many times faster an instance's devices are than the measured ones."),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="When to be done, such as 90s, 30m or 1h30m.")
    ] = None,
    budget: Annotated[str | None, typer.Option(metavar="DOLLARS", help="What may be spent, such as 15.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.svg", help="Draw price and cluster size too.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan which stage of a search gets how many devices: at the least price by a deadline, or soonest within a budget.

    Beside the plan stand the best cluster of one size and the plan in which every trial keeps its number of devices.
    Nothing is launched; only --measure trains, and only here.
    """
    with telling_errors():
        limits = Limits(
            deadline_s=None if deadline is None else parse_seconds(deadline),
            budget_dollars=None if budget is None else parse_dollars(budget),
        )
        asked = Asked(
            file=file,
            stages=stages,
            trials=trials,
            max_epochs=max_epochs,
            search=search,
            storage=storage,
            study=study,
            profile=profile,
            is_measured=measure,
            instances=instance or (),
            catalogue=catalogue,
            is_spot=spot,
            relative_speed=relative_speed,
            spot_history=spot_history,
        )
        sources = collect_sources(asked)
        if save_profile_to is not None:
            save_profile(sources.profile, save_profile_to)
        outcome = _decide(sources, limits)
        if output is not None:
            _draw(outcome, output)
        if as_json:
            print_json(describe(outcome))
            return
        out = open_out()
        for part in draw_tables(outcome):
            out.print(part, soft_wrap=isinstance(part, str))


def _decide(sources: Sources, limits: Limits) -> Outcome:
    chosen, greedy = choose_plan(sources.jobs, limits)
    laid_out = None if chosen is None else chosen.lay_out()
    if chosen is None or laid_out is None:
        raise PlanError(_explain_impossible(sources, limits))
    fastest = plan_fastest(chosen.job).seconds
    return Outcome(
        sources=sources,
        limits=limits,
        chosen=chosen,
        greedy=greedy,
        plan=laid_out,
        spot_rule=tell_rule(laid_out, chosen.job, limits.deadline_s),
        forecast=forecast(chosen.job, laid_out.devices, limits.deadline_s),
        curve=trace_prices(chosen.job, [factor * fastest * (1 + 1e-9) for factor in CURVE_FACTORS], MOST_STARTS),
    )


def _explain_impossible(sources: Sources, limits: Limits) -> str:
    """Say why no plan keeps to the limits, and what would."""
    fastest = min((plan_fastest(job) for job in sources.jobs), key=lambda one: one.seconds)
    cheapest = min(
        (one for job in sources.jobs if (one := plan_exactly(job, Limits(), MOST_STARTS)) is not None),
        key=lambda one: one.cost_dollars,
        default=fastest,
    )
    asked = [] if limits.deadline_s is None else [f"a deadline of {show_seconds(limits.deadline_s)}"]
    asked += [] if limits.budget_dollars is None else [f"a budget of ${limits.budget_dollars:.2f}"]
    return (
        f"no plan keeps to {' and '.join(asked)}: the fastest takes {show_seconds(fastest.seconds)} for "
        f"${fastest.cost_dollars:.2f}, the cheapest {show_seconds(cheapest.seconds)} for ${cheapest.cost_dollars:.2f}; "
        "allow more, or plan fewer trials or epochs"
    )


def _draw(outcome: Outcome, path: Path) -> None:
    """Draw the plan into a file.

    Raises:
        PlanError: The file cannot be written.
    """
    from headwater.report.plan_drawing import draw_plan

    job, limits = outcome.chosen.job, outcome.limits
    try:
        path.write_text(draw_plan(job, outcome.plan, limits, name_rent(job)), encoding="utf-8")
    except OSError as error:
        raise PlanError(f"the drawing cannot be written to {str(path)!r}: {error.strerror}") from error
