"""A figure in a file: SVG as it is, PNG and PDF with the help of CairoSVG."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from headwater.errors import StudyError

FORMATS = ("svg", "png", "pdf")
SCALE = 2.0
"""A PNG has so many pixels for each of the figure's own."""


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
        raise StudyError(f"{path} cannot be written: {error.strerror}; give another path with --output") from error
    return len(data)
