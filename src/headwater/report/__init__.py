"""Read-only views of a study: progress, tables, hooks."""

from headwater.report.callbacks import Callback, check_callbacks
from headwater.report.tally import Tally
from headwater.report.watching import Pulse, Silence, Watcher, choose_default

__all__ = ["Callback", "Pulse", "Silence", "Tally", "Watcher", "check_callbacks", "choose_default"]
