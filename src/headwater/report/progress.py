"""Showing a study while it runs: a live display on a terminal, lines of text elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headwater.report.forecasting import Forecast, Speed
from headwater.report.numbers import show_clock, show_count, show_seconds, show_standing
from headwater.report.spending_tables import show_spending
from headwater.trials import Pulse, Silence

REDRAW_S = 1 / 8
"""The live display is drawn anew no more often than this."""
LINE_S = 5.0
"""Lines of a log are at least this far apart,"""
SILENCE_S = 30.0
"""and at most this far,"""
LINE_SHARE = 0.1
"""unless this much of the work was done in between."""
STARTING = "starting"
"""What is done before anything is placed; what begins so trains nothing yet."""
MOST_TOLD = 30
"""So many remarks stand in a log; the record has them all."""

RunWatcher: TypeAlias = "LiveProgress | PlainLog | Silence"
"""What watches a run that the command starts; it knows the name of the study."""


def choose_watcher(console: Console) -> LiveProgress | PlainLog:
    """Return a live display where the console is a terminal that can redraw, else one that writes lines."""
    can_redraw = console.is_terminal and console.file.isatty() and not console.is_dumb_terminal
    return LiveProgress(console) if can_redraw else PlainLog(console)


class LiveProgress:
    """Keeps two lines at the foot of a terminal up to date; remarks scroll above them.

    It draws from the caller's thread only: a thread of its own could hold a lock at the moment a data loader forks.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.perf_counter) -> None:
        self.study: str | None = None
        """The name of the study, once it has begun."""
        self._console = console
        self._clock = clock
        self._next_s = 0.0
        self._pulse: Pulse | None = None
        self._phase: str | None = STARTING

    def start(self, study: str, metric: str, num_trials: int | None) -> None:
        """Put up the display."""
        self.study = study
        self._metric = metric
        self._num_trials = num_trials
        self._pulse = None
        self._phase = STARTING
        self._next_s = 0.0
        self._start_s = self._clock()
        self._speed = Speed()
        self._forecast = Forecast()
        # The user's own prints go above the display, but only if they went to the terminal in any case.
        self._live = Live(
            console=self._console, auto_refresh=False, get_renderable=self._draw, redirect_stdout=sys.stdout.isatty()
        )
        self._live.start(refresh=True)

    def pulse(self, pulse: Pulse) -> None:
        """Take note, and draw anew if it is time to."""
        self._pulse = pulse
        self._phase = None if self._phase == STARTING else self._phase
        if pulse.seconds >= self._next_s:
            self._next_s = pulse.seconds + REDRAW_S
            self._live.refresh()

    def phase(self, text: str | None) -> None:
        """Show at once what is done now: no pulse comes while something is measured."""
        if text is None:
            self._forecast.begin(self._clock() - self._start_s)
        elif text.startswith(STARTING):
            self._forecast.pause(self._clock() - self._start_s)
        if text != self._phase:
            self._phase = text
            self._live.refresh()

    def tell(self, text: str) -> None:
        """Write a line above the display."""
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(Text("·", style="dim"), Text(text, style="dim"))
        self._console.print(line)

    def end(self) -> None:
        """Leave the last state standing; a run that was refused never began."""
        if self.study is not None:
            self._live.stop()

    def _draw(self) -> RenderableType:
        seconds = self._clock() - self._start_s
        if self._pulse is None:
            waiting = f"{self.study}: {self._phase or 'training, no report yet'}"
            return Text(waiting, style="dim", overflow="ellipsis", no_wrap=True)
        self._speed.see(seconds, self._pulse.num_lane_steps)
        self._forecast.see(seconds, self._pulse.share_foreseen)
        return Group(self._draw_bar(self._pulse, seconds), self._draw_numbers(self._pulse))

    def _draw_bar(self, pulse: Pulse, seconds: float) -> RenderableType:
        # The widths are those of the longest texts to come, so that the bar does not jump.
        line = Table.grid(padding=(0, 2, 0, 0), expand=True)
        line.add_column(no_wrap=True, overflow="ellipsis", max_width=24)
        line.add_column(ratio=1, min_width=8)
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True, justify="right", min_width=len("00:00, 00:00 left"))
        is_open = pulse.num_total is None
        bar = ProgressBar(total=1.0, completed=pulse.share_done, pulse=is_open, animation_time=seconds)
        left_s = self._forecast.left(seconds)
        left = f", {show_clock(left_s)} left" if left_s is not None and pulse.share_done < 1 else ""
        line.add_row(Text(str(self.study), "bold"), bar, show_counts(pulse), Text(f"{show_clock(seconds)}{left}"))
        return line

    def _draw_numbers(self, pulse: Pulse) -> RenderableType:
        parts = [
            show_best(pulse, self._metric),
            self._phase or "",
            show_count(pulse.num_lanes, "lane") if self._phase is None or pulse.num_lanes else "",
            show_spending(pulse.spending),
            f"{self._speed.rate:,.0f} lane-steps/s" if self._phase is None or pulse.num_lanes else "",
        ]
        return Text(" · ".join(part for part in parts if part), style="dim", overflow="ellipsis", no_wrap=True)


