"""Every Python block and every command of the README and the docs runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A file, not a string: lanes read the source of the training function's module.
    script = tmp_path / f"{page.stem.lower()}_page.py"
    script.write_text("\n".join(_lines(page, "```python")) + "\n", encoding="utf-8")
    spec = spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, script.stem, module)
    monkeypatch.chdir(tmp_path)

    spec.loader.exec_module(module)


def test_commands_of_the_cli_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_STORAGE", raising=False)
    monkeypatch.setattr(sys, "argv", [*sys.argv])  # loading a file changes both
    monkeypatch.setattr(sys, "path", [*sys.path])
    lines = _lines(ROOT / "docs" / "cli.md", "```console")
    commands = [shlex.split(line)[2:] for line in lines if line.startswith("$ headwater ")]
    assert commands

    failed = {" ".join(command): CliRunner().invoke(app, command) for command in commands}

    assert {command: outcome.output for command, outcome in failed.items() if outcome.exit_code} == {}


def _lines(page: Path, opening: str) -> Iterator[str]:
    """Keep the lines of such blocks and blank out the others, so that a traceback names the line of the page."""
    fence = None
    for line in page.read_text(encoding="utf-8").splitlines():
        is_fence = line.startswith("```")
        yield line if fence == opening and not is_fence else ""
        if is_fence:
            fence = line if fence is None else None
