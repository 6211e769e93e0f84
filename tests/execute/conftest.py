"""What every test here leaves behind: nothing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()
