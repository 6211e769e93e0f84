"""Verbs of the command that show a record or hand it on: `ls`, `show`, `best`, `export`, `mirror`, `stop`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from headwater.cli.service_options import ServerOption, TokenOption, open_service
from headwater.cli.terminal import (
    FoundStatesOption,
    JsonOption,
    StorageOption,
    StudyArgument,
    find_running,
    name_asker,
    name_storage,
    open_err,
    open_out,
    print_json,
    read_stored,
    show_command,
    tell_damage,
    telling_errors,
)
from headwater.errors import StudyError
from headwater.settings import DEFAULT_STORAGE

if TYPE_CHECKING:
    from headwater.report.exporting import Format
    from headwater.report.reading import StoredStudy


def list_studies(storage: StorageOption = DEFAULT_STORAGE, as_json: JsonOption = False) -> None:
    """List the studies in the record."""
    with telling_errors():
        from headwater.report.reading import find_state, read_listed
        from headwater.store import open_store

        with open_store(storage, create=False) as store:
            damaged: list[str] = []
            studies = store.studies(damaged)
            rows = []
            for info in studies:
                lines: list[str] = []
                result = read_listed(store, info, storage, lines)
                rows.append((info, result, find_state(store, info, result)))
                damaged += [f"study {info.name!r}: {line}" for line in lines]
        if as_json:
            from headwater.report import json_views

            print_json(json_views.list_studies(rows))
        else:
            from headwater.report.tables import studies_table

            open_out().print(studies_table(rows))
        tell_damage(damaged)


def show(  # noqa: PLR0913 - one parameter for each option
    study: StudyArgument = None,
    trial: Annotated[int | None, typer.Option(min=0, metavar="N", help="Show this trial instead.")] = None,
    all_epochs: Annotated[
        bool, typer.Option("--all-epochs", help="With --trial: every epoch of its history, however many.")
    ] = False,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Show which trials sat on which device, and when each was idle.")
    ] = False,
    as_json: JsonOption = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.svg", help="With --timeline: draw it into a file.")
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Show a study: its space, where its trials stand, what was measured. Or one trial, with its history and error."""
    with telling_errors():
        if timeline:
            _show_timeline(study, storage, output, as_json=as_json)
            return
        if output is not None:
            raise StudyError("--output is for the timeline of a study; ask for it with --timeline")
        if all_epochs and trial is None:
            raise StudyError("--all-epochs is for the history of one trial; say which with --trial N")
        stored = read_stored(study, storage)
        if trial is None:
            _show_study(stored, as_json=as_json)
        else:
            _show_trial(stored, trial, all_epochs=all_epochs, as_json=as_json)


def _show_study(stored: StoredStudy, *, as_json: bool) -> None:
    from headwater.report.json_views import describe_study
    from headwater.report.views import study_view

    if as_json:
        print_json(describe_study(stored))
    else:
        open_out().print(study_view(stored))


def _show_trial(stored: StoredStudy, number: int, *, all_epochs: bool, as_json: bool) -> None:
    from headwater.report.json_views import describe_trial
    from headwater.report.tables import trial_view

    numbers = [record.number for record in stored.result.trials]
    if number not in numbers:
        there = f"it has {numbers[0]} to {numbers[-1]}" if numbers else "it has none yet"
        raise StudyError(f"study {stored.info.name!r} has no trial {number}; {there}")
    record = stored.result.trials[numbers.index(number)]
    if as_json:
        print_json(describe_trial(record, stored.result))
    else:
        view = trial_view(record, all_epochs=all_epochs, is_over=stored.result.is_over)
        open_out().print(view, crop=False)


