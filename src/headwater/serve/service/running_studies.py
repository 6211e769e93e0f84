"""The studies that run now, each with its runner. Those in one process are a crew, and have its devices in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from headwater.serve.service.deciding import Claim
from headwater.serve.service.folders import ServiceFolder
from headwater.serve.service.runners import StudyRunner
from headwater.serve.service.sharing import JOIN_S, Party, split_devices
from headwater.serve.service.values import Submission


class RunningStudies:
    """Knows who runs, and with whom."""

    def __init__(self, folder: ServiceFolder, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._runners: dict[str, StudyRunner] = {}
        self._joined_s: dict[str, float] = {}
        """By the hash of files: when a process last began to train several studies of them."""

    def __contains__(self, study: str) -> bool:
        return study in self._runners

    def __getitem__(self, study: str) -> StudyRunner:
        return self._runners[study]

    def __iter__(self) -> Iterator[StudyRunner]:
        return iter(list(self._runners.values()))

    def get(self, study: str) -> StudyRunner | None:
        """Return the runner of a study; None where it does not run."""
        return self._runners.get(study)

    def add(self, submissions: Sequence[Submission], num_devices: int) -> list[StudyRunner]:
        """Return runners for studies that are to be in one process; the first of them starts it."""
        crew = [StudyRunner(one, self._folder.find(one.id, one.place), num_devices) for one in submissions]
        for runner in crew:
            runner.crew = crew
            self._runners[runner.id] = runner
        if len(crew) > 1:
            first = submissions[0]
            self._joined_s[first.share] = self._clock()
            for runner in crew:
                runner.common = self._folder.find_shared(first.share, first.place)
        return list(crew)

    def remove(self, runner: StudyRunner) -> None:
        """Let go of one that has ended."""
        del self._runners[runner.id]
        runner.crew.remove(runner)
        if runner.crew:
            runner.crew[0].see_to(runner.crew[0].num_told)

    def unite(self, runner: StudyRunner) -> None:
        """Put studies together that are in one process, which was there before the service."""
        for other in self._runners.values():
            is_same = bool(runner.share) and (other.pid, other.share) == (runner.pid, runner.share)
            if is_same and other.crew is not runner.crew:
                other.crew.append(runner)
                runner.crew = other.crew
                runner.see_to(None)
                return

    def may_join(self, study: str) -> bool:
        """Tell whether the process of a study may be begun anew with more studies: not too often."""
        return self._clock() - self._joined_s.get(self._runners[study].share, -JOIN_S) >= JOIN_S

    def find_crews(self) -> dict[str, Hashable]:
        """Return by study which process it is in.

        Studies with the same files count as one process until all of their stewards have told its id: after a restart
        of the service they may well be in one, and must not be made to yield to each other.
        """
        unknown = {runner.share for runner in self._runners.values() if runner.share and runner.pid is None}
        return {
            study: runner.share if runner.share in unknown else id(runner.crew)
            for study, runner in self._runners.items()
        }

    def claim(self, party: Party) -> Claim:
        """Return what a party has now."""
        first = party.members[0]
        if first not in self._runners:
            return Claim(id=first, is_running=False)
        lead = self._runners[first].crew[0]
        return Claim(id=first, is_running=True, num_told=lead.num_told, num_held=lead.num_held)

    def count_ending(self, parties: Sequence[Party]) -> int:
        """Return how many devices those have that are of no party any more."""
        staying = {study for party in parties for study in party.members}
        return sum(crew[0].num_held for crew in self._list_crews() if staying.isdisjoint(one.id for one in crew))

    def count_devices(self) -> dict[StudyRunner, float]:
        """Return what each study has of the devices now: of those that it shares, by its lanes."""
        counts: dict[StudyRunner, float] = {}
        for crew in self._list_crews():
            counts |= dict(zip(crew, split_devices([one.lanes for one in crew], crew[0].num_held), strict=True))
        return counts

    def _list_crews(self) -> list[list[StudyRunner]]:
        return [runner.crew for runner in self._runners.values() if runner is runner.crew[0]]
