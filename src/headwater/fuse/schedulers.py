"""Learning-rate schedules over lanes, by torch's own schedulers: what the user's function holds as its scheduler.

Lanes go *together* where one real scheduler can run on the lane optimizer itself: the learning rates in its groups are
PerLane numbers, so that torch's arithmetic goes lane by lane. They go *apart* where torch needs plain numbers: one real
scheduler per lane then runs on a stand-in of the optimizer.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from headwater.errors import CannotFuseError
from headwater.fuse.hyperparameters import as_numbers, holds_per_lane, merge, pick, without_recipe
from headwater.fuse.optimizers import LaneOptimizer
from headwater.fuse.per_lane import PerLane, PerLaneText
from headwater.fuse.roster import Roster
from headwater.fuse.stand_ins import StandIns
from headwater.torch_private import INNER_SCHEDULERS, LAST_RATES

_NOTHING: frozenset[str] = frozenset()

TOGETHER: Mapping[type[LRScheduler], frozenset[str]] = {
    lr_scheduler.StepLR: frozenset({"gamma"}),
    lr_scheduler.MultiStepLR: frozenset({"gamma"}),
    lr_scheduler.ExponentialLR: frozenset({"gamma"}),
    lr_scheduler.ConstantLR: frozenset({"factor"}),
    lr_scheduler.LinearLR: frozenset({"start_factor", "end_factor"}),
    lr_scheduler.PolynomialLR: frozenset({"power"}),
    lr_scheduler.CosineAnnealingLR: frozenset({"eta_min"}),
    lr_scheduler.CosineAnnealingWarmRestarts: _NOTHING,
    lr_scheduler.LambdaLR: _NOTHING,
    lr_scheduler.MultiplicativeLR: _NOTHING,
    lr_scheduler.OneCycleLR: frozenset({"max_lr", "div_factor", "final_div_factor", "base_momentum", "max_momentum"}),
    lr_scheduler.CyclicLR: frozenset({"base_lr", "max_lr", "gamma", "base_momentum", "max_momentum"}),
    lr_scheduler.SequentialLR: _NOTHING,
    lr_scheduler.ChainedScheduler: _NOTHING,
}
"""Schedulers that can run for all lanes together, and those of their arguments that may then differ by lane.

