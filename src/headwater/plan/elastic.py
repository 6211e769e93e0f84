"""What an allocation of devices to stages takes and costs, and the plans that are made of it.

A plan gives each stage a number of devices. Instances are launched when a stage needs more of them, and all its trials
wait for that; they are given back when a stage needs fewer. Everything here goes by expected times; `simulation` draws
them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headwater.errors import PlanError
from headwater.plan.jobs import SECONDS_PER_HOUR, Billing, Job, JobStage
from headwater.plan.stage_times import measure_stage

Allocation: TypeAlias = tuple[int, ...]
"""Devices for each stage."""

WARM_STARTS = (1, 2, 3)
"""The greedy search starts from so many times the devices of the best static plan."""
LEAST_GAIN = 1e-9
"""An improvement of less than this, in dollars or seconds, is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a plan takes and costs."""

    seconds: float
    cost_dollars: float
    devices: Allocation
    instances: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan must keep to."""

    deadline_s: float | None = None
    budget_dollars: float | None = None

    def admit(self, prediction: Prediction) -> bool:
        """Tell whether a plan keeps to the limits."""
        in_time = self.deadline_s is None or prediction.seconds <= self.deadline_s
        return in_time and (self.budget_dollars is None or prediction.cost_dollars <= self.budget_dollars)

    def rank(self, prediction: Prediction) -> tuple[float, float]:
        """Order plans: by price under a deadline or without a limit, by time where only a budget is given."""
        if self.deadline_s is None and self.budget_dollars is not None:
            return prediction.seconds, prediction.cost_dollars
        return prediction.cost_dollars, prediction.seconds


@dataclass(frozen=True, slots=True)
class Holding:
    """The instances held between two stages, and for how long those launched together have been charged."""

    launches: tuple[tuple[float, int], ...] = ()
    """Ages and numbers, the youngest first; the oldest go back first, for their minimum charge is behind them."""
    num_held: int = 0
    seconds: float = 0.0
    cost_dollars: float = 0.0

    def run_stage(self, job: Job, stage: JobStage, num_devices: int) -> Holding:
        """Return what is held, spent and passed after a stage on so many devices."""
        instance = job.instance
        wanted = instance.count_for(num_devices)
        num_new = max(0, wanted - self.num_held)
        kept, released = _split_oldest(self.launches, wanted)
        provision_s, initialise_s = instance.expect_wait(num_new) if num_new else (0.0, 0.0)
        waiting = provision_s + initialise_s
        training = train_seconds(job, stage, num_devices)
        num_launched = num_new + wanted * training * instance.interruptions_per_hour / SECONDS_PER_HOUR
        cost = self.cost_dollars + num_launched * instance.launch_dollars
        if job.billing is Billing.INSTANCE:
            held_s = (wanted - num_new) * (waiting + training) + num_new * (initialise_s + training)
            cost += (held_s + _shortfall(released, instance.minimum_s)) * instance.dollars_per_second
        else:
            device_s = training_device_seconds(job, stage, num_devices)
            cost += device_s * instance.dollars_per_second / instance.num_devices
        launches = tuple((age + waiting + training, count) for age, count in kept)
        if num_new:
            launches = ((initialise_s + training, num_new), *launches)
        return Holding(launches, wanted, self.seconds + waiting + training, cost)

    def release_all(self, job: Job) -> Holding:
        """Return what was spent when everything has been given back."""
        if job.billing is Billing.FUNCTION:
            return self
        rest = _shortfall(self.launches, job.instance.minimum_s) * job.instance.dollars_per_second
        return Holding((), 0, self.seconds, self.cost_dollars + rest)


def train_seconds(job: Job, stage: JobStage, num_devices: int) -> float:
    """Return how long a stage trains: its trials side by side, or in turn or as lanes where there are few devices."""
    return measure_stage(job, stage, num_devices)[0]


def training_device_seconds(job: Job, stage: JobStage, num_devices: int) -> float:
    """Return for how long devices train in a stage, added up."""
    return measure_stage(job, stage, num_devices)[1]


def predict(job: Job, devices: Sequence[int]) -> Prediction:
    """Predict what an allocation takes and costs, by expected times."""
    return Predictions(job).predict(tuple(devices))