def _show_timeline(study: str | None, storage: str, output: Path | None, *, as_json: bool) -> None:
    from headwater.report.changes import gather_changes
    from headwater.report.timeline import Timeline
    from headwater.report.timeline_drawing import draw_timeline
    from headwater.store import open_store, read_spans

    with open_store(storage, create=False) as store:
        name = store.study(study).name
        changes = gather_changes(store.notes(store.study(name).id, []))
        timeline = Timeline.of(name, read_spans(store, name), changes)
    if not timeline.devices:
        raise StudyError(
            f"the record of study {name!r} has no spans: they are written as trials leave their devices, and earlier "
            f"versions wrote none; look again later, or see the study with {show_command('show', name, storage)}"
        )
    if output is not None:
        if output.suffix.lower() != ".svg":
            raise StudyError(f"--output is {str(output)!r}; a timeline is drawn as SVG, so name it {output.stem}.svg")
        _write_file(output, draw_timeline(timeline).encode())
        open_err().print(f"wrote {escape(timeline.describe())} to {escape(str(output))}", soft_wrap=True)
    elif as_json:
        print_json(timeline.as_json())
    else:
        open_out().print(timeline)


def best(  # noqa: PLR0913 - one parameter for each option
    study: StudyArgument = None,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="How many trials to show.")] = 10,
    as_json: JsonOption = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the best model's weights here, as safetensors.")
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    states: FoundStatesOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """Show the best trials of a study and their hyperparameters. With --server, it is a study of that service."""
    with telling_errors():
        if not server:
            _show_best(study, storage, count, save, states, as_json=as_json)
            return
        from headwater.remote.fetching import fetch_study

        name = _require_name(study)
        with TemporaryDirectory(prefix="headwater-") as folder:
            record = Path(folder) / "record.db"
            fetch_study(open_service(server, token), name, record, with_weights=save is not None)
            _show_best(name, str(record), count, save, None, as_json=as_json)


def _show_best(
    study: str | None, storage: str, count: int, save: Path | None, states: str | None, *, as_json: bool
) -> None:
    if save is not None:
        _save_weights(study, storage, save, states)
    from headwater.report.json_views import list_best
    from headwater.report.tables import best_table, describe_transfer

    stored = read_stored(study, storage)
    if as_json:
        print_json(list_best(stored.result, count))
        return
    for name, text in describe_transfer(stored.result):
        open_out().print(f"[dim]{name}[/]", text)
    open_out().print(best_table(stored.result, count))


def _require_name(study: str | None) -> str:
    if study is None:
        raise StudyError("say which study of the service; headwater queue --all lists them")
    return study


def export(
    study: StudyArgument = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="csv|json|parquet", help="What to write; by default what FILE is called, or CSV."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; by default to the terminal.")
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="One row for each report instead of each trial.")] = False,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Write a study as a table for other programs, one row for each trial."""
    with telling_errors():
        from headwater.report.consoles import make_visible
        from headwater.report.exporting import Format, encode_records, to_records

        chosen = _choose_format(form, output)
        if chosen is Format.PARQUET and output is None:
            raise StudyError("Parquet is not for a terminal; say where it goes with --output trials.parquet")
        rows = to_records(read_stored(study, storage).result, history=history)
        data = encode_records(rows, chosen)
        if output is None:
            stream = typer.get_binary_stream("stdout")
            stream.write(make_visible(data.decode()).encode() if stream.isatty() else data)
            return
        _write_file(output, data)
        open_err().print(f"wrote {len(rows):,} rows to {escape(str(output))}", soft_wrap=True)


def mirror(
    study: StudyArgument = None,
    to: Annotated[
        str, typer.Option("--to", metavar="URL", help="The Optuna storage: a path or a database URL.")
    ] = "sqlite:///optuna.db",
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Copy a study into an Optuna storage, for optuna-dashboard and optuna.visualization.

    Doing it again brings the copy up to date.
    """
    with telling_errors():
        from headwater.report.mirroring import Mirror, as_url, open_storage
        from headwater.store import find_runner, open_store
        from headwater.trials import Status

        url = as_url(to)
        with open_store(storage, create=False) as store, open_err().status(f"writing to {escape(name_storage(url))}"):
            info = store.study(study)
            runner = find_runner(store, info.id)
            is_running = runner is not None and runner.may_live()
            is_open = any(trial.status is Status.RUNNING for trial in store.trials(info.id))
            copy = Mirror(open_storage(to), info, store)
            num_trials = copy.sync(is_over=not (is_running or is_open))
            copy.close()
        shown = escape(name_storage(url))
        done = f"study {escape(info.name)} is in {shown} with {num_trials:,} trials"
        open_out().print(f"{done}; look at it with optuna-dashboard {shown}", soft_wrap=True)