Torch does nothing but arithmetic with these arguments. Any other class goes together if no argument differs by lane.
"""

_CYCLES_MOMENTUM = frozenset({lr_scheduler.OneCycleLR, lr_scheduler.CyclicLR})
_LANEWISE_STATE = frozenset({"base_lrs", "max_lrs", "base_momentums", "max_momentums", LAST_RATES, INNER_SCHEDULERS})
_PER_LANE_STATE = _LANEWISE_STATE.union(*TOGETHER.values())
"""What may differ by lane in the state of a scheduler that runs for all lanes together."""


def fuse_scheduler(scheduler_class: Any, optimizer: LaneOptimizer, roster: Roster, **kwargs: Any) -> LaneScheduler:
    """Return one scheduler that schedules each lane as the scheduler of that lane alone would.

    Args:
        scheduler_class: A class of `torch.optim.lr_scheduler`, the user's own, a function that makes a scheduler of
            the optimizer, or a PerLane of these.
        optimizer: The lanes' optimizer.
        roster: The lanes.
        kwargs: Arguments of the class; any may be a PerLane. The schedulers inside `SequentialLR` and
            `ChainedScheduler` are LaneSchedulers of the same optimizer.

    Raises:
        ValueError, TypeError: What torch says about the arguments of one of the lanes.
    """
    differs = isinstance(scheduler_class, PerLane | PerLaneText)
    classes = scheduler_class.values if differs else [scheduler_class] * len(roster)
    return LaneScheduler([_resolve(item) for item in classes], optimizer, roster, kwargs)


class LaneScheduler:
    """The schedulers of all lanes as one, with the interface of torch's.

    `isinstance` takes it for the class that it was made from, since loops ask so whether `step` wants a metric.
    Numbers that differ by lane are PerLane numbers, and those of lanes that leave go by themselves.
    """

    def __init__(
        self,
        classes: Sequence[Any],
        optimizer: LaneOptimizer,
        roster: Roster,
        arguments: Mapping[str, Any],
    ) -> None:
        self._class = merge(classes, roster)
        self._optimizer = optimizer
        self._roster = roster
        self._arguments = dict(arguments)
        self._lanes: list[Any] = []
        self._stand_ins: StandIns | None = None
        self._real: Any = None
        if self._can_go_together():
            self._start_together()
        else:
            self._start_apart()

    @property  # type: ignore[misc]  # torch's class, for isinstance
    def __class__(self) -> type[Any]:
        kinds: set[Any] = {type(real) for real in self._lanes} or {self._class}
        return kinds.pop() if len(kinds) == 1 and all(isinstance(kind, type) for kind in kinds) else LaneScheduler

    @property
    def optimizer(self) -> LaneOptimizer:
        """The lanes' optimizer."""
        return self._optimizer

    @property
    def is_together(self) -> bool:
        """Whether one scheduler runs for all lanes."""
        return self._real is not None

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Step every lane's schedule; arguments, such as the metric of `ReduceLROnPlateau`, may differ by lane."""
        if self._real is not None:
            self._real.step(*args, **kwargs)
            return
        stand_ins = self._require_stand_ins()
        stand_ins.take_over()
        numbers = [as_numbers(arg, self._roster) for arg in args]
        named_numbers = {key: as_numbers(value, self._roster) for key, value in kwargs.items()}
        for place, real in enumerate(self._each()):
            real.step(*pick(numbers, place), **pick(named_numbers, place))
        stand_ins.hand_back()

    def get_last_lr(self) -> list[Any]:
        """Return the last learning rate of each parameter group: a number, or a PerLane where lanes differ."""
        if self._real is not None:
            last: list[Any] = self._real.get_last_lr()
            return last
        rates = zip(*(real.get_last_lr() for real in self._each()), strict=True)
        return [merge(lane_rates, self._roster) for lane_rates in rates]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all lanes, for `load_state_dict` of this scheduler; `lane_state` gives torch's form."""
        lanes = [self.lane_state(place) for place in range(len(self._roster))]
        return {"lanes": lanes, "members": self._roster.members}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Return to a state that `state_dict` gave; lanes that have left since are passed over."""
        lanes = dict(zip(state_dict["members"], state_dict["lanes"], strict=True))
        self.load_lane_states([lanes[member] for member in self._roster.members])

    def lane_state(self, place: int) -> dict[str, Any]:
        """Return the state dict of the lane's scheduler alone."""
        real = self._real if self._real is not None else self._each()[place]
        state: dict[str, Any] = pick(real.state_dict(), place)
        return copy.deepcopy(state)

    def load_lane_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Give each lane the state of a solo scheduler of its class; lanes may stand at different epochs."""
        own = [copy.deepcopy(dict(state)) for state in states]
        if self._real is not None:
            merged = merge(own, self._roster)
            if isinstance(merged, dict) and not _differs_beyond_arithmetic(merged):
                self._real.load_state_dict(merged)
                return
            self._move(StandIns(self._optimizer, self._roster), own)
            return
        for real, state in zip(self._each(), own, strict=True):
            real.load_state_dict(state)

    def narrow(self, places: Sequence[int]) -> None:
        """Keep the lanes at these places. They are known from the roster, so that this may come before or after it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_real" not in self.__dict__:
            raise AttributeError(name)
        if self._real is not None:
            return getattr(self._real, name)
        values = [getattr(real, name) for real in self._each()]
        if callable(values[0]):
            raise CannotFuseError(f"the code calls {name} of a scheduler, which lanes cannot share")
        return merge(values, self._roster)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif self._real is not None:
            setattr(self._real, name, value)
        else:
            for place, real in enumerate(self._each()):
                setattr(real, name, pick(value, place))

    def _can_go_together(self) -> bool:
        shared = self._class
        if not isinstance(shared, type) or issubclass(shared, lr_scheduler.ReduceLROnPlateau):
            return False
        if self._optimizer.is_mixed and (shared not in TOGETHER or shared in _CYCLES_MOMENTUM):
            return False
        if not all(inner.is_together for inner in self._inner()):
            return False
        differing = {name for name, value in self._arguments.items() if holds_per_lane(value)}
        return differing <= TOGETHER.get(self._class, _NOTHING)

    def _start_together(self) -> None:
        arguments = {name: without_recipe(value, self._roster) for name, value in self._arguments.items()}
        if holds_per_lane(arguments):  # let torch judge the arguments of each lane
            self._build(StandIns(self._optimizer, self._roster))
        for group in self._optimizer.param_groups:
            group.update({key: without_recipe(value, self._roster) for key, value in group.items() if key != "params"})
        if "schedulers" in arguments:
            inner = [item._real if _is_ours(item) else item for item in arguments["schedulers"]]
            arguments = {**arguments, "schedulers": inner}
        self._real = _construct(self._class, self._optimizer, arguments)

    def _start_apart(self) -> None:
        stand_ins = StandIns(self._optimizer, self._roster)
        for inner in self._inner():
            inner._move(stand_ins, [inner.lane_state(place) for place in range(len(self._roster))])
        self._lanes = self._build(stand_ins)
        self._stand_ins = stand_ins
        stand_ins.hand_back()

    def _move(self, stand_ins: StandIns, states: Sequence[Any]) -> None:
        """Go on apart, on these stand-ins, from these states."""
        for inner in self._inner():
            inner._move(stand_ins, [inner.lane_state(place) for place in range(len(self._roster))])
        lanes = self._build(stand_ins)
        for real, state in zip(lanes, states, strict=True):
            real.load_state_dict(state)
        self._real, self._lanes, self._stand_ins = None, lanes, stand_ins
        stand_ins.take_over(everything=True)

    def _build(self, stand_ins: StandIns) -> list[Any]:
        return [
            _construct(pick(self._class, place), lane, _lane_arguments(self._arguments, place))
            for place, lane in enumerate(stand_ins.lanes)
        ]

    def _each(self) -> list[Any]:
        """Return the schedulers of the lanes that are still in the group."""
        if len(self._lanes) != len(self._roster):
            self._lanes = [self._lanes[place] for place in self._roster.places_since(len(self._lanes))]
        return self._lanes

    def _inner(self) -> list[LaneScheduler]:
        """Return the schedulers inside this one."""
        return [item for item in self._arguments.get("schedulers", ()) if _is_ours(item)]

    def _require_stand_ins(self) -> StandIns:
        assert self._stand_ins is not None
        return self._stand_ins


