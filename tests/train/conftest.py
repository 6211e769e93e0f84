"""One thread, as for the parity suite."""

from __future__ import annotations

from tests.parity.conftest import one_thread

__all__ = ["one_thread"]
