"""What happens to a group with trials of several studies, as each of them hears it; and what they order, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from headwater.trials import (
    Ended,
    Ending,
    Event,
    GroupEvent,
    Lane,
    Measured,
    Order,
    Placement,
    Reported,
    Saved,
    Stepped,
)
from headwater.trials.joint_numbers import join_number, split_number

T = TypeVar("T")


def rename_lanes(member: int, lanes: Sequence[Lane]) -> list[Lane]:
    """Return lanes of the `member`th study as they are known in a group with others."""
    return [replace(lane, number=join_number(member, lane.number)) for lane in lanes] if member else list(lanes)


def split_event(event: Event, member: int, placement: Placement, num_lanes: int) -> Event:
    """Return what an event says of the trials of one study, as it would be told if they trained alone.

    `placement` is what that study has in the one that the event is of, and `num_lanes` how many lanes that has in all:
    what is spent on all of them is shared out.
    """
    share = len(placement.groups[0]) / num_lanes
    event = replace(event, key=placement.key)
    if isinstance(event, GroupEvent):
        event = replace(event, group=placement.groups[0].key)
    if isinstance(event, Stepped):
        done = _own_numbers(event.done, member)
        return replace(event, num_lane_steps=round(event.num_lane_steps * share), done=done)
    if isinstance(event, Reported):
        reports = [replace(one, number=_own(one.number)) for one in event.reports if _is_of(member, one.number)]
        num_lane_steps = round(event.num_lane_steps * share)
        return replace(event, reports=tuple(reports), seconds=event.seconds * share, num_lane_steps=num_lane_steps)
    if isinstance(event, Saved):
        epochs, kept = _select(event.epochs, member), _select(event.kept, member)
        obstacles = _select(event.obstacles, member)
        return replace(event, epochs=epochs, obstacles=obstacles, kept=kept, seconds=event.seconds * share)
    if isinstance(event, Ended):
        ending = _split_ending(event.ending, event.numbers, member, share)
        return replace(event, ending=ending, numbers=_own_numbers(event.numbers, member), seconds=event.seconds * share)
    if isinstance(event, Measured):
        found = None if event.ending is None else _split_ending(event.ending, event.numbers, member, share)
        return replace(event, ending=found, numbers=_own_numbers(event.numbers, member))
    return event


def join_orders(orders: Mapping[int, Order], reported: Sequence[int]) -> Order:
    """Return what becomes of a group of several studies; the trials of those that order nothing leave it."""
    gone = {number for number in reported if split_number(number)[0] not in orders}
    return Order(
        leave=frozenset(gone | {join_number(member, one) for member, order in orders.items() for one in order.leave}),
        save=tuple(join_number(member, one) for member, order in orders.items() for one in order.save),
        keep=tuple(join_number(member, one) for member, order in orders.items() for one in order.keep),
    )


def _split_ending(ending: Ending, numbers: Sequence[int], member: int, share: float) -> Ending:
    question = ending.question
    if question is not None and len(question.answers) == len(numbers):
        answers = [answer for one, answer in zip(numbers, question.answers, strict=True) if _is_of(member, one)]
        question = replace(question, answers=tuple(answers))
    attributes = _select(ending.attributes, member)
    num_lane_steps = round(ending.num_lane_steps * share)
    return replace(ending, question=question, attributes=attributes, num_lane_steps=num_lane_steps)


def _select(values: Mapping[int, T], member: int) -> dict[int, T]:
    return {_own(number): value for number, value in values.items() if _is_of(member, number)}


def _own_numbers(numbers: Sequence[int], member: int) -> tuple[int, ...]:
    return tuple(_own(number) for number in numbers if _is_of(member, number))


def _is_of(member: int, number: int) -> bool:
    return split_number(number)[0] == member


def _own(number: int) -> int:
    return split_number(number)[1]
