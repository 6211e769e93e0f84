"""A study in memory as its record has it, brought up to date by reading only what is new."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from headwater.errors import StoreError
from headwater.report.page.best_curve import BestCurve, follow_best
from headwater.store import ATTRIBUTE, Note, Store, StudyInfo, read_shown
from headwater.store.checking import read_mapping, read_metrics, read_text, read_time, read_whole
from headwater.store.following import Mark, Rows, read_news
from headwater.store.rows import TrialNotes, read_note
from headwater.trials import INFEASIBLE, Objective, Report, Status, TrialRecord, average_replicas
from headwater.trials.front import Candidate, find_front

NAN = math.nan


class Move(NamedTuple):
    """A trial changed its status, having trained so many epochs."""

    status: Status
    epoch: int
    time: float


@dataclass(slots=True)
class FollowedTrial:
    """One trial: what it was given and all that became of it so far."""

    number: int
    config: Mapping[str, Any]  # Any: JSON values
    created: float
    status: Status = Status.RUNNING
    seconds: float = 0.0
    error: str | None = None
    epochs: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    """By metric, one for each of the epochs; NaN where it was not reported."""
    moves: list[Move] = field(default_factory=list)
    notes: TrialNotes = field(default_factory=TrialNotes)

    def hear(self, epoch: int, metrics: Mapping[str, float], time: float) -> int | None:
        """Take in a report, and return at which place it is; None if it was heard before."""
        place = len(self.epochs)
        if place and epoch <= self.epochs[-1]:
            return self._hear_late(epoch, metrics, time)
        self.epochs.append(epoch)
        self.times.append(time)
        for name, value in metrics.items():
            if name not in self.values:
                self.values[name] = [NAN] * place
            self.values[name].append(value)
        if len(self.values) > len(metrics):
            for name in self.values.keys() - metrics.keys():
                self.values[name].append(NAN)
        return place

    def _hear_late(self, epoch: int, metrics: Mapping[str, float], time: float) -> int | None:
        """Take in a report on an epoch before the last, if it is one that was not heard before."""
        place = bisect_left(self.epochs, epoch)
        if self.epochs[place] == epoch:
            return None
        for name in metrics:
            self.values.setdefault(name, [NAN] * len(self.epochs))
        self.epochs.insert(place, epoch)
        self.times.insert(place, time)
        for name, column in self.values.items():
            column.insert(place, metrics.get(name, NAN))
        return place

    def each(self) -> Iterator[tuple[float, dict[str, float]]]:
        """Yield when it reported, and what."""
        for place, time in enumerate(self.times):
            yield time, {name: column[place] for name, column in self.values.items()}

    def value(self, metric: str) -> float:
        """Return the last value of a metric, NaN where there is none."""
        column = self.values.get(metric)
        return column[-1] if column else NAN

    def as_record(self) -> TrialRecord:
        """Return it as other views have it."""
        history = tuple(
            Report(
                number=self.number,
                epoch=epoch,
                metrics={name: column[place] for name, column in self.values.items()},
            )
            for place, epoch in enumerate(self.epochs)
        )
        return TrialRecord(
            number=self.number,
            config=self.config,
            status=self.status,
            history=history,
            error=self.error,
            notes=tuple(self.notes.remarks),
            seconds=self.seconds,
            attributes=self.notes.attributes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a look at the record brought."""

    starts: Mapping[int, int]
    """By trial that changed: from which of its reports on there is something new."""
    new: frozenset[int]
    """Trials that were not there before."""
    has_notes: bool = False
    has_facts: bool = False
    has_spans: bool = False

    def __bool__(self) -> bool:
        return bool(self.starts) or self.has_notes or self.has_facts or self.has_spans


