"""All that a page shows of one study: whole, or what has changed since it was last looked at."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

from headwater.report.changes import gather_changes
from headwater.report.json_views import describe_trial
from headwater.report.page.followed import Changes, FollowedStudy
from headwater.report.page.packing import (
    count_statuses,
    pack_attributes,
    pack_best,
    pack_curves,
    pack_errors,
    pack_notes,
    pack_timeline,
    pack_trials,
)
from headwater.report.page.spending import describe_cost, pack_spending
from headwater.report.page.surrogates import describe_surrogates
from headwater.report.reading import (
    is_search_over,
    make_strict,
    read_profiles,
    read_spending,
    read_start,
    read_target,
)
from headwater.report.timeline import Timeline
from headwater.store import Store, StudyInfo, find_asker, find_runner, read_spans
from headwater.store.device_wishes import read_devices
from headwater.trials import SPENDING, START, Result, Spending, Status

Json: TypeAlias = dict[str, Any]  # Any: JSON values

NUM_TREND = 40
"""So many values has the small curve of the best in a list of studies."""
RUNNING, STOPPING, KILLED, ENDED = "running", "stopping", "killed", "ended"


class StudyPage:
    """One study, followed for all who look at it. Not for several threads at once."""

    def __init__(self, store: Store, info: StudyInfo) -> None:
        self.followed = FollowedStudy(store, info)
        self.version = 0
        """Grows with every change that was seen."""
        self._store = store
        self._facts: dict[str, Any] = {}
        self._spending: Spending | None = None
        self._head: Json = {}
        self._figures: Json = {}
        self._num_steps = 0

    def refresh(self) -> Json | None:
        """Read what is new, and return it for those who had everything before; None where nothing is, or all."""
        changes = self.followed.refresh()
        if changes.has_facts:
            self._facts = self._store.facts(self.followed.info.id, [])
            self._spending = read_spending(self._facts, []) if SPENDING in self._facts else None
        if changes.starts or not self._head:
            self._figures = self._sum_up()
        head = self._describe()
        if not changes and head == self._head:
            return None
        is_first, self._head, self.version = not self._head, head, self.version + 1
        if is_first:
            self._num_steps = len(self.followed.best.steps)
            return None
        patch: Json = {"version": self.version, "head": head}
        if changes.starts:
            names = {name for number in changes.starts for name in self.followed.trials[number].values}
            patch |= {"trials": pack_trials(self.followed, changes, sorted(names))}
            if any(self.followed.trials[number].error for number in changes.starts):
                patch |= {"errors": pack_errors(self.followed)}
        if self.followed.best.steps[self._num_steps :]:
            # The last step that was told is told again, so that none is lost where the curve was made anew.
            patch |= {"best": pack_best(self.followed, max(self._num_steps - 1, 0) if self._num_steps else 0)}
        self._num_steps = len(self.followed.best.steps)
        return make_plain({**patch, **self._pack_rest(changes)})

    def whole(self, *, all_metrics: bool = False) -> Json:
        """Return everything as it was when it was last refreshed; of the metrics, the one that decides, or all.

        With all metrics there are the attributes of trials too: a page that can ask for a trial gets them there.
        """
        everything = Changes(
            starts=dict.fromkeys(self.followed.trials, 0),
            new=frozenset(self.followed.trials),
            has_notes=True,
            has_facts=True,
            has_spans=True,
        )
        metric = self.followed.info.metric
        return make_plain(
            {
                "version": self.version,
                "head": self._head,
                "trials": pack_trials(self.followed, everything, self.metrics if all_metrics else [metric]),
                "errors": pack_errors(self.followed),
                **({"attributes": pack_attributes(self.followed)} if all_metrics else {}),
                "best": pack_best(self.followed),
                **self._pack_rest(everything),
            }
        )

    @property
    def metrics(self) -> list[str]:
        """All metrics that trials reported, the one that decides first."""
        return list(self.followed.metrics)

    def curves(self, metric: str) -> Json:
        """Return what all trials reported for one metric."""
        return {"version": self.version, "trials": pack_curves(self.followed, metric)}

    def trial(self, number: int) -> Json | None:
        """Return everything about one trial, exactly; None where there is none."""
        trial = self.followed.trials.get(number)
        if trial is None:
            return None
        info = self.followed.info
        result = Result(study=info.name, metric=info.metric, mode=info.mode, trials=(), storage="")
        return describe_trial(trial.as_record(), result)

    @property
    def head(self) -> Json:
        """What is said of the study as a whole."""
        return self._head

    def summary(self) -> Json:
        """What a list of studies says of this one: its head, and how the best came to be."""
        return {**self._head, "trend": self.followed.best.sample(NUM_TREND)}

    def _describe(self) -> Json:
        info, followed = self.followed.info, self.followed
        head = {
            "id": info.id,
            "study": info.name,
            "metric": info.metric,
            "mode": info.mode,
            "started": datetime.fromtimestamp(info.created).astimezone().isoformat(timespec="seconds"),
            "created": info.created,
            "seed": info.seed,
            "settings": dict(info.settings),
            "space": info.space,
            "part_of": info.settings.get("part_of"),
            "whole": followed.whole,
            "stages": [stage.name for stage in followed.stages],
            **self._figures,
            "cost": describe_cost(self._spending),
            "max_epochs": self._facts.get("max_epochs"),
            "run": self._facts.get("run"),
            "num_damaged": followed.num_damaged,
            **self._find_state(),
        }
        is_running = head["state"] != ENDED or bool(self._figures["statuses"][Status.RUNNING])
        is_over = is_search_over(self._facts.get("run"), is_running=is_running)
        return make_plain({**head, "is_over": is_over, "target": self._describe_target()})

    def _describe_target(self) -> Json | None:
        """Say what the target has reached, where trials are of surrogates and it has begun."""
        study, target = read_target(self._store, self._facts.get("target"), "", [])
        return None if target is None else {"study": study, "value": target.value(self.followed.info.metric)}

    def _sum_up(self) -> Json:
        """Say where the trials stand, all together."""
        trials, curve = self.followed.trials, self.followed.best
        best = self.followed.find_best()
        return {
            "num_trials": len(trials),
            "statuses": count_statuses(trials),
            "best": None if best is None else {"number": best[0], "value": best[1]},
            "seconds": sum(trial.seconds for trial in trials.values()),
            "front": self.followed.find_front() if self.followed.info.also else None,
            "num_epochs": curve.num_epochs,
            "metrics": self.metrics,
        }

    def _find_state(self) -> Json:
        """Say whether the study runs, or one of its stages, and where."""
        info, runner = self.followed.info, find_runner(self._store, self.followed.info.id)
        for stage in reversed(self.followed.stages if runner is None else []):
            of_stage = find_runner(self._store, stage.id)
            if of_stage is not None and of_stage.may_live():
                info, runner = stage, of_stage
                break
        if runner is None:
            return {"state": ENDED, "process": None}
        process = f"process {runner.pid} on {runner.host}"
        if not runner.may_live():
            return {"state": KILLED, "process": process}
        asker = find_asker(self._store, info.id, runner)
        shown = read_devices(self._store, info.id, runner)
        work = {} if shown is None else {name: shown.work.get(name) for name in shown.pool.names}
        return {
            "state": RUNNING if asker is None else STOPPING,
            "process": process,
            "asker": asker,
            "devices": [
                {"device": name, "study": info.name, "does": None, "trials": []}
                if one is None
                else {"device": name, "study": info.name, "does": one.purpose.value, "trials": list(one.trials)}
                for name, one in work.items()
            ],
        }

    def _pack_rest(self, changes: Changes) -> Json:
        """Pack what has no reports: devices, measurements, notes, surrogates."""
        rest: Json = {}
        if changes.has_spans or changes.has_notes:
            spans = read_spans(self._store, self.followed.info.name)
            timeline = Timeline.of(self.followed.info.name, spans, gather_changes(self.followed.notes))
            rest["timeline"] = pack_timeline(timeline)
        if changes.has_notes:
            rest["notes"] = pack_notes(self.followed.notes)
        if changes.has_facts:
            rest["profiles"] = [
                {
                    "label": label,
                    "num_lanes": profile.num_lanes,
                    "reason": profile.reason,
                    "measurements": [
                        [one.num_lanes, one.seconds_per_lane_step, one.peak_bytes, one.loading_s]
                        for one in profile.measurements
                    ],
                }
                for label, profile in read_profiles(self._facts, []).items()
            ]
            rest["start"] = _describe_start(self._facts)
            rest["spending"] = None if self._spending is None else pack_spending(self._spending)
        if self.followed.stages:
            rest["surrogate"] = describe_surrogates(self._store, self.followed, self._facts.get("target"))
        return rest


def _describe_start(facts: Mapping[str, Any]) -> list[str]:  # Any: JSON values
    if START not in facts:
        return []
    found = read_start(facts, [])
    return [] if found is None else found.describe()


def make_plain(value: Json) -> Json:
    """Return it as strict JSON can hold it."""
    plain: Json = make_strict(value)
    return plain
