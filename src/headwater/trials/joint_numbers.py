"""The numbers of trials of several studies that train together: one says which of the studies, and which of its trials.

Of a study by itself, which is the first of one, they are the trials' own.
"""

from __future__ import annotations

MOST_TRIALS = 2**40
"""No study has as many."""


def join_number(member: int, number: int) -> int:
    """Return what a trial of the `member`th study is known by while several studies train together."""
    return member * MOST_TRIALS + number


def split_number(number: int) -> tuple[int, int]:
    """Return which study a trial belongs to, and which of that study's trials it is."""
    return divmod(number, MOST_TRIALS)
