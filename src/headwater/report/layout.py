"""Laying out a table of trials so that nothing is cut, whatever the width of the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Column:
    """One property of all trials of a table."""

    name: str
    cells: Sequence[str | Text]
    style: str = ""
    is_text: bool = False
    """Whether it reads from the left; numbers line up at the right."""

    def texts(self) -> list[Text]:
        """The cells, whose text is never taken for markup."""
        return [cell if isinstance(cell, Text) else Text(cell) for cell in self.cells]


class TrialTable:
    """One row for each trial where that fits; else with names on several lines; else one column for each trial."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in (_lay_rows(self._columns, gap=2), _lay_rows(self._columns, gap=1, fold=True)):
            if Measurement.get(console, options.update(max_width=10_000), table).maximum <= options.max_width:
                yield table
                return
        yield from _lay_blocks(self._columns, options.max_width)


def _lay_rows(columns: Sequence[Column], gap: int, *, fold: bool = False) -> Table:
    table = Table(
        # The box itself sets columns one space apart.
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0), header_style="bold",
    )  # fmt: skip
    for column in columns:
        name = re.sub(r"(?<=.)([_.])(?=.)", "\\1\n", column.name) if fold else column.name
        justify: JustifyMethod = "left" if column.is_text else "right"
        table.add_column(Text(name), justify=justify, style=column.style, no_wrap=True, vertical="bottom")
    for cells in zip(*(column.texts() for column in columns), strict=True):
        table.add_row(*cells)
    return table


def _lay_blocks(columns: Sequence[Column], width: int) -> list[RenderableType]:
    """Lay trials side by side, as many as fit, and the rest below in further blocks."""
    num_trials = len(columns[0].cells)
    names_width = max(cell_len(column.name) for column in columns)
    widths = [max(cell_len(column.texts()[place].plain) for column in columns) for place in range(num_trials)]
    blocks: list[RenderableType] = []
    place = 0
    while place < num_trials:
        end, used = place + 1, names_width + 2 + widths[place]
        while end < num_trials and used + 2 + widths[end] <= width:
            used += 2 + widths[end]
            end += 1
        blocks += [*([""] if blocks else []), _lay_block(columns, place, end)]
        place = end
    return blocks


def _lay_block(columns: Sequence[Column], start: int, end: int) -> Table:
    first, *others = columns
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(Text(first.name, "bold"), no_wrap=True)
    for cell in first.texts()[start:end]:
        table.add_column(cell, justify="right", no_wrap=True)
    for column in others:
        table.add_row(Text(column.name), *column.texts()[start:end], style=column.style)
    return table
