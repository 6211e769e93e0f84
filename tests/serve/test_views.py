"""Every view in a real browser: it opens, paints, shows what the command prints, and asks nobody else for anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from tests.page_studies import HOSTILE, finish_search, write_plain, write_traded, write_transferred
from tests.serve.conftest import count_painted, open_view, serve
from typer.testing import CliRunner

from headwater.cli import app
from headwater.store import ATTRIBUTE, Batch, Note, open_store
from headwater.trials import Report

VIEWS = ("overview", "curves", "timeline", "parallel", "importance", "slices", "contour", "table", "lanes", "notes")
PAINTED = {"overview": 1, "curves": 1, "timeline": 1, "parallel": 1, "slices": 2, "contour": 1, "trial/0": 2}
"""How many canvases a view has for this study."""


def ask(storage: Path, *arguments: str) -> dict[str, Any]:
    answer = CliRunner().invoke(app, [*arguments, "--json", "--storage", str(storage)])
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.mark.parametrize("view", [*VIEWS, "trial/0"])
def test_a_view_opens_and_paints(page: Page, plain_url: str, view: str) -> None:
    open_view(page, plain_url, view)
    painted = count_painted(page, PAINTED.get(view, 0))
    assert all(number > 2_000 for number in painted)


def test_what_nodes_cost_is_shown_beside_the_plan(page: Page, paid_url: str, paid: Path) -> None:
    open_view(page, paid_url, "cost")
    painted = count_painted(page, 3)
    assert all(number > 2_000 for number in painted)
    spending = ask(paid, "show", "plain")["spending"]
    tiles = dict(tile.inner_text().split("\n")[:2] for tile in page.query_selector_all(".view .tile"))
    assert tiles["spent"] == f"${spending['cost_dollars']:.2f}"
    assert tiles["planned"] == f"${spending['planned_dollars']:.2f}"
    assert tiles["budget"] == f"${spending['budget_dollars']:.2f}"
    (stage,) = [row.inner_text().split("\t") for row in page.query_selector_all(".view tbody tr")]
    assert stage[-1].endswith("/ $1.50"), "it has not ended"
    page.goto(paid_url)
    row = page.wait_for_selector("tr[data-study=plain]")
    assert row is not None
    assert "$2.00" in row.inner_text().split("\t")


def test_a_study_that_pays_nothing_has_no_tab_of_costs(page: Page, plain_url: str) -> None:
    open_view(page, plain_url, "overview")
    tabs = [tab.get_attribute("data-view") for tab in page.query_selector_all(".tab")]
    assert "notes" in tabs
    assert not {"cost", "surrogate"} & set(tabs)


def test_the_front_of_two_metrics_is_painted_and_listed(page: Page, tmp_path: Path) -> None:
    front = write_traded(tmp_path / "traded.db")
    with serve(tmp_path / "traded.db") as url:
        open_view(page, url, "front")
        (painted,) = count_painted(page, 1)
        assert painted > 2_000
        rows = [row.inner_text().split("\t") for row in page.query_selector_all(".view tbody tr")]
        assert sorted(int(row[0]) for row in rows) == front
        tiles = {one[0]: one[1] for one in (tile.inner_text().split("\n") for tile in page.query_selector_all(".tile"))}
        assert tiles["front"] == "4 trials"
        page.goto("about:blank")  # closed before its server is


def test_the_target_leads_in_a_study_with_surrogates(page: Page, tmp_path: Path) -> None:
    write_transferred(tmp_path / "wide.db")
    with serve(tmp_path / "wide.db") as url:
        page.goto(url)
        row = page.wait_for_selector("tr[data-study=plain]")
        assert row is not None
        cells = [row.query_selector(f".at-{name}") for name in ("best", "trial")]
        assert [cell.inner_text() for cell in cells if cell is not None] == ["0.9875", "target"]
        open_view(page, url, "overview")
        tiles = [tile.inner_text().split("\n") for tile in page.query_selector_all(".head .tile")]
        assert tiles[0][:2] == ["target accuracy", "0.9875"]
        assert tiles[1][0] == "best surrogate"
        page.goto("about:blank")  # closed before its server is


def test_trials_that_a_finished_search_left_are_stopped_early(page: Page, tmp_path: Path) -> None:
    write_plain(tmp_path / "over.db")
    finish_search(tmp_path / "over.db", ended_early=None)
    with serve(tmp_path / "over.db") as url:
        open_view(page, url, "table")
        assert "2 stopped early" in page.inner_text(".head .status-words")
        assert page.inner_text("tr[data-trial='2'] .status-paused").endswith("stopped early")
        page.goto("about:blank")  # closed before its server is


def test_attributes_of_a_trial_have_a_panel_of_their_own(page: Page, tmp_path: Path) -> None:
    write_plain(tmp_path / "noted.db")
    with open_store(tmp_path / "noted.db") as store:
        store.write(1, Batch(notes=(Note(kind=ATTRIBUTE, text='{"parameters": 18}', number=3),)))
    with serve(tmp_path / "noted.db") as url:
        open_view(page, url, "trial/3")
        panel = page.wait_for_selector("section:has(h2:text-is('Attributes'))")
        assert panel is not None
        assert "parameters\n18" in panel.inner_text()
        open_view(page, url, "notes")
        assert "parameters" not in page.inner_text(".view")
        page.goto("about:blank")  # closed before its server is


def test_the_first_page_lists_the_studies(page: Page, plain_url: str, plain: Path) -> None:
    page.goto(plain_url)
    row = page.wait_for_selector("tr[data-study=plain]")
    assert row is not None
    (listed,) = ask(plain, "ls")["studies"]
    shown = {name: row.query_selector(f".at-{name}") for name in ("study", "best", "trial", "trials", "trend")}
    cells = {name: cell.inner_text() for name, cell in shown.items() if cell is not None}
    assert cells["study"] == listed["study"]
    assert float(cells["best"]) == pytest.approx(listed["best"]["value"], rel=1e-3)
    assert cells["trial"] == str(listed["best"]["number"])
    assert cells["trials"] == f"✕ 1 of {listed['num_trials']}", "one has failed"
    assert row.query_selector(".trend polyline") is not None


def test_the_tiles_say_what_the_command_says(page: Page, plain_url: str, plain: Path) -> None:
    open_view(page, plain_url, "overview")
    shown = ask(plain, "show", "plain")
    tiles = [tile.inner_text().split("\n") for tile in page.query_selector_all(".head .tile")]
    assert tiles[0][0] == "best accuracy"
    assert float(tiles[0][1]) == pytest.approx(shown["best"]["value"], rel=1e-3)
    assert tiles[0][2] == f"trial {shown['best']['number']}"
    words = ", ".join(f"{count} {status}" for status, count in shown["statuses"].items() if count)
    assert words in tiles[1][-1]
    assert float(tiles[3][1].split()[0]) == pytest.approx(shown["seconds"], abs=0.06)


def test_the_table_ranks_as_the_command_does(page: Page, plain_url: str, plain: Path) -> None:
    open_view(page, plain_url, "table")
    best = ask(plain, "best", "plain", "--count", "10")["trials"]
    rows = [row.inner_text().split("\t") for row in page.query_selector_all("tr[data-trial]")[:10]]
    assert [int(row[1]) for row in rows] == [trial["number"] for trial in best]
    assert [float(row[3]) for row in rows] == pytest.approx([trial["value"] for trial in best], rel=1e-3)
    assert [float(row[5]) for row in rows] == pytest.approx([trial["config"]["lr"] for trial in best], rel=1e-3)
    assert [row[6] for row in rows] == [trial["config"]["opt"]["name"] for trial in best]


@pytest.mark.parametrize("settings", [{"judge": "best"}, {"constraints": ["loss <= 0.4"]}])
def test_what_a_study_is_judged_by_ranks_its_trials(page: Page, tmp_path: Path, settings: dict[str, Any]) -> None:
    storage = tmp_path / "judged.db"
    write_plain(storage, settings=settings)
    with open_store(storage) as store:
        worse = Report(number=21, epoch=6, metrics={"accuracy": 0.0, "loss": 1.0})
        store.write(1, Batch(reports=(worse,)))
    best = ask(storage, "best", "plain", "--count", "5")["trials"]
    with serve(storage) as url:
        open_view(page, url, "table")
        ranked = [int(row.get_attribute("data-trial") or -1) for row in page.query_selector_all("tr[data-trial]")[:5]]
        assert ranked == [trial["number"] for trial in best]
        tile = page.inner_text(".head .tile .tile-value")
        assert float(tile) == pytest.approx(ask(storage, "show", "plain")["best"]["value"], rel=1e-3)
        page.goto("about:blank")


def test_keys_go_through_trials_and_back(page: Page, plain_url: str) -> None:
    open_view(page, plain_url, "slices")
    page.goto(f"{plain_url.split('?', maxsplit=1)[0]}#1/trial/3")
    page.wait_for_selector("h1:has-text('Trial 3')")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("h1:has-text('Trial 4')")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("h1:has-text('Trial 2')")
    page.keyboard.press("Escape")
    page.wait_for_selector(".tab.on:has-text('Slices')")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")


def test_who_comes_by_keys_sees_where_they_are(page: Page, plain_url: str) -> None:
    open_view(page, plain_url, "table")
    outlines = []
    for _ in range(12):
        page.keyboard.press("Tab")
        outlines.append(page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle"))
    assert set(outlines) == {"solid"}


def test_the_table_sorts_and_filters(page: Page, plain_url: str) -> None:
    open_view(page, plain_url, "table")
    page.click("th button:has-text('lr')")
    page.click("th button:has-text('lr')")
    first = page.locator("tr[data-trial]").first
    assert first.get_attribute("data-trial") == "23"
    page.fill(".search", "opt.name=sgd lr<0.01")
    page.wait_for_function("() => document.querySelectorAll('tr[data-trial]').length === 6")
    page.fill(".search", "status=failed")
    page.wait_for_function("() => document.querySelectorAll('tr[data-trial]').length === 1")
    page.locator("tr[data-trial]").first.press("Enter")
    page.wait_for_selector("pre.error-text:has-text('five is not allowed')")


def test_a_brush_on_an_axis_filters_every_view(page: Page, plain_url: str) -> None:
    open_view(page, plain_url, "parallel")
    box = page.locator("canvas.parallel").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 54, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 54, box["y"] + 150)
    page.mouse.move(box["x"] + 54, box["y"] + 230)
    page.mouse.up()
    page.wait_for_selector(".filter-bar:has-text('lr')")
    page.keyboard.press("8")
    page.wait_for_selector("tr[data-trial]")
    kept = [int(row.get_attribute("data-trial") or -1) for row in page.query_selector_all("tr[data-trial]")]
    assert 0 < len(kept) < 24
    assert min(kept) > 8  # the upper half of the axis, and rates grow with the numbers
    page.keyboard.press("r")
    page.wait_for_function("() => document.querySelectorAll('tr[data-trial]').length === 24")


def test_the_configuration_is_copied_as_python(page: Page, plain_url: str) -> None:
    open_view(page, plain_url, "trial/4")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.bring_to_front()
    page.evaluate("() => navigator.clipboard.writeText('')")
    page.click("button:has-text('Python')")
    copied = page.wait_for_function("() => navigator.clipboard.readText()").json_value()
    assert eval(copied) == {"lr": 10 ** (-4 + 4 * 4 / 24), "opt": {"name": "AdamW"}}  # noqa: S307 - what we wrote


@pytest.mark.parametrize("view", [*VIEWS, "trial/0"])
def test_a_view_fits_a_telephone(page: Page, plain_url: str, view: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    open_view(page, plain_url, view)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("view", [*VIEWS, "trial/0", "trial/2"])
def test_hostile_names_and_values_are_text(page: Page, hostile_url: str, view: str) -> None:
    open_view(page, hostile_url, view)
    count_painted(page)
    assert page.evaluate("() => window.hacked") is None
    assert page.query_selector_all("main img, main script, main iframe") == []
    assert HOSTILE[:20] in page.inner_text("body")
    assert "\u202e" not in page.inner_text("body")


def test_dark_is_chosen_by_key(page: Page, plain_url: str) -> None:
    open_view(page, plain_url, "curves")
    before = page.evaluate("() => getComputedStyle(document.body.parentElement).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("() => getComputedStyle(document.body.parentElement).backgroundColor") != before
    assert all(number > 2_000 for number in count_painted(page))
