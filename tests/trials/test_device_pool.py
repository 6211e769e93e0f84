"""Which devices a run has when some are wished to come, or to go."""

from __future__ import annotations

from headwater.trials import DevicePool, DeviceWish

POOL = DevicePool(names=("cpu:0", "cpu:1", "cpu:2"))


def test_devices_that_come_are_numbered_as_those_before_them() -> None:
    assert POOL.change(DeviceWish(num_more=2)).names == ("cpu:0", "cpu:1", "cpu:2", "cpu:3", "cpu:4")


def test_the_last_ones_go_first_and_leave() -> None:
    pool = POOL.change(DeviceWish(num_more=-2))
    assert (pool.names, pool.leaving) == (("cpu:0",), ("cpu:1", "cpu:2"))


def test_those_that_are_named_go_and_others_take_their_numbers() -> None:
    pool = POOL.change(DeviceWish(gone=("cpu:0", "cpu:7")))
    assert (pool.names, pool.leaving) == (("cpu:1", "cpu:2"), ("cpu:0",))
    assert pool.change(DeviceWish(num_more=2)).names == ("cpu:0", "cpu:1", "cpu:2", "cpu:3")


def test_one_that_has_not_left_yet_stays_if_it_is_wanted_again() -> None:
    pool = POOL.change(DeviceWish(gone=("cpu:1",))).change(DeviceWish(num_more=1))
    assert pool == POOL


def test_the_last_device_stays() -> None:
    for wish in (DeviceWish(num_more=-3), DeviceWish(num_more=-9), DeviceWish(gone=POOL.names)):
        assert POOL.change(wish) == POOL


def test_what_cannot_change_does_not() -> None:
    pool = DevicePool(names=("a", "b"), fixed="they are a cluster's")
    assert pool.change(DeviceWish(num_more=1)) is pool
    assert pool.change(DeviceWish(gone=("a",))) is pool


def test_where_there_is_a_limit_only_those_come_that_have_left() -> None:
    pool = DevicePool(names=("a/cpu:0", "b/cpu:0"), leaving=("c/cpu:0",), spare=("d/cpu:0",), limit="no more")
    again = pool.change(DeviceWish(num_more=9))
    assert (again.names, again.leaving, again.spare) == (("a/cpu:0", "b/cpu:0", "c/cpu:0", "d/cpu:0"), (), ())
    gone = pool.change(DeviceWish(gone=("a/cpu:0",)))
    assert (gone.names, gone.leaving, gone.spare) == (("b/cpu:0",), ("a/cpu:0", "c/cpu:0"), ("d/cpu:0",))
