"""A worker as its executor sees it: what it knows, and what it does now."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from headwater.errors import LineLost
from headwater.execute.briefs import Briefs
from headwater.execute.serving import Answer, BriefMessage, Message, Ready, RunMessage, encode_groups
from headwater.store import is_on_network
from headwater.trials import Order, Placement


class Sending(Protocol):
    """This end of a line to a worker."""

    def send(self, message: Any) -> None:  # Any: whatever can be pickled
        """Send a message."""


End = TypeVar("End", bound=Sending)


class AssignedWorker(Generic[End]):
    """This end of the line to a worker, the studies that it was told of, and the placement that it has.

    Args:
        name: The device.
        end: What is sent there goes through this.
        is_home: Whether it has the files of this process.
    """

    def __init__(self, name: str, end: End, *, is_home: bool = True) -> None:
        self.name = name
        self.end = end
        self.is_home = is_home
        self.placement: Placement | None = None
        self.message: RunMessage | None = None
        """What it is to run when it is ready."""
        self.studies: set[str] = set()
        """The studies whose briefs it has."""
        self._num_learning = 0

    @property
    def is_ready(self) -> bool:
        """Whether it knows all that it was told of."""
        return self._num_learning == 0

    @property
    def has_begun(self) -> bool:
        """Whether it was told to begin with its placement."""
        return self.message is None

    @property
    def can_begin(self) -> bool:
        """Whether it is ready for what it has not begun, and knows where to meet those that train with it."""
        message = self.message
        return message is not None and self.is_ready and (bool(message.meeting) or not message.placement.as_ranks)

    def start(self, placement: Placement, briefs: Briefs, rank: int, meeting: str, time_s: float) -> None:
        """Have a placement run there, as one of its ranks, now or when it can begin."""
        brief, packed = briefs.find(placement.study)
        self.placement, self._space, self._placed_s = placement, brief.space, time_s
        placement = replace(placement, groups=encode_groups(placement.groups, brief.space))
        self.message = RunMessage(placement, rank, meeting)
        if placement.study not in self.studies:
            self.studies.add(placement.study)
            self._num_learning += 1
            has_disk = self.is_home or is_on_network(brief.states.url)
            self.send(BriefMessage(placement.study, packed, has_disk=has_disk, has_data=self.is_home))
        if self.can_begin:
            self.begin(time_s)

    def begin(self, time_s: float) -> None:
        """Have it run its placement; the time that it took to get ready is gone."""
        assert self.message is not None
        message, self.message = self.message, None
        if (left_s := message.placement.seconds_left) is not None:
            left_s -= time_s - self._placed_s
            message = replace(message, placement=replace(message.placement, seconds_left=left_s))
        self.send(message)

    def note(self, message: Message) -> None:
        """Take in what it says of itself."""
        self._num_learning -= isinstance(message, Ready)

    def answer(self, order: Order | None) -> None:
        """Give it the order that it waits for."""
        if order is not None and order.join:
            order = replace(order, join=encode_groups(order.join, self._space))
        self.send(Answer(order))

    def send(self, message: Message) -> None:
        """Send; that it is gone is noticed when it is listened to."""
        with suppress(LineLost):
            self.end.send(message)
