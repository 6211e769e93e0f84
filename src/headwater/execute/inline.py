"""The executor of this process: one pack after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headwater.execute.sites import Site
from headwater.trials import Ending, TrialGroup


class InlineExecutor:
    """Runs each pack here and now."""

    num_workers = 1

    def run(self, packs: Iterable[Sequence[TrialGroup]], site: Site) -> Iterator[tuple[TrialGroup, Ending]]:
        """Run the packs, and yield each group with its ending as it comes."""
        for pack in packs:
            yield from site.work_here(pack)
