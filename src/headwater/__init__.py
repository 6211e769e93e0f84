"""Headwater tunes PyTorch models: it trains hundreds of trials of one ordinary training function at once.

```python
import headwater as hw

study = hw.Study(train, space={"lr": hw.loguniform(1e-4, 1.0)}, metric="accuracy", mode="max")
result = study.run(num_trials=100)
print(result.best.config)
```

Importing this package imports nothing else of it; torch is imported when a study runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.cloud.local_cluster import LocalCluster
    from headwater.execute import ElasticExecutor, ProcessExecutor, RayExecutor, Service, SlurmExecutor
    from headwater.packs import Checkpoint, Unit, UnitPack, free, load, pack
    from headwater.report import Callback, Silence
    from headwater.report.mirroring import OptunaMirror
    from headwater.report.mlflow_logging import MLflowCallback
    from headwater.report.reading import load_study
    from headwater.report.tensorboard_logging import TensorBoardCallback
    from headwater.space import (
        Space,
        choice,
        grid,
        lograndint,
        loguniform,
        qloguniform,
        quniform,
        randint,
        sample_from,
        uniform,
    )
    from headwater.study import Study
    from headwater.together import run_together
    from headwater.train import Trial
    from headwater.train.lending import lend_bubbles
    from headwater.trials import Result, Surrogate, TrialRecord

__all__ = [
    "Callback",
    "Checkpoint",
    "ElasticExecutor",
    "LocalCluster",
    "MLflowCallback",
    "OptunaMirror",
    "ProcessExecutor",
    "RayExecutor",
    "Result",
    "Service",
    "Silence",
    "SlurmExecutor",
    "Space",
    "Study",
    "Surrogate",
    "TensorBoardCallback",
    "Trial",
    "TrialRecord",
    "Unit",
    "UnitPack",
    "choice",
    "free",
    "grid",
    "lend_bubbles",
    "load",
    "load_study",
    "lograndint",
    "loguniform",
    "pack",
    "qloguniform",
    "quniform",
    "randint",
    "run_together",
    "sample_from",
    "uniform",
]

_MODULES = ("errors", "report", "search")
"""Packages whose members are written with their names, as in hw.search.ASHA."""
_HOMES = {
    "Callback": "headwater.report",
    "Checkpoint": "headwater.packs",
    "ElasticExecutor": "headwater.execute",
    "LocalCluster": "headwater.cloud.local_cluster",
    "MLflowCallback": "headwater.report.mlflow_logging",
    "OptunaMirror": "headwater.report.mirroring",
    "ProcessExecutor": "headwater.execute",
    "RayExecutor": "headwater.execute",
    "Result": "headwater.trials",
    "Service": "headwater.execute",
    "Silence": "headwater.report",
    "SlurmExecutor": "headwater.execute",
    "Space": "headwater.space",
    "Study": "headwater.study",
    "Surrogate": "headwater.trials",
    "TensorBoardCallback": "headwater.report.tensorboard_logging",
    "Trial": "headwater.train",
    "TrialRecord": "headwater.trials",
    "Unit": "headwater.packs",
    "UnitPack": "headwater.packs",
    "choice": "headwater.space",
    "free": "headwater.packs",
    "grid": "headwater.space",
    "lend_bubbles": "headwater.train.lending",
    "load": "headwater.packs",
    "load_study": "headwater.report.reading",
    "lograndint": "headwater.space",
    "loguniform": "headwater.space",
    "pack": "headwater.packs",
    "qloguniform": "headwater.space",
    "quniform": "headwater.space",
    "randint": "headwater.space",
    "run_together": "headwater.together",
    "sample_from": "headwater.space",
    "uniform": "headwater.space",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


def __getattr__(name: str) -> Any:  # Any: whatever the name stands for
    if name in _MODULES:
        return import_module(f"headwater.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
