"""A figure in a file: SVG as it is, PNG and PDF with the help of CairoSVG."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from headwater.errors import StudyError

FORMATS = ("svg", "png", "pdf")
SCALE = 2.0
"""A PNG has so many pixels for each of the figure's own."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as SVG. A notebook shows it where it stands at the end of a cell."""

    svg: str
    title: str

    def save(self, path: str | Path) -> None:
        """Write it into a file: .svg, or .png and .pdf where CairoSVG is installed.

        Raises:
            StudyError: The file is named otherwise, or cannot be written.
        """
        write_figure(self.svg, Path(path))

    def __repr__(self) -> str:
        return f"Figure({self.title!r}); show it in a notebook, or write it with .save('figure.svg')"

    def _repr_svg_(self) -> str:
        return self.svg


def check_path(path: Path) -> str:
    """Return the format that a file is named by.

    Raises:
        StudyError: It is none of ours, or lacks what makes it.
    """
    form = path.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise StudyError(f"{str(path)!r} does not say what to draw; end it in .svg, .png or .pdf")
    if form != "svg" and find_spec("cairosvg") is None:
        raise StudyError(
            f"{form.upper()} needs CairoSVG, and that the library cairo; pip install 'headwater[figures]', "
            f"or write SVG into {path.stem}.svg"
        )
    return form


def write_figure(drawing: str, path: Path) -> int:
    """Write a drawing, given as SVG, into a file of the format that it is named by; return how many bytes it has."""
    form = check_path(path)
    data = drawing.encode()
    if form != "svg":
        cairosvg = import_module("cairosvg")
        convert = cairosvg.svg2png if form == "png" else cairosvg.svg2pdf
        data = convert(bytestring=data, scale=SCALE if form == "png" else 1.0)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StudyError(f"{path} cannot be written: {error.strerror}; give another path") from error
    return len(data)
