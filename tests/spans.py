"""A check of the spans that a run has recorded."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from headwater.store import open_store, read_spans


def assert_no_overlap(storage: str | Path, study: str | None = None) -> None:
    """Fail if no span was recorded, or if a device has two spans of a study and its stages at one time."""
    with open_store(storage, create=False) as store:
        spans = read_spans(store, study)
    assert spans, "the run has recorded no span"
    for device in {span.device for span in spans}:
        for one, two in pairwise(span for span in spans if span.device == device):
            assert one.end_s <= two.begin_s, f"{device} has two spans at one time: {one} and {two}"
