"""The folder with the checkpoints of a study's trials.

A record in a file has its checkpoints beside it, so that both move together. For a server, and where the user asked for
a place, the record holds that place; in it, each database has a folder of its own, so that a copy never writes into the
original's.

A record may come from a stranger. So the names in it are single path components, and a place outside of the record's
own folder counts only if a run on this side has left a marker with the study's id there. A place on the network is not
even contacted unless the user names it. Removing a study removes files that a run wrote into a marked folder, and
nothing else.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

from headwater.errors import StoreError
from headwater.store.engine import resolve
from headwater.store.folder import Folder, as_path, is_on_network
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
MARKER = "study.json"
"""The file that holds the id of the study whose checkpoints a folder has."""
_CHECKPOINT = re.compile(r"(best-)?\d+-\d+\.safetensors(\.[0-9a-f]+\.part)?", re.ASCII)


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
    place = _locate(store, info)
    if base == recorded and asked is None:
        _require_own(place, store)
    if not is_marked(place):
        Folder(place.url).write(MARKER, _mark(place))
    return place


def find_states(store: Store, info: StudyInfo, named: str | None = None) -> StatesPlace:
    """Return where the states of a study lie.

    Args:
        store: The record.
        info: The study.
        named: The place that the user has named, which must be the record's.

    Raises:
        StoreError: The record names a place that no run of the study has used, or that leads elsewhere.
    """
    place = _locate(store, info)
    recorded = store.fact(info.id, STATES)
    if named is None:
        _require_own(place, store)
    elif recorded is not None and recorded != _as_absolute(named):
        raise StoreError(f"the record says that checkpoints are in {recorded!r:.200}, and {named!r:.200} was named")
    return place


def _locate(store: Store, info: StudyInfo) -> StatesPlace:
    base, kept = store.fact(info.id, STATES), store.fact(info.id, KEPT)
    if isinstance(base, str):
        base = f"{base.rstrip('/')}/{store.identify()}"
    else:
        base = f"{resolve(store.path or Path(DEFAULT_FOLDER))}.states"
    is_kept = isinstance(kept, dict) and all(isinstance(kept.get(key), int) for key in ("number", "epoch"))
    folder = store.fact(info.id, FOLDER) or name_folder(info)
    if not isinstance(folder, str) or folder != _plain(folder):
        raise StoreError(
            f"the record of study {info.name} names {folder!r:.80} as the folder of its checkpoints, which leads "
            "elsewhere; no run of Headwater has written that, so the record is damaged or not to be trusted"
        )
    path = as_path(f"{base}/{folder}")
    for one in [] if path is None else [path, path.parent]:
        if one.is_symlink():
            raise StoreError(
                f"{one} is a link to another place; checkpoints are read and written in real folders only; if they "
                "are to be elsewhere, name that folder yourself: states=... or --states"
            )
    return StatesPlace(
        url=f"{base}/{folder}",
        study=info.uuid,
        kept=(kept["number"], kept["epoch"]) if is_kept else None,
    )


def name_folder(info: StudyInfo) -> str:
    """Return what the folder of a new study is called."""
    return _plain(f"{_plain(info.name)[:NAME_LENGTH]}-{info.uuid[:12]}")


def is_marked(place: StatesPlace) -> bool:
    """Tell whether a run of the study has used this folder before."""
    with suppress(StoreError):
        return Folder(place.url).read(MARKER) == _mark(place)
    return False


def _mark(place: StatesPlace) -> bytes:
    return json.dumps({"study": place.study}).encode()


def _require_own(place: StatesPlace, store: Store) -> None:
    own = None if store.path is None else f"{resolve(store.path)}.states"
    is_own = own is not None and place.url.startswith(f"{own}/")
    if not store.is_shared or is_own:
        return
    if is_on_network(place.url):
        raise StoreError(
            f"the record says that checkpoints are in {place.url:.200}, which is on the network, and nothing else has "
            "named that place; if it is right, name it yourself: states=... or --states"
        )
    if not is_marked(place):
        raise StoreError(
            f"the record says that checkpoints are in {place.url}, where no run of this study has been; "
            "if that is right, name the folder yourself: states=... or --states"
        )


def remove_states(place: StatesPlace) -> bool:
    """Remove the checkpoints of a study, if a run of it has marked their folder; tell whether the folder is gone.

    Files that no run writes are left where they are, and so is the folder then.
    """
    folder = Folder(place.url)
    names = folder.list_names()
    if not names or not is_marked(place):
        return not names
    own = [name for name in names if _CHECKPOINT.fullmatch(name)]
    for name in own:
        folder.remove(name)
    if len(own) + 1 < len(names):
        return False
    folder.remove(MARKER)
    folder.remove_empty()
    return True


def _as_absolute(place: str | Path) -> str:
    """Return what names the same place from every directory."""
    text = str(place)
    path = as_path(text)
    return text if path is None else str(path.expanduser().absolute())


def _plain(name: str) -> str:
    """Return a name that every file system takes; the uuid behind it tells studies apart."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
    return plain.strip(".") or "study"
