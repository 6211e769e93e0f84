"""The report as a file: it opens from a disk, asks for nothing, and shows what the dashboard shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page
from tests.page_studies import HOSTILE
from tests.serve.conftest import Seen, count_painted

from headwater.report.page.report_file import write_report


@pytest.mark.parametrize("view", ["overview", "curves", "importance", "table", "trial/3"])
def test_a_file_opens_without_a_server(page: Page, seen: Seen, plain: Path, tmp_path: Path, view: str) -> None:
    path = tmp_path / "report.html"
    write_report(str(plain), None, path)
    page.goto(f"{path.as_uri()}#1/{view}")
    page.wait_for_selector(".view .panel")
    assert all(number > 2_000 for number in count_painted(page))
    assert [url for url in seen.requests if not url.startswith("data:")] == [path.as_uri()]
    if view == "table":
        assert page.locator("tr[data-trial]").first.get_attribute("data-trial") == "21"


def test_a_hostile_file_shows_text(page: Page, hostile: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(str(hostile), None, path)
    page.goto(path.as_uri())
    page.wait_for_selector(".view .panel")
    assert page.evaluate("() => window.hacked") is None
    assert HOSTILE[:20] in page.inner_text("body")
