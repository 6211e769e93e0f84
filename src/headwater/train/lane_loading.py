"""Loading for the lanes of a group: once for all, until the data set computes with what differs by lane; then for each.

A trial alone loads with its own values, and with random numbers that whoever loads has seeded. So a lane's turn gives
what its trial alone would get, as long as it leaves nothing behind (`fuse/turns.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from headwater.errors import LanesPart
from headwater.fuse.functorch import lanes_of
from headwater.fuse.lifting import ROSTER, differs, plain
from headwater.fuse.per_lane import gather, run_by_lane
from headwater.fuse.roster import Roster
from headwater.fuse.tools import find_unknown
from headwater.fuse.turns import Turn
from headwater.train.seeding import Randomness
from headwater.trials import Recipe

Load: TypeAlias = Callable[[int | None], Any]
"""Loads something for the lane at a place; None: for all of them."""


@dataclass(frozen=True, slots=True)
class ByLane:
    """What each lane has loaded, by its place in the group as it was then."""

    roster: Roster
    turn: Turn
    """The last lane's."""
    answers: tuple[Any, ...]

    def of(self, place: int) -> Any:
        """Return what the lane has that is at this place now."""
        return self.answers[self.roster.places_since(len(self.answers))[place]]

    def part(self, reason: str, kinds: Sequence[object]) -> LanesPart:
        """Return the signal that lanes of different kinds cannot read on as one."""
        return self.roster.part_by_turn(reason, self.turn.recipes, kinds)


class LaneLoading:
    """How the lanes of a group read one data set."""

    def __init__(self, *functions: Any) -> None:
        """Take what loads: functions, or None for none."""
        self._functions = [function for function in functions if function is not None]
        self._recipes: dict[str, Recipe] = {}
        self._roster: Roster | None = None
        """Whose lanes each load for themselves."""

    @property
    def is_by_lane(self) -> bool:
        """Whether each lane of the group that reads now loads for itself."""
        return self._roster is not None and self._roster is ROSTER.get()

    @property
    def num_turns(self) -> int:
        """How often all is loaded: once, or once for each lane."""
        return 1 if self._roster is None or not self.is_by_lane else len(self._roster)

    def load(self, function: Load, *, draws: bool = False) -> Any:
        """Load for all lanes at once, or return what each of them has loaded.

        `draws`: random numbers come from the main stream, where lanes must then stand as one afterwards too.
        """
        roster = ROSTER.get()
        if roster is None or roster.place is not None or roster.halt is not None:
            return function(None)
        if not self.is_by_lane:
            before = Randomness() if draws else None
            box = self._try(function, roster)
            if not draws and differs(box):
                box = self._begin_each(roster)
            if box:
                return box[0]
            if before is not None:
                before.restore()
        return self._load_each(function, roster, draws)

    def _try(self, function: Load, roster: Roster) -> list[Any]:
        """Load for all lanes at once; return nothing where that asks for something that differs between them."""
        try:
            box = [function(None)]
        except (LanesPart, Exception) as error:
            if roster.question is None and not ("PerLane" in str(error) and isinstance(error, _CONFUSED)):
                raise
            box = []
        return box if (box and roster.question is None) or roster.shortage else self._begin_each(roster)

    def _begin_each(self, roster: Roster) -> list[Any]:
        """Let each lane load for itself from now on."""
        asked, roster.question = roster.question, None
        recipe = None if asked is None else asked.recipe
        self._recipes = {} if recipe is None else {recipe.label: recipe}
        if unknown := find_unknown(self._functions):
            raise roster.part_by_turn(f"what {unknown} does cannot be seen", self._recipes)
        self._roster = roster
        return []

    def _load_each(self, function: Load, roster: Roster, draws: bool) -> ByLane:
        """Load for each lane, all of them from the same place in the streams of random numbers."""
        if draws and roster.dice:
            raise roster.part_by_turn("it draws random numbers where lanes stand apart in theirs", self._recipes)
        begin = Randomness() if draws else None
        turns, ends = list[Turn](), list[Randomness]()

        def load_lane(place: int) -> list[Any]:
            turns.append(turn := Turn(self._recipes))
            if begin is not None:
                begin.restore()
            with roster.taking_turn(place, turn):
                box = [plain(function(place))]
            if begin is not None:
                ends.append(Randomness())
                if not ends[-1].stands_as(ends[0]):
                    raise roster.part_by_turn("how many random numbers it draws depends on that", turn.recipes)
            if (shared := turn.find_shared(box)) is not None:
                raise roster.part_by_turn(f"it writes into a {type(shared).__name__} that it keeps", turn.recipes)
            return box

        boxes = run_by_lane(load_lane, [(place,) for place in range(len(roster))], roster)
        return ByLane(roster, turns[-1], tuple(answer for (answer,) in boxes))


def combine(loaded: ByLane) -> Any:
    """Return one batch that holds those of all lanes: what they share is plain, and what differs a lane tensor.

    Raises:
        LanesPart: They differ in more than their numbers.
    """
    flat = [tree_flatten(answer) for answer in loaded.answers]
    leaves, specs = zip(*flat, strict=True)
    if any(spec != specs[0] for spec in specs):
        raise loaded.part("it gives them batches that are made of different things", [str(spec) for spec in specs])
    return tree_unflatten([_combine(column, loaded) for column in zip(*leaves, strict=True)], specs[0])


def _combine(leaves: tuple[Any, ...], loaded: ByLane) -> Any:
    first = leaves[0]
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        return gather(leaves, loaded.roster, None)
    kinds = [f"{tuple(leaf.shape)} {leaf.dtype}" for leaf in leaves]
    if len({*kinds}) > 1:
        raise loaded.part(f"it gives batches of different shapes or types: {', '.join(sorted({*kinds}))}", kinds)
    if all(_is_equal(leaf, first) for leaf in leaves[1:]):
        return first
    return lanes_of(torch.stack(leaves))


def _is_equal(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors are the same; zeros of either sign are not, and no NaN is like another."""
    has_signs = one.is_floating_point()
    return torch.equal(one, other) and (not has_signs or torch.equal(one.signbit(), other.signbit()))


_CONFUSED = (TypeError, ValueError, AttributeError)
"""What code raises that is given a stand-in."""
