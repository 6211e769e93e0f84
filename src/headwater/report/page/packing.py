"""What a browser is given of a study: everything at first, and then what has changed, in the same form."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from headwater.report.page.columns import LACKING, pack_floats, pack_statuses, pack_values, pack_whole
from headwater.report.page.followed import Changes, FollowedStudy, FollowedTrial
from headwater.report.timeline import Timeline
from headwater.store import Note
from headwater.trials import Span, SpanPurpose, Status
from headwater.trials.flat_rows import describe_error, flatten

Json: TypeAlias = dict[str, Any]  # Any: JSON values

MOST_TEXT = 4_000
"""A note or a traceback is cut to so many characters, its end being what says most; a trial's own page has it whole."""
MOST_ERRORS = 100
"""So many different tracebacks are shown."""
_PURPOSES = list(SpanPurpose)
_NUMBERS = re.compile(r"[0-9][0-9.]*(e[+-]?[0-9]+)?")


def pack_trials(study: FollowedStudy, changes: Changes, metrics: Collection[str]) -> Json:
    """Pack the trials that changed; of their reports those that are new, for these metrics."""
    chosen = [study.trials[number] for number in sorted(changes.starts)]
    starts = [changes.starts[trial.number] for trial in chosen]
    begun = study.info.created
    return {
        "number": pack_whole([trial.number for trial in chosen]),
        "status": pack_statuses([trial.status for trial in chosen]),
        "seconds": pack_floats([trial.seconds for trial in chosen], exact=True),
        "created": pack_floats([trial.created - begun for trial in chosen], exact=False),
        "config": _pack_configs([trial for trial in chosen if trial.number in changes.new]),
        "last": _pack_last(chosen),
        **_pack_judged(study, chosen),
        **_pack_points(chosen, starts, metrics),
        "moves": _pack_moves(chosen, begun),
    }


def pack_curves(study: FollowedStudy, metric: str) -> Json:
    """Pack what all trials reported for one metric."""
    chosen = [study.trials[number] for number in sorted(study.trials)]
    return {
        "number": pack_whole([trial.number for trial in chosen]),
        **_pack_points(chosen, [0] * len(chosen), [metric]),
    }


def pack_best(study: FollowedStudy, start: int = 0) -> Json:
    """Pack the curve of the best, from a step on."""
    steps = study.best.steps[start:]
    return {
        "start": start,
        "time": pack_floats([step.time - study.info.created for step in steps], exact=False),
        "epochs": pack_whole([step.num_epochs for step in steps]),
        "number": pack_whole([step.number for step in steps]),
        "value": pack_floats([step.value for step in steps], exact=True),
    }


def pack_timeline(timeline: Timeline) -> Json:
    """Pack which trials sat on which device, and when each was idle."""
    spans = [(place, span) for place, one in enumerate(timeline.devices) for span in one.spans]
    studies = list(dict.fromkeys(span.study for _, span in spans))
    return {
        "end_s": timeline.end_s,
        "busy_share": timeline.busy_share,
        "studies": studies,
        "devices": [
            {"device": one.device, "busy_share": one.busy_share, "busy_s": one.busy_s, "there_s": one.there_s}
            for one in timeline.devices
        ],
        "device": pack_whole([place for place, _ in spans]),
        "study": pack_whole([studies.index(span.study) for _, span in spans]),
        "purposes": [purpose.value for purpose in _PURPOSES],
        "purpose": pack_whole([_PURPOSES.index(span.purpose) for _, span in spans]),
        "begin": pack_floats([span.begin_s for _, span in spans], exact=False),
        "end": pack_floats([span.end_s for _, span in spans], exact=False),
        **_pack_lists([span for _, span in spans]),
        "changes": [{"trials": list(change.trials), "text": change.text[:MOST_TEXT]} for change in timeline.changes],
    }


def pack_notes(notes: Sequence[Note]) -> list[Json]:
    """Return each different note once, with the trials that it was made on."""
    trials: dict[tuple[str, str], dict[int, None]] = {}
    for note in notes:
        of_note = trials.setdefault((note.kind, note.text), {})
        if note.number is not None:
            of_note[note.number] = None
    return [
        {"kind": kind, "text": text[:MOST_TEXT], "trials": pack_whole(sorted(numbers))}
        for (kind, text), numbers in trials.items()
    ]