class Predictions:
    """Predicts many plans of a job; what plans have in common at their beginning is worked out once."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._starts: dict[Allocation, Holding] = {(): Holding()}

    def predict(self, devices: Allocation) -> Prediction:
        """Predict what an allocation takes and costs, by expected times."""
        if len(devices) != len(self._job.stages):
            raise PlanError(f"there are {len(self._job.stages)} stages, and devices for {len(devices)} of them")
        holding = self._follow(devices).release_all(self._job)
        return Prediction(
            seconds=holding.seconds,
            cost_dollars=holding.cost_dollars,
            devices=devices,
            instances=tuple(self._job.instance.count_for(count) for count in devices),
        )

    def _follow(self, devices: Allocation) -> Holding:
        known = len(devices)
        while (holding := self._starts.get(devices[:known])) is None:
            known -= 1
        for place in range(known, len(devices)):
            holding = holding.run_stage(self._job, self._job.stages[place], devices[place])
            self._starts[devices[: place + 1]] = holding
        return holding


def plan_static(job: Job, limits: Limits) -> Prediction | None:
    """Return the best cluster of one size for the whole job; None where none keeps to the limits."""
    sizes = sorted({count for stage in job.stages for count in job.list_allocations(stage)})
    return _best((predict(job, [size] * len(job.stages)) for size in sizes), limits)


def plan_naively(job: Job, limits: Limits) -> Prediction | None:
    """Return the best plan in which every trial has the same number of devices throughout."""
    widths = range(1, max(job.find_times(stage).most_useful for stage in job.stages) + 1)
    plans = ([width * stage.num_trials for stage in job.stages] for width in widths)
    most = None if job.max_instances is None else job.max_instances * job.instance.num_devices
    return _best((predict(job, plan) for plan in plans if most is None or max(plan) <= most), limits)


def plan_greedily(job: Job, limits: Limits) -> Prediction | None:
    """Improve the best static plan, and multiples of it, stage by stage while that pays; never worse than static."""
    static = plan_static(job, limits)
    known = Predictions(job)
    if static is None:
        return _best(_climb_from(job, limits, plan_fastest(job).devices, known), limits)
    starts = [[count * factor for count in static.devices] for factor in WARM_STARTS]
    found = [plan for start in starts for plan in _climb_from(job, limits, start, known)]
    return _best([static, *found], limits)


def plan_fastest(job: Job) -> Prediction:
    """Return the plan with the most devices that are of use: no plan is faster."""
    return predict(job, [own[-1] for own in list_options(job)])


def list_options(job: Job) -> list[list[int]]:
    """Return for each stage the allocations that may be best: one for each number of instances that is of use.

    Instances that only a later stage uses may be worth holding: launching them then would keep everyone waiting.
    """
    options: list[list[int]] = []
    wanted: set[int] = set()
    for stage in reversed(job.stages):
        own = {job.instance.count_for(count): count for count in _list_own(job, stage)}
        wanted |= own.keys()
        held = {own.get(count, count * job.instance.num_devices) for count in wanted}
        options.append(sorted({*held, *_list_own(job, stage)}))
    return options[::-1]


def _list_own(job: Job, stage: JobStage) -> list[int]:
    """Return the allocations that a stage itself can use; of those on as many instances, the largest."""
    counts = job.list_allocations(stage)
    if job.billing is Billing.FUNCTION:
        return counts
    return list({job.instance.count_for(count): count for count in counts}.values())


def _climb_from(job: Job, limits: Limits, start: Sequence[int], known: Predictions) -> Iterator[Prediction]:
    """Move one stage at a time to the neighbouring allocation that gains most, from the nearest sensible start."""
    own = [_list_own(job, stage) for stage in job.stages]
    nearest = (options[max(bisect_right(options, count) - 1, 0)] for options, count in zip(own, start, strict=True))
    present = known.predict(tuple(nearest))
    while True:
        if limits.admit(present):
            yield present
        plans = [known.predict(devices) for devices in _list_moves(job, own, present.devices)]
        steps = [plan for plan in plans if _is_step(plan, present, limits)]
        if not steps:
            return
        present = max(steps, key=lambda plan: _merit(plan, present, limits))


def _list_moves(job: Job, own: Sequence[Sequence[int]], devices: Allocation) -> Iterator[Allocation]:
    """Give one stage the next smaller or larger allocation of its own, or the instances that the next stage needs."""
    for place, options in enumerate(own):
        below, above = bisect_left(options, devices[place]), bisect_right(options, devices[place])
        choices = {*options[max(below - 1, 0) : below], *options[above : above + 1]}
        if place + 1 < len(devices):
            choices.add(job.instance.count_for(devices[place + 1]) * job.instance.num_devices)
        for count in sorted(choices - {devices[place]}):
            yield (*devices[:place], count, *devices[place + 1 :])


def _is_step(plan: Prediction, present: Prediction, limits: Limits) -> bool:
    """Tell whether a move improves a plan that keeps to the limits, or brings another one nearer to them."""
    if not limits.admit(present):
        return limits.admit(plan) or _excess(plan, limits) < _excess(present, limits) - LEAST_GAIN
    return limits.admit(plan) and limits.rank(plan)[0] < limits.rank(present)[0] - LEAST_GAIN


def _excess(plan: Prediction, limits: Limits) -> float:
    """Return by what share a plan breaks its limits."""
    pairs = ((plan.seconds, limits.deadline_s), (plan.cost_dollars, limits.budget_dollars))
    return sum(max(0.0, value / max(limit, LEAST_GAIN) - 1) for value, limit in pairs if limit is not None)


def _merit(plan: Prediction, present: Prediction, limits: Limits) -> tuple[bool, float]:
    """Rank a move: what is better in both respects first, then by what is gained for what is given up."""
    if not limits.admit(present):
        return limits.admit(plan), -_excess(plan, limits)
    (gain, loss) = (before - after for before, after in zip(limits.rank(present), limits.rank(plan), strict=True))
    return loss >= 0, gain if loss >= 0 else gain / -loss


def _best(plans: Iterator[Prediction] | Sequence[Prediction], limits: Limits) -> Prediction | None:
    key: Callable[[Prediction], tuple[float, float]] = limits.rank
    return min((plan for plan in plans if limits.admit(plan)), key=key, default=None)


def _split_oldest(
    launches: Sequence[tuple[float, int]], num_kept: int
) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
    """Return the youngest instances, so many, and the others."""
    kept, released = [], []
    for age, count in launches:
        staying = min(count, num_kept)
        num_kept -= staying
        kept += [(age, staying)] if staying else []
        released += [(age, count - staying)] if count > staying else []
    return kept, released


def _shortfall(launches: Sequence[tuple[float, int]], minimum_s: float) -> float:
    """Return the seconds that are charged though instances were given back before their minimum was over."""
    return sum(count * max(0.0, minimum_s - age) for age, count in launches)
