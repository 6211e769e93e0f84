"""The command `headwater`: the only package that prints.

A verb's module is imported when the verb is used, and torch by `run` and `doctor` alone: other verbs answer at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.verbs import MARKUP, VerbGroup

app = typer.Typer(
    name="headwater",
    cls=VerbGroup,
    help="Tune PyTorch models: train hundreds of trials of one ordinary training function at once.",
    epilog="Start with `headwater run train.py --trials 100`, where train.py defines a headwater.Study; "
    "then look at it with `headwater show` and `headwater best`.",
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
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

        from headwater.cli.terminal import open_out

        open_out().print(f"headwater {version('headwater')}", highlight=False)
        raise typer.Exit


@app.callback()
def headwater(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Take the options that come before the verb."""
