"""What the record says a study is, and whether one that is resumed is still the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headwater.errors import StudyError
from headwater.space import Space
from headwater.store import Store, StudyInfo
from headwater.trials import Surrogate

if TYPE_CHECKING:
    from headwater.study import Study


def create_study(study: Study, store: Store, num_trials: int | None) -> StudyInfo:
    """Write a study into the record, under its name or one that is free."""
    info = StudyInfo(
        name=study.name or "",
        metric=study.objective.metric,
        mode=study.objective.mode,
        seed=study.seed,
        space=_describe_space(study),
        settings={
            "lanes": study.lanes,
            "num_trials": num_trials,
            "search": _name_search(study),
            "order": study.order,
            "num_seeds": study.num_seeds,
            "judge": study.judge,
            "also": dict(study.also) or None,
            "constraints": list(map(str, study.constraints)) or None,
            "surrogate": describe_surrogate(study.surrogate),
            "scale": study.surrogate.scale if isinstance(study.surrogate, Surrogate) else None,
            "part_of": study.part_of,
        },
    )
    if study.name is None:
        return store.create_numbered(info, getattr(study.train, "__name__", "study"))
    store.create_study(info)
    return store.study(study.name)


def require_same(study: Study, info: StudyInfo) -> None:
    """A record goes on only with the space, metric and seed that it was made with."""
    search = _name_search(study)
    for name, mine, recorded in (
        ("space", _describe_space(study), info.space),
        ("metric", study.metric, info.metric),
        ("mode", study.mode, info.mode),
        ("further metrics", dict(study.also), dict(info.also)),
        ("constraints", list(map(str, study.constraints)), list(map(str, info.constraints))),
        ("judge", study.judge, info.objective.judge),
        ("seed", study.seed, info.seed),
        ("num_seeds", study.num_seeds, info.num_seeds),
        ("search", search, info.settings.get("search", search)),
        ("order", study.order, info.settings.get("order", "virtual")),
        ("surrogate", describe_surrogate(study.surrogate), info.settings.get("surrogate")),
    ):
        if mine != recorded:
            what = f"was recorded with {name} {recorded!r}, but this one has {mine!r}"
            if name == "space":
                what = f"was recorded with another space: {compare_spaces(recorded, _describe_space(study))}"
            raise StudyError(
                f"study {info.name!r} {what}; resume it with the same settings, or run a new study under another name"
            )


def compare_spaces(recorded: Any, mine: Sequence[Mapping[str, Any]]) -> str:  # Any: JSON values
    """Say in which keys two spaces differ, given as the record describes them."""
    before = {row["key"]: row["text"] for row in recorded if isinstance(row, dict)}
    now = {row["key"]: row["text"] for row in mine}
    lines = [f"{key} was {before[key]} and is {now[key]}" for key in before if before[key] != now.get(key, before[key])]
    lines += [f"{key}, {before[key]}, is gone" for key in before if key not in now]
    lines += [f"{key}, {now[key]}, is new" for key in now if key not in before]
    return "; ".join(lines) or "its keys are in another order"


def _name_search(study: Study) -> str:
    """What the record calls the way of searching: its name, or the kind of object that it is."""
    return study.search if isinstance(study.search, str) else type(study.search).__name__


def describe_surrogate(surrogate: object) -> str | None:
    """Return what decides at which width trials train and how their settings follow it."""
    if not isinstance(surrogate, Surrogate):
        return None
    one = surrogate
    decay = f"decay by the power {one.decay_exponent:g}, " if one.decay_exponent != 1 else ""
    roles = "".join(f", {name} as {role}" for name, role in sorted(one.roles.items()))
    return f"1/{one.at} of the width ({decay}none below {one.min_width}{roles})"


def _describe_space(study: Study) -> list[dict[str, Any]]:  # Any: JSON values
    assert isinstance(study.space, Space)
    return [asdict(row) for row in study.space.describe()]
