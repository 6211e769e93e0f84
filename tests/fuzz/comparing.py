"""What differs between two ways to run a program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tests.fuzz.running import Ended, Run, Way, Ways

TOLERANCE = 1e-9
WAYS_OUT = ("trial.keep", "prepare_")
"""A refusal to continue after a pause names one of these."""


def compare_ways(ways: Ways) -> list[str]:
    """Return every difference from plain PyTorch, each beginning with the name of its way."""
    return [text for way, run in ways.runs.items() for text in _compare(ways.plain, way, run)]


def is_told(way: Way, run: Run) -> bool:
    """Whether a study with pauses has ended because it said that a trial cannot continue."""
    if not way.has_pauses or not run.refusal:
        return False
    # Worker processes may refuse for other reasons too, such as a module that differs from the parent's.
    return way.executor != "inline" or any(text in run.refusal for text in WAYS_OUT)


def _compare(plain: Sequence[Ended], way: Way, run: Run) -> list[str]:
    if run.refusal:
        have_failed = all(trial.status == "failed" for trial in plain)
        return [] if have_failed or is_told(way, run) else [f"{way.name}: the study ended: {run.refusal}"]
    if len(plain) != len(run.trials):
        return [f"{way.name}: {len(run.trials)} trials; plain PyTorch: {len(plain)}"]
    tolerance = 0.0 if way.is_exact else TOLERANCE
    return [
        f"{way.name}: trial {number}: plain PyTorch: {a}; {way.name}: {b}"
        for number, (one, other) in enumerate(zip(plain, run.trials, strict=True))
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
