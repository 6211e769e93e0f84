"""The executor of this process: one pack after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from headwater.trials import Ending, TrialGroup

Work: TypeAlias = Callable[[Sequence[TrialGroup]], Iterator[tuple[TrialGroup, Ending]]]


class InlineExecutor:
    """Runs each pack here and now."""

    def run(self, packs: Iterable[Sequence[TrialGroup]], work: Work) -> Iterator[tuple[TrialGroup, Ending]]:
        """Run the packs, and yield each group with its ending as it comes.

        The packs are taken one by one, so that whoever supplies them may add more after each ending.
        """
        for pack in packs:
            yield from work(pack)
