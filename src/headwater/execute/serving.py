"""What an executor and a worker in another process say to each other, and the worker's side of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from headwater.errors import LineLost, RanksLostError, StudyError
from headwater.execute.file_requests import FileAnswer, FileRequest, RequestedFolder
from headwater.execute.lines import TwoWay
from headwater.execute.sending import receive_value
from headwater.space import Config, Space
from headwater.trials import (
    Brief,
    Ended,
    Event,
    Foreseen,
    Lane,
    Lost,
    Measured,
    Noted,
    Order,
    Placement,
    Reported,
    Saved,
    Started,
    Starting,
    Stepped,
    TrialGroup,
)

if TYPE_CHECKING:
    from headwater.train.ranks import RankGroup
    from headwater.train.worker import Worker

QUIET = (Foreseen, Noted, Starting, Stepped)
"""Events after which nothing else could be placed."""


@dataclass(frozen=True, slots=True)
class BriefMessage:
    """To a worker: what it must know of a study."""

    study: str
    packed: bytes
    copies: Mapping[str, str] = field(default_factory=dict)
    """Where the worker finds its copies of the files that the study has sent."""
    has_disk: bool = True
    """Whether it reaches the study's states by itself; else through its line."""


@dataclass(frozen=True, slots=True)
class RunMessage:
    """To a worker: what to run; its configurations are the codes of the space."""

    placement: Placement
    rank: int = 0
    """Which of the placement's devices the worker is."""
    meeting: str = ""
    """Where the ranks of the placement meet."""


@dataclass(frozen=True, slots=True)
class Answer:
    """To a worker: what came of the event that it waits with."""

    order: Order | None


@dataclass(frozen=True, slots=True)
class Told:
    """From a worker: what happened, and whether it waits for an answer."""

    event: Event
    awaits_order: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker: it has loaded a study that it was told of, or cannot."""

    fault: BaseException | None = None
    """The reason why the study cannot be loaded; raised again when the study is to run."""


@dataclass(frozen=True, slots=True)
class Idle:
    """From a worker: its placement is over."""


@dataclass(frozen=True, slots=True)
class Raised:
    """From a worker: what ends the whole study."""

    error: BaseException


Message: TypeAlias = BriefMessage | RunMessage | Answer | Told | Ready | Idle | Raised | FileRequest | FileAnswer


def serve(line: TwoWay) -> None:
    """Run placements for whoever is at the other end, until it is gone."""
    from headwater.train.machine import use_one_thread
    from headwater.train.memory import keep_freed_memory

    use_one_thread()
    keep_freed_memory()
    _serve(line, RemoteWorker())


def serve_lent(line: TwoWay) -> None:
    """Run placements on a GPU that a pipeline lends: the first message is where the pipeline tells of its stalls."""
    from headwater.train.gating import open_gate
    from headwater.train.machine import use_one_thread

    use_one_thread()
    _serve(line, RemoteWorker(open_gate(line.receive())))


def _serve(line: TwoWay, worker: RemoteWorker) -> None:
    while True:
        message = line.receive()
        if isinstance(message, BriefMessage):
            line.send(Ready(worker.learn(message, line)))
        else:
            line.send(worker.run(message, line))


class RemoteWorker:
    """The workers of all studies that this process was told of."""

    def __init__(self, gate: Callable[[], None] = lambda: None) -> None:
        self._gate = gate
        self._workers: dict[str, tuple[Worker, Space]] = {}
        self._faults: dict[str, BaseException] = {}

    def learn(self, message: BriefMessage, line: TwoWay) -> BaseException | None:
        """Load a study; return the reason where it cannot be loaded, which is raised when the study is to run."""
        from headwater.train.worker import Worker

        self._faults.pop(message.study, None)
        try:
            brief: Brief = receive_value(message.packed, message.copies)
            folder = None if message.has_disk else RequestedFolder(brief.states.url, line)
            self._workers[message.study] = Worker(brief, folder=folder, gate=self._gate), brief.space
        except Exception as error:  # whatever the user's own classes raise when they are loaded
            self._faults[message.study] = error
            return _as_portable(error)
        return None

    def run(self, message: RunMessage, line: TwoWay) -> Idle | Raised:
        """Run a placement, and say how that went."""
        placement = message.placement
        is_pack = len(placement.groups) > 1

        def tell(event: Event) -> Order | None:
            if message.rank:
                return None  # the first rank speaks for all
            awaits_order = isinstance(event, Reported | Started) or (is_pack and isinstance(event, Ended | Saved))
            line.send(Told(_as_sendable(event, space), awaits_order))
            if not awaits_order:
                return None
            order: Order | None = line.receive().order
            return None if order is None else replace(order, join=decode_groups(order.join, space))

        try:
            if placement.study in self._faults:
                raise self._faults[placement.study]
            worker, space = self._workers[placement.study]
            placement = replace(placement, groups=decode_groups(placement.groups, space))
            with _meeting(message) as ranks:
                worker.run(placement, tell, ranks)
        except LineLost:
            raise
        except RanksLostError as error:  # before they have met: one of them has died
            tell(Lost(key=placement.key, reason=str(error)))
        except BaseException as error:  # whatever it is, it is the study's to say
            return Raised(_as_portable(error))
        return Idle()


@contextmanager
def _meeting(message: RunMessage) -> Iterator[RankGroup | None]:
    """Meet the other ranks of a placement, where it has any."""
    if not message.placement.as_ranks:
        yield None
        return
    from headwater.train.ranks import RankGroup, Ranks

    group = RankGroup(Ranks(message.rank, len(message.placement.devices)), message.meeting)
    try:
        yield group
    finally:
        group.close()


def _as_sendable(event: Event, space: Space) -> Event:
    """Return the event; a recipe that cannot be sent stays here, and the lanes part by their answers."""
    ending = event.ending if isinstance(event, Ended | Measured) else None
    question = None if ending is None else ending.question
    if ending is None or question is None or question.recipe is None or question.recipe.is_portable(space.options):
        return event
    ending = replace(ending, question=replace(question, recipe=None))
    return replace(event, ending=ending)  # type: ignore[call-arg]  # of those that have one


def encode_groups(groups: tuple[TrialGroup, ...], space: Space) -> tuple[TrialGroup, ...]:
    """Return groups whose configurations are codes: another process need not have the very same values."""
    return tuple(
        TrialGroup(lanes=tuple(_rewrite(lane, lane.codes or space.encode(lane.config)) for lane in group.lanes))
        for group in groups
    )


def decode_groups(groups: tuple[TrialGroup, ...], space: Space) -> tuple[TrialGroup, ...]:
    """Return groups with their configurations, as the space of this process has the values."""
    return tuple(
        TrialGroup(lanes=tuple(_rewrite(lane, space.decode(lane.config)) for lane in group.lanes)) for group in groups
    )


def _rewrite(lane: Lane, config: Config) -> Lane:
    return Lane(number=lane.number, config=config, seed=lane.seed, start_epoch=lane.start_epoch, until=lane.until)


def _as_portable(error: BaseException) -> BaseException:
    """Return the exception if it can be sent, else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own, of a moment ago
    except Exception:  # of the many ways in which that can fail
        return StudyError(f"{type(error).__name__}: {error}")
    return error
