"""What passes from who decides to who trains can be sent anywhere, and says no more than it must."""

from __future__ import annotations

import pickle

from headwater.trials import Device, Lane, Order, Placement, Purpose, Reported, TrialGroup

GROUP = TrialGroup(lanes=tuple(Lane(number=number, config={"lr": 0.1}, seed=0) for number in (4, 2)))


def test_a_group_is_known_by_its_first_trial() -> None:
    assert (GROUP.key, GROUP.numbers, len(GROUP)) == (4, (4, 2), 2)


def test_a_placement_trains_unless_it_says_otherwise() -> None:
    placement = Placement(key=0, study="s", groups=(GROUP,), devices=("cpu:0",))
    assert (placement.purpose, placement.seconds_left) == (Purpose.TRAIN, None)


def test_an_order_leaves_everything_as_it_is_unless_it_says_otherwise() -> None:
    order = Order()
    assert (order.leave, order.save, order.keep, order.join) == (frozenset(), (), (), ())


def test_placements_orders_and_events_are_equal_after_they_were_sent() -> None:
    values = (
        Device(name="cpu:0"),
        Placement(key=3, study="s", groups=(GROUP,), devices=("cpu:0", "cpu:1"), purpose=Purpose.PROFILE),
        Order(leave=frozenset({4}), save=(4,), keep=(2,), join=(GROUP,)),
        Reported(key=3, group=4, reports=(), num_steps=1, seconds=0.5, device="cpu:0", time_s=2.0),
    )
    assert pickle.loads(pickle.dumps(values)) == values
