"""What differs between two ways to run a program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tests.fuzz.running import Ended, Ways

TOLERANCE = 1e-9


def compare_ways(ways: Ways) -> list[str]:
    """Return every difference: between plain PyTorch and single trials exactly, between these and lanes nearly."""
    return [
        *_compare("plain PyTorch", ways.plain, "lanes=1", ways.alone, 0.0),
        *_compare("lanes=1", ways.alone, f"lanes={len(ways.lanes)}", ways.lanes, TOLERANCE),
    ]


def _compare(first: str, ours: Sequence[Ended], second: str, theirs: Sequence[Ended], tolerance: float) -> list[str]:
    if len(ours) != len(theirs):
        return [f"{first}: {len(ours)} trials; {second}: {len(theirs)}"]
    return [
        f"trial {number}: {first}: {a}; {second}: {b}"
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True))
        for a, b in _compare_trials(one, other, tolerance)[:1]
    ]


def _compare_trials(one: Ended, other: Ended, tolerance: float) -> list[tuple[str, str]]:
    found = []
    for (epoch, metrics), (epoch_of_other, others) in zip(one.history, other.history, strict=False):
        names = [name for name in (*metrics, *others) if not _agree(metrics, others, name, tolerance)]
        found += [(f"{name} {metrics.get(name)}", f"{others.get(name)} at epoch {epoch}") for name in names]
        if epoch != epoch_of_other:
            found.append((f"a report at epoch {epoch}", f"at epoch {epoch_of_other}"))
    if (one.status, one.error, len(one.history)) != (other.status, other.error, len(other.history)):
        found.append((_show_end(one), _show_end(other)))
    return found


def _agree(metrics: Mapping[str, float], others: Mapping[str, float], name: str, tolerance: float) -> bool:
    if name not in metrics or name not in others:
        return False
    a, b = metrics[name], others[name]
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))


def _show_end(one: Ended) -> str:
    message = one.note.strip().split("\n")[-1][:200]
    return f"{one.status} after {len(one.history)} reports" + (f" with {one.error} ({message})" if one.error else "")
