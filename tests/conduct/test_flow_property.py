"""Studies drawn at random find the same, whether devices flow or queue: none loses a trial, and they are not slower."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.execute.simulation import list_gpus, list_histories, make_study

from headwater.execute import DeviceJoin, DeviceLeave, DeviceLoss, SimulatedExecutor, SimulatedTimes
from headwater.execute.simulated import Change
from headwater.plan.speeds import Speeds
from headwater.space import Config
from headwater.trials import Device, Result, Status

NUM_EPOCHS = 9
SEARCHES = ("random", "halving", "hyperband", "asha", "pbt", "bohb", "median")


class Killed(BaseException):
    """The study's own process is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One study, and the machine that it runs on."""

    seed: int
    num_devices: int
    num_trials: int
    settings: dict[str, Any]
    changes: Sequence[Change]
    start_s: float
    save_s: float
    fused: float
    """How much of an epoch another lane costs."""
    tail: float
    """By how much the times of trials differ."""
    noise: float
    scaling: float
    raising: float
    """The share of trials that raise, and of those that diverge."""

    @classmethod
    def draw(cls, seed: int) -> Case:
        """Return the case of a seed."""
        random = Random(seed)
        num_devices = random.choice([1, 2, 2, 3, 4, 4, 8, 16, 40])
        settings = {
            "search": random.choice(SEARCHES),
            "lanes": random.choice(["auto", "auto", "auto", 1, 3]),
            "num_seeds": random.choice([1, 1, 1, 2]),
            "packing": random.choice([None, None, "cost"]),
            "save_every": random.choice(["auto", 1, 2, None]),
            "max_epochs": random.choice([NUM_EPOCHS, NUM_EPOCHS, 5]),
            "seed": random.randrange(100),
        }
        return cls(
            seed=seed,
            num_devices=num_devices,
            num_trials=random.choice([1, 2, 5, 9, 14, 27]),
            settings=settings,
            changes=_draw_changes(random, num_devices),
            start_s=random.choice([0.0, 0.3, 3.0]),
            save_s=random.choice([0.0, 0.1, 1.0]),
            fused=random.choice([0.1, 0.4, 0.8, 1.0]),
            tail=random.choice([0.0, 1.0, 2.0]),
            noise=random.choice([0.0, 0.2, 0.6]),
            scaling=random.choice([1.02, 1.15, 1.5, 1.99]),
            raising=random.choice([0.0, 0.0, 0.15]),
        )

    def times(self) -> SimulatedTimes:
        """Return how long all takes; the noise is another in each run."""
        random = Random(self.seed)

        def take(config: Config, num_lanes: int, kind: str) -> float:
            slowness = math.exp(self.tail * (config["lr"] - 0.5) * 2)
            return 2.0 * slowness * (1 + self.fused * (num_lanes - 1)) * math.exp(random.gauss(0, self.noise))

        return SimulatedTimes(
            epoch_s=take,
            num_epochs=NUM_EPOCHS,
            start_s=self.start_s,
            save_s=self.save_s,
            measure_s=0.1,
            load_s=0.2,
            devices=Speeds(scaling=self.scaling, max_devices=64),
        )

    def learn(self, config: Config, epoch: int) -> Mapping[str, float]:
        """Report what a trial reaches, if it neither raises nor diverges."""
        place = config["lr"] * 1000 % 1
        if place < self.raising and epoch >= 3:
            raise ValueError("it cannot go on")
        value = abs(config["lr"] - 0.3) + 1.0 / epoch
        return {"loss": math.nan if place > 1 - self.raising and epoch >= 2 else value}

    def executor(self, learn: Any = None) -> SimulatedExecutor:
        """Return the machine, as it is at the beginning."""
        return SimulatedExecutor(list_gpus(self.num_devices), learn or self.learn, self.times(), changes=self.changes)

    def run(self, allocation: str) -> Result:
        """Run it all."""
        return make_study(self.executor(), allocation=allocation, **self.settings).run(self.num_trials)


