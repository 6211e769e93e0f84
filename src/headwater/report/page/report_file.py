"""A study as one file of HTML: the page of the dashboard with its data inside."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from headwater.errors import StudyError
from headwater.report.page.html import report_html
from headwater.report.page.importance import measure_importance
from headwater.report.page.study_page import StudyPage, make_plain
from headwater.report.reading import show_storage
from headwater.store import open_store


def make_report(storage: str, name: str | None) -> str:
    """Return the report of a study, or of the newest one.

    Raises:
        StoreError: There is no such study, or it cannot be read.
    """
    written = datetime.now().astimezone().isoformat(timespec="minutes")
    return report_html({**describe_study(storage, name), "storage": show_storage(storage), "written": written})


def describe_study(storage: str, name: str | None, *, with_importance: bool = True) -> dict[str, Any]:  # Any: JSON
    """Return what a page shows of a study, with all its metrics; importance is what takes long.

    Raises:
        StoreError: There is no such study, or it cannot be read.
    """
    with open_store(storage, create=False) as store:
        page = StudyPage(store, store.study(name))
        page.refresh()
        whole = page.whole(all_metrics=True)
    importance = measure_importance(storage, page.followed.info.name) if with_importance else None
    return make_plain({**whole, "importance": importance})


def write_report(storage: str, name: str | None, path: Path) -> int:
    """Write the report of a study into a file, and return how many bytes that took."""
    data = make_report(storage, name).encode()
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StudyError(f"{path} cannot be written: {error.strerror}; give another path") from error
    return len(data)
