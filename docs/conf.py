"""The documentation site: `make docs` builds it from the repository's root, so that links are those of the files."""

from __future__ import annotations

import ast
import logging
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
STAGED = ROOT / "build" / "gallery"
"""Where the examples lie with a title, as the gallery wants them; what they write when they run stays there."""
GALLERY = "docs/gallery"

sys.path.insert(0, str(ROOT / "src"))

project = "Headwater"
author = "The Headwater authors"
project_copyright = "The Headwater authors, Apache License 2.0"
release = metadata.version("headwater")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "benchmarks/*.md"]
exclude_patterns = [
    "README.md",
    "build",
    "src",
    "tests",
    "examples",
    ".*",
    "**/GALLERY_HEADER.rst",
    "docs/gallery/**/*.py",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "attrs_block"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
default_role = "literal"  # docstrings have single backticks
toc_object_entries = False
smartquotes_action = "De"  # dashes and dots; quotes in docstrings are those of code

html_theme = "furo"
html_title = f"Headwater {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_root"]
html_copy_source = False
html_show_sphinx = False
templates_path: list[str] = []
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"

sphinx_gallery_conf = {
    "examples_dirs": str(STAGED),
    "gallery_dirs": GALLERY,
    "filename_pattern": r"gallery/digits\.py$",  # the others run in `make examples`
    "nested_sections": False,
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": (),
    "reset_modules": (),
    "notebook_extensions": set(),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 1e9,
    "plot_gallery": "True",
    "abort_on_example_error": True,
}


def setup(app: Sphinx) -> None:
    """Have examples staged before the gallery reads them, and links to them lead to their pages."""
    # A pattern in a toctree may wait for its page. That warning has no type by which it could be switched off.
    toctrees = logging.getLogger("sphinx.sphinx.directives.other")
    toctrees.addFilter(lambda record: getattr(record, "subtype", None) != "empty_glob")
    app.connect("builder-inited", stage_examples, priority=100)
    app.connect("autodoc-process-docstring", read_fences, priority=700)
    keep_attributes(app)
    app.connect("doctree-read", link_examples)


def stage_examples(_: Sphinx) -> None:
    """Copy the examples, with a title that is made of their first sentence."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for folder, title, text in (
        (".", "Examples", "Whole studies, from the data to the best model."),
        (
            "loops",
            "Loops as people write them",
            "Each trains many trials at once with the numbers of separate training.",
        ),
    ):
        (STAGED / folder).mkdir(parents=True)
        (STAGED / folder / "GALLERY_HEADER.rst").write_text(
            f"{title}\n{'=' * len(title)}\n\n{text}\n", encoding="utf-8"
        )
        for path in sorted((ROOT / "examples" / folder).glob("*.py")):
            (STAGED / folder / path.name).write_text(_with_title(path.read_text(encoding="utf-8")), encoding="utf-8")


def _with_title(source: str) -> str:
    """Rewrite the docstring of an example: its first sentence, up to a colon, is its title."""
    docstring = ast.parse(source).body[0]
    assert isinstance(docstring, ast.Expr)
    assert isinstance(docstring.value, ast.Constant)
    text = str(docstring.value.value)
    title, rest = re.split(r"[:.](?=\s|$)\s*", text, maxsplit=1)
    title, rest = title.replace("\n", " ").replace("`", ""), rest[:1].upper() + rest[1:]
    rest = re.sub(r":\n\n(?=    )", "::\n\n", re.sub(r"`([^`]+)`", r"``\1``", rest))
    after = "\n".join(source.splitlines()[docstring.end_lineno or 0 :])
    return f'"""\n{title}\n{"=" * len(title)}\n\n{rest.rstrip()}\n"""\n{after}\n'


def read_fences(_app: Sphinx, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    """Read fenced blocks in docstrings as the code that they are."""
    found: list[str] = []
    is_open = False
    for line in lines:
        if line.strip().startswith("```"):
            is_open = not is_open
            found += ["", f".. code-block:: {line.strip()[3:]}", ""] if is_open else [""]
        else:
            found.append(f"    {line}" if is_open else line)
    lines[:] = found


def keep_attributes(app: Sphinx) -> None:
    """Keep what attributes say from napoleon, which takes what stands before a colon for their type."""
    kept: list[str] = []

    def keep(*given: Any) -> None:
        kept[:] = given[-1]

    def restore(_: Sphinx, what: str, *given: Any) -> None:
        if what in ("attribute", "data", "property"):
            given[-1][:] = kept

    app.connect("autodoc-process-docstring", keep, priority=400)
    app.connect("autodoc-process-docstring", restore, priority=600)


def link_examples(app: Sphinx, doctree: nodes.document) -> None:
    """Have links to an example, or to the folder of them, lead to the gallery and not to files."""
    here = Path(app.env.doc2path(app.env.docname)).parent
    for link in [*doctree.findall(addnodes.download_reference), *doctree.findall(addnodes.pending_xref)]:
        page = _find_page((here / link["reftarget"]).resolve())
        if page is not None:
            kept = {"refdoc": app.env.docname, "refexplicit": True}
            link.replace_self(
                addnodes.pending_xref("", *link.children, refdomain="std", reftype="doc", reftarget=page, **kept)
            )


def _find_page(path: Path) -> str | None:
    if path.is_dir() and path.is_relative_to(ROOT / "examples"):
        return f"/{GALLERY}/index"
    if path.suffix == ".py" and path.is_relative_to(ROOT / "examples"):
        return f"/{GALLERY}/{path.relative_to(ROOT / 'examples').with_suffix('')}"
    return None
