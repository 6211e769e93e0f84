"""The verbs of the command are loaded on use: help has all of them, and nothing is imported that is not needed."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from tests.page_studies import write_plain
from typer.testing import CliRunner

from headwater.cli import app
from headwater.cli.verbs import VERBS, Verb

HEAVY = {"torch", "optuna", "ray", "starlette", "numpy"}
SHOW_MODULES = (
    "import sys\nfrom headwater.cli import main\n"
    "try:\n    main()\nfinally:\n    print(*sys.modules, sep='\\n', file=sys.stderr)"
)


def list_imports(*arguments: str) -> set[str]:
    """Run the command in a process of its own, and return the modules that it imported."""
    command = [sys.executable, "-c", SHOW_MODULES, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout
    return set(done.stderr.split())


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_the_line_of_a_verb_begins_the_help_of_its_function(verb: Verb) -> None:
    function = getattr(import_module(f"headwater.cli.{verb.module}"), verb.function or verb.name)
    first, _, _ = function.__doc__.partition("\n")
    assert verb.line == first
    assert verb.load().name == verb.name


def test_help_lists_every_verb_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    told = CliRunner().invoke(app, ["--help"]).stdout
    lines = [" ".join(line.strip("│ ").split()) for line in told.splitlines()]
    for verb in VERBS:
        start = f"{verb.name} {verb.line.replace('`', '')}"
        assert any(line.startswith(start) for line in lines) is not verb.is_hidden, verb.name


def test_a_misspelt_verb_is_refused_with_those_that_are_near() -> None:
    result = CliRunner().invoke(app, ["shwo"])
    assert result.exit_code == 2
    assert "'show'" in result.stderr


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("ls",), ("show",), ("best",)])
def test_verbs_that_only_read_import_nothing_heavy(arguments: tuple[str, ...], empty_place: Path) -> None:
    write_plain(empty_place / "headwater.db")
    imported = list_imports(*arguments)
    assert "headwater.cli" in imported
    assert imported.isdisjoint(HEAVY)


@pytest.mark.parametrize("arguments", [("--version",), ("--help",)])
def test_no_verb_is_loaded_before_it_is_used(arguments: tuple[str, ...]) -> None:
    imported = list_imports(*arguments)
    assert imported.isdisjoint({f"headwater.cli.{verb.module}" for verb in VERBS})
    assert imported.isdisjoint({"sqlalchemy", "headwater.trials", "headwater.store"})


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    script = "import sys, headwater; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.startswith("headwater")} == {"headwater"}
