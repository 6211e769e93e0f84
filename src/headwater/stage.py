"""A study that is open: its record, its lease, and who conducts it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headwater.conduct.absences import Absences
from headwater.conduct.identity import create_study, require_same
from headwater.conduct.limits import Limits
from headwater.conduct.listeners import Listener
from headwater.conduct.offering import MADE_OF, identify, take_offer
from headwater.conduct.points import POINTS, PlacedPoints, place_points
from headwater.conduct.setup import StudySetup, name_learnt
from headwater.conduct.study_conductor import StudyConductor
from headwater.plan import Packing
from headwater.plan.allocation import Policy
from headwater.search import Problem, ResultOrder, Searcher, build_searcher
from headwater.search.replicas import Replicated
from headwater.space import Space
from headwater.store import Lease, Recorder, TemporaryFolder, open_store, place_states, remove_folder
from headwater.trials import (
    Arrival,
    Brief,
    Lane,
    Learnt,
    Result,
    Silence,
    StatesPlace,
    Surrogate,
    TrialRecord,
    Watcher,
    average_replicas,
    join_arrivals,
)

if TYPE_CHECKING:
    from headwater.study import Study


class TemporaryStates:
    """A place for states that goes when nobody holds it any more: in this process, or in a folder that others see."""

    def __init__(self, *, is_shared: bool) -> None:
        if is_shared:
            folder = TemporaryFolder(in_memory=True)
            self.url = str(folder.path / "states")
            weakref.finalize(self, folder.remove)
        else:
            self.url = f"memory://headwater-{uuid4().hex}"
            weakref.finalize(self, remove_folder, self.url).atexit = False  # the memory goes with the process


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What a run has besides the study: where it trains, who watches, and how it is numbered."""

    num_devices: int = 1
    device: str = "cpu"
    """What torch calls the kind of device."""
    kind: str | None = None
    """What tells devices apart on which groups take unlike times; None where nothing trains."""
    shares_states: bool = False
    """Whether other processes are to see the states of studies without a record."""
    process_settings: Mapping[str, Any] = field(default_factory=dict)  # Any: plain values
    learnt: Learnt = field(default_factory=Learnt)
    """What is known of the function from an earlier stage."""
    watcher: Watcher = field(default_factory=Silence)
    listeners: Sequence[Listener] = ()
    keys: Iterator[int] = field(default_factory=count)
    absences: Absences = field(default_factory=Absences)
    spreads: bool = False
    """Whether it trains one trial, on all devices."""
    earlier_s: float = 0.0
    """How many seconds of spans earlier runs have recorded."""


class OpenStudy:
    """Opens a study in the record, new or as it was left, and closes it.

    Raises:
        StudyError: It cannot be run; then nothing was written.
    """

    def __init__(self, study: Study, limits: Limits, settings: RunSettings, *, is_new: bool) -> None:
        self._study = study
        self._states = TemporaryStates(is_shared=settings.shares_states) if study.storage is None else None
        self._stack = ExitStack()
        self._discard: Callable[[], object] = lambda: None
        try:
            self._setup = self._open_new(limits, settings) if is_new else self._open_known(limits, settings)
            self.conductor = StudyConductor(self._setup)
        except BaseException:
            self._stack.close()
            raise

    @property
    def name(self) -> str:
        """What the record calls it."""
        return self._setup.recorder.info.name

    def identify(self, kind: str) -> str | None:
        """Return what is the same for studies whose groups behave alike on this kind of device; see `offering`."""
        recorder = self._setup.recorder
        known = recorder.store.fact(recorder.info.id, MADE_OF)
        return known if isinstance(known, str) else identify(self._setup.brief, kind)

    def finish(self) -> Result:
        """Conclude a run that has come to its end."""
        self.conductor.finish()
        result = self.conductor.result(str(self._study.storage or "memory"))
        place = replace(self._setup.brief.states, kept=self.conductor.kept)
        result = replace(result, loader=partial(load_best, self._study, result, place, self._states))
        for callback in self._study.callbacks:
            callback.on_result(result)
        return result

    def refuse(self) -> None:
        """Take a new study out of the record again that is refused before a trial has reported."""
        self._discard()

    def close(self) -> None:
        """Let go of the record."""
        self._stack.close()

    def _open_new(self, limits: Limits, settings: RunSettings) -> StudySetup:
        study, wanted = self._study, limits.num_trials
        limits = replace(limits, num_trials=_count_trials(study, wanted, limits), max_epochs=study.max_epochs)
        limits = replace(limits, trial_timeout=study.trial_timeout)
        self._points = place_points(study.points, _space_of(study), study.seed)
        searcher = _build_searcher(
            study, limits, self._points
        )  # before anything is written: what cannot run leaves nothing
        store = self._stack.enter_context(open_store(study.storage))
        info = create_study(study, store, wanted)
        lease = self._stack.enter_context(Lease(store, info))
        self._discard = partial(store.discard_unreported, info.id, fence=lease.fence)
        return self._set_up(Recorder(store, info, _space_of(study), lease), searcher, limits, settings)

    def _open_known(self, limits: Limits, settings: RunSettings) -> StudySetup:
        study = self._study
        store = self._stack.enter_context(open_store(study.storage))
        info = store.study(study.name)
        require_same(study, info)
        lease = self._stack.enter_context(Lease(store, info, tell=settings.watcher.tell))
        recorder = Recorder(store, info, _space_of(study), lease)
        known = tuple(info.objective.judge_record(trial) for trial in recorder.trials())
        trials = average_replicas(known, study.num_seeds)
        had = {trial.number: trial.config for trial in trials}
        num_begun = 1 + max((trial.number for trial in trials if trial.history), default=0)
        self._points = place_points(study.points, _space_of(study), study.seed, store.fact(info.id, POINTS), had)
        total = _count_trials(study, limits.num_trials or info.settings.get("num_trials"), limits, num_begun)
        if total is not None and limits.num_trials is None and self._points.num_new:
            total = max(total, self._points.num_wanted)
        limits = replace(limits, num_trials=total, max_epochs=study.max_epochs, trial_timeout=study.trial_timeout)
        searcher = _build_searcher(
            study, limits, self._points, known, recorder.arrivals() if study.order == ResultOrder.ARRIVAL else ()
        )
        return self._set_up(recorder, searcher, limits, settings, known)

    def _set_up(
        self,
        recorder: Recorder,
        searcher: Searcher,
        limits: Limits,
        settings: RunSettings,
        known: Sequence[TrialRecord] = (),
    ) -> StudySetup:
        study = self._study
        info = recorder.info
        if self._points.num_new:
            recorder.add_fact(POINTS, self._points.fact)
        folder = study.states if self._states is None else self._states.url
        brief = make_brief(study, info.name, place_states(recorder, folder), settings)
        remark = None if known else _take_offer(recorder, brief, settings)
        fact = recorder.store.fact(info.id, name_learnt(settings.device)) if known or remark else None
        learnt = settings.learnt if not isinstance(fact, str) else Learnt.from_json(fact, brief.space.options)
        return StudySetup(
            brief=replace(brief, learnt=learnt),
            recorder=recorder,
            searcher=searcher,
            limits=limits,
            lanes=study.lanes if isinstance(study.lanes, int) else None,
            packing=None if study.packing is None else Packing(study.packing),
            allocation=_read_policy(study),
            can_widen=study.lanes != 1,
            save_every=study.save_every,
            known=known,
            watcher=settings.watcher,
            listeners=[*study.callbacks, *settings.listeners],
            learnt=learnt,
            remarks=() if remark is None else (remark,),
            spreads=settings.spreads,
            keys=settings.keys,
            absences=settings.absences,
            origin_s=limits.deadline.begin_s - settings.earlier_s,
        )


