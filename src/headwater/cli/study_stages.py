"""The stages of a study as plans know them: what its searcher says before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import PlanError
from headwater.plan.jobs import JobStage, Part
from headwater.search import Hyperband
from headwater.trials import Surrogate

if TYPE_CHECKING:
    from headwater.study import Study


def list_job_stages(study: Study, num_trials: int) -> list[JobStage] | None:
    """Return the stages that a study goes through by a plan, one after the other; None where it decides on the way.

    Brackets follow one another. With a surrogate, the search is followed by a check of its ranking, as it is where two
    widths rank alike, and by the target.

    Raises:
        PlanError: Nothing says how many epochs trials train.
    """
    brackets = _list_brackets(study, num_trials)
    scale = find_scale(study)
    if brackets is None or scale is None:
        return None
    stages = [
        stage
        for number, bracket in enumerate(brackets)
        for stage in _count_epochs(bracket, study.num_seeds, bracket=number, scale=scale)
    ]
    return stages if not _has_target(study) else [*stages, *_list_transfer(study, brackets, scale)]


def follow_plan(study: Study) -> Study:
    """Return a study as it runs by a plan: its brackets follow one another, and no target starts ahead of time.

    Neither changes what it finds, only when what trains.
    """
    search = Hyperband() if study.search == "hyperband" else study.search
    if isinstance(search, Hyperband):
        study = replace(study, search=replace(search, concurrency=1))
    if isinstance(study.surrogate, Surrogate) and _has_target(study):
        study = replace(study, surrogate=replace(study.surrogate, eager=1.0))
    return study


def list_scales(study: Study) -> list[int]:
    """Return at which fractions of its width the stages of a study train models, besides the whole."""
    scale = find_scale(study) or 1
    return [one for one in (scale, scale // 2) if one > 1]


def find_scale(study: Study) -> int | None:
    """Return how many times narrower the models of the search are than the target; None where it is chosen on the way.

    Where there is no target, all models count as whole.
    """
    if not _has_target(study):
        return 1
    assert isinstance(study.surrogate, Surrogate)
    return None if isinstance(study.surrogate.scale, str) else study.surrogate.scale


def count_recorded(study: Study, asked: int | None) -> int:
    """Return how many trials a study has that goes on: as many as were asked for, or as it began with."""
    from headwater.store import open_store

    with open_store(study.storage, create=False) as store:
        return study.count_trials(asked or store.study(study.name).settings.get("num_trials"))


def _list_brackets(study: Study, num_trials: int) -> Sequence[Sequence[tuple[int, int | None]]] | None:
    """Return how many trials train until which epoch, by brackets and stages of these."""
    from headwater.search import Problem, build_searcher, list_brackets
    from headwater.space import Space

    assert isinstance(study.space, Space)
    problem = Problem(
        space=study.space,
        metric=study.objective.metric,
        mode=study.objective.mode,
        seed=study.seed,
        num_trials=num_trials,
        max_epochs=study.max_epochs,
    )
    brackets = list_brackets(build_searcher(study.search, problem))
    if brackets is None:
        return None
    return [[(stage.num_trials, stage.until or study.max_epochs) for stage in bracket] for bracket in brackets]


def _has_target(study: Study) -> bool:
    surrogate = study.surrogate
    return isinstance(surrogate, Surrogate) and surrogate.at is None and surrogate.scale != 1


def _list_transfer(study: Study, brackets: Sequence[Sequence[tuple[int, int | None]]], scale: int) -> list[JobStage]:
    """Return what follows a search on surrogates: some configurations at twice the width, and the target."""
    surrogate = study.surrogate
    assert isinstance(surrogate, Surrogate)
    num_searched = sum(bracket[0][0] for bracket in brackets)
    num_epochs = max(end for bracket in brackets for _, end in bracket if end is not None)
    num_checked = min(surrogate.num_checked, num_searched)
    assert not isinstance(study.space, Mapping)  # a study has made a space of it
    keys = surrogate.retuned_keys(list(study.space.domains))
    counts = [study.num_seeds * max(count, 1) for count in (num_checked, surrogate.num_retuned if keys else 1)]
    checks = JobStage(num_trials=counts[0], num_epochs=num_epochs, part=Part.CHECK, scale=scale // 2)
    target = JobStage(num_trials=counts[1], num_epochs=num_epochs, part=Part.TARGET)
    return [checks, target] if surrogate.num_checked > 1 and num_searched > 2 else [target]


def _count_epochs(
    ends: Sequence[tuple[int, int | None]], num_seeds: int, *, bracket: int, scale: int
) -> list[JobStage]:
    """Return stages by the epochs that each trains, from those by where it ends."""
    before, stages = 0, []
    for num_trials, end in ends:
        if end is None:
            raise PlanError(
                "nothing says how many epochs a trial trains; give --max-epochs, or max_epochs in the study"
            )
        count = num_trials * num_seeds
        stages.append(JobStage(num_trials=count, num_epochs=end - before, bracket=bracket, scale=scale))
        before = end
    return stages
