from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tests.fuse.racing import Race, Settings
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from headwater.errors import CannotFuseError
from headwater.fuse.hyperparameters import merge, pick
from headwater.fuse.optimizers import LaneOptimizer, fuse_optimizer
from headwater.fuse.per_lane import PerLane, PerLaneText
from headwater.fuse.roster import Roster
from headwater.fuse.schedulers import LaneScheduler, fuse_scheduler
from headwater.torch_private import lanes_of

Build = Callable[[Any, type[LRScheduler] | Any, Settings], Any]


class Halving(LRScheduler):
    """A scheduler as users write them."""

    def __init__(self, optimizer: Optimizer, every: int = 2) -> None:
        self.every = every
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        factor = 0.5 if self.last_epoch % self.every == 1 else 1.0
        return [group["lr"] * factor for group in self.optimizer.param_groups]


def decay(epoch: int) -> float:
    return 1 / (1 + epoch)


TOGETHER: dict[str, tuple[type[LRScheduler], Callable[[int], Settings]]] = {
    "step": (lr_scheduler.StepLR, lambda i: {"step_size": 3, "gamma": 0.5 + 0.05 * i}),
    "multi-step": (lr_scheduler.MultiStepLR, lambda i: {"milestones": [3, 7, 7], "gamma": 0.5 + 0.05 * i}),
    "exponential": (lr_scheduler.ExponentialLR, lambda i: {"gamma": 0.9 - 0.05 * i}),
    "constant": (lr_scheduler.ConstantLR, lambda i: {"factor": 0.1 * (i + 1), "total_iters": 4}),
    "linear": (lr_scheduler.LinearLR, lambda i: {"start_factor": 0.1 * (i + 1), "end_factor": 1 - 0.1 * i}),
    "polynomial": (lr_scheduler.PolynomialLR, lambda i: {"power": 0.5 * (i + 1), "total_iters": 15}),
    "cosine": (lr_scheduler.CosineAnnealingLR, lambda i: {"T_max": 7, "eta_min": 0.01 * i}),
    "restarts": (lr_scheduler.CosineAnnealingWarmRestarts, lambda i: {"T_0": 3, "T_mult": 2}),
    "lambda": (lr_scheduler.LambdaLR, lambda i: {"lr_lambda": decay}),
    "multiplicative": (lr_scheduler.MultiplicativeLR, lambda i: {"lr_lambda": decay}),
    "one-cycle": (
        lr_scheduler.OneCycleLR,
        lambda i: {
            "max_lr": 0.1 * (i + 1),
            "total_steps": 25,
            "div_factor": 10.0 + i,
            "final_div_factor": 100.0 + i,
            "base_momentum": 0.8 - 0.05 * i,
            "max_momentum": 0.9 + 0.01 * i,
        },
    ),
    "cyclic": (
        lr_scheduler.CyclicLR,
        lambda i: {
            "base_lr": 0.01 * (i + 1),
            "max_lr": 0.1 * (i + 1),
            "step_size_up": 3,
            "mode": "exp_range",
            "gamma": 0.99 - 0.01 * i,
            "base_momentum": 0.8 - 0.05 * i,
            "max_momentum": 0.9 + 0.01 * i,
        },
    ),
    "own": (Halving, lambda i: {"every": 3}),
}
APART: dict[str, tuple[type[LRScheduler], Callable[[int], Settings]]] = {
    "step-apart": (lr_scheduler.StepLR, lambda i: {"step_size": 2 + i, "gamma": 0.5 + 0.05 * i}),
    "multi-step-apart": (lr_scheduler.MultiStepLR, lambda i: {"milestones": [2 + i, 7]}),
    "constant-apart": (lr_scheduler.ConstantLR, lambda i: {"total_iters": 4 + i}),
    "linear-apart": (lr_scheduler.LinearLR, lambda i: {"total_iters": 4 + i}),
    "polynomial-apart": (lr_scheduler.PolynomialLR, lambda i: {"total_iters": 10 + i}),
    "cosine-apart": (lr_scheduler.CosineAnnealingLR, lambda i: {"T_max": 5 + i, "eta_min": 0.01 * i}),
    "restarts-apart": (lr_scheduler.CosineAnnealingWarmRestarts, lambda i: {"T_0": 3 + i, "eta_min": 0.01 * i}),
    "lambda-apart": (lr_scheduler.LambdaLR, lambda i: {"lr_lambda": lambda epoch: (0.9 - 0.05 * i) ** epoch}),
    "multiplicative-apart": (lr_scheduler.MultiplicativeLR, lambda i: {"lr_lambda": lambda epoch: 0.95 - 0.05 * i}),
    "one-cycle-apart": (lr_scheduler.OneCycleLR, lambda i: {"max_lr": 0.1, "total_steps": 25 + i, "pct_start": 0.3}),
    "cyclic-apart": (
        lr_scheduler.CyclicLR,
        lambda i: {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 3 + i, "mode": "triangular2"},
    ),
    "own-apart": (Halving, lambda i: {"every": 2 + i}),
}
CASES = TOGETHER | APART

