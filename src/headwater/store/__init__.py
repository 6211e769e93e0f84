"""The append-only record of what happened: enough to resume from, safe to read while it is written."""

from headwater.store.leases import Lease, Waiting, ask_to_stop, find_asker, find_runner
from headwater.store.recorder import Recorder, read_shown
from headwater.store.runner import Runner
from headwater.store.states import clear_states, has_states, states_folder
from headwater.store.store import Store, open_store
from headwater.store.values import Batch, NewTrial, Note, StudyInfo, Transition

__all__ = [
    "Batch",
    "Lease",
    "NewTrial",
    "Note",
    "Recorder",
    "Runner",
    "Store",
    "StudyInfo",
    "Transition",
    "Waiting",
    "ask_to_stop",
    "clear_states",
    "find_asker",
    "find_runner",
    "has_states",
    "open_store",
    "read_shown",
    "states_folder",
]
