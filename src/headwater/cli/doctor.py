"""The verb `doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from headwater.cli.terminal import (
    FAILED,
    JsonOption,
    StorageOption,
    open_out,
    print_json,
    telling_errors,
)
from headwater.settings import DEFAULT_STORAGE

if TYPE_CHECKING:
    from headwater.doctor import Check


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


def _draw_check(check: Check) -> Text:
    styles = {"ok": "green", "warn": "yellow", "FAIL": "bold red"}
    text = Text.assemble((f"{check.level:<5}", styles[check.level]), f"{check.name:<12}", check.text)
    return text.append(f"\n{'':<17}→ {check.cure}", style="bold") if check.cure else text
