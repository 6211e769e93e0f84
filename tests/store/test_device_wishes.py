"""Wishes about devices in the record: they reach the run that they are meant for, once and in order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.store import Lease, Runner, Store, StudyInfo, find_runner, open_store
from headwater.store.device_wishes import (
    MOST_DEVICES,
    PRESENT,
    WISHED,
    DeviceWork,
    ShownDevices,
    read_devices,
    read_wishes,
    show_devices,
    wish_devices,
)
from headwater.store.leases import LISTEN_S
from headwater.trials import DevicePool, DeviceWish, Purpose

INFO = StudyInfo(name="first", metric="loss", mode="min", seed=7)
MORE = DeviceWish(num_more=2, asker="anna")
FEWER = DeviceWish(gone=("cpu:1",), asker="bert")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path / "study.db")
    store.create_study(INFO)
    return store


def find(store: Store) -> Runner:
    runner = find_runner(store, 1)
    assert runner is not None
    return runner


def test_wishes_are_heard_once_in_order_and_no_more_often_than_every_second(store: Store) -> None:
    now = 100.0
    with Lease(store, store.study(), clock=lambda: now) as lease:
        wish_devices(store, 1, find(store), MORE)
        wish_devices(store, 1, find(store), FEWER)
        assert lease.hear_wishes() == [MORE, FEWER]
        wish_devices(store, 1, find(store), FEWER)
        assert lease.hear_wishes() == []
        now += LISTEN_S
        assert lease.hear_wishes() == [FEWER]
        now += LISTEN_S
        assert lease.hear_wishes() == []


def test_a_later_run_does_not_hear_what_was_wished_of_an_earlier_one(store: Store) -> None:
    with Lease(store, store.study()):
        wish_devices(store, 1, find(store), MORE)
    with Lease(store, store.study()) as lease:
        assert lease.hear_wishes() == []
        assert lease.num_heard > 0


@pytest.mark.parametrize(
    "change",
    [
        {"more": "two"},
        {"more": MOST_DEVICES + 1},
        {"more": -(10**9)},
        {"gone": 3},
        {"gone": [3]},
        {"asker": None},
        {"fence": 99},
    ],
)
def test_a_wish_that_is_damaged_is_not_heard(store: Store, change: dict[str, Any]) -> None:
    with Lease(store, store.study()) as lease:
        fact = {"fence": lease.fence, "more": 1, "gone": [], "asker": "anna"}
        store.add_fact(1, WISHED, {**fact, **change})
        store.add_fact(1, WISHED, [1])
        store.add_fact(1, WISHED, fact)
        assert read_wishes(store, 1, find(store), 0)[0] == [DeviceWish(num_more=1, asker="anna")]


def test_a_run_shows_its_devices_to_others(store: Store) -> None:
    pool = DevicePool(names=("cpu:0",), leaving=("cpu:1",), num_there=4, fixed="why", spare=("cpu:2",), limit="no more")
    work = {"cpu:1": DeviceWork(purpose=Purpose.TRAIN, trials=(3, 4))}
    shown = ShownDevices(pool=pool, work=work, num_heard=7)
    with Lease(store, store.study()) as lease:
        assert read_devices(store, 1, find(store)) is None
        show_devices(store, 1, shown, lease.fence)
        assert read_devices(store, 1, find(store)) == shown
        assert read_devices(store, 1, replace(find(store), fence=99)) is None


@pytest.mark.parametrize(
    "change",
    [{"names": [1]}, {"names": None}, {"work": 3}, {"work": {"cpu:0": 1}}, {"there": "x"}, {"heard": -1}],
)
def test_devices_that_are_damaged_are_none(store: Store, change: dict[str, Any]) -> None:
    shown = ShownDevices(pool=DevicePool(names=("cpu:0",)))
    with Lease(store, store.study()) as lease:
        show_devices(store, 1, shown, lease.fence)
        assert read_devices(store, 1, find(store)) == shown
        store.add_fact(1, PRESENT, {**store.fact(1, PRESENT), **change})
        assert read_devices(store, 1, find(store)) is None
