"""What the verbs of the command share: options, consoles, the way errors are told.

With `cli`, which is built on it, the only module that prints.
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from headwater.errors import HeadwaterError, StudyError
from headwater.report.consoles import PlainConsole
from headwater.settings import STORAGE_VARIABLE, find_storage

if TYPE_CHECKING:
    from headwater.report.reading import StoredStudy
    from headwater.store import Runner, Store, StudyInfo

MEMORY_NAMES = ("memory", "memory:", ":memory:", "sqlite://", "sqlite:///:memory:")
"""What a record that ends with its process is called."""
PIPE_WIDTH = 160
"""How wide tables may be where no terminal sets a limit."""

MOST_DAMAGE = 10
"""Of more damaged rows than these, it is said how many."""

FAILED, MISUSED, INTERRUPTED = 1, 2, 130

StorageOption = Annotated[
    str,
    typer.Option("--storage", metavar="URL", envvar=STORAGE_VARIABLE, help="The record: a path or a database URL."),
]
StudyArgument = Annotated[
    str | None, typer.Argument(metavar="[STUDY]", help="The name of the study; without it, the newest one.")
]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The Python file that defines the study.")]
LanesOption = Annotated[
    str | None, typer.Option(metavar="auto|N", help="How many trials train as one; auto measures what is fastest.")
]
PackingOption = Annotated[
    str | None,
    typer.Option(
        metavar="cost|knn|random|batch_size|none", help="Which groups train as a pack, loading their data once."
    ),
]
OrderOption = Annotated[
    str | None,
    typer.Option(
        metavar="virtual|arrival",
        help="In which order the search deals with results: the same at any parallelism, or as they come.",
    ),
]
AllocationOption = Annotated[
    str | None,
    typer.Option(metavar="ours|fluid|even|fifo", help="Who gets devices that nothing waits for; fifo: nobody."),
]
ExecutorOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Where to train: auto, inline, processes, ray, join or slurm; auto by default."),
]
DevicesOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many cores or GPUs train at the same time; all by default.")
]
TimeBudgetOption = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="When to end; with a surrogate, the target is trained by then."),
]
TargetOption = Annotated[
    float | None, typer.Option(metavar="VALUE", help="End when a trial's metric is as good as this.")
]
StatesOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where the states of trials go: a folder or a URL; the record knows it then."),
]
FoundStatesOption = Annotated[
    str | None,
    typer.Option(
        "--states", metavar="URL", help="Where saved states are; a place on the network is not contacted unless named."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only what was found.")]


@contextmanager
def telling_errors() -> Iterator[None]:
    """Print what Headwater has to say, without a traceback, and end with the status that belongs to it."""
    try:
        yield
    except HeadwaterError as error:
        open_err().print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
        raise typer.Exit(MISUSED) from error
    except KeyboardInterrupt:
        open_err().print("interrupted")
        raise typer.Exit(INTERRUPTED) from None


def describe_cause(error: Exception) -> str:
    """Say in one line what was raised, and where."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
    return f"{text} ({Path(where.filename).name}, line {where.lineno}, in {where.name})"


def read_stored(study: str | None, storage: str) -> StoredStudy:
    """Read a study from its record, and say what of it cannot be read."""
    from headwater.report.reading import read_study
    from headwater.store import open_store

    with open_store(storage, create=False) as store:
        stored = read_study(store, study, storage)
    tell_damage(stored.damaged)
    return stored


def tell_damage(lines: Sequence[str]) -> None:
    """Say which rows of a record are left out."""
    told = [f"the record is damaged: {line}" for line in lines[:MOST_DAMAGE]]
    if len(lines) > MOST_DAMAGE:
        told.append(f"and {len(lines) - MOST_DAMAGE:,} more rows are left out")
    for line in told:
        open_err().print(Text(line, style="yellow"), soft_wrap=True)


def find_running(store: Store, study: str | None, storage: str, *, wish: str) -> tuple[StudyInfo, Runner]:
    """Return a study that runs, or the stage that it is in, and the process that runs it; one here must be there.

    Raises:
        StudyError: It is not running.
    """
    from headwater.store import find_runner, find_running_stage

    info = find_running_stage(store, store.study(study))
    runner = find_runner(store, info.id)
    look = show_command("show", info.name, storage)
    if runner is None:
        raise StudyError(f"study {info.name!r} is not running, so there is nothing to {wish}; look at it with {look}")
    if not runner.may_live():
        raise StudyError(
            f"study {info.name!r} is not running: process {runner.pid}, which ran it, was killed; "
            f"go on with headwater resume, or look at it with {look}"
        )
    return info, runner


def name_asker() -> str:
    """Say who asks something of a study: the user, and where."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        user = f"user {os.getuid()}"
    return f"{user} on {socket.gethostname()}"


def show_command(verb: str, study: str | None, storage: str) -> str:
    """Write the command line that does this to a study, or to a record; its storage only where that is not usual."""
    where = "" if storage == find_storage() else f" --storage {shlex.quote(name_storage(storage))}"
    return f"headwater {verb}{'' if study is None else f' {shlex.quote(study)}'}{where}"


def name_storage(storage: str) -> str:
    """Say where a record lies, without the password in a URL."""
    from headwater.report.reading import show_storage

    return show_storage(storage)


def print_json(value: Any) -> None:  # Any: JSON values
    """Print what was asked for as strict JSON, and nothing else; what is not finite becomes null."""
    from headwater.report.reading import make_strict

    typer.echo(json.dumps(make_strict(value), indent=2, allow_nan=False))


def open_out() -> PlainConsole:
    """Open a console for what was asked for."""
    return _open_console(stderr=False)


def open_err() -> PlainConsole:
    """Open a console for everything else."""
    return _open_console(stderr=True)


def _open_console(*, stderr: bool) -> PlainConsole:
    """Open a console on a stream; where it is no terminal and nobody says how wide, tables may be wide."""
    file = sys.stderr if stderr else sys.stdout  # as it is now: while group sizes are measured, it leads nowhere
    width = None if file.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return PlainConsole(file=file, width=width, highlight=False)
