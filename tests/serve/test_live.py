"""A study that really runs, seen and stopped from a page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page
from tests.scripts import ENDLESS
from tests.serve.conftest import Seen, serve

EPOCHS = "() => Number(document.querySelector('tr[data-trial=\"0\"]')?.cells[5].innerText ?? 0)"


def test_reports_appear_and_the_stop_button_stops(page: Page, seen: Seen, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    command = [sys.executable, "-m", "headwater", "run", "endless.py", "--executor", "inline"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "reported" in process.stdout.readline()
            with serve(tmp_path / "headwater.db") as url:
                page.goto(url)
                page.goto(f"{url.split('?')[0]}#1/table")
                page.wait_for_selector(".live.on")
                page.wait_for_selector("tr[data-trial='0']")
                before = page.evaluate(EPOCHS)
                page.wait_for_function(f"(before) => ({EPOCHS})() > before", arg=before)

                page.click("button.stop")
                page.click("button.stop")
                process.communicate()
                page.wait_for_selector(".state-ended")
                # Closed before its server is: that a connection is lost would be told as an error.
                page.goto("about:blank")
        finally:
            process.kill()
