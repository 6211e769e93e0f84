"""From events to spans: which trials sit on which device, and since when."""

from __future__ import annotations

from headwater.conduct.running import RunningPlacement
from headwater.trials import Event, Placement, Purpose, Span, SpanPurpose, Started


def follow_trials(running: RunningPlacement, event: Event, origin_s: float, *, is_over: bool) -> list[Span]:
    """Return the spans that end with an event: the trials of a placement have changed, or it is over.

    They are told in seconds since the origin.
    """
    if running.since_s is None and isinstance(event, Started):
        running.since_s = event.time_s
    numbers = running.numbers
    if not is_over and (not numbers or numbers == running.seated):  # who leaves last sits there until it is over
        return []
    spans = _end_spans(running, event.time_s, origin_s)
    running.seated = numbers
    running.since_s = None if running.since_s is None else event.time_s
    return spans


def _end_spans(running: RunningPlacement, end_s: float, origin_s: float) -> list[Span]:
    if running.since_s is None or end_s <= running.since_s:
        return []
    return [
        Span(
            study=running.placement.study,
            device=device,
            purpose=_find_purpose(running.placement),
            trials=running.seated,
            begin_s=running.since_s - origin_s,
            end_s=end_s - origin_s,
        )
        for device in running.placement.devices
    ]


def _find_purpose(placement: Placement) -> SpanPurpose:
    if placement.purpose is not Purpose.TRAIN:
        return SpanPurpose.MEASUREMENT
    if placement.as_ranks:
        return SpanPurpose.RANKS
    return SpanPurpose.PACK if len(placement.groups) > 1 else SpanPurpose.LANES
