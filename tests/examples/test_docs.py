"""Every Python block of the README, the docs and the docstrings runs, and so do their commands."""

from __future__ import annotations

import ast
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.study import Study

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

PRELUDE = """
from collections.abc import Callable

import optuna
import torch
import torch.nn.functional as F
from torch import nn

import headwater as hw
from headwater.execute import SimulatedExecutor, SimulatedTimes
from headwater.trials import Device

space = {"lr": hw.loguniform(1e-3, 1.0)}
x, y = torch.randn(32, 8), torch.zeros(32, dtype=torch.long)


def train(trial):
    trial.report(loss=trial.config["lr"], accuracy=1 - trial.config["lr"])


def make_model(width):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)

"""
"""What examples in docstrings take for granted."""


def _find_docstring_blocks() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                for block in re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
                    yield f"{path.stem}-{getattr(node, 'name', 'module')}", textwrap.dedent(block)


BLOCKS = dict(_find_docstring_blocks())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT).with_suffix("")))
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run("\n".join(_lines(page, "```python")), tmp_path / f"{page.stem.lower()}_page.py", monkeypatch)


@pytest.mark.parametrize("name", BLOCKS)
def test_docstring_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(PRELUDE + BLOCKS[name], tmp_path / "docstring_example.py", monkeypatch)


@pytest.mark.parametrize("page", ["cli", "tutorial"])
def test_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "docs" / f"{page}.md"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, source in re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_STORAGE", raising=False)
    monkeypatch.setattr(sys, "argv", [*sys.argv])  # loading a file changes both
    monkeypatch.setattr(sys, "path", [*sys.path])
    lines = _lines(path, "```console")
    commands = [shlex.split(line)[2:] for line in lines if line.startswith("$ headwater ")]
    assert commands

    failed = {" ".join(command): CliRunner().invoke(app, command) for command in commands}

    assert {command: outcome.output for command, outcome in failed.items() if outcome.exit_code} == {}


def _run(source: str, script: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import it from a file, since lanes read the source of the training function's module."""
    script.write_text(source + "\n", encoding="utf-8")
    spec = spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, script.stem, module)
    monkeypatch.chdir(script.parent)
    spec.loader.exec_module(module)
    return module


def _lines(page: Path, opening: str) -> Iterator[str]:
    """Keep the lines of such blocks and blank out the others, so that a traceback names the line of the page."""
    fence = None
    for line in page.read_text(encoding="utf-8").splitlines():
        is_fence = line.startswith("```")
        yield line if fence == opening and not is_fence else ""
        if is_fence:
            fence = line if fence is None else None


def test_the_page_on_the_study_has_every_argument_and_its_default() -> None:
    page = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (`[^`]*`)? ?\|", page, flags=re.MULTILINE))
    wanted = {field.name: "" if field.default is MISSING else f"`{field.default!r}`" for field in fields(Study)}
    assert rows == {name: text.replace("'", '"') for name, text in wanted.items() if name != "_"}
