"""Each trial under several seeds, around any searcher: it proposes one trial, and hears of the mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headwater.search.protocol import Dropping, Searcher, Stage, list_brackets
from headwater.trials import Decision, Report, Segment, Status, TrialRecord
from headwater.trials.replicas import average_reports, join_statuses


class Replicated:
    """Wraps a searcher; see `headwater.trials.replicas` for how replicas are numbered.

    A report of one replica is passed on when all have reported that epoch, so the wrapped searcher decides when the
    last of them comes by; trials end at their segments' ends, for which no replica has to wait.
    """

    def __init__(self, searcher: Searcher, num_seeds: int, known: Sequence[TrialRecord] = ()) -> None:
        self._searcher = searcher
        self._num_seeds = num_seeds
        self._known = {record.number: record for record in known}
        self._reports: dict[tuple[int, int], dict[int, Report]] = {}
        self._endings: dict[int, dict[int, Status]] = {}
        self._stopped: set[int] = set()
        for record in known:
            for report in record.history:
                trial, replica = divmod(record.number, num_seeds)
                self._reports.setdefault((trial, report.epoch), {})[replica] = report

    def propose(self, count: int) -> Sequence[Segment]:
        """Propose every replica of what the wrapped searcher proposes, but for those that an earlier run finished."""
        while segments := self._searcher.propose(count):
            replicas = [replica for segment in segments for replica in self._expand(segment)]
            if unfinished := [replica for replica in replicas if not self._was_finished(replica)]:
                return unfinished
        return []

    def take_dropped(self) -> Sequence[int]:
        """Return the replicas of the trials that the wrapped searcher dropped."""
        dropped = self._searcher.take_dropped() if isinstance(self._searcher, Dropping) else ()
        return [number * self._num_seeds + replica for number in dropped for replica in self._replicas]

    def stages(self) -> Sequence[Sequence[Stage]] | None:
        """Return the stages of the wrapped searcher, if it knows them, with every replica of its trials."""
        brackets = list_brackets(self._searcher)
        if brackets is None:
            return None
        return [[replace(stage, num_trials=stage.num_trials * self._num_seeds) for stage in one] for one in brackets]

    def observe(self, report: Report) -> Decision:
        """Pass the mean on when the last replica reports."""
        trial, replica = divmod(report.number, self._num_seeds)
        if trial in self._stopped:  # decided when another replica came by; this one had gone on by then
            return Decision.STOP
        reports = self._reports.setdefault((trial, report.epoch), {})
        reports[replica] = report
        if len(reports) < self._num_seeds:
            return Decision.CONTINUE
        decision = self._searcher.observe(average_reports(trial, list(reports.values())))
        del self._reports[trial, report.epoch]
        if decision is Decision.STOP:
            self._stopped.add(trial)
        return decision

    def finish(self, number: int, status: Status) -> None:
        """Pass the end of a segment on when the last replica has reached it."""
        trial, replica = divmod(number, self._num_seeds)
        endings = self._endings.setdefault(trial, {})
        endings[replica] = status
        if len(endings) == self._num_seeds:
            self._searcher.finish(trial, join_statuses(list(self._endings.pop(trial).values())))

    def _was_finished(self, segment: Segment) -> bool:
        """Tell whether the record has this replica at the end of the segment already; then it only counts as ended."""
        record = self._known.pop(segment.number, None)
        if record is None:
            return False
        reached = record.status.is_final or (segment.until is not None and record.epochs >= segment.until)
        if reached:
            self.finish(segment.number, record.status if record.status.is_final else Status.PAUSED)
        return reached

    def _expand(self, segment: Segment) -> list[Segment]:
        first = segment.number * self._num_seeds
        parents = [None if segment.parent is None else segment.parent * self._num_seeds + r for r in self._replicas]
        return [replace(segment, number=first + r, parent=parents[r]) for r in self._replicas]

    @property
    def _replicas(self) -> range:
        return range(self._num_seeds)
