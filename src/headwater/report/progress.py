"""Showing a study while it runs: a live display on a terminal, lines of text elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headwater.report.numbers import show_clock, show_count, show_seconds, show_standing
from headwater.trials import Pulse, Silence

REDRAW_S = 1 / 8
"""The live display is drawn anew no more often than this."""
RATE_WINDOW_S = 5.0
"""The speed shown is that of the last few seconds."""
LINE_S = 5.0
"""Lines of a log are at least this far apart,"""
SILENCE_S = 30.0
"""and at most this far,"""
LINE_SHARE = 0.1
"""unless this much of the work was done in between."""

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

    def start(self, study: str, metric: str, num_trials: int | None) -> None:
        """Put up the display."""
        self.study = study
        self._metric = metric
        self._num_trials = num_trials
        self._pulse = None
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
        if pulse.seconds >= self._next_s:
            self._next_s = pulse.seconds + REDRAW_S
            self._live.refresh()

    def tell(self, text: str) -> None:
        """Write a line above the display."""
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(Text("·", style="dim"), Text(text, style="dim"))
        self._console.print(line)

    def end(self) -> None:
        """Leave the last state standing."""
        self._live.stop()

    def _draw(self) -> RenderableType:
        seconds = self._clock() - self._start_s
        if self._pulse is None:
            waiting = f"{self.study}: starting"
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
            show_count(pulse.num_lanes, "lane"),
            f"{self._speed.rate:,.0f} lane-steps/s",
        ]
        return Text(" · ".join(part for part in parts if part), style="dim", overflow="ellipsis", no_wrap=True)


class PlainLog:
    """Writes a line now and then, for logs and pipes."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.perf_counter) -> None:
        self.study: str | None = None
        """The name of the study, once it has begun."""
        self._console = console
        self._clock = clock
        self._start_s = clock()

    def start(self, study: str, metric: str, num_trials: int | None) -> None:
        """Write the first line; what was said of an earlier stage does not count for this one."""
        self.study = study
        self._metric = metric
        self._start_s = self._clock()
        self._pulse: Pulse | None = None
        self._line_s = 0.0
        self._line_share = 0.0
        self._write(
            f"study {study}: {'trials as the search asks' if num_trials is None else show_count(num_trials, 'trial')}"
        )

    def pulse(self, pulse: Pulse) -> None:
        """Take note, and write a line if there is something to tell."""
        self._pulse = pulse
        waited_s = pulse.seconds - self._line_s
        if waited_s < LINE_S:
            return
        if waited_s >= SILENCE_S or pulse.share_done - self._line_share >= LINE_SHARE:
            self._line_s, self._line_share = pulse.seconds, pulse.share_done
            self._write(self._show(pulse, done=False))

    def tell(self, text: str) -> None:
        """Write it down."""
        self._write(text)

    def end(self) -> None:
        """Write the last line."""
        if self._pulse is not None:
            self._write(self._show(self._pulse, done=True))

    def _show(self, pulse: Pulse, *, done: bool) -> str:
        rate = pulse.num_lane_steps / pulse.seconds if pulse.seconds else 0.0
        parts = [show_counts(pulse).plain.strip(), show_best(pulse, self._metric), f"{rate:,.0f} lane-steps/s"]
        if done:
            parts.append(f"ended after {show_seconds(pulse.seconds)}")
        else:
            parts.append(show_count(pulse.num_lanes, "lane"))
        if not done and pulse.share_foreseen:
            left_s = pulse.seconds * (1 - pulse.share_foreseen) / pulse.share_foreseen
            parts.append(f"about {show_seconds(left_s)} left")
        return ", ".join(part for part in parts if part)

    def _write(self, text: str) -> None:
        self._console.print(Text(f"[{show_clock(self._clock() - self._start_s)}] {text}"), soft_wrap=True)


class Speed:
    """The speed over the last few seconds, from how far things were at each moment."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, seconds: float, count: int) -> None:
        """Take in how far things are."""
        self._seen.append((seconds, count))
        while seconds - self._seen[0][0] > RATE_WINDOW_S:
            self._seen.popleft()

    @property
    def rate(self) -> float:
        """How much was done per second."""
        if not self._seen:
            return 0.0
        (earlier_s, earlier), (later_s, later) = self._seen[0], self._seen[-1]
        return (later - earlier) / (later_s - earlier_s) if later_s > earlier_s else 0.0


class Forecast:
    """When the work will be done, if it goes on as it has gone so far.

    Work is reported in strides, an epoch of a group at a time. Between two of them the time left counts down; asked
    anew at every moment, it would rise and fall.
    """

    WAIT_S = 2.0

    def __init__(self) -> None:
        self._share: float | None = None
        self._end_s: float | None = None

    def see(self, seconds: float, share: float | None) -> None:
        """Take in how much is done; None where nobody can tell."""
        if share != self._share and seconds >= self.WAIT_S:
            self._share = share
            self._end_s = seconds / share if share else None

    def left(self, seconds: float) -> float | None:
        """Return the time left; None while that is open."""
        return None if self._end_s is None else max(self._end_s - seconds, 0.0)


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
