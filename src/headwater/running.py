"""Running a study on an executor: as one search, or in stages with a surrogate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.conduct.limits import Limits
from headwater.conduct.stages import StageSpec
from headwater.conduct.transfer import TransferConductor
from headwater.conduct.transfer_record import TransferRecord
from headwater.conduct.transfer_steps import TransferSetup, TransferSteps
from headwater.errors import CannotScaleError, SpaceError, StoreError, StudyEnds, StudyError
from headwater.execute import (
    AutoExecutor,
    ElasticExecutor,
    Executor,
    InlineExecutor,
    SimulatedExecutor,
    build_executor,
    find_service,
)
from headwater.execute.choosing import find_workers_kind
from headwater.interrupts import stopping_at_interrupt
from headwater.report.record_views import StoredViews
from headwater.search import Listed
from headwater.space import Space
from headwater.stage import OpenStudy, RunSettings, make_brief
from headwater.store import list_stages, open_store, read_spans
from headwater.store.engine import MEMORY_NAMES
from headwater.trials import SPENDING, Deadline, Result, Silence, Spending, StatesPlace, Surrogate, Watcher

if TYPE_CHECKING:
    from headwater.study import Study


REFUSALS = (StudyError, SpaceError, CannotScaleError)
"""What says that a study is set up wrongly."""


def run_study(study: Study, limits: Limits, watcher: Watcher, *, is_new: bool) -> Result:
    """Run or resume a study to its end, on the executor that it asks for."""
    service = find_service(study.executor)
    if service is not None:
        from headwater.remote.running import run_remotely

        return run_remotely(study, service, limits, watcher, is_new=is_new)
    surrogate = study.surrogate
    has_stages = isinstance(surrogate, Surrogate) and surrogate.at is None and surrogate.scale != 1
    if isinstance(study.executor, SimulatedExecutor):
        limits = replace(limits, deadline=Deadline.start(limits.deadline.seconds, study.executor.clock))
    if isinstance(study.executor, ElasticExecutor):
        limits = replace(limits, halt=study.executor.find_end)
        study.executor.earlier = None if is_new else _find_spending(study)
    study = study if is_new else _take_max_epochs(study)
    earlier_s = 0.0 if is_new else find_earlier(study)
    with open_executor(study, limits, watcher) as (executor, plain):
        settings = replace(plain, earlier_s=earlier_s)
        run = _run_stages if has_stages else _run_search
        return with_views(run(study, limits, executor, settings, is_new=is_new), study.storage)


def with_views(result: Result, storage: str | Path | None) -> Result:
    """Let a result make reports and figures of its study, where there is a record to read."""
    if storage is None or str(storage) in MEMORY_NAMES:
        return result
    return replace(result, views=StoredViews(str(storage), result.study))


def _take_max_epochs(study: Study) -> Study:
    """Let trials of a study that goes on train for as long as those before, which they are compared with."""
    with open_store(study.storage) as store:
        info = store.study(study.name)
        limit = store.facts(info.id).get("max_epochs", study.max_epochs)  # records of version 0.1 may lack it
    if study.max_epochs not in (None, limit):
        raise StudyError(
            f"max_epochs is {study.max_epochs}, but study {info.name!r} ran with {limit or 'no limit'}, and trials "
            "that train for unlike numbers of epochs cannot be compared; leave it out, or run another study"
        )
    return replace(study, max_epochs=limit)


def find_earlier(study: Study) -> float:
    """Return when the last span of the study ended, or that of its stages."""
    with open_store(study.storage) as store:
        return max((span.end_s for span in read_spans(store, study.name)), default=0.0)


def _find_spending(study: Study) -> Spending:
    """Return what the study has cost until now, in all its runs: its record says so, or that of a stage of it.

    Raises:
        StoreError: The record does not say so in a way that can be read.
    """
    with open_store(study.storage) as store:
        info = store.study(study.name)
        facts = [store.fact(one.id, SPENDING) for one in (info, *list_stages(store, info.name))]
    try:
        found = [Spending.from_json(fact) for fact in facts if fact is not None]
        nothing = Spending(seconds=0.0, cost_dollars=0.0, num_nodes=0)
        return max(found, key=lambda spending: spending.total_dollars, default=nothing)
    except (TypeError, AttributeError) as error:
        raise StoreError(
            f"what study {info.name!r} has cost cannot be read from the record ({error}), so no budget can be kept; "
            "resume it without a cluster"
        ) from error


@contextmanager
def open_executor(study: Study, limits: Limits, watcher: Watcher) -> Iterator[tuple[Executor, RunSettings]]:
    """Have the executor that a study asks for, and what a run on it has."""
    if isinstance(study.executor, SimulatedExecutor):  # nothing trains, so torch stays away
        yield study.executor, RunSettings(num_devices=max(len(study.executor.list_devices()), 1), watcher=watcher)
        return
    from headwater.train.machine import count_threads, describe_device
    from headwater.train.memory import keep_freed_memory
    from headwater.train.process_settings import read_process_settings
    from headwater.train.running import choose_device

    kind = find_workers_kind(study.executor, study.device)
    device = choose_device(study.device if kind is None else kind, is_here=kind is None)
    executor = build_executor(study.executor, device.type, study.devices, limits.deadline.clock)
    is_here = isinstance(executor, InlineExecutor)
    begins_here = is_here or isinstance(executor, AutoExecutor)
    keep_freed_memory()
    devices = executor.list_devices()
    gaps = ", in bubbles" if devices and all(one.is_ephemeral for one in devices) else ""  # times differ
    settings = RunSettings(
        num_devices=max(len(devices), 1),
        device=str(device),
        kind=describe_device(device, count_threads() if begins_here else 1) + gaps,
        shares_states=not is_here,
        process_settings=read_process_settings(),
        watcher=watcher,
    )
    try:
        yield executor, settings
    finally:
        executor.close()


def _run_search(study: Study, limits: Limits, executor: Executor, settings: RunSettings, *, is_new: bool) -> Result:
    opened = OpenStudy(study, limits, settings, is_new=is_new)
    if not isinstance(executor, AutoExecutor | InlineExecutor):  # others are busy too
        return _conclude(opened, executor, settings.watcher.tell)
    from headwater.fuse.strategies import read_process_clock

    begin_s = read_process_clock()
    result = _conclude(opened, executor, settings.watcher.tell)
    is_here = isinstance(executor, InlineExecutor) or executor.is_inline
    return replace(result, seconds_busy=read_process_clock() - begin_s) if is_here else result


def _conclude(opened: OpenStudy, executor: Executor, tell: Callable[[str], None]) -> Result:
    """Run a study that is open to its end, and close it."""
    try:
        try:
            with stopping_at_interrupt(opened.conductor.end, lambda: opened.conductor.is_measuring, tell):
                opened.conductor.begin()
                executor.run(opened.conductor)
        except StudyEnds as cut:
            opened.conductor.ended_early = str(cut)
        except REFUSALS:
            opened.refuse()
            raise
        finally:
            opened.conductor.close()
        return opened.finish()
    finally:
        opened.close()


def _run_stages(study: Study, limits: Limits, executor: Executor, settings: RunSettings, *, is_new: bool) -> Result:
    assert isinstance(study.surrogate, Surrogate)
    assert isinstance(study.space, Space)
    keys = count()
    record = TransferRecord(study.storage, study.space)
    setup = TransferSetup(
        name=study.name,
        surrogate=study.surrogate,
        objective=study.objective,
        brief=make_brief(study, "", StatesPlace(url="memory://headwater/none", study=""), settings),
        seed=study.seed,
        limits=replace(limits, max_epochs=study.max_epochs),
        lanes=study.lanes,
        record=record,
        watcher=settings.watcher,
        keys=keys,
        num_devices=settings.num_devices,
        is_new=is_new,
    )

    def open_stage(spec: StageSpec) -> OpenStudy:
        return _open_stage(study, spec, replace(settings, keys=keys), record)

    conductor = TransferConductor(TransferSteps(setup), open_stage)
    try:
        with stopping_at_interrupt(conductor, tell=settings.watcher.tell):
            conductor.begin()
            executor.run(conductor)
    except REFUSALS:
        conductor.refuse()
        raise
    finally:
        conductor.close()
    assert conductor.result is not None
    return replace(conductor.result, spending=conductor.spending)


def _open_stage(study: Study, spec: StageSpec, settings: RunSettings, record: TransferRecord) -> OpenStudy:
    """Open a stage of a study in its record, or go on with it where it is there."""
    is_search = spec.configs is None
    is_new = spec.is_new if spec.is_new is not None else spec.name is None or not record.has(spec.name)
    stage = replace(
        study,
        surrogate=spec.surrogate,
        name=spec.name,
        search=study.search if spec.configs is None else Listed(spec.configs),
        points=study.points if is_search else (),
        trial_timeout=study.trial_timeout if is_search else None,
        callbacks=study.callbacks if is_search else (),
        lanes=study.lanes if spec.lanes is None else spec.lanes,
        storage=study.storage if spec.is_recorded else None,
        part_of=spec.part_of,
    )
    is_alone = spec.surrogate.at == 1 and spec.configs is not None and len(spec.configs) == 1
    watcher = settings.watcher if spec.is_watched else Silence()
    settings = replace(settings, watcher=watcher, listeners=spec.listeners, learnt=spec.learnt, spreads=is_alone)
    return OpenStudy(stage, spec.limits, settings, is_new=is_new)
