"""Settings of a study that options, or the record, have in the place of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.errors import StudyError

if TYPE_CHECKING:
    from headwater.study import Study


def override(study: Study, options: dict[str, Any]) -> Study:  # Any: settings of a study, None where not given
    """Give the study what options say in the place of its own settings."""
    return replace(study, **{key: value for key, value in options.items() if value is not None})


def as_recorded(study: Study, max_epochs: int | None, order: str | None) -> Study:
    """Give the study what options of `run` may have changed when it was recorded."""
    from headwater.search import SEARCHES
    from headwater.store import open_store
    from headwater.trials import Surrogate

    with open_store(study.storage, create=False) as store:
        info = store.study(study.name)
        facts = store.facts(info.id)
    search = info.settings.get("search")
    recorded = info.settings.get("order", "virtual")
    if order not in (None, recorded):
        raise StudyError(
            f"--order is {order}, but study {info.name!r} ran with {recorded}, and what was decided in one order "
            f"cannot be decided again in the other; leave the option out, or start another study with "
            f"headwater run --order {order}"
        )
    options = {
        "seed": info.seed,
        "name": info.name,
        "search": search if search in SEARCHES else None,
        "constraints": info.constraints,
        "order": recorded,
    }
    scale = info.settings.get("scale")
    if isinstance(study.surrogate, Surrogate) and scale is not None:
        scale = replace(study.surrogate, scale=scale)
    limit = facts.get("max_epochs", max_epochs or study.max_epochs)  # records of version 0.1 may lack it
    if max_epochs not in (None, limit):
        raise StudyError(
            f"--max-epochs is {max_epochs}, but study {info.name!r} ran with {limit or 'no limit'}, and trials that "
            f"train for unlike numbers of epochs cannot be compared; leave the option out, or start another study "
            f"with headwater run --max-epochs {max_epochs}"
        )
    return replace(override(study, {**options, "surrogate": scale}), max_epochs=limit)
