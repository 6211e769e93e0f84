"""Verbs about a service: `serve` is one; `submit`, `queue`, `logs`, `pause` and `priority` speak with one."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from headwater.cli.service_options import RemoteStudyArgument, ServerOption, TokenOption, open_service
from headwater.cli.terminal import (
    AllocationOption,
    FileArgument,
    JsonOption,
    LanesOption,
    OrderOption,
    PackingOption,
    StorageOption,
    TargetOption,
    TimeBudgetOption,
    open_err,
    open_out,
    print_json,
    telling_errors,
)
from headwater.errors import StudyError
from headwater.settings import DEFAULT_STORAGE

DEFAULT_PORT = 8700
FIRST_UID = 60_000
GIB = 2**30


def serve(  # noqa: PLR0913 - one parameter for each option
    storage: StorageOption = DEFAULT_STORAGE,
    devices: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many cores studies share; all of them by default.")
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; by default for this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Which port; 0 for any that is free.")
    ] = DEFAULT_PORT,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where studies lie; beside a file's record by default.")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="GIB",
            help="What a study may take, or each of its processes where the system cannot count all.",
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=10, metavar="N", help="As root: processes and threads of all studies of a user.")
    ] = 4096,
    upload: Annotated[
        float, typer.Option(min=0.01, max=1024, metavar="MIB", help="How much a submission may have.")
    ] = 16,
    longest: Annotated[
        str | None, typer.Option(metavar="TIME", help="When any study is ended after it was submitted, such as 48h.")
    ] = None,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="How long a study past a limit may take to come to a report.")
    ] = "60s",
    first_uid: Annotated[
        int, typer.Option(metavar="UID", help="As root: the system user of the first user; others follow.")
    ] = FIRST_UID,
    same_user: Annotated[
        bool, typer.Option("--same-user", help="As root: run submitted studies as root too. They can do anything then.")
    ] = False,
) -> None:
    """Run a queue of studies that many users submit, on the cores of this machine, until Ctrl-C.

    The token that is printed is an admin's; `headwater token create` makes others. Studies that run when the service
    ends go on by themselves, and are found again when it is started anew.
    """
    with telling_errors():
        missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
        if missing:
            raise StudyError(f"the service needs {' and '.join(missing)}; pip install 'headwater[serve]'")
        from headwater.cli.plan_sources import parse_seconds
        from headwater.execute import count_cores
        from headwater.serve.service.isolation import Limits, count_memory, is_root
        from headwater.serve.service.memory_groups import find_memory_groups
        from headwater.serve.service.requests import LONGEST_S
        from headwater.serve.service.server import ServiceSettings
        from headwater.serve.service.server import serve as run_service

        settings = ServiceSettings(
            storage=storage,
            folder=folder or _choose_folder(storage),
            num_devices=devices or count_cores(),
            host=host,
            port=port,
            limits=Limits(
                memory_bytes=int(memory * GIB) if memory is not None else count_memory(),
                groups=find_memory_groups(),
                num_processes=processes,
                grace_s=parse_seconds(grace),
            ),
            most_bytes=int(upload * 2**20),
            longest_s=LONGEST_S if longest is None else parse_seconds(longest),
            first_uid=first_uid if is_root() and not same_user else None,
        )

        def tell(url: str, token: str | None) -> None:
            who = "each user's own system user" if settings.first_uid is not None else "the user of this service"
            open_err().print(
                escape(f"{settings.num_devices} devices, studies in {settings.folder}, run as {who}; Ctrl-C ends it"),
                soft_wrap=True,
            )
            limits = settings.limits
            whose = "all processes of a study" if limits.groups is not None else "each process of a study"
            how = "a control group" if limits.groups is not None else "there are no control groups to be made"
            room = f"{limits.memory_bytes / GIB:.1f} GiB of memory for {whose} ({how})"
            open_err().print(escape(room), soft_wrap=True)
            look = url if token is None else f"{url}/#token={token}"
            open_err().print(escape(f"look at {look}"), soft_wrap=True)
            typer.echo(f"HEADWATER_SERVER={url}")
            if token is not None:
                typer.echo(f"HEADWATER_TOKEN={token}")
            sys.stdout.flush()

        run_service(settings, tell)


def submit(  # noqa: PLR0913 - one parameter for each option
    file: FileArgument,
    trials: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many trials to train; NUM_TRIALS in FILE by default.")
    ] = None,
    include: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="A file or folder that FILE needs; can be repeated.")
    ] = None,
    priority: Annotated[int, typer.Option(metavar="N", help="Before your other studies; below 0, behind them.")] = 0,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="When to be done, such as 90s, 30m or 1h30m from now.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="How many device-seconds it may take in all.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many devices it may have at the same time.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What its id begins with; FILE's by default.")
    ] = None,
    max_epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many epochs a trial trains at most.")
    ] = None,
    lanes: LanesOption = None,
    packing: PackingOption = None,
    allocation: AllocationOption = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Another seed gives other draws and weights.")] = None,
    search: Annotated[str | None, typer.Option(metavar="NAME", help="How to search, as for headwater run.")] = None,
    order: OrderOption = None,
    surrogate: Annotated[
        str | None, typer.Option(metavar="auto|N", help="Search on models of 1/N of the width, then train the target.")
    ] = None,
    time_budget: TimeBudgetOption = None,
    target: TargetOption = None,
    share_lanes: Annotated[
        bool,
        typer.Option(
            "--share-lanes", help="Train in one process with others who submit the same files and say so too."
        ),
    ] = False,
    study: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Which study of FILE to run, if there are several.")
    ] = None,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """Submit the study that a file defines to a service. The file is sent as it is, and loaded there."""
    with telling_errors():
        from headwater.cli.plan_sources import parse_seconds
        from headwater.remote.bundling import pack_files

        service = open_service(server, token)
        if not file.is_file():
            raise StudyError(f"there is no file {file}; give the Python file that defines the study")
        main, files = pack_files(file, include or ())
        options: dict[str, Any] = {  # Any: values of options
            "trials": trials,
            "max_epochs": max_epochs,
            "lanes": _read_count(lanes),
            "packing": packing,
            "allocation": allocation,
            "seed": seed,
            "search": search,
            "order": order,
            "surrogate": _read_count(surrogate),
            "time_budget": time_budget,
            "target": target,
            "study": study,
        }
        asked: dict[str, Any] = {  # Any: as above
            "file": main,
            "files": files,
            "options": {key: value for key, value in options.items() if value is not None},
            "priority": priority,
            "deadline_s": None if deadline is None else parse_seconds(deadline),
            "budget_device_s": budget,
            "max_devices": devices,
            "share_lanes": share_lanes,
        }
        submitted = service.submit(asked if name is None else {**asked, "name": name})
        if as_json:
            print_json(submitted)
            return
        told = f"submitted as {submitted['id']}; follow it with headwater logs {submitted['id']} -f"
        open_out().print(escape(told), soft_wrap=True)


def queue(
    all_states: Annotated[bool, typer.Option("--all", help="Also studies that have ended.")] = False,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """List the studies of a service that run or wait: yours, or everybody's for an admin or a viewer."""
    with telling_errors():
        from headwater.report.queue_table import queue_table

        studies = open_service(server, token).list_studies()
        shown = [one for one in studies if all_states or one["state"] in ("queued", "running", "paused")]
        if as_json:
            print_json({"studies": shown})
        else:
            open_out().print(queue_table(shown))


