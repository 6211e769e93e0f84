"""Two worker processes for all tests of a module, and nothing left behind by any."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.execute.lab import StayingExecutor, list_children

import headwater as hw


@pytest.fixture(autouse=True, scope="module")
def nothing_left() -> Iterator[None]:
    before = list_children()
    yield
    assert list_children() <= before


@pytest.fixture(scope="module")
def workers() -> Iterator[StayingExecutor]:
    executor = StayingExecutor(hw.ProcessExecutor(2))
    yield executor
    executor.end()
