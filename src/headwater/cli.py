"""The command `headwater`: with `terminal`, the only module that reads the environment and prints.

Torch is imported by `run` and `doctor` alone, and only when they need it: the other verbs answer at once.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from headwater.device_verb import devices
from headwater.errors import HeadwaterError, StudyError
from headwater.plan_verb import plan
from headwater.record_verbs import best, export, list_studies, mirror, show, stop
from headwater.terminal import (
    DEFAULT_STORAGE,
    FAILED,
    INTERRUPTED,
    MEMORY_NAMES,
    STORAGE_VARIABLE,
    AllocationOption,
    DevicesOption,
    ExecutorOption,
    FileArgument,
    JsonOption,
    LanesOption,
    OrderOption,
    PackingOption,
    QuietOption,
    StatesOption,
    StorageOption,
    TargetOption,
    TimeBudgetOption,
    describe_cause,
    name_storage,
    open_err,
    open_out,
    print_json,
    show_command,
    telling_errors,
)

if TYPE_CHECKING:
    from headwater.doctor import Check
    from headwater.loading import Loaded
    from headwater.report.progress import RunWatcher
    from headwater.study import Study
    from headwater.trials import Result

MOST_PROFILES = 2
"""Of more profiles than these, `run` prints a line each; `show` has all that was measured."""
MOST_WITHOUT_ASKING = 10_000
"""A finite space up to this size is searched as a whole; for a larger one, the number of trials must be given."""

app = typer.Typer(
    name="headwater",
    help="Tune PyTorch models: train hundreds of trials of one ordinary training function at once.",
    epilog="Start with `headwater run train.py --trials 100`, where train.py defines a headwater.Study; "
    "then look at it with `headwater show` and `headwater best`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command."""
    app()


def _show_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        open_out().print(f"headwater {version('headwater')}", highlight=False)
        raise typer.Exit


