"""Detection of a run whose first trials all fail in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headwater.space.domains import same_value
from headwater.trials import Failure, Lane, Status, TrialRecord, read_failure

MOST_ALIKE = 5
"""After so many first trials with the same failure, the run ends."""


class FirstFailures:
    """The failures of a run in which no trial has come to a good end yet.

    A trial that ends in any other way, or has reported in an earlier run, clears the training function of suspicion:
    later failures end nothing.
    """

    def __init__(self, num_seeds: int, known: Sequence[TrialRecord] = ()) -> None:
        self._num_seeds = num_seeds
        self._has_good_end = any(record.history and record.status is not Status.FAILED for record in known)
        self._has_failed = False
        self._first: list[int] = []
        """The trials that were opened first. Groups of one kind may train, and fail, before trials of other kinds."""
        self._open: dict[int, Lane] = {}
        """The trials that wait or train."""
        self._failures: dict[int, tuple[Failure, Lane]] = {}

    def open(self, lanes: Iterable[Lane]) -> None:
        """Take in which trials are about to train."""
        if self._has_good_end:
            return
        for lane in lanes:
            self._open[lane.number] = lane
            trial = lane.number // self._num_seeds
            if len(self._first) < MOST_ALIKE and trial not in self._first:
                self._first.append(trial)

    def end(self, number: int, status: Status, error: str | None = None) -> Failure | None:
        """Take in that a trial has ended or paused; return the failure where it is the first of the run."""
        lane = self._open.pop(number, None)
        if status is not Status.FAILED:
            self._has_good_end = True
            self._open.clear()
        if error is None:
            return None
        failure, is_first = read_failure(error), not self._has_failed
        self._has_failed = True
        if lane is not None:
            self._failures[number // self._num_seeds] = failure, lane
        return failure if is_first else None

    @property
    def reason(self) -> str | None:
        """Why the run is to end; None while the failures are too few, or may be those of some trials only."""
        if self._has_good_end or len(self._failures) < MOST_ALIKE or not self._failures.keys() >= set(self._first):
            return None
        found = list(self._failures.values())
        if len({failure for failure, _ in found}) > 1 or _share_value([lane for _, lane in found], self._open.values()):
            return None
        return f"the first {len(found)} trials failed in the same way: {found[0][0]}"


def _share_value(failed: Sequence[Lane], others: Iterable[Lane]) -> bool:
    """Tell whether failed trials have a value in common that another trial has not, so that it may be the cause."""
    first, *further = [dict(_list_values(lane.config)) for lane in failed]
    shared = {
        key: value
        for key, value in first.items()
        if all(key in other and same_value(other[key], value) for other in further)
    }
    if not shared:
        return False
    return any(
        key in shared and not same_value(shared[key], value)
        for lane in others
        for key, value in _list_values(lane.config)
    )


def _list_values(config: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:  # Any: values of any kind
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _list_values(value, f"{parent}{key}.")
        else:
            yield f"{parent}{key}", value