every_case = pytest.mark.parametrize("case", CASES)


class Schedule:
    """Lanes and separate optimizers, all without gradients, under the same schedules."""

    def __init__(self, num_lanes: int, optimizer: str = "SGD") -> None:
        self.race = Race(num_lanes)
        momentum = {"momentum": 0.9} if optimizer == "SGD" else {}
        self.optimizer = self.race.start(optimizer, lambda lane: {"lr": 0.1 * (lane + 1), **momentum})
        self.scheduler: Any = None
        self.solos: list[Any] = []

    @property
    def roster(self) -> Roster:
        return self.race.roster

    def start(self, build: Build, settings: Callable[[int], Settings], scheduler_class: Any) -> None:
        lanes = [settings(lane) for lane in range(len(self.roster))]
        self.solos = [
            build(solo, scheduler_class, lane) for solo, lane in zip(self.race.solo_optimizers, lanes, strict=True)
        ]
        merged = {key: merge([lane[key] for lane in lanes], self.roster) for key in lanes[0]}
        self.scheduler = build(self.optimizer, scheduler_class, merged)

    def run(self, num_steps: int, metrics: Callable[[int, int], float] | None = None) -> None:
        for step in range(num_steps):
            values = [metrics(lane, step) for lane in range(len(self.roster))] if metrics else []
            self.optimizer.step()
            self.scheduler.step(*([PerLane(values, self.roster)] if metrics else []))
            for lane, (optimizer, solo) in enumerate(zip(self.race.solo_optimizers, self.solos, strict=True)):
                optimizer.step()
                solo.step(*([values[lane]] if metrics else []))
            self.check()

    def narrow(self, places: Sequence[int]) -> None:
        self.race.narrow(self.optimizer, places)
        self.scheduler.narrow(places)
        self.solos = [self.solos[place] for place in places]

    def check(self) -> None:
        """Every number is exactly torch's: in the groups, as the last rate, and in the state."""
        rates = self.scheduler.get_last_lr()
        for lane, (optimizer, solo) in enumerate(zip(self.race.solo_optimizers, self.solos, strict=True)):
            assert self.optimizer.lane_state(lane)["param_groups"] == optimizer.state_dict()["param_groups"]
            assert pick(rates, lane) == solo.get_last_lr()
            assert self.scheduler.lane_state(lane) == solo.state_dict()


def build_one(optimizer: Any, scheduler_class: Any, settings: Settings) -> Any:
    if isinstance(optimizer, LaneOptimizer):
        return fuse_scheduler(scheduler_class, optimizer, optimizer._roster, **settings)
    return scheduler_class(optimizer, **settings)


