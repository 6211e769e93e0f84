"""A look at the record of a study that runs, and wishes into it: what a steward does, as the study's system user."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import StoreError
from headwater.report.page.followed import FollowedStudy
from headwater.report.reading import make_strict
from headwater.serve.service.values import Json
from headwater.store import Store, StudyInfo, ask_to_stop, find_asker, find_runner, find_running_stage, open_store
from headwater.store.device_wishes import ShownDevices, read_devices, read_wishes, wish_devices
from headwater.trials import DeviceWish, Status

if TYPE_CHECKING:
    from headwater.store import Runner

ASKER = "the service"


class RecordWatch:
    """Knows what was last seen of a study, and what is wished of it."""

    def __init__(self, study: str, record: Path, num_devices: int | None) -> None:
        self.num_devices = num_devices
        """How many devices the study is to have; None where another that trains with it says so."""
        self.is_to_stop = False
        self._study = study
        self._record = record
        self._followed: FollowedStudy | None = None
        self._store: Store | None = None
        self._told: Json | None = None

    def look(self) -> Json | None:
        """Read what is new, see to what is wished, and return where the study stands if that has changed.

        A record that is not there yet or that is locked or damaged is looked at again the next time.
        """
        try:
            seen = self._see()
        except StoreError:
            return None
        if seen is None or seen == self._told:
            return None
        self._told = seen
        return seen

    def _see(self) -> Json | None:
        if self._store is None:
            if not self._record.exists():
                return None
            self._store = open_store(self._record, create=False)
        if self._followed is None:
            known = {info.name: info for info in self._store.studies()}
            if self._study not in known:
                return None
            self._followed = FollowedStudy(self._store, known[self._study])
        self._followed.refresh()
        stage = find_running_stage(self._store, self._followed.info)
        runner = find_runner(self._store, stage.id)
        shown = None if runner is None else read_devices(self._store, stage.id, runner)
        if runner is not None:
            self._wish(stage, runner, shown)
        return _describe(self._followed, shown, stage)

    def _wish(self, stage: StudyInfo, runner: Runner, shown: ShownDevices | None) -> None:
        assert self._store is not None
        if self.is_to_stop:
            if find_asker(self._store, stage.id, runner) is None:
                with open_store(self._record) as writer:
                    ask_to_stop(writer, stage.id, runner, ASKER)
            return
        if shown is None or shown.pool.fixed or self.num_devices is None:
            return
        wished = shown.pool
        for wish in read_wishes(self._store, stage.id, runner, shown.num_heard)[0]:
            wished = wished.change(wish)
        missing = self.num_devices - len(wished.names)
        missing = min(missing, wished.num_away) if wished.limit else missing
        if missing:
            with open_store(self._record) as writer:
                wish_devices(writer, stage.id, runner, DeviceWish(num_more=missing, asker=ASKER))


def _describe(followed: FollowedStudy, shown: ShownDevices | None, stage: StudyInfo) -> Json:
    info, counts = followed.info, Counter(trial.status for trial in followed.trials.values())
    best = followed.find_best()
    found: Json = {
        "stage": None if stage.name == info.name else stage.name,
        "metric": info.metric,
        "mode": info.mode,
        "num_trials": info.settings.get("num_trials"),
        "statuses": {status.value: counts[status] for status in Status},
        "num_epochs": sum(len(trial.epochs) for trial in followed.trials.values()),
        "best": None if best is None else {"number": best[0], "value": best[1]},
        "num_held": None if shown is None else len(shown.pool.names) + len(shown.pool.leaving),
        "lanes": {} if shown is None else {name: len(work.trials) for name, work in shown.work.items()},
    }
    strict: Json = make_strict(found)
    return strict
