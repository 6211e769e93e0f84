"""Who rides in a group now, and what the code has asked of the lanes that they could not answer as one."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from types import FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

from headwater.errors import CannotFuseError, LanesPart
from headwater.fuse.narrowed_memory import NarrowedMemory
from headwater.fuse.shortage import is_out_of_memory
from headwater.fuse.users_code import is_library
from headwater.fuse.watches import Watches
from headwater.space import Config
from headwater.trials import Question, Recipe

Method = TypeVar("Method", bound=Callable[..., None])


def locate(reason: str, trace: TracebackType | None = None) -> str:
    """Add to a reason where in the user's code it arose: now, or where an exception was raised."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    place = None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    while trace is not None:
        if not is_library(trace.tb_frame.f_code.co_filename):
            place = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return reason if place is None else f"{reason} ({Path(place[0]).name}:{place[1]})"


@dataclass(slots=True)
class KeptFiles:
    """What lanes have written down, each for itself."""

    files: set[str] = field(default_factory=set)
    """Files of which each lane has one of its own."""
    writers: dict[int, tuple[Any, dict[int, Any]]] = field(default_factory=dict)
    """Writers for TensorBoard, and those of each trial beside them."""
    streams: list[tuple[Any, list[Path]]] = field(default_factory=list)
    """Open text files, and the copies of them that lanes have of their own."""


@dataclass(slots=True)
class ReachedCode:
    """The user's code that asks for every lane of a group."""

    functions: list[FunctionType] = field(default_factory=list)
    """Functions that run in their variant for this group."""
    classes: set[type] = field(default_factory=set)
    """Classes whose methods were looked for when one of them was called."""
    variants: Container[int] = ()
    """The codes, by `id`, that ask the tools."""
    base: FrameType | None = None
    """The frame that calls the training function."""


