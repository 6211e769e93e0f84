"""What the record knows of the stages of a study with surrogates: each is a study under the name of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from headwater.space import Config, Space
from headwater.store import Recorder, open_store
from headwater.trials import START, Spending, StartCheck


class TransferRecord:
    """Reads and writes what belongs to the whole, between the stages."""

    def __init__(self, storage: str | Path | None, space: Space) -> None:
        self.storage = storage
        self._space = space

    def has(self, name: str) -> bool:
        """Tell whether the record has a study of this name; in memory, nothing lasts from one stage to the next."""
        if self.storage is None:
            return False
        with open_store(self.storage) as store:
            return any(info.name == name for info in store.studies())

    def read_configs(self, name: str) -> list[Config]:
        """Return the configurations of a stage that has begun, in their order; none where it has not."""
        if not self.has(name):
            return []
        with open_store(self.storage) as store:
            return [trial.config for trial in Recorder(store, store.study(name), self._space).trials()]

    def read_scale(self, name: str | None) -> int:
        """Return the scale that was chosen when the study began."""
        with open_store(self.storage) as store:
            return int(store.study(name).settings["scale"])

    def find_share_left(self, name: str | None) -> float:
        """Return how much of the training of a target the record does not have yet."""
        with open_store(self.storage) as store:
            info = store.study(name)
            names = [one.name for one in store.studies() if one.name.startswith(f"{info.name}.target-")]
            recorders = [Recorder(store, store.study(one), self._space) for one in (info.name, *names[-1:])]
            epochs = [max((trial.epochs for trial in one.trials()), default=0) for one in recorders]
        return 1 - min(epochs[1] / max(epochs[0], 1), 1) if names else 1.0

    def read_start(self, name: str | None) -> StartCheck | None:
        """Return what the first steps showed when the study began; None where the record does not say."""
        with open_store(self.storage) as store:
            fact = store.fact(store.study(name).id, START)
        return None if fact is None else StartCheck.read(fact)

    def write_spending(self, name: str, spending: Spending) -> None:
        """Write into the record of the search what the whole has cost, once it is there."""
        if not self.has(name):
            return
        with open_store(self.storage) as store:
            recorder = Recorder(store, store.study(name), self._space)
            for key, fact in spending.list_facts():
                recorder.add_fact(key, fact)

    def write(self, name: str, target: str | None, notes: Sequence[str], start: StartCheck) -> None:
        """Write into the record of the search what was said between the stages, and which study is the target's."""
        if self.storage is None:
            return
        with open_store(self.storage) as store:
            recorder = Recorder(store, store.study(name), self._space)
            recorder.add_fact(START, asdict(start))
            if target is not None:
                recorder.add_fact("target", target)
            for text in notes:
                recorder.note("surrogate", text)
