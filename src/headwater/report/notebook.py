"""Showing a study in a notebook: one output, which is drawn anew."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from html import escape
from typing import Any, Protocol

from headwater.report.forecasting import Forecast
from headwater.report.numbers import show_clock, show_count
from headwater.report.progress import STARTING, show_best, show_counts
from headwater.trials import Pulse

REDRAW_S = 0.5
"""The output is drawn anew no more often than this: each time is a message to the browser."""
BAR_WIDTH = 30
NUM_REMARKS = 6
"""So many of the last remarks stand below the figures."""


class Display(Protocol):
    """Puts an output into a notebook, or another in its place."""

    def __call__(self, data: dict[str, str], /, *, update: bool) -> None:
        """Show data by its type, in a new output or in the one before."""


def find_display() -> Display | None:
    """Return what shows things in the notebook that this process belongs to; None where there is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display

    handles: list[Any] = []  # Any: a handle of IPython's, which has no types

    def show(data: dict[str, str], /, *, update: bool) -> None:
        if update and handles:
            handles[-1].update(data, raw=True)
        else:
            handles.append(display(data, raw=True, display_id=True))

    return show


class NotebookProgress:
    """Keeps one output of a notebook up to date."""

    def __init__(self, display: Display, clock: Callable[[], float] = time.perf_counter) -> None:
        self.study: str | None = None
        """The name of the study, once it has begun."""
        self._display = display
        self._clock = clock
        self._pulse: Pulse | None = None
        self._metric = ""
        self._start_s = clock()

    def start(self, study: str, metric: str, num_trials: int | None) -> None:
        """Put up the output; a stage of a study has one of its own."""
        self.study = study
        self._metric = metric
        self._pulse = None
        self._phase: str | None = STARTING
        self._remarks: deque[str] = deque(maxlen=NUM_REMARKS)
        self._forecast = Forecast()
        self._start_s = self._clock()
        self._next_s = 0.0
        self._draw(update=False)

    def pulse(self, pulse: Pulse) -> None:
        """Take note, and draw anew if it is time to."""
        self._pulse = pulse
        self._phase = None if self._phase == STARTING else self._phase
        self._forecast.see(pulse.seconds, pulse.share_foreseen)
        if pulse.seconds >= self._next_s:
            self._next_s = pulse.seconds + REDRAW_S
            self._draw()

    def phase(self, text: str | None) -> None:
        """Show what is done now."""
        if text is None:
            self._forecast.begin(self._clock() - self._start_s)
        if text != self._phase:
            self._phase = text
            self._draw()

    def tell(self, text: str) -> None:
        """Show it below the figures."""
        self._remarks.append(text)
        self._draw()

    def end(self) -> None:
        """Leave the last state standing; a run that was refused never began."""
        if self.study is not None:
            self._phase = "ended"
            self._draw()

    def _draw(self, *, update: bool = True) -> None:
        text = "\n".join([*self._list_figures(), *(f"· {remark}" for remark in self._remarks)])
        self._display({"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}, update=update)

    def _list_figures(self) -> list[str]:
        pulse, seconds = self._pulse, self._clock() - self._start_s
        if pulse is None:
            return [f"{self.study}: {self._phase or 'training, no report yet'} ({show_clock(seconds)})"]
        left_s = self._forecast.left(seconds)
        has_left = left_s is not None and self._phase != "ended"
        left = f", {show_clock(left_s)} left" if has_left and left_s is not None else ""
        num_full = round(pulse.share_done * BAR_WIDTH)
        bar = "█" * num_full + "░" * (BAR_WIDTH - num_full)
        lanes = show_count(pulse.num_lanes, "lane") if self._phase is None else self._phase
        best = show_best(pulse, self._metric)
        return [
            f"{self.study}  {bar}  {show_counts(pulse).plain.strip()}  {show_clock(seconds)}{left}",
            " · ".join(part for part in (best, lanes) if part),
        ]
