"""The page: one renderer, given its data by a server or as part of one file."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType
from typing import Any

MODULES = (
    "dom",
    "numbers",
    "data",
    "service",
    "source",
    "filter",
    "chart",
    "colours",
    "overview",
    "curves",
    "timeline",
    "parallel",
    "importance",
    "slices",
    "contour",
    "table",
    "lanes",
    "surrogate",
    "cost",
    "notes",
    "front",
    "trial",
    "studies",
    "main",
)
"""The ES modules of the page, each after those that it imports: they are served as one."""
QUEUE_MODULES = ("dom", "data", "numbers", "service", "queue")
"""Those of the page of a service."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file that the page asks for."""

    names: tuple[str, ...]
    media_type: str

    def read(self) -> str:
        """Return what is in it."""
        is_script = self.names in (MODULES, QUEUE_MODULES)
        return _join_modules(self.names) if is_script else "\n".join(map(_read, self.names))


PARTS: Mapping[str, Part] = MappingProxyType(
    {
        "uplot.js": Part(("uPlot.iife.min.js",), "text/javascript"),
        "page.js": Part(MODULES, "text/javascript"),
        "page.css": Part(("uPlot.min.css", "page.css"), "text/css"),
    }
)


SERVICE_PARTS: Mapping[str, Part] = MappingProxyType({**PARTS, "queue.js": Part(QUEUE_MODULES, "text/javascript")})
"""Of a service: its queue, and the pages of its studies."""


def queue_html() -> str:
    """The page of a service, which asks it for everything."""
    return _fill(
        head='<link rel="stylesheet" href="/static/page.css">',
        body='<script type="module" src="/static/queue.js"></script>',
    )


def dashboard_html() -> str:
    """The page that asks a server for everything."""
    return _fill(
        head='<link rel="stylesheet" href="/static/page.css">',
        body='<script src="/static/uplot.js"></script>\n<script type="module" src="/static/page.js"></script>',
    )


def report_html(data: Mapping[str, Any]) -> str:  # Any: JSON values
    """One file with everything in it, which asks nobody for anything."""
    style, library, script = (PARTS[name].read() for name in ("page.css", "uplot.js", "page.js"))
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _fill(
        head=f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>',
        body=f'<script type="application/json" id="data">{embed_json(data)}</script>\n'
        f'<script>{library}</script>\n<script type="module">{script}</script>',
    )


def embed_json(data: Mapping[str, Any]) -> str:  # Any: JSON values
    """Write JSON that no reader of HTML can take for anything else."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _fill(head: str, body: str) -> str:
    before, middle = _read("page.html").split("<!-- head -->")
    between, after = middle.split("<!-- body -->")
    return "".join((before, head, between, body, after))


@cache
def _join_modules(names: tuple[str, ...]) -> str:
    """Put the modules into one, in which names are known without being imported."""
    texts = [re.sub(r"^import [^;]*;\n", "", _read(f"{name}.js"), flags=re.MULTILINE) for name in names]
    return "\n".join(
        re.sub(r"^export (?=function|class|const|let|async)", "", text, flags=re.MULTILINE) for text in texts
    )


@cache
def _read(name: str) -> str:
    return files("headwater.report.page").joinpath("static", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
