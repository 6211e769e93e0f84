"""The verbs `run` and `resume`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from headwater.cli.bubbles import BubblesOption, use_bubbles
from headwater.cli.cluster_options import (
    BudgetOption,
    ClusterOption,
    ClusterOptions,
    DeadlineOption,
    InstanceOption,
    NodesOption,
    ProfileOption,
    SpotHistoryOption,
    set_elastic,
)
from headwater.cli.recorded_settings import as_recorded, override
from headwater.cli.service_options import ServerOption, TokenOption, open_service
from headwater.cli.slurm_options import ListenOption, SbatchOption, use_slurm
from headwater.cli.study_stages import count_recorded
from headwater.cli.terminal import (
    FAILED,
    INTERRUPTED,
    MEMORY_NAMES,
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
from headwater.errors import AllTrialsFailedError, HeadwaterError, StudyError
from headwater.settings import DEFAULT_STORAGE, STORAGE_VARIABLE, find_storage

if TYPE_CHECKING:
    from headwater.loading import Loaded
    from headwater.report.progress import RunWatcher
    from headwater.study import Study
    from headwater.trials import Result

MOST_PROFILES = 2
"""Of more profiles than these, `run` prints a line each; `show` has all that was measured."""
SEARCH_HELP = (
    "How to search: random, grid; tpe, gp, cmaes, qmc, nsga2; halving, hyperband, asha, bohb, sync-bohb, pbt, median."
)
MOST_DIGITS = 18
"""A longer number is no count of anything."""
MOST_WITHOUT_ASKING = 10_000
"""A finite space up to this size is searched as a whole; for a larger one, the number of trials must be given."""


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
    bubbles: BubblesOption = None,
    listen: ListenOption = None,
    sbatch: SbatchOption = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Another seed gives other draws and weights.")] = None,
    search: Annotated[str | None, typer.Option(metavar="NAME", help=SEARCH_HELP)] = None,
    constraint: Annotated[
        list[str] | None,
        typer.Option(metavar="'METRIC <= N'", help="What trials must keep to, with <= or >=; may be given repeatedly."),
    ] = None,
    order: OrderOption = None,
    surrogate: Annotated[
        str | None,
        typer.Option(metavar="auto|N", help="Search on models of 1/N of the width, then train the target; 1 for not."),
    ] = None,
    time_budget: TimeBudgetOption = None,
    target: TargetOption = None,
    cluster: ClusterOption = None,
    deadline: DeadlineOption = None,
    budget: BudgetOption = None,
    profile: ProfileOption = None,
    instance: InstanceOption = None,
    nodes: NodesOption = None,
    spot_history: SpotHistoryOption = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What the record calls the study.")] = None,
    resume: Annotated[
        str, typer.Option(metavar="never|auto", help="auto: go on with the study of this name if the record has it.")
    ] = "never",
    start_from: Annotated[
        str | None, typer.Option(metavar="STUDY", help="Try the best configuration of this study of the record first.")
    ] = None,
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
        wanted = ClusterOptions(
            cluster=cluster,
            deadline=deadline,
            budget=budget,
            profile=profile,
            nodes=nodes,
            instance=instance,
            spot_history=spot_history,
        )
        wanted.check(executor, devices)
        loaded = load(file, study)
        options = {
            "storage": storage,
            "states": states,
            "seed": seed,
            "search": search,
            "constraints": constraint or None,
            "order": order,
            "name": name,
            "max_epochs": max_epochs,
        }
        grouped = set_running(loaded.study, lanes, packing, allocation, executor, devices)
        grouped = use_slurm(use_bubbles(grouped, bubbles, cluster, executor, devices), listen, sbatch)
        chosen = override(grouped, {**options, "max_epochs": max_epochs, "surrogate": read_count(surrogate)})
        is_given = trials is not None or loaded.num_trials is not None
        ends_by_time = time_budget is not None and cluster is None and not is_given
        num_trials = None if ends_by_time else count_trials(chosen, trials, loaded, file)
        if start_from is not None:
            chosen.enqueue_best(start_from)
        if cluster is not None and num_trials is not None:
            chosen = set_elastic(chosen, num_trials, wanted, file)

        def start(watcher: RunWatcher) -> Result:
            return chosen.run(num_trials, time_budget=time_budget, target=target, watcher=watcher, resume=resume)

        conclude(watch(file, chosen, start, quiet), file, as_json=as_json)


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
    bubbles: BubblesOption = None,
    listen: ListenOption = None,
    sbatch: SbatchOption = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="virtual|arrival", help="Must be what the study ran with, and need not be given."),
    ] = None,
    time_budget: TimeBudgetOption = None,
    target: TargetOption = None,
    cluster: ClusterOption = None,
    deadline: DeadlineOption = None,
    budget: BudgetOption = None,
    profile: ProfileOption = None,
    instance: InstanceOption = None,
    nodes: NodesOption = None,
    spot_history: SpotHistoryOption = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which study of the record; the newest by default.")
    ] = None,
    study: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Which study of FILE, if there are several.")
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """Go on with a study that was interrupted or killed, from the last saved epoch of each trial.

    FILE must define the study as it was when it ran. With --trials, a study goes on to more trials than before. With
    --cluster, what is left is planned; what earlier runs cost counts towards the budget, the deadline is from now on.
    With --server, FILE is what `headwater queue` calls a study of that service; what ends in .py is a file here.
    """
    with telling_errors():
        if server and file.suffix != ".py":
            from headwater.cli.service import tell_change

            tell_change(open_service(server, token).change(str(file), "resume"))
            return
        wanted = ClusterOptions(
            cluster=cluster,
            deadline=deadline,
            budget=budget,
            profile=profile,
            nodes=nodes,
            instance=instance,
            spot_history=spot_history,
        )
        wanted.check(executor, devices)
        grouped = set_running(load(file, study).study, lanes, packing, allocation, executor, devices)
        grouped = use_slurm(use_bubbles(grouped, bubbles, cluster, executor, devices), listen, sbatch)
        options = {"storage": storage, "states": states, "name": name, "order": order}
        chosen = as_recorded(override(grouped, options), max_epochs, order)
        if cluster is not None:
            num_trials = count_recorded(chosen, trials)
            chosen = set_elastic(chosen, num_trials, wanted, file)

        def start(watcher: RunWatcher) -> Result:
            return chosen.resume(trials, time_budget=time_budget, target=target, watcher=watcher)

        conclude(watch(file, chosen, start, quiet), file, as_json=as_json)


def load(file: Path, study: str | None) -> Loaded:
    """Load the study that a file defines."""
    from headwater.loading import load_study_file

    with open_err().status(f"loading {escape(str(file))}"):
        return load_study_file(file, study)


def set_running(
    study: Study,
    lanes: str | None,
    packing: str | None,
    allocation: str | None,
    executor: str | None,
    devices: int | None,
) -> Study:
    """Let the study group and train its trials as asked, where that was; it refuses itself what cannot be."""
    options = {"lanes": read_count(lanes), "allocation": allocation, "executor": executor, "devices": devices}
    study = replace(study, on_interrupt="return")  # so that the command can show what was found until then
    study = override(study, options)
    if packing is None:
        return study
    return replace(study, packing=None if packing.lower() == "none" else packing)


def read_count(text: str | None) -> int | str | None:
    """Read a number where there is one; the study itself refuses any other word than auto."""
    return int(text) if text is not None and text.isdecimal() and len(text) <= MOST_DIGITS else text


def count_trials(study: Study, asked: int | None, loaded: Loaded, file: Path) -> int:
    """Return how many trials a study has: as asked, as its file says, or as many as its space has."""
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
            f"--trials 100, with NUM_TRIALS = 100 in the file, or how long with --time-budget 60"
        )
    return size


def watch(file: Path, study: Study, start: Callable[[RunWatcher], Result], quiet: bool) -> Result:
    """Run a study so that it can be watched, and say what ended it."""
    from headwater.report import Silence
    from headwater.report.progress import choose_watcher

    watcher = Silence() if quiet else choose_watcher(open_err())
    try:
        return start(watcher)
    except KeyboardInterrupt:
        open_err().print(_explain_interruption(watcher, study), soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    except AllTrialsFailedError as error:
        return error.result
    except HeadwaterError:
        raise
    except Exception as error:  # of a callback, or whatever else is no trial's
        raise StudyError(
            f"the run was ended by {describe_cause(error)}; what was reported until then is in the record: mend that, "
            f"and go on with {_resume_command(file, watcher.study, str(study.storage or DEFAULT_STORAGE))}"
        ) from error


def conclude(result: Result, file: Path, *, as_json: bool) -> None:
    """Show what came of a run, and end with the status that belongs to it."""
    _show_result(result, as_json=as_json)
    if result.was_interrupted:
        command = _resume_command(file, result.study, result.storage)
        open_err().print(f"[bold yellow]interrupted[/]; go on with {escape(command)}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED)
    if not result.ranked:
        open_err().print(explain_failure(result), soft_wrap=True)
        raise typer.Exit(FAILED)


def _resume_command(file: Path, study: str | None, storage: str) -> str:
    """Write the command that goes on with this very study, of all that the record may have by then."""
    where = "" if storage == find_storage() else f" --storage {shlex.quote(name_storage(storage))}"
    return f"headwater resume {shlex.quote(str(file))} --name {shlex.quote(study or 'NAME')}{where}"


def _explain_interruption(watcher: RunWatcher, study: Study) -> Text:
    text = Text("interrupted", style="bold yellow")
    if watcher.study is None or study.storage is None or str(study.storage) in MEMORY_NAMES:
        return text
    where = name_storage(str(study.storage))
    look = show_command("show", watcher.study, str(study.storage))
    return text.append(f"; what was reported until now is in {where}\nlook at it with {look}", style="not bold default")


def _show_result(result: Result, *, as_json: bool) -> None:
    from headwater.report.json_views import describe_run

    if as_json:
        print_json(describe_run(replace(result, storage=name_storage(result.storage))))
    else:
        print_result(result, open_out())


def print_result(result: Result, console: Console) -> None:
    """Print what a run has measured and found."""
    from headwater.report.tables import best_table, profile_line, profile_table, summary

    shown = replace(result, storage=name_storage(result.storage))
    draw = profile_table if len(result.profiles) <= MOST_PROFILES else profile_line
    parts: list[RenderableType] = [draw(profile, profile.label) for profile in result.profiles]
    commands = [show_command("show", result.study, result.storage), show_command("dashboard", None, result.storage)]
    look = None if result.storage in MEMORY_NAMES else ", ".join(commands)
    parts += [best_table(result), summary(shown, look)]
    for part in parts:
        console.print()
        console.print(part)


def explain_failure(result: Result) -> Text:
    """Say why a run has found nothing."""
    from headwater.trials import read_failure

    failed = [trial for trial in result.trials if trial.error]
    if not failed:
        return Text(f"no trial has a finite {result.metric}; the learning rates may be too high", style="bold red")
    first = failed[0]
    if result.has_only_failures:
        text = Text(result.explain_failures(), style="bold red")
    else:
        failure = read_failure(first.error or "")
        text = Text(f"no trial has a finite {result.metric}; trial {first.number}: {failure}", style="bold red")
    if result.storage in MEMORY_NAMES:
        return text
    look = f"{show_command('show', result.study, result.storage)} --trial {first.number}"
    return text.append(f"\nsee the whole traceback with {look}", style="not bold default")