def build_warm_up(optimizer: Any, scheduler_class: Any, settings: Settings) -> Any:
    """Build a linear warm-up and then a cosine, in sequence or chained."""
    inner = [
        build_one(optimizer, lr_scheduler.LinearLR, {"start_factor": settings["start"], "total_iters": 4}),
        build_one(optimizer, lr_scheduler.CosineAnnealingLR, {"T_max": settings["T_max"]}),
    ]
    milestones = {} if scheduler_class is lr_scheduler.ChainedScheduler else {"milestones": settings["milestones"]}
    if scheduler_class is lr_scheduler.ChainedScheduler and not isinstance(optimizer, LaneOptimizer):
        return scheduler_class(inner)
    return build_one(optimizer, scheduler_class, {"schedulers": inner, **milestones})


@every_case
@pytest.mark.parametrize("num_lanes", [1, 2, 7])
def test_lanes_match_separate_schedulers(case: str, num_lanes: int) -> None:
    schedule = Schedule(num_lanes)
    schedule.start(build_one, CASES[case][1], CASES[case][0])
    schedule.check()
    schedule.run(20)
    assert schedule.scheduler.is_together == (case in TOGETHER or num_lanes == 1)


@pytest.mark.parametrize("case", ["one-cycle", "one-cycle-apart", "cyclic", "cyclic-apart"])
def test_betas_are_cycled_where_there_is_no_momentum(case: str) -> None:
    schedule = Schedule(3, "AdamW")
    schedule.start(build_one, CASES[case][1], CASES[case][0])
    schedule.run(10)
    assert all("momentum" not in schedule.optimizer.lane_state(lane)["param_groups"][0] for lane in range(3))


@every_case
def test_lanes_may_leave_a_schedule(case: str) -> None:
    schedule = Schedule(5)
    schedule.start(build_one, CASES[case][1], CASES[case][0])
    schedule.run(4)
    schedule.narrow([0, 2, 3])
    schedule.run(4)
    schedule.narrow([1])
    schedule.run(4)


@every_case
def test_a_schedule_carried_on_alone_equals_one_that_stays(case: str) -> None:
    schedule = Schedule(3)
    scheduler_class, settings = CASES[case]
    schedule.start(build_one, settings, scheduler_class)
    schedule.run(5)
    for lane, optimizer in enumerate(schedule.race.solo_optimizers):
        schedule.solos[lane] = scheduler_class(optimizer, **settings(lane))
        schedule.solos[lane].load_state_dict(schedule.scheduler.lane_state(lane))
        optimizer.load_state_dict(schedule.optimizer.lane_state(lane))
    schedule.run(5)


@every_case
@pytest.mark.parametrize("ages", [[3, 3, 3], [1, 4, 6]])
def test_solo_schedules_join_as_lanes(case: str, ages: list[int]) -> None:
    schedule = Schedule(3)
    schedule.start(build_one, CASES[case][1], CASES[case][0])
    for age, optimizer, solo in zip(ages, schedule.race.solo_optimizers, schedule.solos, strict=True):
        for _ in range(age):
            optimizer.step()
            solo.step()
    schedule.optimizer.load_lane_states([optimizer.state_dict() for optimizer in schedule.race.solo_optimizers])
    schedule.scheduler.load_lane_states([solo.state_dict() for solo in schedule.solos])
    schedule.check()
    schedule.run(5)
    assert schedule.scheduler.is_together == (case in TOGETHER and ages == [3, 3, 3])


@pytest.mark.parametrize("scheduler_class", [lr_scheduler.SequentialLR, lr_scheduler.ChainedScheduler])
@pytest.mark.parametrize(
    ("lanes", "is_together"),
    [
        (lambda i: {"start": 0.1 * (i + 1), "T_max": 10, "milestones": [4]}, True),
        (lambda i: {"start": 0.1 * (i + 1), "T_max": 10 + i, "milestones": [4]}, False),
        (lambda i: {"start": 0.1, "T_max": 10, "milestones": [4 + i]}, False),
    ],
)
def test_schedules_of_schedules_match(
    scheduler_class: Any, lanes: Callable[[int], Settings], is_together: bool
) -> None:
    schedule = Schedule(4)
    schedule.start(build_warm_up, lanes, scheduler_class)
    schedule.check()
    schedule.run(8)
    schedule.narrow([1, 3])
    schedule.run(8)
    is_chained = scheduler_class is lr_scheduler.ChainedScheduler
    differ_in_milestones = is_chained and lanes(0)["T_max"] == lanes(1)["T_max"]
    assert schedule.scheduler.is_together == (is_together or differ_in_milestones)


