"""One optimizer over all lanes: what the user's function holds as its `torch.optim` optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from headwater.errors import CannotFuseError
from headwater.fuse.gradient_scale import inverse_of, places_that_overflow, unscale
from headwater.fuse.hyperparameters import as_numbers, merge, pick, select, select_item, settle, without_recipe
from headwater.fuse.optimizer_parts import Factory, LoopedPart, RuledPart, class_of
from headwater.fuse.per_lane import PerLane, PerLaneText
from headwater.fuse.roster import Roster
from headwater.fuse.targets import narrow
from headwater.fuse.updates import RULES
from headwater.torch_private import DisableTorchFunction, has_step_hooks, is_lane_tensor, stack_of, step_hooks_of

_PAIRS = {"beta1": ("betas", 0), "beta2": ("betas", 1)}


def fuse_optimizer(optimizer_class: Any, params: Any, roster: Roster, **hyperparameters: Any) -> LaneOptimizer:
    """Return one optimizer that trains each lane as the optimizer of that lane alone would.

    Args:
        optimizer_class: A class of `torch.optim` or its name, the user's own, or a PerLane of these.
        params: A module, lane tensors, or parameter groups, as for `torch.optim`.
        roster: The lanes.
        hyperparameters: Those of the class; each may be a PerLane, also inside a tuple such as `betas`.

    Raises:
        ValueError, TypeError: What torch says about the hyperparameters of one of the lanes.
        CannotFuseError: The optimizer or a parameter cannot be shared by lanes.
    """
    differs = isinstance(optimizer_class, PerLane | PerLaneText)
    classes = optimizer_class.values if differs else [optimizer_class] * len(roster)
    try:
        return LaneOptimizer([_factory(item) for item in classes], params, roster, hyperparameters)
    except CannotFuseError as error:  # noted here, for the user's code may catch it
        roster.refuse(str(error))
        raise


@dataclass(slots=True)
class _Group:
    """What the optimizer remembers about one parameter group: its parts, and the settings they were made from."""

    parts: list[RuledPart] = field(default_factory=list)
    flags: tuple[Any, ...] = ()
    numbers: tuple[Any, ...] = ()


class LaneOptimizer(Optimizer):
    """The optimizers of all lanes as one `torch.optim.Optimizer`, whose hyperparameters may differ by lane.

    SGD, Adam, AdamW, Adagrad and RMSprop update all lanes at once (`foreach`, `fused` and `capturable`, which choose
    among torch's own ways to do so, are ignored). Other classes of `torch.optim`, and classes of the user's own that
    pass the check in `optimizer_source`, train through one real instance per lane, no faster than separate optimizers.

    `param_groups` behaves as in torch, with a PerLane wherever lanes differ. The state of single parameters is not
    exposed: `lane_state` gives it for each lane in torch's own form.
    """

    _step_supports_amp_scaling = True  # so a GradScaler leaves the decision to step to this class

    def __init__(
        self, factories: Sequence[Factory], params: Any, roster: Roster, hyperparameters: Mapping[str, Any]
    ) -> None:
        self._roster = roster
        self._groups: list[_Group] = []
        self._classes = tuple(class_of(factory) for factory in factories)
        self._opt_called = False
        self._skipped: frozenset[int] = frozenset()
        self._flags, self._numbers = _settings_of(self._classes)
        groups = _as_groups(params)  # a filter among them asks for requires_grad, which the mode answers
        with DisableTorchFunction():
            hyperparameters = {key: as_numbers(value, roster) for key, value in hyperparameters.items()}
            looped = {place: item for place, item in enumerate(factories) if self._classes[place] not in RULES}
            self._looped = LoopedPart(looped, groups, hyperparameters)
            reals = [
                self._looped.reals.get(place) or factory([torch.zeros(1)], **pick(hyperparameters, place))
                for place, factory in enumerate(factories)
            ]
            self._lane_keys = tuple(frozenset(real.param_groups[0]) for real in reals)
            super().__init__(groups, self._merge_defaults(reals, hyperparameters))

    @property
    def state(self) -> Any:
        """Not exposed: lanes keep their state in forms of their own."""
        raise self._refusal("the code reads optimizer.state, which lanes keep in another form")

    @state.setter
    def state(self, state: Mapping[Any, Any]) -> None:
        if state:
            raise self._refusal("the code assigns optimizer.state, which lanes keep in another form")
        with DisableTorchFunction(), torch.no_grad():
            for group, record in zip(getattr(self, "param_groups", []), self._groups, strict=True):
                self._load_parts(group, record, [{} for _ in self._classes])

    @property
    def lane_classes(self) -> tuple[type[Optimizer], ...]:
        """The class of each lane's optimizer."""
        return self._classes

    @property
    def has_stepped(self) -> bool:
        """Whether `step` has been called."""
        return self._opt_called

    @property
    def is_mixed(self) -> bool:
        """Whether the lanes' optimizers have different hyperparameters."""
        return len(set(self._lane_keys)) > 1

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of lane tensors; its hyperparameters may differ by lane."""
        listed = _listed(param_group)  # a filter among them asks for requires_grad, which the mode answers
        with DisableTorchFunction(), torch.no_grad():
            super().add_param_group(listed)
            self._groups.append(_Group())
            self._refresh(self.param_groups[-1], self._groups[-1])
            self._looped.follow(self.param_groups)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all lanes."""
        with DisableTorchFunction():
            stacks = [stack_of(param) for group in self.param_groups for param in group["params"]]
            if set_to_none:
                for stack in stacks:
                    stack.grad = None
                return
            grads = [stack.grad for stack in stacks if stack.grad is not None]
            for grad in grads:
                grad.detach_() if grad.grad_fn is not None else grad.requires_grad_(False)
            if grads:
                torch._foreach_zero_(grads)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every lane; a closure is called once before, and its loss returned.

        A `GradScaler` has left word in `found_inf` and `grad_scale`; lanes whose gradients overflowed are not updated.
        """
        self._skipped = self._hear_scaler()
        if len(self._skipped) == len(self._classes):
            return None
        if not has_step_hooks(self):
            return self._step(closure)
        return _step_with_hooks(self, closure)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all lanes, for `load_state_dict` of this optimizer; `lane_state` gives torch's form."""
        return {
            "state": {"lanes": [self.lane_state(place) for place in range(len(self._classes))]},
            "members": self._roster.members,
            "param_groups": [
                {key: value for key, value in group.items() if key != "params"} for group in self.param_groups
            ],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Return to a state that `state_dict` gave; lanes that have left since are passed over."""
        lanes = dict(zip(state_dict["members"], state_dict["state"]["lanes"], strict=True))
        self.load_lane_states([lanes[member] for member in self._roster.members])

    def lane_state(self, place: int) -> dict[str, Any]:
        """Return the state dict of the lane's optimizer alone, which shares no memory with this one."""
        with DisableTorchFunction(), torch.no_grad():
            if place in self._looped.reals:
                return self._looped.lane_state(place, self.param_groups)
            state: dict[int, Any] = {}
            groups: list[dict[str, Any]] = []
            offset = 0
            for group, record in zip(self.param_groups, self._groups, strict=True):
                self._refresh(group, record)
                part = next(part for part in record.parts if place in part.places)
                kept = part.lane_state(part.places.index(place))
                state.update({offset + index: kept[index] for index in sorted(kept)})
                ids = range(offset, offset + len(group["params"]))
                settings = {key: _plain(value) for key, value in self.lane_settings(group, place).items()}
                groups.append({**settings, "params": list(ids)})
                offset += len(ids)
            return {"state": state, "param_groups": groups}

    def load_lane_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Give each lane the state of a solo optimizer of its class: its hyperparameters, buffers and step counts.

        Raises:
            ValueError: A state has other parameter groups than this optimizer.
        """
        _require_same_groups(self.param_groups, states)
        with DisableTorchFunction(), torch.no_grad():
            for number, (group, record) in enumerate(zip(self.param_groups, self._groups, strict=True)):
                saved = [state["param_groups"][number] for state in states]
                for key in {key: None for lane_group in saved for key in lane_group if key != "params"}:
                    group[key] = merge([_plain(lane_group.get(key)) for lane_group in saved], self._roster)
                ids = [lane_group["params"] for lane_group in saved]
                kept = [
                    {place: state["state"][item] for place, item in enumerate(lane_ids) if item in state["state"]}
                    for state, lane_ids in zip(states, ids, strict=True)
                ]
                self._refresh(group, record)
                self._load_parts(group, record, kept)
            self._looped.load(states, self.param_groups)

    def lane_settings(self, group: Mapping[str, Any], place: int) -> dict[str, Any]:
        """Return the hyperparameters of a group, or the defaults, as one lane's own optimizer would have them."""
        settings = {key: pick(value, place) for key, value in group.items() if key != "params"}
        own = self._lane_keys[place]
        return {key: value for key, value in settings.items() if value is not None or key in own}

    def narrow(self, places: Sequence[int]) -> None:
        """Keep the lanes at these places."""
        with DisableTorchFunction(), torch.no_grad():
            self._classes = tuple(self._classes[place] for place in places)
            self._lane_keys = tuple(self._lane_keys[place] for place in places)
            self._looped.narrow(places)
            for record in self._groups:
                record.parts = [part for part in record.parts if part.narrow(places)]
                record.numbers = ()

    def __getattr__(self, name: str) -> Any:
        is_built = "param_groups" in self.__dict__
        classes, reals = (self._classes, self._looped.reals.values()) if is_built else ((), ())
        is_known = any(hasattr(each, name) for each in classes) or any(name in vars(real) for real in reals)
        if is_known and not name.startswith("__"):
            raise self._refusal(f"the code uses {classes[0].__name__}.{name}, which lanes cannot share")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _refusal(self, reason: str) -> CannotFuseError:
        """Note that the lanes cannot go on as one, for the user's code may catch the error, and return the error."""
        self._roster.refuse(reason)
        return CannotFuseError(reason)

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            if any(not real.__module__.startswith("torch.optim") for real in self._looped.reals.values()):
                raise self._refusal("an optimizer of the user's own may call its closure more than once")
            with torch.enable_grad():
                loss = closure()
        self._opt_called = True
        with self._roster.noticing_shortage(), DisableTorchFunction():
            with torch.no_grad():
                for group, record in zip(self.param_groups, self._groups, strict=True):
                    self._refresh(group, record)
                    stacks = [stack_of(param) for param in group["params"]]
                    grads = [stack.grad for stack in stacks]
                    for part in record.parts if stacks else ():
                        part.step(stacks, grads, self._skipped)
            if self._looped.reals:
                self._step_each()
        return loss

    def _step_each(self) -> None:
        try:
            self._looped.step(self.param_groups, self._skipped)
        except CannotFuseError as error:
            self._roster.refuse(str(error))
            raise

    def _hear_scaler(self) -> frozenset[int]:
        """Return the lanes that a `GradScaler` wants to be skipped, and divide the gradients if that is left to do."""
        found, scale = self.__dict__.get("found_inf"), self.__dict__.get("grad_scale")
        if found is None:
            return frozenset()
        with DisableTorchFunction(), torch.no_grad():
            for tensor in (found, scale):
                if isinstance(tensor, Tensor):
                    narrow(tensor, self._roster)
            skipped = places_that_overflow(found, len(self._classes))
            if scale is not None:
                stacks = [stack_of(param) for group in self.param_groups for param in group["params"]]
                unscale([stack.grad for stack in stacks if stack.grad is not None], inverse_of(scale))
        if 0 < len(skipped) < len(self._classes) and not all(
            hook.__module__.startswith("headwater.") for hook in step_hooks_of(self)
        ):
            raise self._refusal("a hook on the steps of the optimizer would run for a lane whose step is skipped")
        return skipped

    def _refresh(self, group: dict[str, Any], record: _Group) -> None:
        """Follow the hyperparameters, if any was assigned since the last step."""
        numbers, flags = tuple(map(group.get, self._numbers)), tuple(map(group.get, self._flags))
        if record.numbers and all(map(is_, numbers, record.numbers)) and all(map(is_, flags, record.flags)):
            return
        is_new = not record.parts
        for name in self._numbers:
            if not isinstance(group.get(name), Tensor):  # a learning rate that is a tensor stays the user's own
                settled = settle(group.get(name), self._roster)
                group[name] = settled if is_new else without_recipe(settled, self._roster)
        if is_new or not all(map(is_, flags, record.flags)):
            self._split(group, record)
        numbers = tuple(map(group.get, self._numbers))
        record.numbers = () if any(isinstance(number, Tensor) for number in numbers) else numbers
        record.flags = flags
        for part in record.parts:
            part.set_numbers({name: self._number(group, name, part.places) for name in part.rule.numbers})

    def _number(self, group: Mapping[str, Any], name: str, places: Sequence[int]) -> Any:
        if name == "initial_accumulator_value":  # torch takes it from the constructor alone
            return select(self.defaults[name], places)
        if name in _PAIRS:
            pair, index = _PAIRS[name]
            return select_item(group[pair], index, places)
        return select(settle(group[name], self._roster), places)

    def _split(self, group: Mapping[str, Any], record: _Group) -> None:
        """Sort the lanes by rule and flags, and let their state follow."""
        states: list[Any] = [{} for _ in self._classes]
        for part in record.parts:
            for row, place in enumerate(part.places):
                states[place] = part.lane_state(row)
        kinds: dict[Any, list[int]] = {}
        for place, optimizer_class in enumerate(self._classes):
            rule = RULES.get(optimizer_class)
            if rule is not None:
                flags = tuple(bool(pick(group[flag], place)) for flag in rule.flags)
                kinds.setdefault((optimizer_class, flags), []).append(place)
        record.parts = []
        for (optimizer_class, flags), places in kinds.items():
            rule = RULES[optimizer_class]
            record.parts.append(RuledPart(rule, dict(zip(rule.flags, flags, strict=True)), places))
        self._load_parts(group, record, states)

    def _load_parts(self, group: Mapping[str, Any], record: _Group, states: Sequence[Any]) -> None:
        stacks = [stack_of(param) for param in group["params"]]
        for part in record.parts:
            part.load(stacks, [states[place] for place in part.places])

    def _merge_defaults(self, reals: Sequence[Optimizer], hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return torch's defaults of all lanes; None stands where a lane's optimizer has no such hyperparameter."""
        keys = {key: None for real in reals for key in real.defaults}
        defaults = {key: merge([real.defaults.get(key) for real in reals], self._roster) for key in keys}
        if any(real.defaults.get("differentiable") for real in reals):
            raise CannotFuseError("differentiable=True asks for gradients through the update, which lanes do not give")
        given = {key: value for key, value in hyperparameters.items() if type(value) is PerLane and key in defaults}
        return {**defaults, **{key: value for key, value in given.items() if type(defaults[key]) is PerLane}}


LaneOptimizer.step.hooked = True  # type: ignore[attr-defined]  # so torch leaves `step` without its slow wrapper
_step_with_hooks: Callable[..., Any] = Optimizer.profile_hook_step(LaneOptimizer._step)


def _factory(optimizer_class: Any) -> Factory:
    if not isinstance(optimizer_class, str):
        factory: Factory = optimizer_class
        return factory
    found = getattr(torch.optim, optimizer_class, None)
    if not (isinstance(found, type) and issubclass(found, Optimizer)):
        known = sorted(name for name, item in vars(torch.optim).items() if isinstance(item, type))
        raise ValueError(f"torch.optim has no optimizer {optimizer_class!r}; it has {', '.join(known)}")
    return found


def _plain(value: Any) -> Any:
    """Return a learning rate that is a tensor as a number."""
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def _settings_of(classes: Iterable[type[Optimizer]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the flags and the numbers that the rules of these classes read from a group."""
    rules = [RULES[optimizer_class] for optimizer_class in dict.fromkeys(classes) if optimizer_class in RULES]
    flags = dict.fromkeys(flag for rule in rules for flag in rule.flags)
    numbers = dict.fromkeys(_PAIRS.get(name, (name, 0))[0] for rule in rules for name in rule.numbers)
    return tuple(flags), tuple(numbers)


def _as_groups(params: Any) -> list[dict[str, Any]]:
    if isinstance(params, Tensor):
        raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got one")
    items = list(params.parameters() if isinstance(params, nn.Module) else params)
    if items and not isinstance(items[0], dict):
        items = [{"params": items}]
    return [_listed(group) for group in items]


def _listed(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the group with its parameters in a list, and refuse those that are no lane tensors."""
    params = group["params"]
    if not isinstance(params, set):  # torch itself says why not a set
        params = [params] if isinstance(params, Tensor) else list(params)
    _refuse_shared(item[1] if isinstance(item, tuple) else item for item in params)
    return {**group, "params": params}


def _refuse_shared(params: Iterable[Tensor]) -> None:
    for param in params:
        if not is_lane_tensor(param):
            raise CannotFuseError(
                f"the optimizer was given a tensor of shape {tuple(param.shape)} that is not part of a prepared model; "
                "pass the module that holds it to trial.prepare_model"
            )


def _require_same_groups(groups: Sequence[Mapping[str, Any]], states: Sequence[Mapping[str, Any]]) -> None:
    sizes = [len(group["params"]) for group in groups]
    for state in states:
        saved = [len(group["params"]) for group in state["param_groups"]]
        if saved != sizes:
            raise ValueError(f"the state has parameter groups of sizes {saved}, but the optimizer has {sizes}")