def _count_trials(study: Study, wanted: int | None, limits: Limits, num_begun: int | None = None) -> int | None:
    """Return how many trials there shall be; None where nothing but time ends the study.

    One that only time has ended, and is gone on with without a time, has the trials that have begun.
    """
    has_end = wanted is not None or _space_of(study).size is not None
    if not has_end and limits.deadline.seconds is not None:
        return None
    return study.count_trials(wanted if has_end else num_begun)


def _take_offer(recorder: Recorder, brief: Brief, settings: RunSettings) -> str | None:
    """Take over what an earlier study in the record has learnt, if there is one, and return what to say of it."""
    if settings.kind is None or not recorder.store.is_shared:
        return None
    made_of = identify(brief, settings.kind)
    return None if made_of is None else take_offer(recorder, brief, made_of)


def make_brief(study: Study, name: str, states: StatesPlace, settings: RunSettings) -> Brief:
    """Return what workers must know of a study."""
    surrogate = study.surrogate if isinstance(study.surrogate, Surrogate) else None
    is_target = surrogate is not None and surrogate.at == 1
    spread = "auto" if surrogate is None else surrogate.spread
    has_several = settings.spreads or _read_policy(study) is not Policy.FIFO
    divides = has_several and (spread == "ranks" or (spread == "auto" and not settings.device.startswith("cpu")))
    return Brief(
        study=name,
        function=study.train,
        space=_space_of(study),
        states=states,
        metric=study.objective.metric,
        mode=study.objective.mode,
        max_epochs=study.max_epochs,
        device=settings.device,
        surrogate=surrogate,
        compiles=is_target if study.compile is None else study.compile,
        shares_loading=study.packing is not None,
        process_settings=settings.process_settings,
        divides=divides,
        chooses_threads=settings.spreads and not divides,
    )


def load_best(
    study: Study, result: Result, place: StatesPlace, states: TemporaryStates | None
) -> Any:  # Any: the user's own module, or a list of them
    """Return the model of the best trial with the weights that were kept; `states` lives until then."""
    from headwater.train.keeping import rebuild_models
    from headwater.train.state_store import StateStore

    number = place.kept[0] if place.kept is not None else None
    config = next((trial.config for trial in result.trials if trial.number == number), result.best.config)
    lane = Lane(number=number or 0, config=config, seed=study.seed)
    models = rebuild_models(study.train, lane, StateStore(place).load_kept())
    return models[0] if len(models) == 1 else models


def _build_searcher(
    study: Study,
    limits: Limits,
    points: PlacedPoints,
    known: Sequence[TrialRecord] = (),
    arrivals: Sequence[Arrival] = (),
) -> Searcher:
    problem = Problem(
        space=_space_of(study),
        metric=study.objective.metric,
        mode=study.objective.mode,
        also=study.also,
        constraints=study.objective.constraints,
        seed=study.seed,
        num_trials=limits.num_trials,
        max_epochs=limits.max_epochs,
        points=points.configs,
        known=average_replicas(known, study.num_seeds),
        order=ResultOrder(study.order),
        arrivals=join_arrivals(arrivals, study.num_seeds),
    )
    searcher = build_searcher(study.search, problem)
    return searcher if study.num_seeds == 1 else Replicated(searcher, study.num_seeds, known)


def _read_policy(study: Study) -> Policy:
    """Return how devices are allocated; where there is a surrogate, those that are idle are for the target."""
    return Policy(study.allocation) if study.surrogate is None and study.part_of is None else Policy.FIFO


def _space_of(study: Study) -> Space:
    assert isinstance(study.space, Space)
    return study.space
