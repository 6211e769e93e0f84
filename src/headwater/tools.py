"""What the loop of a study works with, built from what the user set up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from headwater.execute import Executor, build_executor
from headwater.limits import Limits
from headwater.plan import Packing
from headwater.report import Callback, Watcher
from headwater.search import Problem, Searcher, build_searcher
from headwater.search.replicas import Replicated
from headwater.space import Space
from headwater.store import KEPT, Recorder, place_states
from headwater.trials import Lane, Surrogate, TrialRecord, average_replicas

if TYPE_CHECKING:
    import torch

    from headwater.study import Study
    from headwater.train.packer import Packer
    from headwater.train.running import Workshop
    from headwater.train.scaling import Scaling
    from headwater.train.sorting import Sorter, Tell
    from headwater.train.state_store import StateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the loop works with; it owns none of it."""

    searcher: Searcher
    recorder: Recorder
    workshop: Workshop
    sorter: Sorter
    packer: Packer
    state_store: StateStore
    executor: Executor
    watcher: Watcher
    callbacks: Sequence[Callback] = ()


class Means(NamedTuple):
    """What a run is made with, as far as that needs no record."""

    searcher: Searcher
    device: torch.device
    executor: Executor


def prepare_means(study: Study, limits: Limits, known: Sequence[TrialRecord]) -> Means:
    """Make what a run needs, as far as that can be done without a record; `known` is what that holds already.

    Raises:
        StudyError: The search, the device or the executor cannot be had here.
    """
    from headwater.train.running import choose_device

    assert isinstance(study.space, Space)
    problem = Problem(
        space=study.space,
        metric=study.metric,
        mode=study.mode,
        seed=study.seed,
        num_trials=limits.num_trials,
        max_epochs=limits.max_epochs,
        known=average_replicas(known, study.num_seeds),
    )
    searcher = build_searcher(study.search, problem)
    searcher = searcher if study.num_seeds == 1 else Replicated(searcher, study.num_seeds, known)
    device = choose_device(study.device)
    return Means(searcher, device, build_executor(study.executor, device.type))


def build_tools(study: Study, recorder: Recorder, means: Means, limits: Limits, watcher: Watcher) -> Tools:
    """Build the rest of what a run of this study needs."""
    from headwater.train.packer import HURRIED_UNITS, MAX_UNITS, Packer
    from headwater.train.sorting import Sorter
    from headwater.train.state_store import StateStore

    def tell(text: str, lanes: Sequence[Lane]) -> None:
        recorder.note("lanes", text, lanes)
        watcher.tell(text)

    def note_kept(number: int, epoch: int) -> None:
        recorder.add_fact(KEPT, {"number": number, "epoch": epoch})

    workshop = _build_workshop(study, means, limits, tell)
    packing = None if study.packing is None else Packing(study.packing)
    num_units = MAX_UNITS if limits.deadline.seconds is None else HURRIED_UNITS
    assert isinstance(study.space, Space)
    packer = Packer(workshop, packing, study.space, Random(study.seed), tell, num_units)
    num_lanes = study.lanes if isinstance(study.lanes, int) else None
    return Tools(
        searcher=means.searcher,
        recorder=recorder,
        workshop=workshop,
        sorter=Sorter(workshop, num_lanes, tell, recorder.add_profile, packer.key),
        packer=packer,
        state_store=StateStore(place_states(recorder, study.states), study.save_every, note_kept),
        executor=means.executor,
        watcher=watcher,
        callbacks=study.callbacks,
    )


def _build_workshop(study: Study, means: Means, limits: Limits, tell: Tell) -> Workshop:
    from headwater.train.compiling import Compiler
    from headwater.train.running import Workshop

    is_target = isinstance(study.surrogate, Surrogate) and study.surrogate.at == 1
    compiles = is_target if study.compile is None else study.compile
    return Workshop(
        study.train,
        means.device,
        num_workers=means.executor.num_workers,
        scaling=_build_scaling(study.surrogate),
        compiler=Compiler(tell=lambda text: tell(text, ())) if compiles else None,
        shares_loading=study.packing is not None,
        deadline=limits.deadline.keep(limits.reserve(0.0) if limits.reserve else 0.0),
    )


def _build_scaling(surrogate: object) -> Scaling | None:
    from headwater.train.scaling import Scaling

    if not isinstance(surrogate, Surrogate) or surrogate.at in (None, 1):
        return None  # the target trains as it is written
    return Scaling(surrogate, surrogate.at)
