"""The append-only record of what happened: enough to resume from, safe to read while it is written."""

from headwater.store.changing import remove_study, rename_study, reopen_failed
from headwater.store.folder import Folder, is_on_network, remove_folder
from headwater.store.leases import Lease, ask_to_stop, find_asker, find_runner
from headwater.store.recorder import Recorder, read_shown
from headwater.store.runner import Runner
from headwater.store.spans import read_spans
from headwater.store.stages import find_running_stage, list_stages
from headwater.store.state_files import StateFiles
from headwater.store.states import KEPT, find_states, has_states, place_states
from headwater.store.store import Store, open_store
from headwater.store.temporary import TemporaryFolder
from headwater.store.values import ATTRIBUTE, DEVICES, Batch, Note, StudyInfo, Transition

__all__ = [
    "ATTRIBUTE",
    "DEVICES",
    "KEPT",
    "Batch",
    "Folder",
    "Lease",
    "Note",
    "Recorder",
    "Runner",
    "StateFiles",
    "Store",
    "StudyInfo",
    "TemporaryFolder",
    "Transition",
    "ask_to_stop",
    "find_asker",
    "find_runner",
    "find_running_stage",
    "find_states",
    "has_states",
    "is_on_network",
    "list_stages",
    "open_store",
    "place_states",
    "read_shown",
    "read_spans",
    "remove_folder",
    "remove_study",
    "rename_study",
    "reopen_failed",
]
