"""The devices of a run in the record: those that it has, and what others wish of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import StoreError
from headwater.store.checking import read_text, read_whole
from headwater.store.runner import Runner
from headwater.store.store import Store
from headwater.trials import DevicePool, DeviceWish, Purpose

PRESENT = "devices"
"""The key of the fact that says which devices a run has."""
WISHED = "wished devices"
"""The key of the facts that say what others wish of them."""
MOST_DEVICES = 1000
"""A run cannot be asked for more devices at once than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWork:
    """What a device does."""

    purpose: Purpose
    trials: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDevices:
    """The devices of a run, as it shows them to others."""

    pool: DevicePool
    work: Mapping[str, DeviceWork] = field(default_factory=dict)
    """What each does that is not idle."""
    num_heard: int = 0
    """Where in the record the last wish stands that the pool is made by."""


def wish_devices(store: Store, study_id: int, runner: Runner, wish: DeviceWish) -> None:
    """Ask the process that runs a study to have other devices."""
    value = {"fence": runner.fence, "more": wish.num_more, "gone": list(wish.gone), "asker": wish.asker}
    store.add_fact(study_id, WISHED, value)


def read_wishes(store: Store, study_id: int, runner: Runner, after: int) -> tuple[list[DeviceWish], int]:
    """Return what was wished of a run after a place in the record, and where the last of it stands.

    A wish is for one run, never for a later one.
    """
    wishes = []
    for place, fact in store.facts_after(study_id, WISHED, after):
        after = place
        if isinstance(fact, dict) and fact.get("fence") == runner.fence and (wish := _read_wish(fact)) is not None:
            wishes.append(wish)
    return wishes, after


def show_devices(store: Store, study_id: int, shown: ShownDevices, fence: int) -> None:
    """Write down which devices the run of this fence has."""
    pool = shown.pool
    value = {
        "fence": fence,
        "heard": shown.num_heard,
        "names": list(pool.names),
        "leaving": list(pool.leaving),
        "kind": pool.kind,
        "there": pool.num_there,
        "fixed": pool.fixed,
        "spare": list(pool.spare),
        "limit": pool.limit,
        "work": {name: {"purpose": one.purpose.value, "trials": list(one.trials)} for name, one in shown.work.items()},
    }
    store.add_fact(study_id, PRESENT, value, fence=fence)


def read_devices(store: Store, study_id: int, runner: Runner) -> ShownDevices | None:
    """Return the devices that a run shows; None where it has shown none."""
    fact = store.fact(study_id, PRESENT)
    if not isinstance(fact, dict) or fact.get("fence") != runner.fence:
        return None
    try:
        return _read_shown(fact)
    except (StoreError, ValueError, TypeError, AttributeError, KeyError):  # of all that a damaged row may hold
        return None


def _read_wish(fact: Mapping[str, Any]) -> DeviceWish | None:  # Any: JSON values
    try:
        num_more = read_whole("number of devices", fact.get("more"), -MOST_DEVICES)
        gone = _read_names(fact.get("gone"))
        wish = DeviceWish(num_more=num_more, gone=gone, asker=read_text("asker", fact.get("asker")))
    except (StoreError, TypeError):
        return None
    return wish if num_more <= MOST_DEVICES else None


def _read_shown(fact: Mapping[str, Any]) -> ShownDevices:  # Any: JSON values
    there = fact["there"]
    pool = DevicePool(
        names=_read_names(fact["names"]),
        leaving=_read_names(fact["leaving"]),
        kind=read_text("kind", fact["kind"]),
        num_there=None if there is None else read_whole("number of devices", there),
        fixed=read_text("reason", fact["fixed"]),
        spare=_read_names(fact.get("spare", ())),
        limit=read_text("reason", fact.get("limit", "")),
    )
    work = {
        read_text("device", name): DeviceWork(
            purpose=Purpose(one["purpose"]), trials=tuple(read_whole("trial", number) for number in one["trials"])
        )
        for name, one in fact["work"].items()
    }
    return ShownDevices(pool=pool, work=work, num_heard=read_whole("place", fact["heard"]))


def _read_names(value: Any) -> tuple[str, ...]:  # Any: a JSON value
    return tuple(read_text("device", name) for name in value)
