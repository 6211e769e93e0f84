"""Verbs of the command that show a study in a browser or on paper: `dashboard`, `report`, `plot`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from headwater.cli.terminal import (
    StorageOption,
    StudyArgument,
    name_asker,
    name_storage,
    open_err,
    open_out,
    telling_errors,
)
from headwater.errors import StudyError
from headwater.settings import DEFAULT_STORAGE


def dashboard(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; by default for this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Which port; 0 for any that is free.")] = 0,
    read_only: Annotated[bool, typer.Option("--read-only", help="Let nobody stop a study from the page.")] = False,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Show the studies of a record in a browser, live, until Ctrl-C.

    The URL that is printed holds a token; without it the page shows nothing.
    """
    with telling_errors():
        missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
        if missing:
            raise StudyError(f"the dashboard needs {' and '.join(missing)}; pip install 'headwater[serve]'")
        from headwater.serve.app import Served
        from headwater.serve.server import serve

        shown = name_storage(storage)
        served = Served(storage=storage, shown_storage=shown, may_stop=not read_only, asker=name_asker())

        def tell(url: str) -> None:
            open_err().print(f"studies of {escape(shown)}; Ctrl-C ends it", soft_wrap=True)
            typer.echo(url)

        serve(served, host, port, tell)


def report(
    study: StudyArgument = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.html", help="Where to write; STUDY.html by default.")
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Write a study as one HTML file with all its views, to look at anywhere or to send."""
    with telling_errors():
        from headwater.report.page.report_file import write_report
        from headwater.store import open_store

        with open_store(storage, create=False) as store:
            name = store.study(study).name
        path = output or Path(f"{_as_file_name(name)}.html")
        size = write_report(storage, name, path)
        open_out().print(f"wrote {escape(str(path))} ({size / 1000:,.0f} kB)", soft_wrap=True)


def plot(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="The name of the study.")],
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="best, curves, timeline, nodes, parallel, importance, slice or front.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write: .svg, .png or .pdf; STUDY-KIND.svg else."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For a slice: the hyperparameter; for a front: the other metric."),
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Draw one figure of a study into a file, for a paper."""
    with telling_errors():
        from headwater.report.figures import draw_figure, write_figure
        from headwater.report.figures.files import check_path

        path = output or Path(f"{_as_file_name(study)}-{_as_file_name(kind)}.svg")
        check_path(path)
        size = write_figure(draw_figure(storage, study, kind, key), path)
        open_out().print(f"wrote {escape(str(path))} ({size / 1000:,.0f} kB)", soft_wrap=True)


def _as_file_name(name: str) -> str:
    """Return the name of a study as a file in this directory may have it."""
    return "".join(sign if sign.isalnum() or sign in "-_." else "-" for sign in name).lstrip(".")[:100] or "study"
