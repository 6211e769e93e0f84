"""The page of a service in a real browser: what runs and waits, and what a token allows to change."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page
from tests.page_studies import HOSTILE
from tests.serve.conftest import Seen
from tests.serve.service.conftest import SLOW, STUDY, RunningService, has_epochs, submit, wait_for, wait_for_end

from headwater.execute import Service
from headwater.serve.service.values import Role

pytestmark = pytest.mark.timeout(300)
"""Services and studies start as real processes, which a busy machine is slow at."""


def open_queue(page: Page, service: RunningService, user: Service) -> None:
    page.goto(f"{service.url}/#token={user.token}")
    page.wait_for_selector(".queue")


def row_of(study: str) -> str:
    return f"tr[data-study='{study}']"


def test_priority_pause_resume_and_stop_are_done_from_the_page(page: Page, service: RunningService) -> None:
    ada = service.add_user("ada")
    study = submit(ada, SLOW)
    wait_for(ada, study, has_epochs(1))
    open_queue(page, service, ada)
    row = row_of(study)
    page.wait_for_selector(f"{row}:has-text('running')")
    assert "hw_" not in page.url, "the token goes from the address"
    page.fill(f"{row} .priority", "7")
    page.press(f"{row} .priority", "Enter")
    wait_for(ada, study, lambda one: one["priority"] == 7)
    page.click(f"{row} >> text=Pause")
    wait_for(ada, study, lambda one: one["state"] == "paused")
    page.wait_for_selector(f"{row}:has-text('paused')")
    page.click(f"{row} >> text=Resume")
    wait_for(ada, study, lambda one: one["state"] == "running")
    page.wait_for_selector(f"{row}:has-text('running')")
    page.click(f"{row} .stop")
    page.click(f"{row} .stop:has-text('Everything is saved')")
    assert wait_for_end(ada, study)["state"] == "stopped"
    page.wait_for_selector(f".panel:has-text('Ended') {row}")


def test_a_viewer_sees_everything_and_can_change_nothing(page: Page, service: RunningService) -> None:
    study = submit(service.add_user("ada"), SLOW)
    open_queue(page, service, service.add_user("grace", Role.VIEWER))
    page.wait_for_selector(row_of(study))
    assert page.query_selector_all(".stop, .priority, button:has-text('Pause')") == []
    page.click(f"{row_of(study)} a")
    page.wait_for_selector(".head .tile:has-text('of ada')")
    assert page.query_selector_all(".stop, .priority, button:has-text('Pause')") == []
    page.goto("about:blank")  # closed before its server is


def test_a_study_has_a_page_of_its_own_with_the_same_buttons(page: Page, service: RunningService) -> None:
    ada = service.add_user("ada")
    study = submit(ada, SLOW)
    wait_for(ada, study, has_epochs(1))
    open_queue(page, service, ada)
    page.click(f"{row_of(study)} a")
    page.wait_for_selector(".head .state-running")
    page.wait_for_selector(".view .panel:has-text('Best so far')")
    page.fill(".head .priority", "7")
    page.press(".head .priority", "Enter")
    wait_for(ada, study, lambda one: one["priority"] == 7)
    page.click(".head >> text=Pause")
    page.wait_for_selector(".head .state-paused")
    assert ada.show(study)["state"] == "paused"
    page.keyboard.press("8")
    page.wait_for_selector("tr[data-trial='0']")
    page.click(".head >> text=Resume")
    page.wait_for_selector(".head .state-running")
    page.click(".head .stop")
    page.click(".head .stop:has-text('Everything is saved')")
    page.wait_for_selector(".head .state-stopped")
    assert ada.show(study)["state"] == "stopped"
    page.keyboard.press("s")
    page.wait_for_selector(row_of(study))
    page.goto("about:blank")  # closed before its server is


def test_a_study_of_somebody_else_has_no_page(page: Page, service: RunningService, seen: Seen) -> None:
    study = submit(service.add_user("ada"), STUDY)
    open_queue(page, service, service.add_user("grace"))
    page.goto(f"{service.url}/study#{study}/overview")
    page.wait_for_selector(".empty:has-text('there is no study')")
    page.goto("about:blank")  # closed before its server is
    assert all("404" in error for error in seen.errors)
    seen.errors.clear()


def test_a_wrong_token_is_asked_for_again(page: Page, service: RunningService, seen: Seen) -> None:
    page.goto(f"{service.url}/#token=hw_wrong")
    page.wait_for_selector("text=does not know this token")
    assert all("401" in error for error in seen.errors)
    seen.errors.clear()
    page.fill("input[type=password]", str(service.admin_token))
    page.click("text=Look")
    page.wait_for_selector(".queue:has-text('No study runs or waits')")


def test_what_a_study_says_is_text(page: Page, service: RunningService) -> None:
    ada = service.add_user("ada")
    study = submit(ada, f"raise ValueError({HOSTILE!r})")
    wait_for_end(ada, study)
    open_queue(page, service, ada)
    row = page.wait_for_selector(f"{row_of(study)}:has-text('failed')")
    assert row is not None
    assert HOSTILE[:20] in row.inner_text()
    page.click(f"{row_of(study)} >> text=Log")
    page.wait_for_selector(".log:has-text('ValueError')")
    assert page.evaluate("() => window.hacked") is None
    assert page.query_selector_all("main img, main script") == []
