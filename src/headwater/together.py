"""Several studies in one run: they share devices and, where they train the same function, groups."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from headwater.conduct.joint import JointConductor
from headwater.conduct.limits import Limits, read_limits
from headwater.errors import StudyEnds, StudyError
from headwater.execute import AutoExecutor, Executor, InlineExecutor, ProcessExecutor
from headwater.interrupts import stopping_at_interrupt
from headwater.running import REFUSALS, open_executor
from headwater.settings import check_one_of
from headwater.stage import OpenStudy, RunSettings
from headwater.study import Study
from headwater.trials import Result, Silence

ALIKE = ("executor", "devices", "device")
"""What studies that run together have in common."""


def run_together(
    studies: Sequence[Study],
    num_trials: int | Sequence[int] | None = None,
    *,
    time_budget: float | None = None,
    resume: str = "never",
) -> list[Result]:
    """Run several studies on one set of devices, and return what came of each.

    Studies of the same function, space, metric and seed train as lanes of common groups. All others take turns on the
    devices. Each keeps its own record, searches by itself, and has the trials that it would have alone. They train in
    this process or in processes of this machine, without packs.

    Args:
        studies: With the same `executor`, `device` and `devices`, and without surrogates.
        num_trials: Of each study, or one number for each.
        time_budget: After so many seconds, all end with what they have.
        resume: With "auto", a study goes on that its record has already, as for `Study.run`.

    Raises:
        StudyError: They cannot run together, or one of them cannot run.
    """
    counts = list(num_trials) if isinstance(num_trials, Sequence) else [num_trials] * len(studies)
    _check(studies, counts)
    check_one_of("resume", resume, ("never", "auto"))
    plain = [replace(study, packing=None) for study in studies]
    limits = [read_limits(count, time_budget, None) for count in counts]
    with open_executor(plain[0], limits[0], Silence()) as (executor, settings), ExitStack() as closing:
        if not isinstance(executor, InlineExecutor | AutoExecutor | ProcessExecutor):
            raise StudyError(
                f"executor is {studies[0].executor!r}; studies run together with 'inline', 'auto' or 'processes'"
            )
        opened = [
            _open(study, limit, settings, closing, may_resume=resume == "auto")
            for study, limit in zip(plain, limits, strict=True)
        ]
        _run(opened, executor, settings)
        return [one.finish() for one in opened]


def _check(studies: Sequence[Study], counts: Sequence[int | None]) -> None:
    if not studies or len(counts) != len(studies):
        raise StudyError(f"num_trials has {len(counts)} numbers for {len(studies)} studies; give one for each study")
    for name in ALIKE:
        values = [getattr(study, name) for study in studies]
        if any(value != values[0] for value in values):
            raise StudyError(
                f"{name} is {', '.join(map(repr, values))}; studies that run together have the same {name}"
            )
    if any(study.surrogate is not None for study in studies):
        raise StudyError(
            "a study with a surrogate runs by itself, in stages; leave surrogate out to run it with others"
        )
    names = [
        (study.name, str(study.storage)) for study in studies if study.name is not None and study.storage is not None
    ]
    if len(set(names)) < len(names):
        raise StudyError(f"two of the studies have the same name and record: {names}; give each a name of its own")


def _open(study: Study, limits: Limits, settings: RunSettings, closing: ExitStack, *, may_resume: bool) -> OpenStudy:
    opened = OpenStudy(study, limits, settings, is_new=not (may_resume and study.is_recorded()))
    closing.callback(opened.close)
    return opened


def _run(opened: Sequence[OpenStudy], executor: Executor, settings: RunSettings) -> None:
    conductors = [one.conductor for one in opened]
    joint = JointConductor(conductors, [_find_kind(one, settings) for one in opened])
    try:
        with stopping_at_interrupt(joint):
            joint.begin()
            executor.run(joint)
    except StudyEnds as cut:
        for conductor in conductors:
            conductor.ended_early = str(cut)
    except REFUSALS:
        for one in opened:
            one.refuse()
        raise
    finally:
        joint.close()


def _find_kind(opened: OpenStudy, settings: RunSettings) -> tuple[object, ...]:
    """Return what is the same for studies whose lanes may share groups; of a function that cannot be told, its own."""
    brief, made_of = opened.conductor.brief(opened.name), opened.identify(settings.kind or "")
    function = id(brief.function) if made_of is None else made_of
    return (function, brief.metric, brief.mode, brief.max_epochs, brief.device)