def _draw_changes(random: Random, num_devices: int) -> list[Change]:
    """Let devices come, and two at most go: what is lost more often has failed. The first one stays."""
    joins = [
        DeviceJoin(random.uniform(0, 60), Device(name=f"late:{place}", kind="gpu"))
        for place in range(random.choice([0, 0, 1, 4]))
    ]
    names = [f"gpu:{place}" for place in range(1, num_devices)] + [join.device.name for join in joins]
    gone = random.sample(names, min(len(names), random.choice([0, 0, 1, 2])))
    return [*joins, *(DeviceLoss(random.uniform(0, 80), name) for name in gone)]


def _draw_leaves(random: Random, num_devices: int) -> list[Change]:
    """Let devices come and go again and again, some so soon that what is placed there has not begun."""
    changes: list[Change] = []
    for name in [f"gpu:{place}" for place in range(1, num_devices)] + ["late:0", "late:1"]:
        time_s, is_there = 0.0, name.startswith("gpu")
        for _ in range(random.choice([0, 1, 2, 5])):
            time_s += random.choice([0.0, 0.01, random.uniform(0, 5), random.uniform(0, 30)])
            join = DeviceJoin(time_s, Device(name=name, kind="gpu"))
            changes.append(DeviceLeave(time_s, name) if is_there else join)
            is_there = not is_there
    return changes


def assert_same(ours: Result, queued: Result) -> None:
    assert list_histories_safely(ours) == list_histories_safely(queued)
    assert ours.ended_early == queued.ended_early is None
    for trial in ours.trials:
        assert trial.status is not Status.RUNNING
        epochs = [report.epoch for report in trial.history]
        assert epochs == sorted(set(epochs))


def list_histories_safely(result: Result) -> str:
    """Return what must be the same as text, in which one nan is another."""
    return "\n".join(map(repr, list_histories(result)))


def test_studies_find_the_same_as_in_a_queue_and_are_not_slower() -> None:
    ratios = []
    for seed in range(24):
        case = Case.draw(seed)
        ours, queued = case.run("ours"), case.run("fifo")
        assert_same(ours, queued)
        ratios.append(ours.seconds / queued.seconds)
    assert sum(ratios) / len(ratios) < 1.0


@pytest.mark.parametrize("allocation", ["ours", "fluid"])
@pytest.mark.parametrize("seed", range(16))
def test_studies_find_the_same_while_devices_come_and_go(seed: int, allocation: str) -> None:
    case = replace(Case.draw(seed), changes=())
    moved = replace(case, changes=_draw_leaves(Random(seed), case.num_devices))
    assert_same(moved.run(allocation), case.run("fifo"))


@pytest.mark.parametrize("seed", range(8))
def test_a_study_that_is_killed_on_the_way_finds_the_same_when_it_goes_on(seed: int, tmp_path: Path) -> None:
    case = Case.draw(seed)
    num_left = Random(seed).randrange(1, 40)

    def learn(config: Config, epoch: int) -> Mapping[str, float]:
        nonlocal num_left
        num_left -= 1
        if num_left == 0:
            raise Killed
        return case.learn(config, epoch)

    settings = {**case.settings, "storage": tmp_path / "study.db", "name": "one"}
    with contextlib.suppress(Killed):
        make_study(case.executor(learn), **settings).run(case.num_trials)
    resumed = make_study(case.executor(), **settings).resume(case.num_trials)
    assert_same(resumed, case.run("fifo"))


@pytest.mark.parametrize("seed", range(8))
def test_a_study_whose_time_is_over_says_so_and_goes_on_from_there(seed: int, tmp_path: Path) -> None:
    case = Case.draw(seed)
    settings = {**case.settings, "storage": tmp_path / "study.db", "name": "one"}
    queued = case.run("fifo")
    budget = queued.seconds * Random(seed).uniform(0.1, 0.6)
    first = make_study(case.executor(), **settings).run(case.num_trials, time_budget=budget)
    are_all_over = list_histories_safely(first) == list_histories_safely(queued)
    assert are_all_over or "time budget" in str(first.ended_early)
    assert_same(make_study(case.executor(), **settings).resume(case.num_trials), queued)
