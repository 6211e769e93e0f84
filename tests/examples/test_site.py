"""The site: every public name has its place and its example, links lead somewhere, and the picture is true."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from inspect import getmembers, isclass
from pathlib import Path

import pytest

from headwater import errors
from headwater.train import Trial

ROOT = Path(__file__).parents[2]
REFERENCE = sorted((ROOT / "docs" / "api").glob("*.md"))
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "benchmarks").glob("*.md"),
]
PUBLIC = ("headwater", "headwater.space", "headwater.search", "headwater.execute")
NOT_FOR_USERS = {
    "close",
    "finish",
    "finish_lanes",
    "foresee_steps",
    "next_epoch",
    "settle",
    "take_answer",
    "take_attributes",
}
"""What a trial offers to the package alone."""


def _public_names() -> Iterator[tuple[str, str]]:
    for module in PUBLIC:
        yield from ((module, name) for name in importlib.import_module(module).__all__)
    yield from (
        (errors.__name__, name)
        for name, thing in getmembers(errors, isclass)
        if issubclass(thing, errors.HeadwaterError)
    )


@pytest.mark.parametrize(("module", "name"), list(_public_names()))
def test_a_public_name_is_in_the_reference_with_an_example(module: str, name: str) -> None:
    directive = rf"^\.\. auto\w+:: (?:headwater|{re.escape(module)})\.{name}\b"
    (page,) = (text for path in REFERENCE if re.search(directive, text := _read(path), re.MULTILINE))
    assert re.search(rf"\b{name}\b", _code(page))


def test_an_example_calls_every_method_of_a_trial() -> None:
    example = _code(_read(ROOT / "docs" / "api" / "trial.md"))
    methods = {name for name in vars(Trial) if not name.startswith("_")} | {"config", "seed", "device"}
    assert [name for name in sorted(methods - NOT_FOR_USERS) if f"trial.{name}" not in example] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page: Path) -> None:
    faults = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _without_code(_read(page))):
        path, _, place = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if ":" in link:
            continue
        is_there = target.exists() and (not place or place in _headings(target))
        faults += [] if is_there else [link]
    assert faults == []


def test_the_picture_of_the_first_page_is_drawn_from_the_table(tmp_path: Path) -> None:
    for name in ("headline.py", "transfer_drawing.py", "end_to_end.md"):
        (tmp_path / name).write_text(_read(ROOT / "benchmarks" / name), encoding="utf-8")
    subprocess.run([sys.executable, str(tmp_path / "headline.py")], check=True)
    assert _read(tmp_path / "headline.svg") == _read(ROOT / "benchmarks" / "headline.svg")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _code(page: str) -> str:
    """Return the Python blocks without their imports, which are no use of a name."""
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE))
    return re.sub(r"^(from|import) .*$", "", code, flags=re.MULTILINE)


def _without_code(page: str) -> str:
    return re.sub(r"`[^`\n]+`", "", re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE))


def _headings(path: Path) -> set[str]:
    """Return what a page's headings are called in links, as MyST and the repository's web view have it."""
    page = re.sub(r"^```.*?^```$", "", _read(path), flags=re.DOTALL | re.MULTILINE)
    texts = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}
