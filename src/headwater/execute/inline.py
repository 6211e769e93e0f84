"""The executor of this process: one group after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from headwater.trials import Ending, TrialGroup

Work: TypeAlias = Callable[[TrialGroup], Ending]


class InlineExecutor:
    """Runs each group here and now."""

    def run(self, groups: Iterable[TrialGroup], work: Work) -> Iterator[tuple[TrialGroup, Ending]]:
        """Run the groups, and yield each with its ending as it comes.

        The groups are taken one by one, so that whoever supplies them may add more after each ending.
        """
        for group in groups:
            yield group, work(group)
