"""The verbs that draw: what they write, and what they refuse in one line."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.page_studies import HOSTILE, write_hostile, write_paid, write_traded
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.report.figures import KINDS
from headwater.store import open_store


@pytest.fixture(autouse=True)
def place(empty_place: Path) -> Path:
    write_paid(empty_place / "headwater.db")
    return empty_place


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def refuse(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


def test_a_report_is_called_like_its_study(place: Path) -> None:
    assert invoke("report").exit_code == 0
    assert '"study":"plain"' in (place / "plain.html").read_text()


def test_a_report_of_an_unknown_study_is_refused() -> None:
    assert "no study named 'missing'" in refuse("report", "missing")


def test_a_report_with_a_hostile_name_stays_in_its_folder(tmp_path: Path) -> None:
    write_hostile(tmp_path / "other.db")
    assert invoke("report", "--storage", str(tmp_path / "other.db")).exit_code == 0
    (written,) = [file for file in Path().iterdir() if file.suffix == ".html"]
    assert not set("<>/ \x07") & set(written.name)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "front"])
def test_a_figure_is_sound_svg_with_something_on_it(place: Path, kind: str) -> None:
    assert invoke("plot", "plain", kind, "-o", "figure.svg").exit_code == 0
    root = ElementTree.parse(place / "figure.svg").getroot()
    marks = [shape for shape in root.iter() if shape.tag.rpartition("}")[2] in ("path", "rect", "circle", "polyline")]
    assert len(marks) > 2
    assert "nan" not in (place / "figure.svg").read_text().lower()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("importance", "nodes", "front")])
def test_figures_of_a_hostile_study_are_sound_svg(tmp_path: Path, kind: str) -> None:
    write_hostile(tmp_path / "other.db")
    with open_store(tmp_path / "other.db", create=False) as store:
        name = store.study().name
    result = invoke("plot", name, kind, "-o", "figure.svg", "--storage", str(tmp_path / "other.db"))
    assert result.exit_code == 0, result.stderr
    root = ElementTree.parse("figure.svg").getroot()
    assert not [shape for shape in root.iter() if shape.tag.rpartition("}")[2] in ("img", "script")]
    assert any(HOSTILE[:10] in (shape.text or "") for shape in root.iter())


def test_the_front_of_two_metrics_is_drawn(place: Path) -> None:
    front = write_traded(place / "traded.db")
    assert invoke("plot", "traded", "front", "--storage", "traded.db", "-o", "front.svg").exit_code == 0
    shapes = [shape for shape in ElementTree.parse(place / "front.svg").iter() if shape.tag.endswith("circle")]
    colours = [shape.get("fill") for shape in shapes]
    assert len(shapes) == 12
    assert colours.count(colours[-1]) == len(front)
    asked = invoke("plot", "traded", "front", "--key", "loss", "--storage", "traded.db", "-o", "same.svg")
    assert asked.exit_code == 0
    assert (place / "same.svg").read_text() == (place / "front.svg").read_text()


def test_a_front_of_one_metric_or_of_an_unknown_one_is_refused(place: Path) -> None:
    write_traded(place / "traded.db")
    assert "has one metric, and a front has several" in refuse("plot", "plain", "front")
    told = refuse("plot", "traded", "front", "--key", "cost", "--storage", "traded.db")
    assert "give --key with one of loss" in told


def test_a_slice_is_over_the_key_that_was_asked_for(place: Path) -> None:
    assert invoke("plot", "plain", "slice", "--key", "opt.name", "-o", "figure.svg").exit_code == 0
    assert "AdamW" in (place / "figure.svg").read_text()
    assert "give --key with one of lr, opt.name" in refuse("plot", "plain", "slice", "--key", "width")


def test_a_figure_that_there_is_not_is_refused() -> None:
    assert "best, curves, timeline" in refuse("plot", "plain", "pie", "-o", "figure.svg")
    assert "end it in .svg, .png or .pdf" in refuse("plot", "plain", "best", "-o", "figure.gif")


@pytest.mark.skipif(find_spec("cairosvg") is not None, reason="CairoSVG is there")
def test_a_png_without_cairosvg_is_refused_with_the_cure() -> None:
    assert "headwater[figures]" in refuse("plot", "plain", "best", "-o", "figure.png")


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "give another --port" in refuse("dashboard", "--port", str(port))


def test_a_dashboard_of_no_record_is_refused() -> None:
    assert "there is no file" in refuse("dashboard", "--storage", "missing.db")


@pytest.mark.parametrize(
    "arguments", [["ls"], ["show"], ["show", "--trial", "0"], ["show", "--trial", "2"], ["best"]], ids=" ".join
)
def test_a_hostile_study_is_text_on_a_terminal(tmp_path: Path, arguments: list[str]) -> None:
    write_hostile(tmp_path / "other.db")
    result = invoke(*arguments, "--storage", str(tmp_path / "other.db"))
    assert result.exit_code == 0, result.output
    assert "<img" in result.output
    assert not set("\x07\x1b\u202e") & set(result.output)
    assert len(result.output) < 20_000 or "--trial" in arguments, "long values are whole on a trial's own page alone"
