"""Who rides in a group now, and what the code has asked of the lanes that they could not answer as one."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import LanesPart
from headwater.space import Config
from headwater.trials import Question, Recipe


class Roster:
    """The lanes of one group, by their place in the group as it started.

    Lanes leave at reports and never come back, so the number of lanes in an old value tells which lanes it was made
    for; values that the user's code has kept from before are narrowed when they are touched again.
    """

    def __init__(self, configs: Sequence[Config]) -> None:
        self.configs = tuple(configs)
        self.members: tuple[int, ...] = tuple(range(len(configs)))
        self.question: Question | None = None
        self._members_by_size = {len(configs): self.members}

    def __len__(self) -> int:
        return len(self.members)

    @property
    def has_narrowed(self) -> bool:
        """Whether any lane has left."""
        return len(self._members_by_size) > 1

    def narrow(self, places: Sequence[int]) -> None:
        """Keep the lanes at these places of the present membership, in order."""
        self.members = tuple(self.members[place] for place in places)
        self._members_by_size[len(self.members)] = self.members

    def places_since(self, size: int) -> list[int]:
        """Return where the present lanes stand in a value made when there were `size` lanes."""
        then = self._members_by_size[size]
        return [then.index(member) for member in self.members]

    def part(self, recipe: Recipe | None, reason: str, answers: Sequence[object] = ()) -> LanesPart:
        """Note that the lanes must part, and return the signal to raise.

        The note stays even if torch or the user's code swallows the signal and fails in another way.
        """
        self.question = Question(recipe, reason, tuple(answers))
        return LanesPart(reason)

    def refuse(self, reason: str) -> None:
        """Note that the lanes cannot go on as one; what they were asked first stands."""
        if self.question is None:
            self.question = Question(None, reason)