def pack_attributes(study: FollowedStudy) -> list[Json]:
    """Return the attributes of each trial that has any, as its function set them with `trial.note`."""
    noted = ((trial.number, trial.notes.attributes) for trial in study.trials.values())
    return [{"number": number, "values": attributes} for number, attributes in noted if attributes]


def pack_errors(study: FollowedStudy) -> list[Json]:
    """Return each traceback once, with the trials that failed by it or by one that differs in numbers alone."""
    alike: dict[str, dict[int, str]] = {}
    for trial in study.trials.values():
        if trial.error:
            alike.setdefault(_NUMBERS.sub("0", trial.error[-MOST_TEXT:]), {})[trial.number] = trial.error
    frequent = sorted(alike.values(), key=len, reverse=True)[:MOST_ERRORS]
    return [
        {
            "line": (describe_error(text) or "")[:MOST_TEXT],
            "text": text if len(text) <= MOST_TEXT else f"…{text[-MOST_TEXT:]}",
            "trials": pack_whole(sorted(texts)),
        }
        for texts in frequent
        for text in [texts[min(texts)]]
    ]


def count_statuses(trials: Mapping[int, FollowedTrial]) -> dict[str, int]:
    """Return how many trials stand where."""
    counts = Counter(trial.status for trial in trials.values())
    return {status.value: counts[status] for status in Status}


def _pack_points(chosen: Sequence[FollowedTrial], starts: Sequence[int], metrics: Collection[str]) -> Json:
    """Pack reports, all trials one after the other; epochs only where some are not 1, 2, 3 and so on."""
    pairs = list(zip(chosen, starts, strict=True))
    are_plain = all(trial.epochs[-1] == len(trial.epochs) for trial in chosen if trial.epochs)
    lacking = float("nan")
    return {
        "start": pack_whole(starts),
        "points": pack_whole([len(trial.epochs) - start for trial, start in pairs]),
        "epochs": None if are_plain else pack_whole([e for trial, start in pairs for e in trial.epochs[start:]]),
        "curves": {
            name: pack_floats(
                [
                    value
                    for trial, start in pairs
                    for value in trial.values.get(name, [lacking] * len(trial.epochs))[start:]
                ],
                exact=False,
            )
            for name in metrics
        },
    }


def _pack_configs(chosen: Sequence[FollowedTrial]) -> Json:
    flat = [dict(flatten(trial.config)) for trial in chosen]
    keys = dict.fromkeys(key for config in flat for key in config)
    return {
        "of": pack_whole([trial.number for trial in chosen]),
        "keys": [{"key": key, **pack_values([config.get(key, LACKING) for config in flat])} for key in keys],
    }


def _pack_last(chosen: Sequence[FollowedTrial]) -> Json:
    names = dict.fromkeys(name for trial in chosen for name in trial.values)
    return {name: pack_floats([trial.value(name) for trial in chosen], exact=True) for name in names}


def _pack_judged(study: FollowedStudy, chosen: Sequence[FollowedTrial]) -> Json:
    """Pack what trials are ranked by, where that is not the last value of the metric alone."""
    judged: Json = {}
    if study.objective.judge != "last":
        judged["value"] = pack_floats([study.value_of(trial) for trial in chosen], exact=True)
    if study.objective.constraints:
        broken = [study.objective.violation(trial.as_record().metrics) for trial in chosen]
        judged["violation"] = pack_floats(broken, exact=True)
    return judged


def _pack_moves(chosen: Sequence[FollowedTrial], begun: float) -> Json:
    moves = [move for trial in chosen for move in trial.moves]
    return {
        "count": pack_whole([len(trial.moves) for trial in chosen]),
        "status": pack_statuses([move.status for move in moves]),
        "epoch": pack_whole([move.epoch for move in moves]),
        "time": pack_floats([move.time - begun for move in moves], exact=False),
    }


def _pack_lists(spans: Sequence[Span]) -> Json:
    return {
        "count": pack_whole([len(span.trials) for span in spans]),
        "trials": pack_whole([number for span in spans for number in span.trials]),
    }
