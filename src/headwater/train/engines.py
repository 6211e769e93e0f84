"""How a trial's models, optimizers and schedulers are kept: plainly for one lane, stacked for several."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from headwater.errors import CannotFuseError, LanesLeave, LanesPart, TrialError
from headwater.fuse.choices import answering_for
from headwater.fuse.mode import LaneMode
from headwater.fuse.models import fuse_models, lane_state, load_lane_states, narrow_model, repeat_model, stack_weights
from headwater.fuse.optimizers import fuse_optimizer
from headwater.fuse.per_lane import PerLane, describe_misfit, lane_value
from headwater.fuse.roster import Roster
from headwater.fuse.rules import RULES
from headwater.fuse.schedulers import fuse_scheduler
from headwater.fuse.strategies import Strategies
from headwater.fuse.targets import narrow
from headwater.fuse.tools import answering
from headwater.scale.parametrization import SplitGroups
from headwater.torch_private import DisableTorchFunction, is_lane_tensor, stack_of
from headwater.train.inheriting import own_optimizer, own_scheduler
from headwater.train.lane_values import LaneValues, ManyLanes, OneLane
from headwater.train.originals import Originals
from headwater.train.scaling import Fitted, Scaling, scheduler_options
from headwater.train.seeding import mix_seed, own_randomness
from headwater.train.shared_calls import Sharing
from headwater.trials import Lane
from headwater.trials.joint_numbers import split_number

ModelSource: TypeAlias = nn.Module | Callable[[], nn.Module]


@dataclass(slots=True)
class LaneState:
    """All that one lane has learnt, in ordinary PyTorch state dicts, in the order in which things were prepared."""

    epoch: int
    models: list[dict[str, Tensor]] = field(default_factory=list)
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    schedulers: list[dict[str, Any]] = field(default_factory=list)
    num_passes: list[int] = field(default_factory=list)
    bests: list[dict[str, Any]] = field(default_factory=list)
    """The best weights of each model with their value and epoch, where the function has named any."""
    is_whole: bool = True
    """Whether the function could start again from here; else it only holds what was learnt by now."""
    is_inherited: bool = False
    """Whether another trial learnt this: its hyperparameters then give way to the trial's own."""
    loop: dict[str, Any] = field(default_factory=dict)
    """The state of the loop over the epochs, as `loop_state` encodes it."""
    kept: dict[str, Any] = field(default_factory=dict)
    """The state dicts of the objects that were given to `trial.keep`."""
    obstacle: str = ""
    """Why the trial cannot be continued from here, where it cannot."""


