"""Between values and rows: pure functions, one pair of directions per table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import Select, select

from headwater.space import Config
from headwater.store.encoding import clean_text, decode_json, encode_json
from headwater.store.schema import NOTES, REPORTS, TRANSITIONS, TRIALS
from headwater.store.values import NewTrial, Note, StudyInfo, Transition
from headwater.trials import Report, Span, SpanPurpose, Status, TrialRecord

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
    """The study that a row of its table describes."""
    return StudyInfo(**{**row, "space": decode_json(row["space"]), "settings": decode_json(row["settings"])})


def write_trial(study_id: int, trial: NewTrial, now: float) -> Values:
    """The row of a new trial."""
    return {
        "study_id": study_id,
        "number": trial.number,
        "config": encode_json(trial.config),
        "seed": trial.seed,
        "created": now,
    }


def write_report(study_id: int, report: Report, now: float) -> Values:
    """The row of a report."""
    metrics = {name: float(value) for name, value in report.metrics.items()}
    return {
        "study_id": study_id,
        "number": report.number,
        "epoch": report.epoch,
        "metrics": encode_json(metrics),
        "time": now,
    }


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
    """The span that a row of its table describes."""
    purpose, trials = SpanPurpose(row["purpose"]), tuple(decode_json(row["trials"]))
    return Span(**{**row, "study": study, "purpose": purpose, "trials": trials})


def select_trials(study_id: int, number: int | None) -> list[Select[Any]]:  # Any: see Values
    """Ask for what `read_trials` puts together, of one trial or of all."""
    wanted = (
        (TRIALS, ("number", "config")),
        (REPORTS, ("number", "epoch", "metrics")),
        (TRANSITIONS, ("number", "status", "error", "seconds")),
        (NOTES, ("number", "text")),
    )
    queries = []
    for table, names in wanted:
        query = select(*(table.c[name] for name in names)).where(table.c.study_id == study_id)
        query = query if number is None else query.where(table.c.number == number)
        queries.append(query.order_by(*table.primary_key))
    return queries


def read_trials(
    trials: Rows, reports: Rows, transitions: Rows, notes: Rows, *, decode: Decode | None = None
) -> list[TrialRecord]:
    """Put together what four tables hold of each trial; a trial without a transition is just about to run."""
    histories: defaultdict[int, list[Report]] = defaultdict(list)
    for number, epoch, metrics in reports:
        histories[number].append(Report(number=number, epoch=epoch, metrics=decode_json(metrics)))
    outcomes: dict[int, tuple[str, str | None]] = {}
    spent: defaultdict[int, float] = defaultdict(float)
    for number, status, error, seconds in transitions:
        outcomes[number] = status, error
        spent[number] += seconds
    remarks: defaultdict[int | None, list[str]] = defaultdict(list)
    for about, text in notes:
        remarks[about].append(text)
    records = []
    for number, config in trials:
        status, error = outcomes.get(number, (Status.RUNNING, None))
        records.append(
            TrialRecord(
                number=number,
                config=decode_json(config) if decode is None else decode(decode_json(config)),
                status=Status(status),
                history=tuple(histories[number]),
                error=error,
                notes=tuple(remarks[number]),
                seconds=spent[number],
            )
        )
    return records
