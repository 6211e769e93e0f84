"""The append-only record of what happened: enough to resume from, safe to read while it is written."""

from headwater.store.recorder import Recorder
from headwater.store.store import Store, open_store
from headwater.store.values import Batch, NewTrial, Note, StudyInfo, Transition

__all__ = ["Batch", "NewTrial", "Note", "Recorder", "Store", "StudyInfo", "Transition", "open_store"]