class FollowedStudy:
    """A study that is read as it grows. Trials under several seeds are shown as one each, by their means."""

    def __init__(self, store: Store, info: StudyInfo) -> None:
        self.info = info
        self.notes: list[Note] = []
        """Remarks on trials and on the whole study, without the attributes of trials."""
        self.trials: dict[int, FollowedTrial] = {}
        self.metrics: dict[str, None] = {info.metric: None}
        """The names of all that trials reported, the metric that decides first."""
        self.best = BestCurve(info.mode)
        self.num_damaged = 0
        """How many rows were left out because they cannot be read."""
        self.stages: list[StudyInfo] = []
        self.whole: int | None = None
        """The study that this one is a stage of."""
        self.objective = info.objective
        self._bests: dict[int, float] = {}
        self._store = store
        self._mark = Mark()
        self._replicas: dict[int, FollowedTrial] = {}

    def refresh(self) -> Changes:
        """Read what is new."""
        self._find_relations()
        news = read_news(self._store, self.info.id, [stage.id for stage in self.stages], self._mark)
        is_first = self._mark == Mark()
        self._mark = news.mark
        held = self.trials if self.info.num_seeds == 1 else self._replicas
        new = {number for row in news.trials for number in self._take_trial(held, row)}
        starts = dict.fromkeys(new, 0)
        heard = self._take_reports(held, news.reports, starts)
        failed = self._take_moves(held, news.transitions, starts)
        has_notes = self._take_notes(held, news.notes)
        if self.info.num_seeds > 1:
            new, starts = self._average(new, starts)
        elif is_first:
            self.best = follow_best(self.info.mode, heard, failed)
        else:
            self._follow_best(heard, failed)
        return Changes(
            starts=starts, new=frozenset(new), has_notes=has_notes, has_facts=news.has_facts, has_spans=news.has_spans
        )

    def value_of(self, trial: FollowedTrial) -> float:
        """Return the value that counts of a trial; NaN where there is none."""
        is_last = self.objective.judge == "last"
        return trial.value(self.info.metric) if is_last else self.objective.value_of(trial.as_record())

    def rank(self) -> list[FollowedTrial]:
        """Return the trials that did not fail and have a finite value, best first, as the command ranks them."""
        sound = (trial.as_record() for trial in self.trials.values() if trial.status is not Status.FAILED)
        return [self.trials[record.number] for record in self.objective.rank(sound)]

    def find_front(self) -> list[int]:
        """Return the trials that no other beats in every metric of the study, by number."""
        objectives = [
            Objective(name, mode) for name, mode in ((self.info.metric, self.info.mode), *self.info.also.items())
        ]
        candidates = []
        for trial in self.trials.values():
            scores = tuple(one.score(trial.value(one.metric)) for one in objectives)
            if trial.status is not Status.FAILED and INFEASIBLE not in scores:
                last = {name: column[-1] for name, column in trial.values.items()}
                candidates.append(Candidate(trial.number, scores, self.objective.violation(last)))
        return find_front(candidates)

    def find_best(self) -> tuple[int, float] | None:
        """Return the best trial and its value; where none keeps to the constraints, the one that comes nearest."""
        if self.best.best is not None or not self.objective.constraints:
            return self.best.best
        nearest = self.rank()[:1]
        return (nearest[0].number, self.value_of(nearest[0])) if nearest else None

    def _find_relations(self) -> None:
        """See which stages there are; a study without surrogates has none, and is asked no more than once."""
        part_of = self.info.settings.get("part_of")
        if self.info.settings.get("surrogate") is None and (part_of is None or self.whole is not None):
            return
        studies = self._store.studies()
        self.stages = [one for one in studies if one.settings.get("part_of") == self.info.name]
        self.whole = next((one.id for one in studies if one.name == part_of), None)

    def _take_trial(self, held: dict[int, FollowedTrial], row: Sequence[Any]) -> Iterable[int]:  # Any: columns
        try:
            number = read_whole("number", row[0])
            config = read_shown(read_mapping("config", row[1]))
            trial = FollowedTrial(number=number, config=config, created=read_time("time", row[2]))
        except (StoreError, LookupError, TypeError):
            self.num_damaged += 1
            return ()
        if number in held:
            return ()
        held[number] = trial
        return (number,)

    def _take_reports(
        self, held: Mapping[int, FollowedTrial], rows: Rows, starts: dict[int, int]
    ) -> list[tuple[float, int, float]]:
        heard, metric = [], self.info.metric
        is_plain = self.objective.judge == "last" and not self.objective.constraints
        for (number, epoch, _, time, _), metrics in zip(rows, _parse_metrics([row[2] for row in rows]), strict=True):
            trial = held.get(number)
            is_sound = metrics is not None and type(epoch) is int and epoch > 0 and type(time) is float
            if trial is None or metrics is None or not is_sound:
                self.num_damaged += 1
                continue
            place = trial.hear(epoch, metrics, time)
            for name in metrics:
                if name not in self.metrics:
                    self.metrics[name] = None
            if place is not None:
                if place < starts.get(number, len(trial.epochs)):
                    starts[number] = place
                value = metrics.get(metric, NAN) if is_plain else self._judge(number, metrics)
                heard.append((time, number, value))
        return heard

    def _judge(self, number: int, metrics: Mapping[str, float]) -> float:
        """Return what counts of a trial from this report on; nothing where a constraint is broken."""
        if self.objective.violation(metrics):
            return NAN
        if self.objective.judge != "last":
            report = Report(number=number, epoch=0, metrics=metrics)
            metrics = self.objective.judge_report(report, self._bests).metrics
        return metrics.get(self.info.metric, NAN)

    def _take_moves(self, held: Mapping[int, FollowedTrial], rows: Rows, starts: dict[int, int]) -> list[int]:
        failed = []
        for number, name, epoch, error, seconds, time, _ in rows:
            trial = held.get(number)
            try:
                if trial is None or name not in list(Status):
                    raise StoreError("its trial or its status is unknown")
                trial.moves.append(Move(Status(name), read_whole("epoch", epoch), read_time("time", time)))
                trial.seconds += read_time("seconds", seconds)
                trial.status, trial.error = Status(name), None if error is None else read_text("error", error)
            except StoreError:
                self.num_damaged += 1
                continue
            starts.setdefault(number, len(trial.epochs))
            if trial.status is Status.FAILED:
                failed.append(number)
        return failed

    def _take_notes(self, held: Mapping[int, FollowedTrial], rows: Rows) -> bool:
        for row in rows:
            try:
                note = read_note(*row[:3])
                if note.number is not None and note.number in held:
                    held[note.number].notes.add(note)
            except StoreError:
                self.num_damaged += 1
                continue
            if note.kind != ATTRIBUTE:
                self.notes.append(note)
        return bool(rows)

    def _follow_best(self, heard: Sequence[tuple[float, int, float]], failed: Sequence[int]) -> None:
        for report in sorted(heard, key=lambda report: report[0]):
            self.best.hear(*report)
        for number in failed:
            self.best.drop(self.trials[number].moves[-1].time, number)

    def _average(self, new: set[int], starts: Mapping[int, int]) -> tuple[set[int], dict[int, int]]:
        """Put the replicas of trials that changed together; the curve of the best is made anew."""
        num_seeds = self.info.num_seeds
        changed = {number // num_seeds for number in starts}
        for number in changed:
            first = number * num_seeds
            replicas = [self._replicas[one] for one in range(first, first + num_seeds) if one in self._replicas]
            self.trials[number] = _join(replicas, num_seeds)
        known = {number // num_seeds for number in new}
        sound = [trial for trial in self.trials.values() if trial.status is not Status.FAILED]
        reports = [
            (time, trial.number, self._judge(trial.number, metrics))
            for trial in sound
            for time, metrics in trial.each()
        ]
        self.best = follow_best(self.info.mode, reports)
        return known, dict.fromkeys(changed, 0)


def _join(replicas: Sequence[FollowedTrial], num_seeds: int) -> FollowedTrial:
    (record,) = average_replicas([replica.as_record() for replica in replicas], num_seeds)
    joined = FollowedTrial(
        number=record.number,
        config=record.config,
        created=min(replica.created for replica in replicas),
        moves=sorted((move for replica in replicas for move in replica.moves), key=lambda move: move.time),
    )
    when = [dict(zip(replica.epochs, replica.times, strict=True)) for replica in replicas]
    for report in record.history:
        joined.hear(report.epoch, report.metrics, max(times[report.epoch] for times in when))
    joined.status, joined.seconds = record.status, record.seconds
    joined.error = record.error
    joined.notes = TrialNotes(remarks=list(record.notes), attributes=dict(record.attributes))
    return joined


def _parse_metrics(texts: Sequence[Any]) -> list[dict[str, float] | None]:  # Any: a column
    """Read the metrics of many reports at once where all are as they must be, else one by one; None for a bad one."""
    try:
        joined = f"[{','.join(texts)}]"
        parsed = None if "$float" in joined else json.loads(joined)
    except (TypeError, ValueError, RecursionError):
        parsed = None
    if parsed is None or len(parsed) != len(texts) or not _are_plain(parsed):
        return [_parse_one(text) for text in texts]
    return list(parsed)


def _are_plain(parsed: Sequence[Any]) -> bool:  # Any: JSON values
    """Tell whether all are numbers by name, without a loop of our own: there may be very many."""
    if not set(map(type, parsed)) <= {dict}:
        return False
    return set(map(type, chain.from_iterable(map(dict.values, parsed)))) <= {float}


def _parse_one(text: object) -> dict[str, float] | None:
    try:
        return read_metrics(text)
    except StoreError:
        return None
