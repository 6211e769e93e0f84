"""Read-only views of a study: progress, tables, hooks."""

from typing import TYPE_CHECKING

from headwater.late import load_late

if TYPE_CHECKING:
    from headwater.report.callbacks import Callback, check_callbacks
    from headwater.report.watching import choose_default
    from headwater.trials import Pulse, Silence, Watcher

__all__ = ["Callback", "Pulse", "Silence", "Watcher", "check_callbacks", "choose_default"]

if not TYPE_CHECKING:
    __getattr__ = load_late(
        __name__,
        {
            "Callback": "callbacks",
            "Pulse": "headwater.trials.watching",
            "Silence": "headwater.trials.watching",
            "Watcher": "headwater.trials.watching",
            "check_callbacks": "callbacks",
            "choose_default": "watching",
        },
    )