def _resolve(scheduler_class: Any) -> Any:
    if isinstance(scheduler_class, str):
        scheduler_class = getattr(lr_scheduler, scheduler_class, scheduler_class)
    is_class = isinstance(scheduler_class, type)
    if not (issubclass(scheduler_class, LRScheduler) if is_class else callable(scheduler_class)):
        raise TypeError(f"{scheduler_class!r} is no scheduler; pass a class of torch.optim.lr_scheduler or a subclass")
    return scheduler_class


def _construct(make: Any, optimizer: Any, arguments: Mapping[str, Any]) -> Any:
    is_chained = isinstance(make, type) and issubclass(make, lr_scheduler.ChainedScheduler)
    made: object = make(optimizer=optimizer, **arguments) if is_chained else make(optimizer, **arguments)
    if not isinstance(made, LRScheduler):
        raise TypeError(f"{make!r} made {type(made).__name__}, which is no learning-rate scheduler")
    return made


def _lane_arguments(arguments: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return the arguments as one lane alone would have them, its own schedulers among them."""
    own = {name: pick(value, place) for name, value in arguments.items() if name != "schedulers"}
    if "schedulers" in arguments:
        if not all(_is_ours(item) for item in arguments["schedulers"]):
            raise CannotFuseError("a scheduler inside another was not made by trial.prepare_scheduler")
        own["schedulers"] = [item._each()[place] for item in arguments["schedulers"]]
    return own


def _is_ours(item: object) -> bool:
    return type(item) is LaneScheduler


def _differs_beyond_arithmetic(state: Mapping[str, Any]) -> bool:
    """Tell whether lanes differ in something that torch needs as one value, such as the epoch."""
    if any(_differs_beyond_arithmetic(inner) for inner in state.get(INNER_SCHEDULERS, ()) if isinstance(inner, dict)):
        return True
    return any(holds_per_lane(value) for key, value in state.items() if key not in _PER_LANE_STATE)
