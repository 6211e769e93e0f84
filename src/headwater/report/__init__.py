"""Read-only views of a study: progress, tables, hooks."""

from headwater.report.callbacks import Callback, check_callbacks
from headwater.report.watching import choose_default
from headwater.trials import Pulse, Silence, Watcher

__all__ = ["Callback", "Pulse", "Silence", "Watcher", "check_callbacks", "choose_default"]
