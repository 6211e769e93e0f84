"""A running study is shown: live on a terminal, in lines elsewhere, and at no cost to its steps."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from itertools import pairwise

import pytest
from rich.console import Console

from headwater.report import Pulse
from headwater.report.forecasting import Forecast, Speed
from headwater.report.notebook import NotebookProgress
from headwater.report.progress import MOST_TOLD, LiveProgress, PlainLog, choose_watcher


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def pulse(seconds: float, share: float = 0.0, *, failed: int = 0, best: float | None = None) -> Pulse:
    return Pulse(
        num_done=int(64 * share),
        num_failed=failed,
        num_total=64,
        num_lanes=32,
        num_lane_steps=int(1000 * seconds),
        seconds=seconds,
        share_done=share,
        share_foreseen=share or None,
        best_number=None if best is None else 17,
        best_value=best,
    )


def open_terminal(width: int = 80) -> Console:
    return Console(file=Terminal(), force_terminal=True, width=width, color_system=None, _environ={"TERM": "xterm"})


def text_of(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_watcher_suits_the_console() -> None:
    assert isinstance(choose_watcher(open_terminal()), LiveProgress)
    assert isinstance(choose_watcher(Console(file=StringIO())), PlainLog)
    assert isinstance(choose_watcher(Console(file=StringIO(), force_terminal=True)), PlainLog)


def test_a_dumb_terminal_gets_lines() -> None:
    console = Console(file=Terminal(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(choose_watcher(console), PlainLog)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_display_says_how_far_the_study_is(clock: Clock, width: int) -> None:
    console = open_terminal(width)
    watcher = LiveProgress(console, clock)
    watcher.start("digits-1", "accuracy", 64)
    clock.now += 10
    watcher.pulse(pulse(10.0, 0.5, failed=2, best=0.98237))
    watcher.end()
    shown = text_of(console)
    assert all(
        part in shown
        for part in ("digits-1", "32/64 trials", "2 failed", "0:10", "best accuracy 0.9824 (trial 17)", "32 lanes")
    )
    assert "lane-steps/s" in shown


def test_many_pulses_draw_no_more_than_eight_times_a_second(clock: Clock) -> None:
    console = open_terminal()
    watcher = LiveProgress(console, clock)
    watcher.start("digits-1", "accuracy", 64)
    before = text_of(console).count("digits-1")
    for number in range(1000):
        watcher.pulse(pulse(number / 1000))
    drawn = text_of(console).count("digits-1") - before
    watcher.end()
    assert 1 <= drawn <= 8


def test_remarks_stand_above_the_display_word_for_word(clock: Clock) -> None:
    console = open_terminal()
    watcher = LiveProgress(console, clock)
    watcher.start("digits-1", "accuracy", 64)
    watcher.tell("lanes part by `a[0]`: [bold] is no markup here")
    watcher.end()
    assert "lanes part by `a[0]`: [bold] is no markup here" in text_of(console)


def test_a_study_without_an_end_is_shown_too(clock: Clock) -> None:
    console = open_terminal()
    watcher = LiveProgress(console, clock)
    watcher.start("digits-1", "accuracy", None)
    watcher.pulse(
        Pulse(num_done=3, num_failed=0, num_total=None, num_lanes=1, num_lane_steps=9, seconds=1, share_done=0)
    )
    watcher.end()
    assert "3 trials" in text_of(console)


def test_a_study_that_is_interrupted_before_its_first_step_ends_quietly(clock: Clock) -> None:
    for watcher in (LiveProgress(open_terminal(), clock), PlainLog(Console(file=StringIO()), clock)):
        watcher.start("digits-1", "accuracy", 64)
        watcher.end()
        assert watcher.study == "digits-1"


def test_a_study_that_never_began_ends_quietly(clock: Clock) -> None:
    terminal, console, drawn = open_terminal(), Console(file=StringIO()), list[object]()
    notebook = NotebookProgress(lambda data, *, update: drawn.append((data, update)), clock)
    for watcher in (LiveProgress(terminal, clock), PlainLog(console, clock), notebook):
        watcher.end()
    assert text_of(terminal) + text_of(console) == ""
    assert drawn == []


def test_a_log_has_a_line_at_the_start_and_one_at_the_end(clock: Clock) -> None:
    console = Console(file=StringIO(), width=200)
    log = PlainLog(console, clock)
    log.start("digits-1", "accuracy", 64)
    log.pulse(pulse(0.5, 1.0, best=0.9))
    log.end()
    first, last = text_of(console).splitlines()
    assert first == "[0:00] study digits-1: 64 trials"
    assert all(part in last for part in ("64/64 trials", "best accuracy 0.9 (trial 17)", "ended after 500 ms"))


def test_a_log_has_a_line_for_each_tenth_and_none_in_between(clock: Clock) -> None:
    console = Console(file=StringIO(), width=200)
    log = PlainLog(console, clock)
    log.start("digits-1", "accuracy", 64)
    for step in range(1000):
        log.pulse(pulse(step / 10, step / 1000))
    assert len(text_of(console).splitlines()) == 1 + 9


def test_a_log_of_a_slow_study_shows_that_it_lives(clock: Clock) -> None:
    console = Console(file=StringIO(), width=200)
    log = PlainLog(console, clock)
    log.start("digits-1", "accuracy", 64)
    for step in range(100):
        log.pulse(pulse(float(step), 0.01))
    assert len(text_of(console).splitlines()) == 1 + 3


def test_a_stage_that_fails_at_once_does_not_end_with_the_figures_of_the_one_before(clock: Clock) -> None:
    console = Console(file=StringIO(), width=200)
    for watcher in (PlainLog(console, clock), LiveProgress(open_terminal(), clock)):
        watcher.start("digits-1", "accuracy", 64)
        watcher.pulse(pulse(0.5, 1.0, best=0.9))
        watcher.end()
        watcher.start("digits-1.target-1", "accuracy", 1)
        watcher.end()
    assert text_of(console).splitlines()[-1] == "[0:00] study digits-1.target-1: 1 trial"


def test_long_remarks_are_one_line_of_a_log(clock: Clock) -> None:
    console = Console(file=StringIO(), width=40)
    PlainLog(console, clock).tell("x " * 100 + "[red]")
    assert len(text_of(console).splitlines()) == 1


def test_speed_is_that_of_the_last_seconds() -> None:
    speed = Speed()
    for second in range(60):
        speed.see(float(second), 10 * second if second < 50 else 500 + 100 * (second - 50))
    assert speed.rate == pytest.approx(100)


def test_speed_falls_to_nothing_when_nothing_moves() -> None:
    speed = Speed()
    for second in range(20):
        speed.see(float(second), 50)
    assert speed.rate == 0


def test_the_time_left_counts_down_between_two_strides() -> None:
    forecast = Forecast()
    assert forecast.left(1.0) is None
    forecast.see(10.0, 0.5)
    forecast.see(12.0, 0.5)
    assert [forecast.left(10.0), forecast.left(12.0), forecast.left(30.0)] == [10.0, 8.0, 0.0]


def test_a_forecast_is_withdrawn_when_nobody_can_tell_any_more() -> None:
    forecast = Forecast()
    forecast.see(10.0, 0.5)
    forecast.see(12.0, None)
    assert forecast.left(12.0) is None


def test_no_time_left_is_named_while_that_is_open(clock: Clock) -> None:
    console, terminal = Console(file=StringIO(), width=200), open_terminal()
    open_ended = replace(pulse(60.0, 0.5), share_foreseen=None)
    for watcher in (PlainLog(console, clock), LiveProgress(terminal, clock)):
        watcher.start("digits-1", "accuracy", 64)
        clock.now += 60
        watcher.pulse(open_ended)
    assert "32/64 trials" in text_of(console)
    assert "32/64 trials" in text_of(terminal)
    assert "left" not in text_of(console) + text_of(terminal)


def test_time_that_was_measured_before_does_not_count() -> None:
    forecast = Forecast()
    forecast.begin(10.0)
    forecast.begin(20.0)
    forecast.see(22.0, 0.1)
    forecast.begin(21.0)
    assert forecast.left(22.0) == pytest.approx(18.0)


def test_the_time_left_waits_while_worker_processes_start() -> None:
    forecast = Forecast()
    forecast.begin(0.0)
    for second in range(3, 11):
        forecast.see(float(second), second / 100)
    forecast.pause(10.0)
    assert forecast.left(30.0) == forecast.left(10.0) == pytest.approx(90.0)
    forecast.begin(43.0)
    forecast.see(44.0, 0.11)
    assert forecast.left(44.0) == pytest.approx(89.0)


def test_what_trains_while_others_start_is_no_pause() -> None:
    forecast = Forecast()
    forecast.see(10.0, 0.1)
    forecast.pause(10.0)
    forecast.see(20.0, 0.2)
    forecast.begin(25.0)
    assert forecast.left(25.0) == pytest.approx(75.0)


def test_a_log_forecasts_by_what_is_trained_not_by_processes_that_start(clock: Clock) -> None:
    lines: list[str] = []
    log = PlainLog(lines.append, clock)
    log.start("one", "loss", 10)
    log.phase(None)
    pulses = [(10.0, 0.1), (60.0, 0.2)]
    for seconds, share in pulses:
        if seconds == 60.0:
            log.phase("starting worker processes")
            clock.now += 40.0
            log.phase(None)
        clock.now = 100.0 + seconds
        log.pulse(pulse(seconds, share))
    assert "about 1 min 20 s left" in lines[-1]


def test_the_time_left_does_not_jump_where_strides_are_unlike() -> None:
    """Epochs take one or three seconds in turn; what is left shrinks by about as much as has passed."""
    forecast, seconds, lefts = Forecast(), 0.0, []
    for stride in range(1, 40):
        seconds += 1.0 if stride % 2 else 3.0
        forecast.see(seconds, stride / 40)
        lefts.append((seconds, forecast.left(seconds)))
    for (earlier_s, earlier), (later_s, later) in pairwise(lefts[8:]):
        assert earlier is not None
        assert later is not None
        assert abs((earlier - later) - (later_s - earlier_s)) < 4


@pytest.mark.parametrize("width", [80, 160])
def test_what_is_measured_is_named_on_a_terminal(clock: Clock, width: int) -> None:
    console = open_terminal(width)
    watcher = LiveProgress(console, clock)
    watcher.start("digits-1", "accuracy", 64)
    watcher.phase("measuring group sizes, a few seconds")
    assert "digits-1: measuring group sizes, a few seconds" in text_of(console)
    watcher.phase(None)
    watcher.pulse(pulse(3.0, 0.5, best=0.5))
    watcher.phase("measuring a step of one trial")
    watcher.end()
    assert "best accuracy 0.5 (trial 17) · measuring a step of one trial" in text_of(console)


def test_a_log_names_what_is_measured_once(clock: Clock) -> None:
    console = Console(file=StringIO(), width=200)
    log = PlainLog(console, clock)
    log.start("digits-1", "accuracy", 64)
    for text in ("measuring", None, "measuring", None):
        log.phase(text)
    assert text_of(console).splitlines()[1:] == ["[0:00] measuring"]


def test_remarks_do_not_flood_a_log(clock: Clock) -> None:
    console = Console(file=StringIO(), width=200)
    log = PlainLog(console, clock)
    log.start("digits-1", "accuracy", 64)
    for number in range(1000):
        log.tell(f"remark {number}")
    lines = text_of(console).splitlines()
    assert len(lines) == 1 + MOST_TOLD + 1
    assert lines[-1].endswith("further remarks are in the record; see them with headwater show digits-1")


def test_a_notebook_is_drawn_twice_a_second_at_most_and_is_plain_text(clock: Clock) -> None:
    drawn: list[tuple[dict[str, str], bool]] = []

    def show(data: dict[str, str], /, *, update: bool) -> None:
        drawn.append((data, update))

    watcher = NotebookProgress(show, clock)
    watcher.start("digits-1", "a<b", 64)
    for number in range(1000):
        watcher.pulse(pulse(number / 1000, 0.5, best=0.5))
    watcher.end()
    assert [update for _, update in drawn] == [False] + [True] * (len(drawn) - 1)
    assert len(drawn) <= 5
    assert "best a<b 0.5 (trial 17)" in drawn[-1][0]["text/plain"]
    assert "best a&lt;b 0.5" in drawn[-1][0]["text/html"]


class FullDisk(StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_grow_does_not_end_the_study() -> None:
    log = PlainLog(Console(file=FullDisk()))
    log.start("one", "loss", 64)
    log.tell("a remark")
    log.pulse(pulse(1.0, 0.5))
    log.end()
