"""Waiting for the next change of anything that a service knows."""

from __future__ import annotations

import asyncio


class Changes:
    """Lets many wait until something has changed."""

    def __init__(self) -> None:
        self._came = asyncio.Event()

    def notify(self) -> None:
        """Wake all who wait."""
        came, self._came = self._came, asyncio.Event()
        came.set()

    def next(self) -> asyncio.Event:
        """Return what is set by the next change; to be had before looking, so that none is missed."""
        return self._came