class PlainLog:
    """Writes a line now and then, for logs and pipes, or hands it to a function, such as that of a logger."""

    def __init__(self, out: Console | Callable[[str], object], clock: Callable[[], float] = time.perf_counter) -> None:
        self.study: str | None = None
        """The name of the study, once it has begun."""
        self._out = out
        self._phases: set[str] = set()
        self._forecast = Forecast()
        self._num_told = 0
        self._clock = clock
        self._start_s = clock()

    def start(self, study: str, metric: str, num_trials: int | None) -> None:
        """Write the first line; what was said of an earlier stage does not count for this one."""
        self.study = study
        self._metric = metric
        self._start_s = self._clock()
        self._pulse: Pulse | None = None
        self._phases = set()
        self._forecast = Forecast()
        self._num_told = 0
        self._line_s = 0.0
        self._line_share = 0.0
        self._write(
            f"study {study}: {'trials as the search asks' if num_trials is None else show_count(num_trials, 'trial')}"
        )

    def pulse(self, pulse: Pulse) -> None:
        """Take note, and write a line if there is something to tell."""
        self._pulse = pulse
        self._forecast.see(pulse.seconds, pulse.share_foreseen)
        waited_s = pulse.seconds - self._line_s
        if waited_s < LINE_S:
            return
        if waited_s >= SILENCE_S or pulse.share_done - self._line_share >= LINE_SHARE:
            self._line_s, self._line_share = pulse.seconds, pulse.share_done
            self._write(self._show(pulse, done=False))

    def phase(self, text: str | None) -> None:
        """Write down what is done now, where that is not training and was not said before."""
        if text is None:
            self._forecast.begin(self._clock() - self._start_s)
        elif text.startswith(STARTING):
            self._forecast.pause(self._clock() - self._start_s)
        if text is not None and text not in self._phases:
            self._phases.add(text)
            self._write(text)

    def tell(self, text: str) -> None:
        """Write it down, unless that was done often enough."""
        self._num_told += 1
        if self._num_told <= MOST_TOLD:
            self._write(text)
        if self._num_told == MOST_TOLD:
            self._write(f"further remarks are in the record; see them with headwater show {self.study}")

    def end(self) -> None:
        """Write the last line; a run that was refused never began."""
        if self.study is not None and self._pulse is not None:
            self._write(self._show(self._pulse, done=True))

    def _show(self, pulse: Pulse, *, done: bool) -> str:
        rate = pulse.num_lane_steps / pulse.seconds if pulse.seconds else 0.0
        parts = [show_counts(pulse).plain.strip(), show_best(pulse, self._metric), f"{rate:,.0f} lane-steps/s"]
        parts.append(show_spending(pulse.spending))
        if done:
            parts.append(f"ended after {show_seconds(pulse.seconds)}")
        else:
            parts.append(show_count(pulse.num_lanes, "lane"))
        left_s = self._forecast.left(pulse.seconds)
        if not done and left_s is not None and left_s >= 1:
            parts.append(f"about {show_seconds(left_s)} left")
        return ", ".join(part for part in parts if part)

    def _write(self, text: str) -> None:
        if not isinstance(self._out, Console):
            self._out(text)
            return
        with suppress(OSError):  # a log on a full disk is no reason to end a study
            self._out.print(Text(f"[{show_clock(self._clock() - self._start_s)}] {text}"), soft_wrap=True)


def show_counts(pulse: Pulse) -> Text:
    """How many trials are done, and how many of them failed."""
    total = "" if pulse.num_total is None else f"/{pulse.num_total}"
    text = Text(f"{pulse.num_done:>{max(len(total) - 1, 0)}}{total} trials")
    if pulse.num_failed:
        text.append(f", {pulse.num_failed} failed", style="red")
    return text


def show_best(pulse: Pulse, metric: str) -> str:
    """The best trial so far, by its last value."""
    if pulse.best_value is None or pulse.best_number is None:
        return ""
    return f"best {show_standing(metric, pulse.best_value, pulse.best_number)}"
