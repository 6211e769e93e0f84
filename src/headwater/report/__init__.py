"""Read-only views of a study: progress, tables, hooks."""

from headwater.report.callbacks import Callback
from headwater.report.tally import Tally
from headwater.report.watching import Pulse, Silence, Watcher, choose_default

__all__ = ["Callback", "Pulse", "Silence", "Tally", "Watcher", "choose_default"]