@app.callback()
def headwater(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Take the options that come before the verb."""


@app.command()
def run(  # noqa: PLR0913 - one parameter for each option
    file: FileArgument,
    trials: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many trials to train; NUM_TRIALS in FILE by default.")
    ] = None,
    max_epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many epochs a trial trains at most.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar=STORAGE_VARIABLE, help="Where the record goes: a path or a database URL."),
    ] = None,
    states: StatesOption = None,
    lanes: LanesOption = None,
    packing: PackingOption = None,
    allocation: AllocationOption = None,
    executor: ExecutorOption = None,
    devices: DevicesOption = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Another seed gives other draws and weights.")] = None,
    search: Annotated[str | None, typer.Option(metavar="NAME", help="How to search, such as random or grid.")] = None,
    order: OrderOption = None,
    surrogate: Annotated[
        str | None,
        typer.Option(metavar="auto|N", help="Search on models of 1/N of the width, then train the target; 1 for not."),
    ] = None,
    time_budget: TimeBudgetOption = None,
    target: TargetOption = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What the record calls the study.")] = None,
    study: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Which study of FILE to run, if there are several.")
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the study that a file defines, and show what it found.

    FILE is loaded as a script is, but for its `if __name__ == "__main__"` part. It holds one headwater.Study, or a
    function study() that returns one. The options take the place of what the study itself says.
    """
    with telling_errors():
        loaded = _load(file, study)
        options = {
            "storage": storage,
            "states": states,
            "seed": seed,
            "search": search,
            "order": order,
            "name": name,
            "max_epochs": max_epochs,
        }
        grouped = _set_running(loaded.study, lanes, packing, allocation, executor, devices)
        chosen = _override(grouped, {**options, "max_epochs": max_epochs, "surrogate": _read_count(surrogate)})
        num_trials = _count_trials(chosen, trials, loaded, file)

        def start(watcher: RunWatcher) -> Result:
            return chosen.run(num_trials, time_budget=time_budget, target=target, watcher=watcher)

        _conclude(_watch(chosen, start, quiet), file, as_json=as_json)


@app.command()
def resume(  # noqa: PLR0913 - one parameter for each option
    file: FileArgument,
    trials: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many trials there shall be in all.")
    ] = None,
    max_epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Must be what the study ran with, and need not be given.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", envvar=STORAGE_VARIABLE, help="The record: a path or a database URL.")
    ] = None,
    states: StatesOption = None,
    lanes: LanesOption = None,
    packing: PackingOption = None,
    allocation: AllocationOption = None,
    executor: ExecutorOption = None,
    devices: DevicesOption = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="virtual|arrival", help="Must be what the study ran with, and need not be given."),
    ] = None,
    time_budget: TimeBudgetOption = None,
    target: TargetOption = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which study of the record; the newest by default.")
    ] = None,
    study: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Which study of FILE, if there are several.")
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Go on with a study that was interrupted or killed, from the last saved epoch of each trial.

    FILE must define the study as it was when it ran. With --trials, a study goes on to more trials than before.
    """
    with telling_errors():
        grouped = _set_running(_load(file, study).study, lanes, packing, allocation, executor, devices)
        options = {"storage": storage, "states": states, "name": name, "order": order}
        chosen = _as_recorded(_override(grouped, options), max_epochs, order)

        def start(watcher: RunWatcher) -> Result:
            return chosen.resume(trials, time_budget=time_budget, target=target, watcher=watcher)

        _conclude(_watch(chosen, start, quiet), file, as_json=as_json)


app.command("ls")(list_studies)
app.command()(show)
app.command()(best)
app.command()(export)
app.command()(mirror)
app.command()(stop)
app.command()(devices)
app.command()(plan)


@app.command()
def doctor(storage: StorageOption = DEFAULT_STORAGE, as_json: JsonOption = False) -> None:
    """Check that Headwater can work here, and say what to do where it cannot."""
    with telling_errors():
        from headwater.doctor import Level, examine

        console = open_out()
        checks = []
        for check in examine(storage):
            checks.append(check)
            if not as_json:
                console.print(_draw_check(check))
        if as_json:
            print_json({"checks": [asdict(check) for check in checks]})
        if any(check.level is Level.FAIL for check in checks):
            raise typer.Exit(FAILED)


def _load(file: Path, study: str | None) -> Loaded:
    from headwater.loading import load_study

    with open_err().status(f"loading {escape(str(file))}"):
        return load_study(file, study)


def _override(study: Study, options: dict[str, Any]) -> Study:  # Any: settings of a study, None where not given
    return replace(study, **{key: value for key, value in options.items() if value is not None})


def _set_running(
    study: Study,
    lanes: str | None,
    packing: str | None,
    allocation: str | None,
    executor: str | None,
    devices: int | None,
) -> Study:
    """Let the study group and train its trials as asked, where that was; it refuses itself what cannot be."""
    options = {"lanes": _read_count(lanes), "allocation": allocation, "executor": executor, "devices": devices}
    study = _override(study, options)
    if packing is None:
        return study
    return replace(study, packing=None if packing.lower() == "none" else packing)


def _as_recorded(study: Study, max_epochs: int | None, order: str | None) -> Study:
    """Give the study what options of `run` may have changed when it was recorded."""
    from headwater.search import SEARCHES
    from headwater.store import open_store
    from headwater.trials import Surrogate

    with open_store(study.storage, create=False) as store:
        info = store.study(study.name)
        facts = store.facts(info.id)
    search = info.settings.get("search")
    recorded = info.settings.get("order", "virtual")
    if order not in (None, recorded):
        raise StudyError(
            f"--order is {order}, but study {info.name!r} ran with {recorded}, and what was decided in one order "
            f"cannot be decided again in the other; leave the option out, or start another study with "
            f"headwater run --order {order}"
        )
    options = {
        "seed": info.seed,
        "name": info.name,
        "search": search if search in SEARCHES else None,
        "order": recorded,
    }
    scale = info.settings.get("scale")
    if isinstance(study.surrogate, Surrogate) and scale is not None:
        scale = replace(study.surrogate, scale=scale)
    limit = facts.get("max_epochs", max_epochs or study.max_epochs)  # records of version 0.1 may lack it
    if max_epochs not in (None, limit):
        raise StudyError(
            f"--max-epochs is {max_epochs}, but study {info.name!r} ran with {limit or 'no limit'}, and trials that "
            f"train for unlike numbers of epochs cannot be compared; leave the option out, or start another study "
            f"with headwater run --max-epochs {max_epochs}"
        )
    return replace(_override(study, {**options, "surrogate": scale}), max_epochs=limit)


def _read_count(text: str | None) -> int | str | None:
    """Read a number where there is one; the study itself refuses any other word than auto."""
    return int(text) if text is not None and text.isdecimal() else text


def _count_trials(study: Study, asked: int | None, loaded: Loaded, file: Path) -> int:
    from headwater.space import Space

    assert isinstance(study.space, Space)
    if asked is not None:
        return asked
    if loaded.num_trials is not None:
        return loaded.num_trials
    size = study.space.size
    if size is None or size > MOST_WITHOUT_ASKING:
        count = "no end of" if size is None else f"{size:,}"
        raise StudyError(
            f"the space of the study in {file} has {count} configurations; say how many trials to train with "
            f"--trials 100, or with NUM_TRIALS = 100 in the file"
        )
    return size


def _watch(study: Study, start: Callable[[RunWatcher], Result], quiet: bool) -> Result:
    from headwater.report import Silence
    from headwater.report.progress import choose_watcher

    watcher = Silence() if quiet else choose_watcher(open_err())
    try:
        return start(watcher)
    except KeyboardInterrupt:
        open_err().print(_explain_interruption(watcher, study), soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    except HeadwaterError:
        raise
    except Exception as error:  # of a callback, or whatever else is no trial's
        raise StudyError(
            f"the run was ended by {describe_cause(error)}; what was reported until then is in the record: mend that, "
            "and go on with headwater resume"
        ) from error


def _conclude(result: Result, file: Path, *, as_json: bool) -> None:
    """Show what came of a run, and end with the status that belongs to it."""
    _show_result(result, as_json=as_json)
    if result.was_interrupted:
        where = "" if result.storage == DEFAULT_STORAGE else f" --storage {shlex.quote(name_storage(result.storage))}"
        command = f"headwater resume {shlex.quote(str(file))}{where}"
        open_err().print(f"[bold yellow]interrupted[/]; go on with {escape(command)}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED)
    if not result.ranked:
        open_err().print(_explain_failure(result), soft_wrap=True)
        raise typer.Exit(FAILED)


def _explain_interruption(watcher: RunWatcher, study: Study) -> Text:
    text = Text("interrupted", style="bold yellow")
    if watcher.study is None or study.storage is None or str(study.storage) in MEMORY_NAMES:
        return text
    where = name_storage(str(study.storage))
    look = show_command("show", watcher.study, str(study.storage))
    return text.append(f"; what was reported until now is in {where}\nlook at it with {look}", style="not bold default")


def _show_result(result: Result, *, as_json: bool) -> None:
    from headwater.report.json_views import describe_run
    from headwater.report.tables import best_table, profile_line, profile_table, summary

    shown = replace(result, storage=name_storage(result.storage))
    if as_json:
        print_json(describe_run(shown))
        return
    draw = profile_table if len(result.profiles) <= MOST_PROFILES else profile_line
    parts: list[RenderableType] = [draw(profile, profile.label) for profile in result.profiles]
    look = None if result.storage in MEMORY_NAMES else show_command("show", result.study, result.storage)
    parts += [best_table(result), summary(shown, look)]
    console = open_out()
    for part in parts:
        console.print()
        console.print(part)


def _explain_failure(result: Result) -> Text:
    failed = [trial for trial in result.trials if trial.error]
    if not failed:
        return Text(f"no trial has a finite {result.metric}; the learning rates may be too high", style="bold red")
    everyone = len(failed) == len(result.trials)
    text = Text("every trial failed" if everyone else f"no trial has a finite {result.metric}", style="bold red")
    first = failed[0]
    text.append(f"; trial {first.number}: {(first.error or '').rstrip().splitlines()[-1]}", style="not bold default")
    if result.storage in MEMORY_NAMES:
        return text
    look = f"{show_command('show', result.study, result.storage)} --trial {first.number}"
    return text.append(f"\nsee the whole traceback with {look}", style="not bold default")


def _draw_check(check: Check) -> Text:
    styles = {"ok": "green", "warn": "yellow", "FAIL": "bold red"}
    text = Text.assemble((f"{check.level:<5}", styles[check.level]), f"{check.name:<12}", check.text)
    return text.append(f"\n{'':<17}→ {check.cure}", style="bold") if check.cure else text
