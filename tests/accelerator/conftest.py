"""The tests of this folder need the simulated accelerator: `make test-device` loads it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

collect_ignore_glob = [] if os.environ.get("HEADWATER_TEST_DEVICE") == "sim" else ["test_*.py"]


@pytest.fixture
def sim() -> Iterator[Any]:
    """Return the simulated accelerator, and give its devices their memory back afterwards."""
    module = importlib.import_module("headwater_sim")
    before = [module.get_limit(index) for index in range(module.NUM_DEVICES)]
    yield module
    for index, limit in enumerate(before):
        module.set_limit(limit, index)
