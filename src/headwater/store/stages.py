"""Which stages a study with surrogates has, and which of them runs."""

from __future__ import annotations

from headwater.store.leases import find_runner
from headwater.store.store import Store
from headwater.store.values import StudyInfo


def list_stages(store: Store, name: str) -> list[StudyInfo]:
    """Return the stages of a study with surrogates."""
    return [stage for stage in store.studies() if stage.settings.get("part_of") == name]


def find_running_stage(store: Store, info: StudyInfo) -> StudyInfo:
    """Return the stage that a study with surrogates is in; the study itself where it has none that runs."""
    stages = list_stages(store, info.name)
    running = [stage for stage in stages if (runner := find_runner(store, stage.id)) is not None and runner.may_live()]
    return running[-1] if running and find_runner(store, info.id) is None else info
