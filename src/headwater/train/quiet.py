"""Measuring runs the user's function a few times, and nobody wants to read each time what it prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any


@contextmanager
def quieting() -> Iterator[None]:
    """Send nowhere what is printed inside; a debugger that is asked for is heard all the same."""
    out, err, hook = sys.stdout, sys.stderr, sys.breakpointhook

    def break_aloud(*args: Any, **kwargs: Any) -> Any:
        sys.stdout, sys.stderr = out, err
        return hook(*args, **kwargs)

    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        sys.breakpointhook = break_aloud
        try:
            yield
        finally:
            sys.breakpointhook = hook
