"""Several studies in one run: they share devices and, where they train the same function, groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from headwater.conduct.joint import JointConductor
from headwater.conduct.limits import Limits, read_limits
from headwater.conduct.study_conductor import StudyConductor
from headwater.errors import AllTrialsFailedError, HeadwaterError, StudyEnds, StudyError
from headwater.execute import AutoExecutor, Executor, InlineExecutor, ProcessExecutor
from headwater.interrupts import stopping_at_interrupt
from headwater.running import REFUSALS, find_earlier, open_executor, with_views
from headwater.settings import check_one_of
from headwater.stage import OpenStudy, RunSettings
from headwater.study import Study
from headwater.trials import Result, Silence, Watcher

ALIKE = ("executor", "devices", "device")
"""What studies that run together have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A study that runs with others, and who hears of it."""

    study: Study
    limits: Limits
    on_result: Callable[[Result], object]
    """Is given what came of it, when its record is closed."""
    on_refusal: Callable[[HeadwaterError], object] | None = None
    """Is told why it cannot run while others do; None: then none of them runs."""
    watcher: Watcher = field(default_factory=Silence)


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
        AllTrialsFailedError: Every trial of one of them failed; the error carries the results of all.
    """
    counts = list(num_trials) if isinstance(num_trials, Sequence) else [num_trials] * len(studies)
    _check(studies, counts)
    check_one_of("resume", resume, ("never", "auto"))
    results: dict[int, Result] = {}
    members = [
        Member(study=study, limits=read_limits(count, time_budget, None), on_result=partial(results.__setitem__, place))
        for place, (study, count) in enumerate(zip(studies, counts, strict=True))
    ]
    run_members(members, may_resume=resume == "auto")
    found = [results[place] for place in range(len(studies))]
    failed = [result for result in found if result.has_only_failures and not result.was_interrupted]
    if failed:
        raise AllTrialsFailedError("; ".join(result.explain_failures() for result in failed), *found)
    return found


def run_members(members: Sequence[Member], *, may_resume: bool, turn_s: float = math.inf) -> None:
    """Run studies together, and tell each what came of it as soon as it has ended.

    After `turn_s`, a group gives its device to a study that waits and has none.

    Raises:
        StudyError: What is asked of all of them cannot be; of one of them where it does not hear of it itself.
    """
    plain = [replace(member, study=replace(member.study, packing=None)) for member in members]
    with open_executor(plain[0].study, plain[0].limits, Silence()) as (executor, settings), ExitStack() as closing:
        if not isinstance(executor, InlineExecutor | AutoExecutor | ProcessExecutor):
            raise StudyError(
                f"executor is {members[0].study.executor!r}; studies run together with 'inline', 'auto' or 'processes'"
            )
        opened = [
            (member, one) for member in plain if (one := _open(member, settings, closing, may_resume)) is not None
        ]
        if opened:
            _run(opened, executor, settings, turn_s)


def _check(studies: Sequence[Study], counts: Sequence[int | None]) -> None:
    if not studies or len(counts) != len(studies):
        raise StudyError(f"num_trials has {len(counts)} numbers for {len(studies)} studies; give one for each study")
    for name in ALIKE:
        values = [getattr(study, name) for study in studies]
        if any(value != values[0] for value in values):
            raise StudyError(
                f"{name} is {', '.join(map(repr, values))}; studies that run together have the same {name}"
            )
    for study in studies:
        require_single_stage(study)
    names = [
        (study.name, str(study.storage)) for study in studies if study.name is not None and study.storage is not None
    ]
    if len(set(names)) < len(names):
        raise StudyError(f"two of the studies have the same name and record: {names}; give each a name of its own")


def require_single_stage(study: Study) -> None:
    """Refuse a study that runs in stages."""
    if study.surrogate is not None:
        raise StudyError(
            "a study with a surrogate runs by itself, in stages; leave surrogate out to run it with others"
        )


def _open(member: Member, settings: RunSettings, closing: ExitStack, may_resume: bool) -> OpenStudy | None:
    is_new = not (may_resume and member.study.is_recorded())
    try:
        earlier_s = 0.0 if is_new else find_earlier(member.study)
        settings = replace(settings, watcher=member.watcher, earlier_s=earlier_s)
        opened = OpenStudy(member.study, member.limits, settings, is_new=is_new)
    except HeadwaterError as error:
        if member.on_refusal is None:
            raise
        member.on_refusal(error)
        return None
    closing.callback(opened.close)
    return opened


def _run(opened: Sequence[tuple[Member, OpenStudy]], executor: Executor, settings: RunSettings, turn_s: float) -> None:
    by_conductor = {one.conductor: (member, one) for member, one in opened}

    def conclude(conductor: StudyConductor) -> None:
        member, one = by_conductor.pop(conductor)
        conductor.close()
        result = one.finish()
        one.close()
        member.on_result(with_views(result, member.study.storage))

    kinds = [_find_kind(one, settings) for _, one in opened]
    joint = JointConductor(list(by_conductor), kinds, conclude, turn_s)
    try:
        with stopping_at_interrupt(joint):
            joint.begin()
            executor.run(joint)
    except StudyEnds as cut:
        for conductor in by_conductor:
            conductor.ended_early = str(cut)
    except REFUSALS:
        for _, one in by_conductor.values():
            one.refuse()
        raise
    finally:
        joint.close()
    for conductor in list(by_conductor):
        conclude(conductor)


def _find_kind(opened: OpenStudy, settings: RunSettings) -> tuple[object, ...]:
    """Return what is the same for studies whose lanes may share groups; of a function that cannot be told, its own."""
    brief, made_of = opened.conductor.brief(opened.name), opened.identify(settings.kind or "")
    function = id(brief.function) if made_of is None else made_of
    return (function, brief.metric, brief.mode, brief.max_epochs, brief.device)