def test_sequences_at_different_epochs_join_as_lanes() -> None:
    schedule = Schedule(3)
    schedule.start(
        build_warm_up, lambda i: {"start": 0.1 * (i + 1), "T_max": 10, "milestones": [4]}, lr_scheduler.SequentialLR
    )
    for age, (optimizer, solo) in enumerate(zip(schedule.race.solo_optimizers, schedule.solos, strict=True)):
        for _ in range(3 * age):
            optimizer.step()
            solo.step()
    schedule.optimizer.load_lane_states([optimizer.state_dict() for optimizer in schedule.race.solo_optimizers])
    schedule.scheduler.load_lane_states([solo.state_dict() for solo in schedule.solos])
    schedule.run(8)


def test_plateaus_are_found_lane_by_lane() -> None:
    schedule = Schedule(3)
    schedule.start(
        build_one, lambda i: {"patience": 1 + i, "factor": 0.5, "cooldown": i}, lr_scheduler.ReduceLROnPlateau
    )
    schedule.run(12, metrics=lambda lane, step: float((step * (lane + 3)) % 7))
    schedule.narrow([0, 2])
    schedule.run(6, metrics=lambda lane, step: 1.0)
    found: Any = schedule.scheduler
    assert isinstance(found, lr_scheduler.ReduceLROnPlateau)
    assert schedule.scheduler.num_bad_epochs.values == tuple(solo.num_bad_epochs for solo in schedule.solos)


def test_a_metric_may_be_a_lane_tensor_or_one_number() -> None:
    race = Race(2)
    optimizer = race.start("SGD", lambda lane: {"lr": 0.1})
    scheduler = fuse_scheduler(lr_scheduler.ReduceLROnPlateau, optimizer, race.roster, patience=0)
    scheduler.step(1.0)
    assert optimizer.param_groups[0]["lr"] == 0.1
    scheduler.step(lanes_of(torch.tensor([0.5, 2.0])))
    assert optimizer.param_groups[0]["lr"].values == (0.1, 0.1 * 0.1)
    assert str(scheduler.best) == "[0.5 1.0]"


def test_lanes_with_different_optimizers_cycle_what_they_have() -> None:
    race = Race(2)
    arguments: Settings = {"max_lr": 0.5, "total_steps": 10}
    solos = [torch.optim.SGD(race.solos[0].parameters()), torch.optim.Adam(race.solos[1].parameters())]
    schedulers = [lr_scheduler.OneCycleLR(solo, **arguments) for solo in solos]
    optimizer = fuse_optimizer(PerLaneText(["SGD", "Adam"], race.roster, None), race.model, race.roster)
    scheduler = fuse_scheduler(lr_scheduler.OneCycleLR, optimizer, race.roster, **arguments)
    for _ in range(5):
        optimizer.step()
        scheduler.step()
        for lane, (solo, solo_scheduler) in enumerate(zip(solos, schedulers, strict=True)):
            solo.step()
            solo_scheduler.step()
            assert optimizer.lane_state(lane)["param_groups"] == solo.state_dict()["param_groups"]


@pytest.mark.parametrize("case", ["step", "step-apart"])
def test_rates_assigned_by_hand_are_scheduled_on(case: str) -> None:
    schedule = Schedule(3)
    schedule.start(build_one, CASES[case][1], CASES[case][0])
    schedule.run(2)
    schedule.optimizer.param_groups[0]["lr"] = PerLane([1.0, 2.0, 3.0], schedule.roster)
    for lane, solo in enumerate(schedule.race.solo_optimizers):
        solo.param_groups[0]["lr"] = 1.0 + lane
    schedule.run(5)


