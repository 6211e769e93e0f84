"""Single figures of a study, for papers: drawn as SVG, which everything else is made of."""

from headwater.report.figures.drawing import KINDS, draw_figure
from headwater.report.figures.files import Figure, write_figure

__all__ = ["KINDS", "Figure", "draw_figure", "write_figure"]