class Engine(Protocol):
    """Keeps what was prepared for a group's lanes."""

    def running(self, function: Callable[..., Any]) -> AbstractContextManager[Any]:
        """What must be active while the training function runs."""

    @property
    def lane_values(self) -> LaneValues:
        """How values of one lane are read and joined."""

    def add_model(self, source: ModelSource) -> nn.Module:
        """Build a model for every lane."""

    def add_optimizer(self, kind: Any, params: Any, options: dict[str, Any]) -> Any:
        """Build an optimizer for every lane."""

    def add_scheduler(self, kind: Any, optimizer: Any, options: dict[str, Any]) -> Any:
        """Build a scheduler for every lane."""

    def load(self, states: Sequence[LaneState]) -> None:
        """Give models, optimizers and schedulers the states of all lanes; those without a state stay as built."""

    def list_prepared(self) -> tuple[Sequence[nn.Module], Sequence[Any]]:
        """Return the prepared models, and the prepared optimizers and schedulers."""

    @property
    def is_scaled(self) -> bool:
        """Whether models have another width than they were written with."""

    def numbers(self, value: Any) -> list[float]:
        """Return a reported value for each lane."""

    def per_lane(self, values: Sequence[Any]) -> Any:
        """Return what stands for one value per lane."""

    def stack_weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the present weights of a model by name, lanes first; they change as it trains."""

    def capture(self, place: int, epoch: int) -> LaneState:
        """Copy the state of one lane."""

    def narrow(self, places: Sequence[int]) -> None:
        """Keep the lanes at these places."""


class PlainEngine:
    """One lane: plain PyTorch."""

    def __init__(
        self, lane: Lane, device: torch.device, scaling: Scaling | None = None, sharing: Sharing | None = None
    ) -> None:
        """Share the work with other ranks, or do it in micro-batches, where that is given."""
        self._lane = lane
        self._sharing = sharing
        self._device = device
        self._originals = Originals()
        self._shapes = _Shapes(scaling)
        self._models: list[nn.Module] = []
        self._optimizers: list[Any] = []
        self._schedulers: list[Any] = []

    @contextmanager
    def running(self, function: Callable[..., Any]) -> Iterator[None]:
        """Leave the user's models as they were."""
        try:
            yield
        finally:
            self._originals.restore()

    def add_model(self, source: ModelSource) -> nn.Module:
        """Build the lane's model, or take the user's own."""
        own = build_model(source, self._lane)
        self._originals.keep(own)
        model = self._shapes.fit(own).to(self._device)
        if self._sharing is not None:
            self._sharing.share(model)
        self._shapes.note(model)
        self._models.append(model)
        return model

    def add_optimizer(self, kind: Any, params: Any, options: dict[str, Any]) -> Any:
        """Build the lane's optimizer."""
        kind = getattr(torch.optim, kind) if isinstance(kind, str) else kind
        groups = self._shapes.split(kind, params, options)
        optimizer = kind(groups.parameters() if isinstance(groups, nn.Module) else groups, **options)
        self._shapes.keep(optimizer)
        self._optimizers.append(optimizer)
        return optimizer

    def add_scheduler(self, kind: Any, optimizer: Any, options: dict[str, Any]) -> Any:
        """Build the lane's scheduler."""
        kind = getattr(torch.optim.lr_scheduler, kind) if isinstance(kind, str) else kind
        scheduler = kind(optimizer, **self._shapes.schedule(kind, optimizer, options))
        self._schedulers.append(scheduler)
        return scheduler

    def load(self, states: Sequence[LaneState]) -> None:
        """Load the state dicts; optimizers before the schedulers that read their rates."""
        (state,) = states
        for model, weights in zip(self._models, state.models, strict=False):
            model.load_state_dict(weights)
        for optimizer, saved in zip(self._optimizers, state.optimizers, strict=False):
            own = own_optimizer(saved, optimizer.state_dict()) if state.is_inherited else saved
            _load_in_place(optimizer, copy.deepcopy(own))  # torch would train on in the saved tensors
        for scheduler, saved in zip(self._schedulers, state.schedulers, strict=False):
            scheduler.load_state_dict(own_scheduler(saved, scheduler.state_dict()) if state.is_inherited else saved)

    def list_prepared(self) -> tuple[Sequence[nn.Module], Sequence[Any]]:
        """Return the prepared models, and the prepared optimizers and schedulers."""
        return self._models, [*self._optimizers, *self._schedulers]

    @property
    def lane_values(self) -> LaneValues:
        """Values are the lane's own."""
        return OneLane(self._device)

    @property
    def is_scaled(self) -> bool:
        """Whether models have another width than they were written with."""
        return self._shapes.is_scaled

    def numbers(self, value: Any) -> list[float]:
        """Read one number."""
        return [_number(value)]

    def per_lane(self, values: Sequence[Any]) -> Any:
        """Return the one value there is."""
        return values[0]

    def stack_weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the weights of the only lane."""
        return {name: value.detach()[None] for name, value in model.state_dict().items() if isinstance(value, Tensor)}

    def capture(self, place: int, epoch: int) -> LaneState:
        """Copy everything."""
        return LaneState(
            epoch=epoch,
            models=[copy.deepcopy(model.state_dict()) for model in self._models],
            optimizers=[copy.deepcopy(optimizer.state_dict()) for optimizer in self._optimizers],
            schedulers=[copy.deepcopy(scheduler.state_dict()) for scheduler in self._schedulers],
        )

    def narrow(self, places: Sequence[int]) -> None:
        """Do nothing: a lane alone can only stay or end."""


class LaneEngine:
    """Several lanes in stacks, under the lane mode."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        roster: Roster,
        device: torch.device,
        strategies: Strategies,
        scaling: Scaling | None = None,
    ) -> None:
        self.starts_alike = False
        """Whether all lanes get the first one's weights, even from a factory: what is measured depends on none."""
        roster.numbers = [lane.number for lane in lanes]
        self._lanes = lanes
        self._shapes = _Shapes(scaling)
        self._roster = roster
        self._device = device
        self._originals = Originals()
        self._mode = LaneMode(roster, RULES, strategies)
        self._models: list[nn.Module] = []
        self._optimizers: list[Any] = []
        self._schedulers: list[Any] = []

    @contextmanager
    def running(self, function: Callable[..., Any]) -> Iterator[None]:
        """Turn the lane mode on, and leave the user's models as they were."""
        try:
            with answering(function, self._roster), self._mode:
                yield
        except Exception as error:
            if self._roster.halt is None and not isinstance(error, LanesLeave):
                self._blame(error)
            raise
        finally:
            self._mode.swaps.undo()
            self._originals.restore()

    def _blame(self, error: Exception) -> None:
        """Raise why the lanes cannot be one, where that is what an exception comes of."""
        if isinstance(error, CannotFuseError):
            self._roster.refuse(str(error), error.__traceback__)
        elif reason := describe_misfit(error):
            self._roster.refuse(reason, error.__traceback__)
            raise CannotFuseError(reason) from error

    def add_model(self, source: ModelSource) -> nn.Module:
        """Build every lane's model into one, or turn the user's own into lanes."""
        models = self._build(source)
        num_lanes, swaps = len(self._roster), self._mode.swaps
        with DisableTorchFunction():  # stacks are plain tensors, no business of the mode
            is_shared = len(models) < num_lanes
            model = repeat_model(models[0], num_lanes, swaps) if is_shared else self._fuse(models)
        self._shapes.note(model)
        self._models.append(model)
        return model

    def _fuse(self, models: Sequence[nn.Module]) -> nn.Module:
        return fuse_models(models, self._roster, self._mode.swaps)

    def _build(self, source: ModelSource) -> list[nn.Module]:
        """Build the model of each lane, or one where all start from the same."""
        models: list[nn.Module] = []
        for place, member in enumerate(self._roster.members):
            with self._own_values(place):
                model = build_model(source, self._lanes[member])
            with DisableTorchFunction():
                self._originals.keep(model)
            models.append(self._shapes.fit(model).to(self._device))
            is_alike = self.starts_alike and not self._roster.was_asked
            if isinstance(source, nn.Module) or is_alike:
                break
        return models

    def _own_values(self, place: int) -> AbstractContextManager[None]:
        """Let a factory build what one lane asks for; models that are to be resized must have one structure."""
        return nullcontext() if self._shapes.is_scaled else answering_for(self._roster, place)

    def add_optimizer(self, kind: Any, params: Any, options: dict[str, Any]) -> Any:
        """Build one optimizer over all lanes."""
        optimizer = fuse_optimizer(kind, self._shapes.split(kind, params, options), self._roster, **options)
        self._shapes.keep(optimizer)
        self._optimizers.append(optimizer)
        return optimizer

    def add_scheduler(self, kind: Any, optimizer: Any, options: dict[str, Any]) -> Any:
        """Build one scheduler over all lanes."""
        kind = getattr(torch.optim.lr_scheduler, kind) if isinstance(kind, str) else kind
        scheduler = fuse_scheduler(kind, optimizer, self._roster, **self._shapes.schedule(kind, optimizer, options))
        self._schedulers.append(scheduler)
        return scheduler

    def load(self, states: Sequence[LaneState]) -> None:
        """Load each lane's states into the stacks; optimizers before the schedulers that read their rates."""
        with DisableTorchFunction():
            for model, *weights in zip(self._models, *(state.models for state in states), strict=False):
                load_lane_states(model, weights)
        inherits = [state.is_inherited for state in states]
        for optimizer, *saved in zip(self._optimizers, *(state.optimizers for state in states), strict=False):
            optimizer.load_lane_states(_own(own_optimizer, optimizer, saved, inherits))
        for scheduler, *saved in zip(self._schedulers, *(state.schedulers for state in states), strict=False):
            scheduler.load_lane_states(_own(own_scheduler, scheduler, saved, inherits))

    def list_prepared(self) -> tuple[Sequence[nn.Module], Sequence[Any]]:
        """Return the prepared models, and the prepared optimizers and schedulers."""
        return self._models, [*self._optimizers, *self._schedulers]

    @property
    def lane_values(self) -> LaneValues:
        """Values are those of the roster's lanes."""
        return ManyLanes(self._roster, self._mode.swaps, self._device)

    @property
    def is_scaled(self) -> bool:
        """Whether models have another width than they were written with."""
        return self._shapes.is_scaled

    def numbers(self, value: Any) -> list[float]:
        """Read one number per lane.

        Raises:
            LanesPart: The code has swallowed that the lanes cannot go on as one, so that its numbers are not theirs.
        """
        self._roster.watches.check(self._roster)
        if self._roster.halt is not None:
            raise LanesPart(self._roster.halt)
        if isinstance(value, PerLane):
            return [item if type(item) is float else _number(item) for item in value.values]
        if isinstance(value, Tensor) and is_lane_tensor(value):
            if value.numel() != 1:
                raise TrialError(f"report takes numbers, not a tensor of shape {tuple(value.shape)}; reduce it first")
            numbers = stack_of(value).reshape(-1).tolist()
            return [float(numbers[place]) for place in self._roster.places_since(len(numbers))]
        return [_number(value)] * len(self._roster)

    def per_lane(self, values: Sequence[Any]) -> Any:
        """Return a stand-in for the values of all lanes."""
        return lane_value(values, self._roster, None)

    def stack_weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the stacks themselves."""
        return stack_weights(model)

    def capture(self, place: int, epoch: int) -> LaneState:
        """Take one lane out of the stacks."""
        return LaneState(
            epoch=epoch,
            models=[lane_state(model, place) for model in self._models],
            optimizers=[optimizer.lane_state(place) for optimizer in self._optimizers],
            schedulers=[scheduler.lane_state(place) for scheduler in self._schedulers],
        )

    def narrow(self, places: Sequence[int]) -> None:
        """Compact the stacks."""
        self._roster.narrow(places)
        for part in (*self._optimizers, *self._schedulers):
            part.narrow(places)
        with DisableTorchFunction():
            narrow_model(nn.ModuleList(self._models), places, self._roster)  # as one, for they may share parts
            for param in (param for optimizer in self._optimizers for param in _parameters(optimizer)):
                narrow(param, self._roster)  # those that belong to no model
            for tensor in self._roster.watches.tensors():
                narrow(tensor, self._roster)
            self._roster.watches.begin_anew()


class _Shapes:
    """What an engine has given the width of its run; without scaling, everything is left as it is."""

    def __init__(self, scaling: Scaling | None) -> None:
        self._scaling = scaling
        self._latest: Fitted | None = None
        self._fitted: list[Fitted] = []
        self._split: SplitGroups | None = None
        self._groups: list[tuple[Any, SplitGroups | None]] = []

    @property
    def is_scaled(self) -> bool:
        """Whether models are given another width than they were written with."""
        return self._scaling is not None

    def fit(self, model: nn.Module) -> nn.Module:
        """Give a model its width; all between two calls of `note` are alike."""
        if self._scaling is None:
            return model
        self._latest = self._scaling.fit(model)
        return self._latest.model

    def note(self, model: nn.Module) -> None:
        """Learn what became of the models that were fitted last: this is what the function holds."""
        if self._latest is not None:
            self._fitted.append(Fitted(model, self._latest.ratios))

    def split(self, kind: Any, params: Any, options: Mapping[str, Any]) -> Any:
        """Return what an optimizer is to be given for parameters."""
        if self._scaling is None:
            return params
        self._split = self._scaling.split(kind, params, options, self._fitted)
        return self._split.params

    def keep(self, optimizer: Any) -> None:
        """Remember the groups of the optimizer that was made of the last split."""
        self._groups.append((optimizer, self._split))

    def schedule(self, kind: Any, optimizer: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a scheduler for this optimizer."""
        groups = next((groups for known, groups in self._groups if known is optimizer), None)
        return scheduler_options(kind, options, groups)


