"""Studies whose training takes the time that a table says, and reports what a function says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import headwater as hw
from headwater.execute import SimulatedExecutor, SimulatedTimes
from headwater.execute.simulated import Change
from headwater.space import Config
from headwater.trials import Device, Result, TrialRecord

EVEN = SimulatedTimes(epoch_s=lambda config, num_lanes, kind: 2.0, num_epochs=9, start_s=1.0)
UNEVEN = SimulatedTimes(epoch_s=lambda config, num_lanes, kind: 1.0 + 9.0 * config["lr"], num_epochs=9, save_s=0.25)


def learn(config: Config, epoch: int) -> Mapping[str, float]:
    return {"loss": abs(config["lr"] - 0.3) + 1.0 / epoch}


def never_called(trial: hw.Trial) -> None:
    raise AssertionError("nothing trains in a simulation")


def list_gpus(num_devices: int) -> list[Device]:
    return [Device(name=f"gpu:{place}", kind="gpu") for place in range(num_devices)]


def simulate(
    times: SimulatedTimes,
    num_devices: int = 2,
    *,
    num_trials: int | None = 8,
    curve: Any = learn,
    changes: Sequence[Change] = (),
    **settings: Any,
) -> Result:
    """Run a study on so many devices."""
    executor = SimulatedExecutor(list_gpus(num_devices), curve, times, changes=changes)
    return make_study(executor, **settings).run(num_trials, watcher=hw.Silence())


def make_study(executor: SimulatedExecutor, **settings: Any) -> hw.Study:
    usual: dict[str, Any] = {"storage": None, "lanes": 1, "packing": None, "max_epochs": 9}
    return hw.Study(
        never_called, space={"lr": hw.uniform(0.0, 1.0)}, metric="loss", executor=executor, **{**usual, **settings}
    )


def list_histories(result: Result) -> list[tuple[Any, ...]]:
    """What of each trial must not depend on where and when it trained."""
    return [_describe(trial) for trial in result.trials]


def _describe(trial: TrialRecord) -> tuple[Any, ...]:
    return trial.number, trial.config, trial.status, trial.history
