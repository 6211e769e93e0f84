"""The lane mode: while it is active, torch computes with lane tensors as if each lane were alone.

Every torch call of the user's function comes by here. One that touches no lane tensor goes through untouched. One
that does is answered by a rule of ours where there is one, else by torch's own batching rules in a vmap level, else
lane by lane.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Number
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwater.devices import send
from headwater.errors import CannotFuseError
from headwater.fuse.apart import Bystanders, Dice, join, per_lanes, split, tensors, touches
from headwater.fuse.bypasses import BYPASSES
from headwater.fuse.layouts import FORMAT_READING, REORDERING, Layouts
from headwater.fuse.per_lane import PerLane, run_by_lane
from headwater.fuse.roster import Roster
from headwater.fuse.shortage import is_out_of_memory
from headwater.fuse.strategies import Steady, Strategies
from headwater.fuse.swaps import Swaps
from headwater.fuse.targets import (
    NORMS,
    claim_gradient,
    narrow,
    promote,
    promote_statistics,
    promote_weight,
    target_of,
    widen,
    write_out,
    writes_in_place,
)
from headwater.torch_private import (
    active_modes,
    call_in_level,
    is_lane_tensor,
    is_transforming,
    lanes_of,
    name_function,
    saves_elsewhere,
    stack_of,
)

NO_KWARGS: Mapping[str, Any] = {}

_ESCAPED = re.compile("functorch|vmap|BatchedTensor")
"""What torch says where a lane tensor came upon a function that leads past the mode."""

_INITIALISERS: Mapping[Any, Any] = {
    nn.init.normal_: Tensor.normal_,
    nn.init.uniform_: Tensor.uniform_,
    nn.init.constant_: Tensor.fill_,
}
"""Those that ask for modes themselves, and what they do with gradients off."""
_MAY_REORDER = REORDERING | FORMAT_READING
_GRADIENT_SWITCHES = frozenset({Tensor.requires_grad_, Tensor.requires_grad.__set__})  # type: ignore[attr-defined]


class LaneMode(TorchFunctionMode):
    """Runs each torch call for all lanes of the roster."""

    def __init__(self, roster: Roster, rules: Mapping[Any, Any], strategies: Strategies | None = None) -> None:
        super().__init__()
        self.roster = roster
        self.swaps = Swaps(self)
        """The tensors of the user that this mode has turned into lane tensors."""
        self._strategies = strategies if strategies is not None else Strategies()
        self._steady = Steady()
        self._rules = rules
        self._layouts = Layouts()
        self._depth = 0

    def __enter__(self) -> LaneMode:
        if self._depth == 0:
            BYPASSES.open(current_mode)
        self._depth += 1
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        self._depth -= 1
        if self._depth > 0:
            return
        BYPASSES.close()
        if isinstance(error, RuntimeError) and _ESCAPED.search(str(error)):
            raise CannotFuseError(f"torch cannot do this for several lanes at once: {error}") from error

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if kwargs:
            if touches(args) or touches(kwargs.values()):
                return self._compute_or_refuse(func, args, kwargs)
            answer = func(*args, **kwargs)
            if kwargs.get("requires_grad"):
                self._claim_gradient(answer)
            return answer
        if touches(args):
            return self._compute_or_refuse(func, args, NO_KWARGS)
        answer = func(*args)
        if func in _GRADIENT_SWITCHES:
            self._claim_gradient(args[0])
        return answer

    def _compute_or_refuse(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Answer a call; what lanes cannot do is noted, for the user's code may catch the error and go another way."""
        try:
            return self.compute(func, args, kwargs)
        except CannotFuseError as error:
            self.roster.refuse(str(error))
            raise
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise self.roster.run_short(error) from error
            raise

    def refusal(self, reason: str) -> CannotFuseError:
        """Note that the lanes cannot go on as one, and return the signal to raise."""
        self.roster.refuse(reason)
        return CannotFuseError(reason)

    @property
    def num_lanes(self) -> int:
        """How many lanes ride now."""
        return len(self.roster)

    @property
    def strategies(self) -> Strategies:
        """What decides between ways to compute a call; inside a checkpoint always for the same."""
        return self._steady if saves_elsewhere() else self._strategies

    def for_thread(self) -> LaneMode:
        """Return a mode for another thread, which ends with this one."""
        self.roster.has_threads = True
        return ThreadMode(self)

    def compute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] = NO_KWARGS) -> Any:
        """Answer a call that touches lanes."""
        if self.roster.has_narrowed:
            for tensor in tensors((*args, *kwargs.values())):
                narrow(tensor, self.roster)
        if is_transforming():
            return func(*self._as_tensors(list(args)), **self._as_tensors(dict(kwargs)))
        return self._initialise(func, *args, **kwargs) if func in _INITIALISERS else self._compute(func, args, kwargs)

    def _compute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if torch.is_grad_enabled():
            self.refuse_unprepared((*args, *kwargs.values()) if kwargs else args)
        if kwargs and (kwargs.get("out") is not None or kwargs.get("requires_grad")):
            return self._finish(func, args, kwargs)
        displaced = self._layouts.in_use and self._layouts.prepare(func, args, kwargs)
        answer = self._answer(func, args, kwargs)
        if displaced:
            self._layouts.displace(answer)
        return self._layouts.compare(func, args, kwargs, answer) if func in _MAY_REORDER else answer

    def _initialise(self, func: Any, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
        """Do what a function of `torch.nn.init` does, with numbers that may differ by lane."""
        given = [*args, *kwargs.values()]
        more = {} if generator is None else {"generator": generator}
        with torch.no_grad(), self:
            return _INITIALISERS[func](*given, **more)

    def _answer(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func in NORMS:
            promote_statistics(args, kwargs, self.num_lanes, self.swaps)
        rule = self._rules.get(func)
        if rule is not None:
            answer = rule(self, func, *args, **kwargs)
            if answer is not NotImplemented:
                return answer
        return self.run_batched(func, args, kwargs)

    def run_batched(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] = NO_KWARGS) -> Any:
        """Let torch's batching rules do the call; where they cannot, do it lane by lane.

        What fails for another reason fails again for the first lane, and in words that fit one lane alone.
        """
        if any(True for _ in per_lanes((*args, *kwargs.values()))) or _mixes_precision(args, kwargs):
            return self.run_looped(func, args, kwargs)
        return self.run_in_level(func, args, kwargs)

    def run_in_level(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] = NO_KWARGS) -> Any:
        """Do what `run_batched` does, for tensors whose types torch's batching is known to promote as it should."""
        if writes_in_place(func):
            self._promote_target(func, args, kwargs)
        dice = Dice(args, kwargs)
        try:
            return call_in_level(self.num_lanes, func, args, kwargs)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            if is_out_of_memory(error):
                raise
            dice.rewind()
        return self.run_looped(func, args, kwargs)

    def run_looped(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] = NO_KWARGS) -> Any:
        """Do the call once per lane, each with the random numbers that the lane alone would draw."""
        if kwargs.get("inplace"):
            copy = self.compute(Tensor.clone, args[:1])
            answer = self.run_looped(func, (copy, *args[1:]), {**kwargs, "inplace": False})
            return self.compute(Tensor.copy_, (args[0], answer))
        in_place = writes_in_place(func)
        target = self._promote_target(func, args, kwargs) if in_place else None
        bystanders, dice = Bystanders(args, kwargs), Dice(args, kwargs, name_of(func))

        def run_lane(lane_args: Any, lane_kwargs: Any) -> Any:
            dice.begin_lane()
            answer = func(*lane_args, **lane_kwargs)
            bystanders.require_unchanged(name_of(func))
            dice.end_lane()
            return answer

        run_lane.__name__ = name_of(func)
        answers = run_by_lane(run_lane, self._apart(args, kwargs, target), self.roster)
        if in_place:
            return None if answers[0] is None else target
        try:
            return join(answers, self.roster, name_of(func))
        except CannotFuseError:
            self.require_one((*args, *kwargs.values()))
            raise

    def require_one(self, values: Iterable[Any]) -> None:
        """Make the lanes part where one of the values differs between them."""
        for value in per_lanes(values):
            value.one()

    def number(self, value: Any, like: Tensor) -> Any:
        """Turn a PerLane into a stack of numbers that meets `like`, a stack, in arithmetic; leave others alone."""
        if not isinstance(value, PerLane):
            return value
        return number_stack(value, like.dtype, like.device).view(-1, *(1,) * (like.dim() - 1))

    def per_lane(self, stack: Tensor) -> PerLane:
        """Return the numbers of a stack of one number per lane."""
        return PerLane(stack.tolist(), self.roster)

    def widen(self, plain: Tensor) -> Tensor:
        """Return a stack that holds `plain` once per lane, without copying it."""
        return widen(plain, self.num_lanes)

    def stack(self, tensor: Tensor) -> Tensor:
        """Return the memory of a lane tensor, or a plain tensor widened."""
        return stack_of(tensor) if is_lane_tensor(tensor) else widen(tensor, self.num_lanes)

    def _finish(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Do the call without `out=` and `requires_grad=True`, and then what they ask for."""
        rest = {key: value for key, value in kwargs.items() if key not in ("out", "requires_grad")}
        answer = self.compute(func, args, rest)
        if kwargs.get("out") is not None:
            answer = write_out(kwargs["out"], answer, self.num_lanes, self.swaps)
        if kwargs.get("requires_grad"):
            with self:
                answer.requires_grad_()
        return answer

    def refuse_unprepared(self, values: Iterable[Any]) -> None:
        """A tensor with a gradient of its own, shared by the lanes, would get the sum of their gradients."""
        for value in values:
            if isinstance(value, Tensor):
                if value.requires_grad and not is_lane_tensor(value):
                    self.require_one(values)
                    raise CannotFuseError(
                        f"a tensor of shape {tuple(value.shape)} needs gradients but is not part of a prepared model; "
                        "pass the module that holds it to trial.prepare_model"
                    )
            elif isinstance(value, (list, tuple)):
                self.refuse_unprepared(value)

    def _claim_gradient(self, tensor: Tensor) -> None:
        if not is_transforming():
            claim_gradient(tensor, self.num_lanes, self.swaps)

    def _promote_target(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        target = target_of(args, kwargs)
        for tensor in tensors([target]):
            if not is_lane_tensor(tensor):
                if tensor.requires_grad:
                    if not torch.is_grad_enabled() and promote_weight(tensor, args, kwargs, self.num_lanes, self.swaps):
                        continue
                    self.require_one((*args, *kwargs.values()))
                promote(tensor, self.num_lanes, name_of(func), self.swaps)
        return target

    def _apart(self, args: Sequence[Any], kwargs: Mapping[str, Any], target: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the arguments of each lane; what is written into comes as a view, for gradients to follow."""
        args_by_lane, kwargs_by_lane = split(list(args), self.num_lanes), split(dict(kwargs), self.num_lanes)
        for lane, (lane_args, lane_kwargs) in enumerate(zip(args_by_lane, kwargs_by_lane, strict=True)):
            if isinstance(target, Tensor) and args:
                lane_args[0] = stack_of(target)[lane]
            yield lane_args, lane_kwargs

    def _as_tensors(self, value: Any) -> Any:
        """Turn PerLane numbers into lane tensors without dimensions."""
        if isinstance(value, PerLane):
            return lanes_of(number_stack(value, torch.get_default_dtype(), torch.device("cpu")))
        if isinstance(value, list | tuple):
            return type(value)(self._as_tensors(item) for item in value) if touches(value) else value
        if isinstance(value, dict):
            return {key: self._as_tensors(item) for key, item in value.items()}
        return value


class ThreadMode(LaneMode):
    """The lane mode in a thread that the user's code has started; it ends with the mode of the run."""

    def __init__(self, origin: LaneMode) -> None:
        super().__init__(origin.roster, origin._rules, origin._strategies)
        self.swaps = origin.swaps
        self._layouts = origin._layouts
        self._origin = origin

    def __enter__(self) -> LaneMode:
        TorchFunctionMode.__enter__(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        TorchFunctionMode.__exit__(self, kind, error, traceback)
        if isinstance(error, RuntimeError) and _ESCAPED.search(str(error)):
            self.roster.refuse(f"torch cannot do this for several lanes at once: {error}")

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self._origin._depth == 0:
            return func(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)


def current_mode() -> LaneMode | None:
    """Return the lane mode that is on in this thread."""
    return next((mode for mode in reversed(active_modes()) if isinstance(mode, LaneMode)), None)


def number_stack(value: PerLane, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return one number per lane, of the type that makes them act on tensors of `dtype` as Python numbers do."""
    kinds = {type(item) for item in value.values}
    if not all(isinstance(item, Number) for item in value.values):
        value.one()
    if dtype.is_floating_point or dtype.is_complex:
        return send(torch.tensor(value.values, dtype=dtype), device)
    if len(kinds) > 1:
        value.one()
    if kinds == {int} and dtype != torch.bool:
        return send(torch.tensor(value.values, dtype=dtype), device)
    return send(torch.tensor(value.values), device)


def _mixes_precision(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether floating types meet: torch's batching often promotes a lane without dimensions as if it had one."""
    kinds = {tensor.dtype for tensor in tensors((*args, *kwargs.values()))}
    return len(kinds) > 1 and sum(kind.is_floating_point for kind in kinds) > 1


def name_of(func: Any) -> str:
    """Return the name of a torch function, for a sentence about it."""
    name: str = getattr(func, "__qualname__", "") or getattr(func, "__name__", "") or repr(func)
    return name_function(name)
