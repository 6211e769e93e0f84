"""The spans of a study together with those of its stages: they share devices and a clock."""

from __future__ import annotations

from headwater.store.store import Store
from headwater.trials import Span


def read_spans(store: Store, name: str | None = None) -> list[Span]:
    """Return all spans of the study called `name`, or of the newest, and of its stages; those that begin first first.

    Raises:
        StoreError: There is no such study.
    """
    whole = store.study(name)
    studies = [info for info in store.studies() if whole.name in (info.name, info.settings.get("part_of"))]
    return sorted((span for info in studies for span in store.spans(info)), key=lambda span: span.begin_s)