@pytest.mark.parametrize("case", ["cosine", "cosine-apart"])
def test_state_dict_leads_back_also_after_lanes_have_left(case: str) -> None:
    schedule = Schedule(3)
    schedule.start(build_one, CASES[case][1], CASES[case][0])
    schedule.run(3)
    kept, kept_optimizer = schedule.scheduler.state_dict(), schedule.optimizer.state_dict()
    rate = schedule.optimizer.lane_state(2)["param_groups"][0]["lr"]
    schedule.run(2)
    schedule.narrow([0, 2])
    schedule.optimizer.load_state_dict(kept_optimizer)
    schedule.scheduler.load_state_dict(kept)
    assert schedule.scheduler.last_epoch == 3
    assert pick(schedule.scheduler.get_last_lr(), 1) == [rate]


def test_torchs_own_schedulers_run_on_a_lane_optimizer() -> None:
    schedule = Schedule(2)
    real = lr_scheduler.ExponentialLR(schedule.optimizer, gamma=0.5)
    schedule.optimizer.step()
    real.step()
    assert schedule.optimizer.param_groups[0]["lr"].values == (0.05, 0.1)


@pytest.mark.parametrize("case", ["step", "step-apart"])
def test_torch_warns_once_when_the_schedule_steps_first(case: str) -> None:
    schedule = Schedule(3)
    schedule.start(build_one, CASES[case][1], CASES[case][0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        schedule.scheduler.step()
        schedule.scheduler.step()
    assert ["before `optimizer.step()`" in str(warning.message) for warning in caught] == [True]


def test_attributes_are_read_and_set_lane_by_lane() -> None:
    schedule = Schedule(2)
    schedule.start(build_one, CASES["step-apart"][1], lr_scheduler.StepLR)
    assert schedule.scheduler.optimizer is schedule.optimizer
    assert schedule.scheduler.step_size.values == (2, 3)
    schedule.scheduler.gamma = PerLane([0.1, 0.2], schedule.roster)
    assert [schedule.scheduler.lane_state(lane)["gamma"] for lane in range(2)] == [0.1, 0.2]
    with pytest.raises(CannotFuseError, match="get_lr"):
        schedule.scheduler.get_lr()
    with pytest.raises(AttributeError, match="wobble"):
        _ = schedule.scheduler.wobble


def test_lanes_may_have_schedulers_of_different_classes() -> None:
    schedule = Schedule(2)
    names = PerLaneText(["ExponentialLR", "PolynomialLR"], schedule.roster, None)
    with pytest.raises(TypeError, match="gamma"):
        fuse_scheduler(names, schedule.optimizer, schedule.roster)
    names = PerLaneText(["LinearLR", "ConstantLR"], schedule.roster, None)
    schedule.scheduler = fuse_scheduler(names, schedule.optimizer, schedule.roster, total_iters=3)
    first, second = schedule.race.solo_optimizers
    schedule.solos = [lr_scheduler.LinearLR(first, total_iters=3), lr_scheduler.ConstantLR(second, total_iters=3)]
    schedule.run(5)
    assert type(schedule.scheduler) is LaneScheduler


@pytest.mark.parametrize(
    ("scheduler_class", "arguments", "error", "words"),
    [
        (lr_scheduler.LinearLR, {"start_factor": [0.5, 1.5]}, ValueError, "Starting multiplicative factor"),
        (lr_scheduler.OneCycleLR, {"max_lr": [0.1, 0.2]}, ValueError, "You must define either total_steps"),
        (lr_scheduler.ReduceLROnPlateau, {"factor": [0.5, 1.5]}, ValueError, "Factor should be < 1.0"),
        ("StepLr", {"step_size": [1, 1]}, TypeError, "is no scheduler"),
    ],
)
def test_what_cannot_work_is_refused(
    scheduler_class: Any, arguments: Settings, error: type[Exception], words: str
) -> None:
    schedule = Schedule(2)
    merged = {key: merge(values, schedule.roster) for key, values in arguments.items()}
    with pytest.raises(error, match=words):
        fuse_scheduler(scheduler_class, schedule.optimizer, schedule.roster, **merged)
