"""What a record holds, as plain values that can be compared."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from headwater.errors import StoreError
from headwater.store import open_store, read_shown
from headwater.trials import Result, Status

RECORD, BEST = "study.db", "best.json"
TOLERANCE = 1e-9


def is_recorded(folder: Path) -> bool:
    """Tell whether there is a study to resume."""
    try:
        with open_store(folder / RECORD, create=False) as store:
            return bool(store.studies())
    except StoreError:
        return False


def list_failed(folder: Path) -> list[int]:
    """Return the trials that are said to have failed, of all studies."""
    if not is_recorded(folder):
        return []
    with open_store(folder / RECORD, create=False) as store:
        trials = [trial for info in store.studies() for trial in store.trials(info.id)]
    return [trial.number for trial in trials if trial.status is Status.FAILED]


def describe(folder: Path) -> dict[str, Any]:  # Any: JSON values
    """Return every trial of every study with all it reported, and the weights of the best model."""
    with open_store(folder / RECORD, create=False) as store:
        studies = {
            info.name: [
                {
                    "number": trial.number,
                    "status": trial.status.value,
                    "config": dict(trial.config),
                    "epochs": [report.epoch for report in trial.history],
                    "loss": [report.metrics["loss"] for report in trial.history],
                }
                for trial in store.trials(info.id, read_shown)
            ]
            for info in store.studies()
        }
    return {"studies": studies, "best": json.loads((folder / BEST).read_text())}


def save_best(result: Result, folder: Path) -> None:
    """Write the weights of the best model, as a user would get them."""
    weights = {name: tensor.flatten().tolist() for name, tensor in result.load_best_model().state_dict().items()}
    (folder / BEST).write_text(json.dumps({"number": result.best.number, "weights": weights}))


def compare(mine: Any, other: Any, path: str = "") -> str:  # Any: JSON values
    """Say where two descriptions differ first; "" where they do not. Numbers may differ by rounding."""
    pairs: list[tuple[object, Any, Any]] = []
    if isinstance(mine, dict) and isinstance(other, dict) and mine.keys() == other.keys():
        pairs = [(key, mine[key], other[key]) for key in mine]
    elif isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        pairs = [(place, one, two) for place, (one, two) in enumerate(zip(mine, other, strict=True))]
    elif isinstance(mine, float) and isinstance(other, float) and math.isclose(mine, other, rel_tol=TOLERANCE):
        return ""
    elif mine != other:
        return f"{path} is {mine!r:.80}, undisturbed {other!r:.80}"
    return next((found for key, one, two in pairs if (found := compare(one, two, f"{path}/{key}"))), "")
