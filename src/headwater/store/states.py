"""Where the states of a study's trials lie. The record says so, and each state says whose it is.

A record in a file has them beside it, so that both move together. For a server, and where a place was asked for, the
record holds that place; in it, each database has a folder of its own, so that a copy never writes into the original's.
"""

from __future__ import annotations

from pathlib import Path

from headwater.store.engine import resolve
from headwater.store.folder import Folder, as_path
from headwater.store.recorder import Recorder
from headwater.store.store import Store
from headwater.store.values import StudyInfo
from headwater.trials import StatesPlace

STATES, KEPT, FOLDER = "states", "kept", "states folder"
"""The keys of the facts: where the states lie, of which trial and epoch the weights of the best are, and what their
folder is called, where that is not the study's name of today."""
DEFAULT_FOLDER = "headwater.states"
"""Where the states of studies on a server go, in the directory of the run, if nobody says where."""
NAME_LENGTH = 60


def place_states(recorder: Recorder, asked: str | Path | None) -> StatesPlace:
    """Return where a run finds and puts states, and have the record say so; they are in memory where that is.

    Args:
        recorder: The record.
        asked: Where whoever runs the study wants them; None for where they are, or where they usually go.
    """
    store, info = recorder.store, recorder.info
    if not store.is_shared:
        return StatesPlace(url=str(asked or f"memory://headwater/{info.uuid}"), study=info.uuid)
    recorded = store.fact(info.id, STATES)
    base = recorded if asked is None else _as_absolute(asked)
    if base is None and store.path is None:
        base = _as_absolute(DEFAULT_FOLDER)
    if base != recorded:
        recorder.add_fact(STATES, base)
    return find_states(store, info)


def find_states(store: Store, info: StudyInfo) -> StatesPlace:
    """Return where the record says that the states of a study lie."""
    base, kept = store.fact(info.id, STATES), store.fact(info.id, KEPT)
    if isinstance(base, str):
        base = f"{base.rstrip('/')}/{store.identify()}"
    else:
        base = f"{resolve(store.path or Path(DEFAULT_FOLDER))}.states"
    is_kept = isinstance(kept, dict) and all(isinstance(kept.get(key), int) for key in ("number", "epoch"))
    return StatesPlace(
        url=f"{base}/{store.fact(info.id, FOLDER) or name_folder(info)}",
        study=info.uuid,
        kept=(kept["number"], kept["epoch"]) if is_kept else None,
    )


def name_folder(info: StudyInfo) -> str:
    """Return what the folder of a new study is called."""
    return f"{_plain(info.name)}-{info.uuid[:12]}"


def has_states(place: StatesPlace) -> bool:
    """Tell whether a trial under way could go on from what lies there."""
    return any(name[0].isdigit() for name in Folder(place.url).list_names())


def _as_absolute(place: str | Path) -> str:
    """Return what names the same place from every directory."""
    text = str(place)
    path = as_path(text)
    return text if path is None else str(path.expanduser().absolute())


def _plain(name: str) -> str:
    """Return a name that every file system takes; the uuid behind it tells studies apart."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
    return plain.strip(".")[:NAME_LENGTH] or "study"
