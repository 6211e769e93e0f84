"""How values show themselves in a notebook: small tables, in which everything is text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

MOST_TEXT = 80
MOST_ROWS = 12


def write_facts(title: str, facts: Mapping[str, object]) -> str:
    """Write names and values below a title."""
    left = "style='text-align:left'"
    rows = [f"<tr><th {left}>{show(name)}</th><td {left}>{show(value)}</td></tr>" for name, value in facts.items()]
    return f"<div><strong>{show(title)}</strong><table>{''.join(rows)}</table></div>"


def write_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Write rows below the names of their columns; of many, the first."""
    head = "".join(f"<th>{show(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def show(value: object) -> str:
    """Write a value as short text that HTML takes for nothing else."""
    text = f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else str(value)
    text = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text[:MOST_TEXT])
    return escape(text if len(text) < MOST_TEXT else f"{text[: MOST_TEXT - 1]}…")


def _cell(value: object) -> str:
    side = "right" if isinstance(value, int | float) else "left"
    return f"<td style='text-align:{side}'>{show(value)}</td>"
