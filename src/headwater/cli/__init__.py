"""The command `headwater`: the only package that reads the environment and prints.

Torch is imported by `run` and `doctor` alone, and only when they need it: the other verbs answer at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.bubbles import bubbles
from headwater.cli.changing import remove, rename
from headwater.cli.cluster import cluster
from headwater.cli.devices import devices
from headwater.cli.doctor import doctor
from headwater.cli.faces import dashboard, plot, report
from headwater.cli.plan import plan
from headwater.cli.record import best, export, list_studies, mirror, show, stop
from headwater.cli.retrying import retry
from headwater.cli.running import resume, run
from headwater.cli.service import logs, pause, priority, queue, serve, submit
from headwater.cli.shared_run import run_shared
from headwater.cli.terminal import open_out
from headwater.cli.tokens import token

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


app.command()(run)
app.command()(resume)
app.command()(retry)
app.command("ls")(list_studies)
app.command()(show)
app.command()(best)
app.command()(dashboard)
app.command()(report)
app.command()(plot)
app.command()(export)
app.command()(mirror)
app.command()(stop)
app.command("rm")(remove)
app.command()(rename)
app.command()(devices)
app.command()(bubbles)
app.command()(plan)
app.command()(cluster)
app.command()(serve)
app.command()(token)
app.command()(submit)
app.command()(queue)
app.command()(logs)
app.command()(pause)
app.command()(priority)
app.command("run-shared", hidden=True)(run_shared)
app.command()(doctor)
