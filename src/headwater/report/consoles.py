"""A console for text that comes from anywhere: it shows what would steer the terminal, and does not send it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_DIRECTIONS = (0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""What turns the direction of text, or its lines, so that it reads otherwise than it is."""
_SURROGATES = range(0xD800, 0xE000)
"""Halves of characters, which JSON can hold and no stream takes."""
_VISIBLE = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\N{SYMBOL FOR DELETE}",
    **dict.fromkeys((*range(0x80, 0xA0), *_DIRECTIONS, *_SURROGATES), _REPLACEMENT),
}


def make_visible(text: str) -> str:
    """Put a sign of its own in the place of each control character but new lines and tabs."""
    return text.translate(_VISIBLE)


class PlainConsole(Console):
    """Sends no control character but its own, whatever it is given to print."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as any console does, and make visible what the text holds."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(make_visible(segment.text), segment.style)