def _parameters(optimizer: Any) -> Iterator[Tensor]:
    return (param for group in optimizer.param_groups for param in group["params"])


def build_model(source: ModelSource, lane: Lane) -> nn.Module:
    """Return an instance as it is; call a factory under the trial's own seed."""
    if isinstance(source, nn.Module):
        return source
    if not callable(source):
        raise TrialError(f"prepare_model takes a module or a function that builds one, not {type(source).__name__}")
    with own_randomness(mix_seed(lane.seed, "trial", split_number(lane.number)[1])):
        model = source()
    if not isinstance(model, nn.Module):
        raise TrialError(f"the function given to prepare_model returned {type(model).__name__}, not a torch.nn.Module")
    return model


def _own(take: Callable[..., Any], part: Any, saved: Sequence[Any], inherits: Sequence[bool]) -> list[Any]:
    """Return the states of all lanes, with settings of their own where a lane has inherited its state."""
    pairs = enumerate(zip(saved, inherits, strict=True))
    return [take(state, part.lane_state(place)) if is_inherited else state for place, (state, is_inherited) in pairs]


def _load_in_place(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Load a state dict and keep the groups and the state as objects: an optimizer within may hold them too."""
    groups, state = optimizer.param_groups, optimizer.state
    optimizer.load_state_dict(dict(saved))
    loaded, new_state = optimizer.param_groups, dict(optimizer.state)
    for group, new_group in zip(groups, [dict(each) for each in loaded], strict=True):
        group.clear()
        group.update(new_group)
    loaded[:] = groups  # the user's own load_state_dict may have given the list to an optimizer within
    state.clear()
    state.update(new_state)
    optimizer.param_groups, optimizer.state = groups, state


def _number(value: Any) -> float:
    if isinstance(value, str):
        raise TrialError(f"report takes numbers, not the text {value!r}")
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TrialError(f"report takes numbers, not {value!r} of type {type(value).__name__}") from error