def logs(
    study: RemoteStudyArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the study has ended.")] = False,
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """Print what a study of a service has printed."""
    with telling_errors():
        from headwater.report.consoles import make_visible

        service, offset = open_service(server, token), 0
        while True:
            part = service.read_log(study, offset, wait=follow)
            typer.echo(make_visible(part["text"]) if sys.stdout.isatty() else part["text"], nl=False)
            is_all = part["offset"] == offset if not follow else part["is_over"]
            offset = part["offset"]
            if is_all:
                return


def pause(study: RemoteStudyArgument, server: ServerOption = None, token: TokenOption = None) -> None:
    """Have a study of a service wait after its next report, with everything saved, until it is resumed."""
    with telling_errors():
        tell_change(open_service(server, token).change(study, "pause"))


def priority(
    study: RemoteStudyArgument,
    value: Annotated[int, typer.Argument(metavar="N", help="Higher goes first; 0 by default, below 0 behind.")],
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """Put a study of a service before or behind your others."""
    with telling_errors():
        changed = open_service(server, token).change(study, "priority", {"priority": value})
        open_out().print(escape(f"{changed['id']} has priority {changed['priority']} now"), soft_wrap=True)


def tell_change(study: dict[str, Any]) -> None:  # Any: JSON values
    """Say what becomes of a study that somebody has stopped, paused or resumed."""
    wish = {"pause": "waits after its next report", "stop": "ends after its next report"}.get(study["wish"])
    open_out().print(escape(f"{study['id']} {wish or 'is ' + study['state']}"), soft_wrap=True)


def _choose_folder(storage: str) -> Path:
    """Return where studies lie if nobody says so: beside the file of the record, or here."""
    is_file = "://" not in storage or storage.startswith("sqlite:///")
    path = storage.removeprefix("sqlite:///")
    return Path(f"{path}.service").absolute() if is_file else Path("headwater.service").absolute()


def _read_count(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdecimal() else text