class Roster:
    """The lanes of one group, by their place in the group as it started.

    Lanes leave at reports and never come back, so the number of lanes in an old value tells which lanes it was made
    for; values that the user's code has kept from before are narrowed when they are touched again.
    """

    leavers: set[int]
    """Where lanes stand that have come to the end of the function in a branch which is not over."""
    let_go: Callable[[Sequence[int]], None]
    """Ends the training function for the lanes at these places."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self.configs = tuple(configs)
        self.members: tuple[int, ...] = tuple(range(len(configs)))
        self.numbers: Sequence[int] = self.members
        """The number of the trial in each lane, by its place in the group as it started."""
        self.kept = KeptFiles()
        self.leavers = set()
        self.memory = NarrowedMemory()
        self.question: Question | None = None
        self.shortage = ""
        """The traceback of the call in which memory ran out; the lanes must be fewer then."""
        self.place: int | None = None
        """Where the lane stands that code is run for by itself, such as the factory of its model; None: for all."""
        self.was_asked = False
        """Whether such code needed one value of something that differs between lanes."""
        self.code = ReachedCode()
        self.has_threads = False
        """Whether the user's code has started threads."""
        self.mask: tuple[bool, ...] | None = None
        """The lanes that a call is made for which shows or keeps something in an `if`; None: all of them."""
        self.watches = Watches()
        self.streams = (sys.stdout, sys.stderr)
        """Where text goes that only people read."""
        self.is_running = False
        """Whether the training function runs, so that text made of the lanes' values may decide something."""
        self._is_showing = False
        self._recipes_asked: dict[str, Recipe] = {}
        self._members_by_size = {len(configs): self.members}

    def __len__(self) -> int:
        return len(self.members)

    def includes(self, place: int) -> bool:
        """Tell whether a call is made for the lane at this place."""
        return self.mask is None or self.mask[place]

    @property
    def has_narrowed(self) -> bool:
        """Whether any lane has left."""
        return len(self._members_by_size) > 1

    def let_leavers_go(self) -> None:
        """End the training function for lanes that have come to its end in a branch, now that the branch is over."""
        if self.leavers:
            leavers, self.leavers = sorted(self.leavers), set()
            self.let_go(leavers)

    def narrow(self, places: Sequence[int]) -> None:
        """Keep the lanes at these places of the present membership, in order."""
        self.members = tuple(self.members[place] for place in places)
        self._members_by_size[len(self.members)] = self.members

    def places_since(self, size: int) -> list[int]:
        """Return where the present lanes stand in a value made when there were `size` lanes."""
        if size not in self._members_by_size:  # a tensor inside a vmap of the user's own shows some other dimension
            reason = "lanes have left, and whose values are in a tensor cannot be told"
            self.refuse(reason)
            raise CannotFuseError(reason)
        then = self._members_by_size[size]
        return [then.index(member) for member in self.members]

    @contextmanager
    def answering_for(self, place: int) -> Iterator[None]:
        """Let values that differ between lanes answer with those of the lane at this place for a while."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    @property
    def shows(self) -> bool:
        """Whether text is for eyes only, and may show all lanes at once."""
        return self._is_showing or not self.is_running

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Let text show all lanes for a while, for it goes where only people read it."""
        before, self._is_showing = self._is_showing, True
        try:
            yield
        finally:
            self._is_showing = before

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let no text show several lanes any more: it may become a key, or a branch."""
        self.is_running = True
        try:
            yield
        finally:
            self.is_running = False

    def note(self, recipe: Recipe | None) -> None:
        """Remember that code which runs for one lane needed a value that another lane has another of."""
        if recipe is not None:
            self._recipes_asked[recipe.label] = recipe
        self.was_asked = True

    def part_between(self, kinds: Sequence[object], reason: str) -> LanesPart | CannotFuseError:
        """Note that lanes of different kinds cannot be one, and return the signal to raise.

        The lanes part by what code that ran for each of them asked for: by what explains the kinds best. Where nothing
        does, they train apart.
        """
        best = min(self._recipes_asked.values(), key=lambda recipe: self._cost(recipe, kinds), default=None)
        if best is None or not any(one != other for one, other in self._separated(best, kinds)):
            self.refuse(reason)
            return CannotFuseError(reason)
        return self.part(best, reason)

    def part(
        self,
        recipe: Recipe | None,
        reason: str,
        answers: Sequence[object] = (),
        trace: TracebackType | None = None,
    ) -> LanesPart:
        """Note that the lanes must part, and return the signal to raise.

        The note stays even if torch or the user's code swallows the signal and fails in another way.
        """
        if recipe is not None and not answers:
            answers = [repr(self._evaluate(recipe, place)) for place in range(len(self))]
        self.question = Question(recipe, locate(reason, trace), tuple(answers))
        return LanesPart(self.question.reason)

    def part_by_loading(self, recipe: Recipe | None) -> LanesPart:
        """Note that a data set, which all lanes share, uses a value that differs by lane, and return the signal."""
        asked = "a value that lanes computed" if recipe is None else f"`{recipe.label}`, which differs by lane"
        return self.part(recipe, f"the data set uses {asked}")

    @property
    def halt(self) -> str | None:
        """Why the lanes cannot go on as one, if they cannot."""
        return "out of memory" if self.shortage else self.question.reason if self.question is not None else None

    @contextmanager
    def noticing_shortage(self) -> Iterator[None]:
        """Turn the error of running out of memory into the signal that the lanes must be fewer."""
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise self.run_short(error) from error
            raise

    def run_short(self, error: BaseException) -> LanesPart:
        """Note that memory has run out, and return the signal to raise.

        The user's code never sees the error: where a trial alone has memory enough, it would not see it either.
        """
        self.shortage = "".join(traceback.format_exception(error))
        return LanesPart("out of memory")

    def refuse(self, reason: str, trace: TracebackType | None = None) -> None:
        """Note that the lanes cannot go on as one; what they were asked first stands."""
        if self.question is None:
            self.question = Question(None, locate(reason, trace))

    def _cost(self, recipe: Recipe, kinds: Sequence[object]) -> tuple[int, int, int]:
        """Tell how badly a recipe explains kinds: pairs it should separate, pairs it should not, and how odd it were.

        Where several recipes explain them, a size makes weights more often than a name does, and a name than a rate.
        """
        separated = list(self._separated(recipe, kinds))
        num_different = sum(one != other for one, other in combinations(kinds, 2))
        num_right = sum(one != other for one, other in separated)
        oddness = {str: 1, float: 2}.get(type(self._evaluate(recipe, 0)), 0)
        return num_different - num_right, len(separated) - num_right, oddness

    def _separated(self, recipe: Recipe, kinds: Sequence[object]) -> Iterator[tuple[object, object]]:
        """Yield the kinds of every two lanes that part by the recipe."""
        answers = [repr(self._evaluate(recipe, place)) for place in range(len(self))]
        for one, other in combinations(range(len(self)), 2):
            if answers[one] != answers[other]:
                yield kinds[one], kinds[other]

    def _evaluate(self, recipe: Recipe, place: int) -> Any:
        try:
            return recipe.evaluate(self.configs[self.members[place]])
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            return error


ROSTER: ContextVar[Roster | None] = ContextVar("roster", default=None)
"""The group whose lanes this thread runs."""
IS_LOADING: ContextVar[bool] = ContextVar("is_loading", default=False)
"""Whether this thread reads a data set. All lanes share its examples, so it must not use a value that differs."""


HEEDING: set[Callable[..., None]] = set()
"""Methods that keep something, and keep it for the lanes alone that `Roster.includes` names."""


def heeds_lanes(method: Method) -> Method:
    """Let a method be called in an `if` that lanes answer differently, once for each lane of a side.

    Arguments are the lane's own plain values. The method acts on the lanes alone that `Roster.includes` names.
    """
    HEEDING.add(method)
    return method


def is_included(place: int) -> bool:
    """Tell whether a call is made for the lane at this place."""
    roster = ROSTER.get()
    return roster is None or roster.includes(place)


def _note_refusal(reason: str) -> None:
    """Remember that lanes cannot go on as one, even if the user's code catches the error."""
    roster = ROSTER.get()
    if roster is not None:
        roster.refuse(reason)


CannotFuseError.listeners.append(_note_refusal)