def stop(
    study: StudyArgument = None,
    now: Annotated[bool, typer.Option("--now", help="Of a service: do not wait for a report.")] = False,
    storage: StorageOption = DEFAULT_STORAGE,
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """Ask a study that is running, here or on another machine, to end after its next report, as Ctrl-C would.

    Everything is saved; `headwater resume` goes on. With --server, it is a study of that service.
    """
    with telling_errors():
        if server:
            from headwater.cli.service import tell_change

            tell_change(open_service(server, token).change(_require_name(study), "stop", {"now": now}))
            return
        if now:
            raise StudyError("--now is for a study of a service; end a process here by Ctrl-C twice")
        from headwater.store import ask_to_stop, find_asker, open_store

        with open_store(storage, create=False) as reader:
            info, runner = find_running(reader, study, storage, wish="stop")
            asker = find_asker(reader, info.id, runner)
        who = f"process {runner.pid} on {runner.host}"
        if asker is not None:
            told = f"study {info.name} was asked to stop already, by {asker}; {who} ends it after its next report"
        else:
            with open_store(storage) as writer:
                ask_to_stop(writer, info.id, runner, name_asker())
            told = f"asked study {info.name} to stop; {who} ends it after its next report, with everything saved"
        open_out().print(escape(told), soft_wrap=True)


def _save_weights(study: str | None, storage: str, path: Path, named: str | None) -> None:
    """Write the weights of a study's best model, or of its target, for plain PyTorch to load."""
    from safetensors.torch import save_file

    from headwater.store import find_states, open_store
    from headwater.store.state_format import refusing_damage
    from headwater.train.best_weights import choose_weights, show_epochs
    from headwater.train.state_store import StateStore

    stored = read_stored(study, storage)
    home = stored.target_study or stored.info.name
    with open_store(storage, create=False) as store:
        states = find_states(store, store.study(home), named)
    state = StateStore(states).load_kept()
    with refusing_damage():  # anybody can write a state with the right checksum
        models, epochs = choose_weights(state), show_epochs(state)
        models = [{name: tensor.contiguous().clone() for name, tensor in weights.items()} for weights in models]
        if not all(isinstance(name, str) for weights in models for name in weights):
            raise TypeError("a weight without a name")
    kept = states.kept[0] if states.kept is not None else None
    places = [path] if len(models) == 1 else [path.with_stem(f"{path.stem}-{n}") for n in range(len(models))]
    for place, weights in zip(places, models, strict=True):
        save_file(weights, place)
    whose = f"weights of trial {kept} of study {home}{f', of its {epochs},' if epochs else ''}"
    best = (stored.result.target or stored.result.best).number if stored.result.ranked else kept
    if best != kept:
        whose += f" (of trial {best}, which is better, none were kept)"
    open_err().print(escape(f"{whose} written to {', '.join(map(str, places))}"), soft_wrap=True)


def _choose_format(form: str | None, output: Path | None) -> Format:
    from headwater.report.exporting import Format

    name = form or (output.suffix.removeprefix(".").lower() if output is not None else Format.CSV.value)
    if name not in list(Format):
        known = ", ".join(Format)
        asked = f"--format is {form!r}" if form else f"{str(output)!r} does not say in which format"
        raise StudyError(f"{asked}; give --format with one of {known}")
    return Format(name)


def _write_file(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StudyError(f"{path} cannot be written: {error.strerror}; give another path with --output") from error
