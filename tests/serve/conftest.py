"""A browser, and dashboards for it to look at. Every page that a test opens is checked for errors at its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tests.page_studies import write_hostile, write_paid, write_plain

BROWSER = "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")  # while it runs, this thread has an event loop, and others can have none
def browser() -> Iterator[Browser]:
    if which(BROWSER) is None and not os.environ.get("CI"):
        pytest.skip(f"there is no {BROWSER}; apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield started
        started.close()


@dataclass
class Seen:
    """What a page did that it should not have done."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    may_lose_server: bool = False

    def watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda one: self.errors.append(one.text) if one.type in ("error", "warning") else None)
        page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def check(self) -> None:
        assert self.errors == []
        own = ("http://127.0.0.1:", "file://", "data:")
        assert [url for url in self.requests if not url.startswith(own)] == []


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1400, "height": 900})
    made.set_default_timeout(PATIENCE_MS)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, seen: Seen) -> Iterator[Page]:
    made = context.new_page()
    seen.watch(made)
    yield made
    made.close()
    seen.check()


@contextmanager
def serve(storage: Path, *options: str) -> Iterator[str]:
    """Run a dashboard in another process, and return the URL that it prints."""
    command = [sys.executable, "-m", "headwater", "dashboard", "--storage", str(storage), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), process.communicate()[1]
            yield url
        finally:
            process.terminate()
            process.communicate()


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "record.db"
    write_plain(path)
    return path


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "record.db"
    write_hostile(path)
    return path


@pytest.fixture(scope="session")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("paid") / "record.db"
    write_paid(path)
    return path


@pytest.fixture(scope="session")
def paid_url(paid: Path) -> Iterator[str]:
    with serve(paid) as url:
        yield url


@pytest.fixture(scope="session")
def plain_url(plain: Path) -> Iterator[str]:
    with serve(plain) as url:
        yield url


@pytest.fixture(scope="session")
def hostile_url(hostile: Path) -> Iterator[str]:
    with serve(hostile) as url:
        yield url


Open = Callable[[Page, str, str], None]


def open_view(page: Page, url: str, view: str) -> None:
    """Open a view of the first study, and wait until it is there."""
    page.goto(url)
    page.goto(f"{url.split('?', maxsplit=1)[0]}#1/{view}")
    page.wait_for_selector(".view .panel")
    if view == "importance":
        page.wait_for_selector(".view .bar-row, .view .empty-title:not(:text('Computing'))")


def count_painted(page: Page, num_canvases: int | None = None) -> list[int]:
    """Return for each canvas how many of its pixels have something on them, as soon as there are so many."""
    if num_canvases is not None:
        page.wait_for_function("(number) => document.querySelectorAll('canvas').length === number", arg=num_canvases)
    page.wait_for_function("() => Array.from(document.querySelectorAll('canvas')).every((one) => one.width > 0)")
    found = page.evaluate(
        """() => new Promise((tell) => requestAnimationFrame(() => setTimeout(() => tell(
            Array.from(document.querySelectorAll("canvas"), (one) => {
                const data = one.getContext("2d").getImageData(0, 0, one.width, one.height).data;
                let painted = 0;
                for (let place = 3; place < data.length; place += 4) painted += data[place] > 0;
                return painted;
            })), 50)))"""
    )
    return [int(number) for number in found]
