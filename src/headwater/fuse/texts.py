"""Text of all lanes for people to read, made of the text that each lane has."""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_LETTERS = 100
_PIECES = re.compile(r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\b(?:inf|nan)\b)|\w+|\s+|.", re.DOTALL)


def merge_texts(texts: Sequence[str]) -> str:
    """Return a text that shows those of all lanes: where they differ in a number or a word, that of each in brackets.

    Texts of different forms follow one another, all in brackets.
    """
    columns = [_PIECES.findall(text) for text in texts]
    if any(len(column) != len(columns[0]) for column in columns):
        return f"[{' '.join(texts)}]"
    return "".join(_merge(pieces) for pieces in zip(*columns, strict=True))


def shorten(text: str) -> str:
    """Return a text in one line, of a length that fits into a sentence."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]} …"


def _merge(pieces: Sequence[str]) -> str:
    if all(piece == pieces[0] for piece in pieces):
        return pieces[0]
    return min(pieces, key=len) if all(map(str.isspace, pieces)) else f"[{' '.join(pieces)}]"
