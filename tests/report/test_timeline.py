"""The timeline of a study: bars, gaps and shares, whatever the width."""

from __future__ import annotations

import io
from xml.etree import ElementTree

import pytest
from rich.console import Console

from headwater.report.changes import MAX_CHANGES, Change, gather_changes
from headwater.report.timeline import MOST_DEVICES, Timeline, draw_bar
from headwater.report.timeline_drawing import draw_timeline
from headwater.store import DEVICES, Note
from headwater.trials import Span, SpanPurpose

LANES, PACK, RANKS, MEASUREMENT, ABSENCE = SpanPurpose
SVG = "{http://www.w3.org/2000/svg}"


def sit(
    device: str, begin_s: float, end_s: float, purpose: SpanPurpose = LANES, trials: tuple[int, ...] = (0,)
) -> Span:
    return Span(study="s<1>", device=device, purpose=purpose, trials=trials, begin_s=begin_s, end_s=end_s)


MIXED = Timeline.of(
    "s<1>",
    [
        sit("cpu:10", 4.0, 10.0, trials=(1, 2, 3)),
        sit("cpu:9", 0.0, 2.0, MEASUREMENT),
        sit("cpu:9", 2.0, 6.0, PACK, (4, 5)),
        sit("cpu:9", 8.0, 10.0, RANKS),
    ],
)


