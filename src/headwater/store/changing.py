"""Changing what the record calls a study, taking it out, and opening what failed: all that is not appended.

Each holds the study's lease meanwhile, so none of it happens to a study that runs.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, update

from headwater.errors import NameTakenError, StoreError
from headwater.store.encoding import encode_json
from headwater.store.leases import Lease
from headwater.store.schema import FACTS, LEASES, NOTES, REPORTS, SPANS, STUDIES, TRANSITIONS, TRIALS
from headwater.store.stages import list_stages
from headwater.store.states import FOLDER, find_states, name_folder, remove_states
from headwater.store.store import Store
from headwater.store.values import Batch, Note, StudyInfo, Transition
from headwater.trials import Status

ABSENT = "a study that is not in the store cannot be changed"
TARGET = "target"
"""The key of the fact that names the study which trained the target."""


def remove_study(store: Store, info: StudyInfo, states: str | None = None) -> tuple[list[str], list[str]]:
    """Remove a study from the record with all of its stages and checkpoints.

    Args:
        store: The record.
        info: The study.
        states: Where its checkpoints are, as the user says; needed where that is on the network.

    Returns:
        The names of the removed studies, and why checkpoints of some were left where they are.

    Raises:
        StudyError: It is running.
    """
    gone, left = [*list_stages(store, info.name), info], list[str]()
    for one in gone:
        place = None
        try:
            place = find_states(store, one, states) if store.is_shared else None
        except StoreError as error:
            left.append(f"checkpoints of {one.name} were not looked for: {error}")
        with Lease(store, one), store._writing(ABSENT) as connection:
            for table in (FACTS, NOTES, REPORTS, TRANSITIONS, SPANS, TRIALS, LEASES):
                connection.execute(delete(table).where(table.c.study_id == one.id))
            connection.execute(delete(STUDIES).where(STUDIES.c.id == one.id))
        try:
            if place is not None and not remove_states(place):
                left.append(f"{place.url} was left: it holds files that no run of {one.name} has written")
        except StoreError as error:
            left.append(f"checkpoints of {one.name} were left: {error}")
    return [one.name for one in gone], left


def rename_study(store: Store, info: StudyInfo, name: str) -> list[str]:
    """Call a study otherwise, and its stages after it; return the new names. Its states stay where they are.

    Raises:
        NameTakenError: Another study has the name.
        StudyError: It is running.
    """
    stages = list_stages(store, info.name)
    names = {one.id: name + one.name.removeprefix(info.name) for one in (info, *stages)}
    taken = {one.name for one in store.studies() if one.id not in names}
    clash = next((new for new in names.values() if new in taken), None)
    if clash is not None:
        raise NameTakenError(f"there is a study named {clash!r} already; choose another name, or remove that one first")
    for one in (info, *stages):
        with Lease(store, one):
            if store.fact(one.id, FOLDER) is None:
                store.add_fact(one.id, FOLDER, name_folder(one))
            target = store.fact(one.id, TARGET)
            if isinstance(target, str):
                store.add_fact(one.id, TARGET, name + target.removeprefix(info.name))
            with store._writing(ABSENT) as connection:
                _rename(connection, one, names[one.id], part_of=name)
    return list(names.values())


def reopen_failed(store: Store, info: StudyInfo) -> list[int]:
    """Have the trials of a study that failed train again when it is resumed; return their numbers.

    Raises:
        StudyError: It is running.
    """
    failed = [trial for trial in store.trials(info.id) if trial.status is Status.FAILED]
    moves = [Transition(number=trial.number, status=Status.RUNNING, epoch=trial.epochs) for trial in failed]
    lines = {trial.number: (trial.error or "").rstrip().rpartition("\n")[2] for trial in failed}
    notes = [Note(kind="retry", text=f"trains again; it had failed: {line}", number=n) for n, line in lines.items()]
    if failed:
        with Lease(store, info) as lease:
            store.write(info.id, Batch(transitions=tuple(moves), notes=tuple(notes)), fence=lease.fence)
    return list(lines)


def _rename(connection: Connection, info: StudyInfo, name: str, part_of: str) -> None:
    settings = dict(info.settings)
    if settings.get("part_of") is not None:
        settings["part_of"] = part_of
    values = {"name": name, "settings": encode_json(settings)}
    connection.execute(update(STUDIES).where(STUDIES.c.id == info.id).values(**values))
