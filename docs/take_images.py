"""Take the pictures of the dashboard in these docs anew, of studies that this runs first: `make images`.

Chromium must be there: `apt-get install chromium`, or `.ci/with_chromium make images`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
BROWSER = "/usr/bin/chromium"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
NUM_COLOURS = 192
"""So many are kept of a picture, which makes it a third as large."""
HEADWATER = [sys.executable, "-m", "headwater"]
ASHA = ("--search", "asha", "--max-epochs", "15", "--executor", "processes")
STUDIES: Sequence[Sequence[str]] = (
    ("run", "digits.py", "--trials", "64", "--name", "digits"),
    ("run", "surrogate.py", "--name", "wide-digits"),
    ("run", "digits.py", "--trials", "200", "--name", "digits-asha", *ASHA),
)
"""Each is run from examples/; the last is the one that is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One picture: of which view, and how."""

    name: str
    view: str
    """Of the study that is looked at; nothing: all studies."""
    height: int
    theme: Literal["light", "dark"] = "light"
    is_report: bool = False
    """Of the report, not of the dashboard."""


SHOTS = (
    Shot(name="dashboard-studies", view="", height=470),
    Shot(name="dashboard-overview", view="overview", height=1010),
    Shot(name="dashboard-curves", view="curves", height=860),
    Shot(name="dashboard-timeline", view="timeline", height=750),
    Shot(name="dashboard-parallel", view="parallel", height=830, theme="dark", is_report=True),
)


def main() -> None:
    """Run the studies, and take all pictures of them."""
    with tempfile.TemporaryDirectory() as folder:
        storage = Path(folder) / "headwater.db"
        for study in STUDIES:
            call(*study, "--storage", str(storage))
        report = Path(folder) / "report.html"
        call("report", "--output", str(report), "--storage", str(storage))
        with serve(storage) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
            for shot in SHOTS:
                take(browser, shot, report.as_uri() if shot.is_report else url)
            browser.close()


def call(*arguments: str) -> None:
    """Run the command in the folder of examples."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*HEADWATER, *arguments], cwd=ROOT / "examples", env=environment, check=True)


@contextmanager
def serve(storage: Path) -> Iterator[str]:
    """Run the dashboard while pictures are taken of it."""
    command = [*HEADWATER, "dashboard", "--storage", storage.name]
    with subprocess.Popen(command, cwd=storage.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def take(browser: Browser, shot: Shot, url: str) -> None:
    """Open a view, wait until it is drawn, and keep how it looks."""
    context = browser.new_context(viewport={"width": 1280, "height": shot.height}, color_scheme=shot.theme)
    page = context.new_page()
    page.goto(url)
    if not shot.is_report:
        newest = page.wait_for_selector("tr[data-study]")
        assert newest is not None
        if shot.view:
            newest.click()
    if shot.view:
        page.click(f".tab[data-view={shot.view}]")
        page.wait_for_selector(".view canvas")
        page.wait_for_timeout(500)  # canvases are filled within a frame or two
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    context.close()
    picture.quantize(NUM_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        IMAGES / f"{shot.name}.png", optimize=True
    )


if __name__ == "__main__":
    main()
