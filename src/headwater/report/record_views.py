"""Reports and figures of a study, made of its record when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.report.figures import Figure


@dataclass(frozen=True, slots=True)
class StoredViews:
    """The views of one study in a record; what draws them is imported when it is used, for it takes long."""

    storage: str
    study: str

    def write_report(self, path: Path) -> int:
        """Write the study as one HTML file, and return its size in bytes."""
        from headwater.report.page.report_file import write_report

        return write_report(self.storage, self.study, path)

    def draw(self, kind: str, key: str | None) -> Figure:
        """Draw one of the figures that `headwater plot` draws."""
        from headwater.report.figures import Figure, draw_figure

        return Figure(draw_figure(self.storage, self.study, kind, key), f"{kind} of study {self.study}")
