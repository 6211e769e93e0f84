"""The verbs that change what the record has: `rm` and `rename`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from headwater.cli.terminal import (
    FoundStatesOption,
    JsonOption,
    StorageOption,
    open_err,
    open_out,
    print_json,
    telling_errors,
)
from headwater.errors import StudyError
from headwater.settings import DEFAULT_STORAGE, check_name


def remove(
    studies: Annotated[list[str], typer.Argument(metavar="STUDY...", help="The names of the studies.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    as_json: JsonOption = False,
    storage: StorageOption = DEFAULT_STORAGE,
    states: FoundStatesOption = None,
) -> None:
    """Take studies out of the record, with their stages, saved states and weights. There is no way back."""
    with telling_errors():
        from headwater.store import list_stages, open_store, remove_study

        with open_store(storage, create=False) as reader:
            found = [reader.study(name) for name in dict.fromkeys(studies)]
            num_trials = sum(len(reader.trials(info.id, damaged=[])) for info in found)
            stages = {stage.name for info in found for stage in list_stages(reader, info.name)}
        names = ", ".join(info.name for info in found)
        if not yes:
            _ask(f"remove {names} with {num_trials:,} trials and all saved states?")
        gone, left = list[str](), list[str]()
        with open_store(storage) as store:
            for info in found:
                if info.name not in gone:  # it may be a stage of one that was named too
                    names_gone, reasons = remove_study(store, info, states)
                    gone, left = gone + names_gone, left + reasons
        if as_json:
            print_json({"removed": gone, "left": left})
            return
        for reason in left:
            open_err().print(escape(reason), soft_wrap=True)
        with_stages = f" and {len(stages - {info.name for info in found}):,} of their stages" if stages else ""
        open_out().print(escape(f"removed {names}{with_stages}"), soft_wrap=True)


def rename(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="What the study is called now.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the record is to call it.")],
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Call a study otherwise. Its stages are called after it; saved states stay where they are."""
    with telling_errors():
        from headwater.store import open_store, rename_study

        check_name(name)
        with open_store(storage, create=False) as reader:
            reader.study(study)
        with open_store(storage) as store:
            rename_study(store, store.study(study), name)
        open_out().print(escape(f"study {study} is called {name} now"), soft_wrap=True)


def _ask(question: str) -> None:
    """Go on only if somebody says yes."""
    if not sys.stdin.isatty():
        raise StudyError(f"nobody is there to be asked: {question} Say so with --yes")
    open_err().print(f"{escape(question)} [y/N] ", end="")
    if input().strip().lower() not in ("y", "yes"):
        raise StudyError("nothing was removed")
