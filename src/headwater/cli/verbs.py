"""The verbs of the command. The module of a verb is imported when the verb is used, so that `ls` waits for no other.

A verb's line of help stands here, where `headwater --help` finds it without the module. It is the first sentence of the
function's docstring, which `headwater VERB --help` shows in full.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

MARKUP: Literal["markdown"] = "markdown"


class Verb(NamedTuple):
    """A verb, the module of `headwater.cli` that has its function, and its line of help."""

    name: str
    module: str
    line: str
    function: str | None = None
    """The name of the function, where it is not the verb's own."""
    is_hidden: bool = False

    def load(self) -> TyperCommand:
        """Import the verb's module, and return its command with all options."""
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=MARKUP)
        alone.command(self.name)(getattr(import_module(f"headwater.cli.{self.module}"), self.function or self.name))
        command = get_command(alone)
        assert isinstance(command, TyperCommand)
        return command

    def outline(self) -> TyperCommand:
        """Return a command that has nothing but the verb's line of help."""
        return TyperCommand(name=self.name, help=self.line, hidden=self.is_hidden, rich_markup_mode=MARKUP)


VERBS = (
    Verb("run", "running", "Run the study that a file defines, and show what it found."),
    Verb(
        "resume",
        "running",
        "Go on with a study that was interrupted or killed, from the last saved epoch of each trial.",
    ),
    Verb(
        "retry",
        "retrying",
        "Train trials and targets again that have failed, and go on with the study as `resume` does.",
    ),
    Verb("ls", "record", "List the studies in the record.", function="list_studies"),
    Verb(
        "show",
        "record",
        "Show a study: its space, where its trials stand, what was measured. Or one trial, with its history and error.",
    ),
    Verb(
        "best",
        "record",
        "Show the best trials of a study and their hyperparameters. With --server, it is a study of that service.",
    ),
    Verb("dashboard", "faces", "Show the studies of a record in a browser, live, until Ctrl-C."),
    Verb("report", "faces", "Write a study as one HTML file with all its views, to look at anywhere or to send."),
    Verb("plot", "faces", "Draw one figure of a study into a file, for a paper."),
    Verb("export", "record", "Write a study as a table for other programs, one row for each trial."),
    Verb("mirror", "record", "Copy a study into an Optuna storage, for optuna-dashboard and optuna.visualization."),
    Verb(
        "stop",
        "record",
        "Ask a study that is running, here or on another machine, to end after its next report, as Ctrl-C would.",
    ),
    Verb(
        "rm",
        "changing",
        "Take studies out of the record, with their stages, saved states and weights. There is no way back.",
        function="remove",
    ),
    Verb(
        "rename",
        "changing",
        "Call a study otherwise. Its stages are called after it; saved states stay where they are.",
    ),
    Verb(
        "devices",
        "devices",
        "List the devices of a running study, or ask for more or fewer from its next report on.",
    ),
    Verb(
        "bubbles",
        "bubbles",
        "List the stages of a pipeline whose bubbles are lent, and which part of the time each waits.",
    ),
    Verb(
        "plan",
        "plan",
        "Plan which stage of a search gets how many devices: at the least price by a deadline, "
        "or soonest within a budget.",
    ),
    Verb(
        "cluster",
        "cluster",
        "List the nodes that studies have launched, whether or not these still run, or end them.",
    ),
    Verb(
        "serve",
        "service",
        "Run a queue of studies that many users submit, on the cores of this machine, until Ctrl-C.",
    ),
    Verb(
        "token",
        "tokens",
        "Make, list or revoke the tokens of a service's users, in its storage; it need not run.",
    ),
    Verb(
        "submit",
        "service",
        "Submit the study that a file defines to a service. The file is sent as it is, and loaded there.",
    ),
    Verb(
        "queue",
        "service",
        "List the studies of a service that run or wait: yours, or everybody's for an admin or a viewer.",
    ),
    Verb("logs", "service", "Print what a study of a service has printed."),
    Verb(
        "pause",
        "service",
        "Have a study of a service wait after its next report, with everything saved, until it is resumed.",
    ),
    Verb("priority", "service", "Put a study of a service before or behind your others."),
    Verb(
        "run-shared",
        "shared_run",
        "Run studies that FILE defines, of several users, as lanes of common groups.",
        function="run_shared",
        is_hidden=True,
    ),
    Verb("doctor", "doctor", "Check that Headwater can work here, and say what to do where it cannot."),
)


class VerbGroup(TyperGroup):
    """The command, which lists all verbs and loads the one that is used."""

    def __init__(self, **settings: Any) -> None:  # Any: as typer has them
        super().__init__(**settings)
        self.commands.update({verb.name: verb.outline() for verb in VERBS})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # Any: a context and a command of typer's own click
        """Return the verb that the arguments begin with, with all its options, and the arguments after it."""
        name, command, rest = super().resolve_command(ctx, args)
        loaded = next((verb.load() for verb in VERBS if verb.name == name), command)
        return name, loaded, rest
