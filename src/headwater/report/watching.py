"""Who watches a study unless somebody else is named."""

from __future__ import annotations

import sys

from headwater.trials import Silence, Watcher


def choose_default() -> Watcher:
    """Return the progress display where the standard error is a terminal, else silence."""
    if not sys.stderr.isatty():
        return Silence()
    from headwater.report.consoles import PlainConsole
    from headwater.report.progress import choose_watcher

    return choose_watcher(PlainConsole(stderr=True, highlight=False))
