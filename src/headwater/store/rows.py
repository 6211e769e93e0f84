"""Between values and rows: pure functions, one pair of directions per table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from sqlalchemy import Select, select

from headwater.errors import StoreError
from headwater.space import Config
from headwater.store.checking import (
    read_json,
    read_mapping,
    read_metrics,
    read_text,
    read_time,
    read_whole,
)
from headwater.store.encoding import clean_text, encode_json, encode_numbers
from headwater.store.runner import Runner
from headwater.store.schema import NOTES, REPORTS, TRANSITIONS, TRIALS
from headwater.store.values import ATTRIBUTE, Note, StudyInfo, Transition
from headwater.trials import MOST_SEEDS, Arrival, Lane, Report, Span, SpanPurpose, Status, TrialRecord

Decode = Callable[[Any], Config]  # Any: the JSON value that was stored
Values = Mapping[str, Any]  # Any: a row by column, whose types the tables state
Rows = Iterable[Sequence[Any]]  # Any: the columns that select_trials names


def write_study(info: StudyInfo, now: float) -> Values:
    """The row of a new study."""
    return {
        "name": info.name,
        "metric": info.metric,
        "mode": info.mode,
        "seed": info.seed,
        "space": encode_json(info.space),
        "settings": encode_json(dict(info.settings)),
        "created": now,
        "uuid": uuid4().hex,
    }


def read_study(row: Values) -> StudyInfo:
    """The study that a row of its table describes.

    Raises:
        StoreError: A value in it is not what it must be.
    """
    settings = read_mapping("settings", row["settings"])
    for name, least in (("num_seeds", 1), ("num_trials", 0)):
        if settings.get(name) is not None:
            read_whole(name, settings[name], least)
    if (settings.get("num_seeds") or 1) > MOST_SEEDS:
        raise StoreError(f"its num_seeds is {settings['num_seeds']}, where at most {MOST_SEEDS} belong")
    for name in ("part_of", "search", "surrogate", "judge"):
        if settings.get(name) is not None:
            read_text(name, settings[name])
    if row["mode"] not in ("min", "max"):
        raise StoreError(f"its mode is {row['mode']!r:.40}, where min or max belongs")
    return StudyInfo(
        id=read_whole("id", row["id"]),
        name=read_text("name", row["name"]),
        metric=read_text("metric", row["metric"]),
        mode=row["mode"],
        seed=read_whole("seed", row["seed"], -(2**63)),
        space=read_json("space", row["space"]),
        settings=settings,
        created=read_time("created", row["created"]),
        uuid=read_text("uuid", row.get("uuid", "")),
    )


def read_fact(key: object, value: object) -> tuple[str, Any]:  # Any: a JSON value
    """The key and the value of a fact."""
    name = read_text("key", key)
    return name, read_json(f"value of {name!r:.40}", value)


def read_note(kind: object, text: object, number: object) -> Note:
    """The note that a row of its table holds."""
    about = None if number is None else read_whole("trial", number)
    return Note(kind=read_text("kind", kind), text=read_text("text", text), number=about)


@dataclass(slots=True)
class TrialNotes:
    """The notes on one trial: remarks to read, and the attributes that its function set with `trial.note`.

    Both kinds are rows of one table. Every reader of a trial's notes adds them here, so that all tell them apart alike.
    """

    remarks: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)  # Any: JSON values
    """The last value of each name."""

    def add(self, note: Note) -> None:
        """Take in a note that was written after all others.

        Raises:
            StoreError: An attribute is no JSON object.
        """
        if note.kind == ATTRIBUTE:
            self.attributes |= read_mapping("attribute", note.text)
        else:
            self.remarks.append(note.text)


def read_lease(row: Values) -> Runner:
    """The process that a row of the leases names."""
    pid = read_whole("pid", row["pid"], 1)
    if pid >= 2**31:
        raise StoreError(f"its pid is {pid}, which no process has")
    return Runner(
        holder=read_text("holder", row["holder"]),
        host=read_text("host", row["host"]),
        pid=pid,
        process=read_text("process", row["process"]),
        fence=read_whole("fence", row["fence"]),
        beat=read_whole("beat", row["beat"]),
    )


def write_trial(study_id: int, lane: Lane, now: float) -> Values:
    """The row of a new trial."""
    return {
        "study_id": study_id,
        "number": lane.number,
        "config": encode_json(lane.config),
        "seed": lane.seed,
        "created": now,
    }


def write_reports(study_id: int, reports: Sequence[Report], now: float) -> list[Values]:
    """The rows of reports."""
    texts = encode_numbers(report.metrics for report in reports)
    return [
        {"study_id": study_id, "number": report.number, "epoch": report.epoch, "metrics": text, "time": now}
        for report, text in zip(reports, texts, strict=True)
    ]


def write_transition(study_id: int, transition: Transition, now: float) -> Values:
    """The row of a transition."""
    return {
        "study_id": study_id,
        "number": transition.number,
        "status": transition.status.value,
        "epoch": transition.epoch,
        "error": None if transition.error is None else clean_text(transition.error),
        "seconds": transition.seconds,
        "time": now,
    }


def write_note(study_id: int, note: Note, now: float) -> Values:
    """The row of a note."""
    return {
        "study_id": study_id,
        "number": note.number,
        "kind": note.kind,
        "text": clean_text(note.text),
        "time": now,
    }


def write_span(study_id: int, span: Span) -> Values:
    """The row of a span."""
    return {
        "study_id": study_id,
        "device": span.device,
        "purpose": span.purpose.value,
        "trials": encode_json(list(span.trials)),
        "begin_s": span.begin_s,
        "end_s": span.end_s,
    }


def read_span(study: str, row: Values) -> Span:
    """The span that a row of its table describes.

    Raises:
        StoreError: A value in it is not what it must be.
    """
    trials = read_json("trials", row["trials"])
    if row["purpose"] not in list(SpanPurpose) or not isinstance(trials, list):
        raise StoreError(f"its purpose is {row['purpose']!r:.40}, and its trials are {trials!r:.40}")
    return Span(
        study=study,
        device=read_text("device", row["device"]),
        purpose=SpanPurpose(row["purpose"]),
        trials=tuple(read_whole("trial", number) for number in trials),
        begin_s=read_time("begin", row["begin_s"]),
        end_s=read_time("end", row["end_s"]),
    )


def read_arrival(number: object, epoch: object, status: object) -> Arrival:
    """Where a segment of a trial ended."""
    return Arrival(number=read_whole("number", number), epoch=read_whole("epoch", epoch), status=_read_status(status))


def select_trials(study_id: int) -> list[Select[Any]]:  # Any: see Values
    """Ask for what `read_trials` puts together."""
    wanted = (
        (TRIALS, ("number", "config")),
        (REPORTS, ("number", "epoch", "metrics")),
        (TRANSITIONS, ("number", "status", "error", "seconds")),
        (NOTES, ("number", "kind", "text")),
    )
    queries = []
    for table, names in wanted:
        query = select(*(table.c[name] for name in names)).where(table.c.study_id == study_id)
        queries.append(query.order_by(*table.primary_key))
    return queries


def read_trials(
    trials: Rows,
    reports: Rows,
    transitions: Rows,
    notes: Rows,
    *,
    decode: Decode | None = None,
    damaged: list[str] | None = None,
) -> list[TrialRecord]:
    """Put together what four tables hold of each trial; a trial without a transition is just about to run.

    A trial with a row that is not what it must be is left out and described in `damaged`; without that it is refused.
    """
    tables = [_gather(rows) for rows in (reports, transitions, notes)]
    records = []
    for number, config in trials:
        try:
            records.append(_read_trial(number, config, decode, *(table.get(number, ()) for table in tables)))
        except StoreError as error:
            if damaged is None:
                raise StoreError(
                    f"trial {number!r:.40} cannot be read from the record: {error}; put a copy of the record in its "
                    "place, or run a new study"
                ) from error
            damaged.append(f"trial {number!r:.40} is left out: {error}")
    return records


def _gather(rows: Rows) -> dict[Any, list[Sequence[Any]]]:  # Any: see Values
    """Return the rows of each trial."""
    gathered: defaultdict[Any, list[Sequence[Any]]] = defaultdict(list)
    for row in rows:
        gathered[row[0]].append(row)
    return gathered


def _read_trial(
    number: object, config: object, decode: Decode | None, reports: Rows, transitions: Rows, notes: Rows
) -> TrialRecord:
    trial = read_whole("number", number)
    stored = read_mapping("config", config)
    status, error, seconds = Status.RUNNING, None, 0.0
    for _, name, text, spent in transitions:
        status, error = _read_status(name), None if text is None else read_text("error", text)
        seconds += read_time("seconds", spent)
    found = TrialNotes()
    for _, kind, text in notes:
        found.add(read_note(kind, text, trial))
    return TrialRecord(
        number=trial,
        config=stored if decode is None else _decode_config(stored, decode),
        status=status,
        history=tuple(
            Report(number=trial, epoch=read_whole("epoch", epoch, 1), metrics=read_metrics(metrics))
            for _, epoch, metrics in reports
        ),
        error=error,
        notes=tuple(found.remarks),
        seconds=seconds,
        attributes=found.attributes,
    )


def _read_status(name: object) -> Status:
    try:
        return Status(name)  # type: ignore[arg-type]  # what is no text is no status either
    except ValueError:
        raise StoreError(f"its status is {name!r:.40}, where one of {', '.join(Status)} belongs") from None


def _decode_config(stored: dict[str, Any], decode: Decode) -> Config:  # Any: JSON values
    try:
        return decode(stored)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise StoreError(f"its configuration cannot be read ({type(error).__name__}: {error!s:.80})") from error
