"""From events to spans: which trials sit on which device, and since when."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from headwater.conduct.absences import Absence, Absences
from headwater.conduct.running import RunningPlacement
from headwater.trials import Event, Placement, Purpose, Span, SpanPurpose, Started


@dataclass(slots=True)
class _OpenSpan:
    placement: Placement
    trials: tuple[int, ...]
    begin_s: float
    has_begun: bool


class SpanLog:
    """Makes a span whenever the trials of a placement have changed, or it is over.

    What trains begins with its first group, so that getting ready counts as idle; what is measured, when it is placed.
    """

    def __init__(self, study: str, origin_s: float, write: Callable[[Span], None], absences: Absences) -> None:
        self._study = study
        self._origin_s = origin_s
        self._write = write
        self._absences = absences
        self._open: dict[int, _OpenSpan] = {}

    def begin(self, placement: Placement, time_s: float) -> None:
        """Take in that something was placed."""
        trials = tuple(number for group in placement.groups for number in group.numbers)
        has_begun = placement.purpose is not Purpose.TRAIN
        self._open[placement.key] = _OpenSpan(placement, trials, time_s, has_begun)

    def hear(self, event: Event, running: RunningPlacement | None) -> None:
        """Take in where a placement stands after an event; None where it is over."""
        span = self._open.get(event.key)
        if span is None:  # it is over, and whatever ran it was lost since
            return
        if not span.has_begun and isinstance(event, Started):
            span.begin_s, span.has_begun = event.time_s, True
        numbers = () if running is None else running.numbers
        if running is None or (numbers and numbers != span.trials):  # who leaves last sits there until it is over
            self._close(span, event.time_s)
            span.trials, span.begin_s = numbers, event.time_s
        if running is None:
            del self._open[event.key]

    def see_devices(self, devices: Collection[str], time_s: float) -> None:
        """Take in which devices there are now."""
        self._write_absences(self._absences.see(devices, time_s))

    def end(self, time_s: float) -> None:
        """Take in that the run is over."""
        self._write_absences(self._absences.report(time_s))

    def _write_absences(self, absences: Sequence[Absence]) -> None:
        for one in absences:
            begin_s, end_s = one.begin_s - self._origin_s, one.end_s - self._origin_s
            purpose = SpanPurpose.ABSENCE
            self._write(
                Span(study=self._study, device=one.device, purpose=purpose, trials=(), begin_s=begin_s, end_s=end_s)
            )

    def _close(self, span: _OpenSpan, end_s: float) -> None:
        if not span.has_begun or end_s <= span.begin_s:
            return
        is_pack = len(span.placement.groups) > 1
        purpose = SpanPurpose.PACK if is_pack else SpanPurpose.LANES
        purpose = SpanPurpose.RANKS if span.placement.as_ranks else purpose
        if span.placement.purpose is not Purpose.TRAIN:
            purpose = SpanPurpose.MEASUREMENT
        for device in span.placement.devices:
            self._write(
                Span(
                    study=self._study,
                    device=device,
                    purpose=purpose,
                    trials=span.trials,
                    begin_s=span.begin_s - self._origin_s,
                    end_s=end_s - self._origin_s,
                )
            )