def print_timeline(timeline: Timeline, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(timeline)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_devices_are_in_order_with_their_gaps_and_shares() -> None:
    assert [one.device for one in MIXED.devices] == ["cpu:9", "cpu:10"]
    assert [one.gaps for one in MIXED.devices] == [((6.0, 8.0),), ((0.0, 4.0),)]
    assert [one.busy_share for one in MIXED.devices] == [0.8, 0.6]
    assert MIXED.busy_share == pytest.approx(0.7)


def test_bars_show_what_took_most_of_each_cell() -> None:
    assert [draw_bar(one, 10) for one in MIXED.devices] == ["▒▒▓▓▓▓··▚▚", "····██████"]
    assert [draw_bar(one, 5) for one in MIXED.devices] == ["▒▓▓·▚", "··███"]


@pytest.mark.parametrize("width", [40, 60, 100])
def test_lines_are_as_wide_as_the_terminal(width: int) -> None:
    lines = print_timeline(MIXED, width)
    assert " ".join(" ".join(lines).split()).startswith("study s<1>: 2 devices for 10.0 s, 70.0% busy")
    end = "  60% busy, idle 4.0 s"
    assert lines[-1].endswith(end)
    assert all(len(line) <= width for line in lines)
    assert lines[-1].count("█") == pytest.approx(0.6 * (width - len("cpu:10 ") - len(end)), abs=1)


def test_of_very_many_devices_some_are_shown_and_all_are_drawn() -> None:
    timeline = Timeline.of("many", [sit(f"gpu:{place}", 0.0, 1.0) for place in range(MOST_DEVICES + 60)])
    assert print_timeline(timeline, 80)[-1] == "and 60 more; -o FILE.svg draws all"
    texts = [text.text for text in ElementTree.fromstring(draw_timeline(timeline)).iter(f"{SVG}text")]
    assert {f"gpu:{place}" for place in range(MOST_DEVICES + 60)} <= set(texts)


def test_a_drawing_has_a_bar_for_each_span_in_its_place() -> None:
    drawing = ElementTree.fromstring(draw_timeline(MIXED))
    bars = [bar for bar in drawing.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]
    assert [bar.findtext(f"{SVG}title") for bar in bars] == [
        "s<1>, measurement: trials 0; 0.000 to 2.000 s",
        "s<1>, pack: trials 4, 5; 2.000 to 6.000 s",
        "s<1>, ranks: trials 0; 8.000 to 10.000 s",
        "s<1>, lanes: trials 1, 2, 3; 4.000 to 10.000 s",
    ]
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert [width / widths[0] for width in widths] == pytest.approx([1.0, 2.0, 1.0, 3.0], rel=1e-3)
    assert float(bars[1].attrib["x"]) == pytest.approx(float(bars[0].attrib["x"]) + widths[0], abs=0.02)


def test_no_spans_are_an_empty_timeline() -> None:
    timeline = Timeline.of("none", [])
    assert timeline.busy_share == 0.0
    assert timeline.as_json() == {"study": "none", "end_s": 0.0, "busy_share": 0.0, "devices": [], "changes": []}


def note(text: str, number: int | None, kind: str = DEVICES) -> Note:
    return Note(kind=kind, text=text, number=number)


CHANGES = gather_changes([
    note("at 1.0 s on <2> devices", 7),
    note("lanes part", 7, "lanes"),
    note("at 2.0 s cut into 2 groups", 3),
    note("at 2.0 s cut into 2 groups", 4),
    note("of the study", None),
])  # fmt: skip


def test_changes_of_devices_are_told_once_with_their_trials() -> None:
    assert [str(change) for change in CHANGES] == [
        "trial 7: at 1.0 s on <2> devices",
        "2 trials: at 2.0 s cut into 2 groups",
    ]
    assert CHANGES[1].trials == (3, 4)


def test_a_timeline_says_why_trials_had_several_devices() -> None:
    spans = [span for one in MIXED.devices for span in one.spans]
    timeline = Timeline.of("s<1>", spans, CHANGES)
    assert print_timeline(timeline, 100)[-3:] == [
        "why trials had several devices",
        "· trial 7: at 1.0 s on <2> devices",
        "· 2 trials: at 2.0 s cut into 2 groups",
    ]
    assert timeline.as_json()["changes"][1] == {"trials": [3, 4], "text": "at 2.0 s cut into 2 groups"}
    assert MIXED.as_json()["changes"] == []


def test_a_drawing_says_so_below_its_scale_and_cuts_what_is_too_long() -> None:
    spans = [span for one in MIXED.devices for span in one.spans]
    changes = [*CHANGES, Change(trials=(1,), text="x" * 1000)]
    drawn = ElementTree.fromstring(draw_timeline(Timeline.of("s<1>", spans, changes)))
    texts = [(float(item.attrib["y"]), item.text or "") for item in drawn.iter(f"{SVG}text")]
    below = [text for y, text in texts if y > next(y for y, text in texts if text.startswith("seconds, of"))]
    assert below[:2] == ["why trials had several devices", "· trial 7: at 1.0 s on <2> devices"]
    assert below[-1].endswith("x…")
    assert max(y for y, _ in texts) < float(drawn.attrib["viewBox"].split()[-1])


def test_of_many_changes_the_last_are_shown() -> None:
    changes = [Change(trials=(number,), text="on 2 devices") for number in range(MAX_CHANGES + 5)]
    lines = Timeline.of("s", [sit("cpu:0", 0.0, 1.0)], changes).explain()
    assert lines[0] == f"why trials had several devices, the last of {MAX_CHANGES + 5} notes"
    assert len(lines) == 1 + MAX_CHANGES
    assert lines[-1] == f"· trial {MAX_CHANGES + 4}: on 2 devices"


def test_a_device_that_was_not_there_was_not_idle() -> None:
    spans = [sit("a", 0, 10), sit("b", 0, 4, ABSENCE, ()), sit("b", 4, 8), sit("b", 8, 11, ABSENCE, ())]
    timeline = Timeline.of("one", [*spans, sit("never", 0, 9, ABSENCE, ())])
    first, second = timeline.devices
    assert (first.busy_share, second.busy_share, timeline.busy_share) == (1.0, 1.0, 1.0)
    assert second.gaps == ()
    assert timeline.end_s == 10.0
    assert draw_bar(second, 10) == "╌╌╌╌████╌╌"
    assert "the device was not there" in draw_timeline(timeline)
