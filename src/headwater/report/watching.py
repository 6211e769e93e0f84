"""Who watches a study unless somebody else is named."""

from __future__ import annotations

import logging
import sys

from headwater.trials import Watcher

LOGGER = "headwater"
"""What the logger is called that progress goes to where a program has set up logging."""


def choose_default() -> Watcher:
    """Return a display that suits where this process runs.

    That is one live output in a notebook, a live display where the standard error is a terminal, the logger
    "headwater" where logging is set up for INFO, and else lines on the standard error.
    """
    from headwater.report.consoles import PlainConsole
    from headwater.report.notebook import NotebookProgress, find_display
    from headwater.report.progress import PlainLog, choose_watcher

    display = find_display()
    if display is not None:
        return NotebookProgress(display)
    logger = logging.getLogger(LOGGER)
    if not sys.stderr.isatty() and logger.hasHandlers() and logger.isEnabledFor(logging.INFO):
        return PlainLog(logger.info)
    return choose_watcher(PlainConsole(file=sys.stderr, highlight=False))
