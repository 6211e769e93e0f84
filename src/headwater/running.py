"""Running a study on an executor: as one search, or in stages with a surrogate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from headwater.conduct.limits import Limits
from headwater.conduct.stages import StageSpec
from headwater.conduct.transfer import TransferConductor
from headwater.conduct.transfer_record import TransferRecord
from headwater.conduct.transfer_steps import TransferSetup, TransferSteps
from headwater.errors import CannotScaleError, SpaceError, StudyError
from headwater.execute import AutoExecutor, Executor, InlineExecutor, SimulatedExecutor, build_executor
from headwater.interrupts import stopping_at_interrupt
from headwater.search import Listed
from headwater.space import Space
from headwater.stage import OpenStudy, RunSettings, TemporaryStates, make_brief
from headwater.store import open_store, read_spans
from headwater.trials import Deadline, Objective, Result, Silence, StatesPlace, Surrogate, Watcher

if TYPE_CHECKING:
    from headwater.study import Study


REFUSALS = (StudyError, SpaceError, CannotScaleError)
"""What says that a study is set up wrongly."""


def run_study(study: Study, limits: Limits, watcher: Watcher, *, is_new: bool) -> Result:
    """Run or resume a study to its end, on the executor that it asks for."""
    surrogate = study.surrogate
    has_stages = isinstance(surrogate, Surrogate) and surrogate.at is None and surrogate.scale != 1
    if isinstance(study.executor, SimulatedExecutor):
        limits = replace(limits, deadline=Deadline.start(limits.deadline.seconds, study.executor.clock))
    earlier_s = 0.0 if is_new else _find_earlier(study)
    with _open_executor(study, limits, watcher) as (executor, plain):
        settings = replace(plain, earlier_s=earlier_s)
        if has_stages:
            return _run_stages(study, limits, executor, settings, is_new=is_new)
        return _run_search(study, limits, executor, settings, is_new=is_new)


def _find_earlier(study: Study) -> float:
    """Return when the last span of the study ended, or that of its stages."""
    with open_store(study.storage) as store:
        return max((span.end_s for span in read_spans(store, study.name)), default=0.0)


@contextmanager
def _open_executor(study: Study, limits: Limits, watcher: Watcher) -> Iterator[tuple[Executor, RunSettings]]:
    if isinstance(study.executor, SimulatedExecutor):  # nothing trains, so torch stays away
        devices, states = study.executor.list_devices(), TemporaryStates(is_shared=False)
        yield study.executor, RunSettings(num_devices=max(len(devices), 1), states=states, watcher=watcher)
        return
    from headwater.train.machine import count_threads, describe_device, read_torch_settings
    from headwater.train.memory import keep_freed_memory
    from headwater.train.running import choose_device

    device = choose_device(study.device)
    executor = build_executor(study.executor, device.type, study.devices, limits.deadline.clock)
    is_here = isinstance(executor, InlineExecutor)
    begins_here = is_here or isinstance(executor, AutoExecutor)
    keep_freed_memory()
    states = TemporaryStates(is_shared=not is_here)
    settings = RunSettings(
        num_devices=len(executor.list_devices()),
        device=str(device),
        kind=describe_device(device, count_threads() if begins_here else 1),
        states=states,
        torch_settings=read_torch_settings(),
        watcher=watcher,
    )
    try:
        yield executor, settings
    finally:
        executor.close()


def _run_search(study: Study, limits: Limits, executor: Executor, settings: RunSettings, *, is_new: bool) -> Result:
    opened = OpenStudy(study, limits, settings, is_new=is_new)
    if not isinstance(executor, AutoExecutor | InlineExecutor):  # others are busy too
        return _conclude(opened, executor)
    from headwater.fuse.strategies import read_process_clock

    begin_s = read_process_clock()
    result = _conclude(opened, executor)
    is_here = isinstance(executor, InlineExecutor) or executor.is_inline
    return replace(result, seconds_busy=read_process_clock() - begin_s) if is_here else result


def _conclude(opened: OpenStudy, executor: Executor) -> Result:
    """Run a study that is open to its end, and close it."""
    try:
        try:
            with stopping_at_interrupt(opened.conductor.end):
                opened.conductor.begin()
                executor.run(opened.conductor)
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
        objective=Objective(study.metric, study.mode),
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
        with stopping_at_interrupt(conductor):
            conductor.begin()
            executor.run(conductor)
    except REFUSALS:
        conductor.refuse()
        raise
    finally:
        conductor.close()
    assert conductor.result is not None
    return conductor.result


def _open_stage(study: Study, spec: StageSpec, settings: RunSettings, record: TransferRecord) -> OpenStudy:
    """Open a stage of a study in its record, or go on with it where it is there."""
    is_search = spec.configs is None
    is_new = spec.is_new if spec.is_new is not None else spec.name is None or not record.has(spec.name)
    stage = replace(
        study,
        surrogate=spec.surrogate,
        name=spec.name,
        search=study.search if spec.configs is None else Listed(spec.configs),
        callbacks=study.callbacks if is_search else (),
        lanes=study.lanes if spec.lanes is None else spec.lanes,
        storage=study.storage if spec.is_recorded else None,
        part_of=spec.part_of,
    )
    is_alone = spec.surrogate.at == 1 and spec.configs is not None and len(spec.configs) == 1
    watcher = settings.watcher if spec.is_watched else Silence()
    settings = replace(settings, watcher=watcher, listeners=spec.listeners, learnt=spec.learnt, spreads=is_alone)
    return OpenStudy(stage, spec.limits, settings, is_new=is_new)
