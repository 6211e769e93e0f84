"""The append-only record of what happened: enough to resume from, safe to read while it is written."""

from typing import TYPE_CHECKING

from headwater.late import load_late

if TYPE_CHECKING:
    from headwater.store.changing import remove_study, rename_study, reopen_failed
    from headwater.store.folder import Folder, is_on_network, remove_folder
    from headwater.store.leases import Lease, ask_to_stop, find_asker, find_runner
    from headwater.store.recorder import Recorder, read_shown
    from headwater.store.runner import Runner
    from headwater.store.spans import read_spans
    from headwater.store.stages import find_running_stage, list_stages
    from headwater.store.state_files import StateFiles
    from headwater.store.states import KEPT, find_states, place_states
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

if not TYPE_CHECKING:
    __getattr__ = load_late(
        __name__,
        {
            "ATTRIBUTE": "values",
            "DEVICES": "values",
            "KEPT": "states",
            "Batch": "values",
            "Folder": "folder",
            "Lease": "leases",
            "Note": "values",
            "Recorder": "recorder",
            "Runner": "runner",
            "StateFiles": "state_files",
            "Store": "store",
            "StudyInfo": "values",
            "TemporaryFolder": "temporary",
            "Transition": "values",
            "ask_to_stop": "leases",
            "find_asker": "leases",
            "find_runner": "leases",
            "find_running_stage": "stages",
            "find_states": "states",
            "is_on_network": "folder",
            "list_stages": "stages",
            "open_store": "store",
            "place_states": "states",
            "read_shown": "recorder",
            "read_spans": "spans",
            "remove_folder": "folder",
            "remove_study": "changing",
            "rename_study": "changing",
            "reopen_failed": "changing",
        },
    )
