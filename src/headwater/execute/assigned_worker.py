"""A worker as its executor sees it: what it knows, and what it does now."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from headwater.errors import LineLost
from headwater.execute.briefs import Briefs
from headwater.execute.serving import Answer, BriefMessage, Message, Ready, RunMessage, encode_groups
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
    """

    def __init__(self, name: str, end: End) -> None:
        self.name = name
        self.end = end
        self.placement: Placement | None = None
        self.message: RunMessage | None = None
        """What it is to run when it is ready."""
        self.studies: set[str] = set()
        """The studies whose briefs it has."""
        self.fault: BaseException | None = None
        """The reason why the worker cannot run one of its studies."""
        self._num_learning = 0
        self._sending: threading.Thread | None = None

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
        """Whether it is ready for what it has not begun."""
        return self.message is not None and self.is_ready

    def start(self, placement: Placement, briefs: Briefs, rank: int, meeting: str, time_s: float) -> None:
        """Have a placement run there, as one of its ranks, now or when it can begin."""
        brief, _ = briefs.find(placement.study)
        self.placement, self._space, self._placed_s = placement, brief.space, time_s
        placement = replace(placement, groups=encode_groups(placement.groups, brief.space))
        self.message = RunMessage(placement, rank, meeting)
        self.learn(placement.study, briefs)
        if self.can_begin:
            self.begin(time_s)

    def learn(self, study: str, briefs: Briefs, *, in_background: bool = False) -> None:
        """Have the worker load a study, unless it was told of the study before.

        A brief may be larger than the buffer of the line, and a process that is starting reads nothing yet. In the
        background, a thread sends it, and the caller need not wait.
        """
        if study in self.studies:
            return
        _, packed = briefs.find(study)
        self.studies.add(study)
        self._num_learning += 1
        message = BriefMessage(study, packed)
        if not in_background:
            self.send(message)
            return
        self._await_sending()
        self._sending = threading.Thread(target=self._send, args=(message,), daemon=True)
        self._sending.start()

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
        if isinstance(message, Ready):
            self._num_learning -= 1
            self.fault = self.fault or message.fault

    def answer(self, order: Order | None) -> None:
        """Give it the order that it waits for."""
        if order is not None and order.join:
            order = replace(order, join=encode_groups(order.join, self._space))
        self.send(Answer(order))

    def send(self, message: Message) -> None:
        """Send a message. A dead worker is detected by the next `receive`, not here."""
        self._await_sending()
        self._send(message)

    def _await_sending(self) -> None:
        if self._sending is not None:
            self._sending.join()
            self._sending = None

    def _send(self, message: Message) -> None:
        # A worker that is gone, or was ended while a message was on its way, is noticed by the next `receive`.
        with suppress(LineLost):
            self.end.send(message)
