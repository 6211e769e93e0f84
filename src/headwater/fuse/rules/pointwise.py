"""Arithmetic element by element, done on the stacks directly: no level, one kernel for all lanes."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.fuse.mode import LaneMode, number_stack
from headwater.fuse.per_lane import PerLane
from headwater.fuse.targets import writes_in_place
from headwater.torch_private import OPERATORS, is_lane_tensor, lanes_of, stack_of


def _one(mode: LaneMode, func: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of one tensor, whatever its other arguments are."""
    if not args or not is_lane_tensor(args[0]) or _differ((*args[1:], *kwargs.values())):
        return NotImplemented
    return lanes_of(func(stack_of(args[0]), *args[1:], **kwargs))


def _one_in_place(mode: LaneMode, func: Any, *args: Any, **kwargs: Any) -> Any:
    if not args or not is_lane_tensor(args[0]) or _differ((*args[1:], *kwargs.values())):
        return NotImplemented
    func(stack_of(args[0]), *args[1:], **kwargs)
    return args[0]


def _many(mode: LaneMode, func: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of several tensors and numbers that broadcast against each other."""
    operands = None if kwargs and _differ(tuple(kwargs.values())) else _aligned(args)
    if operands is None:
        return _mixed(mode, func, args, kwargs)
    answer = func(*operands, **kwargs)
    return answer if answer is NotImplemented else lanes_of(answer)


def _many_in_place(mode: LaneMode, func: Any, *args: Any, **kwargs: Any) -> Any:
    target: Tensor = args[0]
    plain = not is_lane_tensor(target) or (kwargs and _differ(tuple(kwargs.values())))
    operands = None if plain else _aligned(args)
    if operands is None:
        return _mixed(mode, func, args, kwargs)
    func(*operands, **kwargs)
    return target


def _where(mode: LaneMode, func: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) != 3 or kwargs:
        return mode.run_batched(func, args, kwargs)
    condition, x, y = (args[1], args[0], args[2]) if func == Tensor.where else args
    if not isinstance(x, Tensor) or not isinstance(condition, Tensor):
        return _mixed(mode, torch.where, (condition, x, y), {})
    if isinstance(y, Tensor) and x.dtype != y.dtype:  # torch's batching takes the wrong type where one has no dimension
        dtype = torch.result_type(x, y)
        x, y = mode.compute(Tensor.to, (x, dtype)), mode.compute(Tensor.to, (y, dtype))
    operands = _aligned((x, y), condition)
    if operands is None:
        return _mixed(mode, torch.where, (condition, x, y), {})
    x, y, condition = operands
    return lanes_of(torch.where(condition, x, y))


def _masked_fill(mode: LaneMode, func: Any, tensor: Tensor, mask: Tensor, value: Any) -> Any:
    operands = _aligned((tensor,), mask)
    if operands is None or isinstance(value, (Tensor, PerLane)):
        return _mixed(mode, func, (tensor, mask, value), {})
    return lanes_of(func(*operands, value))


def _scaled(mode: LaneMode, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Sums whose last term has a factor: one that differs by lane goes into the term itself."""
    name = next((name for name in ("alpha", "value") if isinstance(kwargs.get(name), PerLane)), None)
    if name is not None and len(args) > 1 and _common_dtype(args) not in (None, *_COARSE):
        factor = kwargs.pop(name)
        args = (args[0], mode.compute(Tensor.mul, (args[1], factor)), *args[2:])
    return (_many_in_place if writes_in_place(func) else _many)(mode, func, *args, **kwargs)


def _differ(values: tuple[Any, ...]) -> bool:
    return any(isinstance(value, (Tensor, PerLane)) for value in values)


def _aligned(args: tuple[Any, ...], mask: Any = None) -> list[Any] | None:
    """Return the stacks with ranks that let them broadcast, the mask last; or None where torch must promote types."""
    rank = mask.dim() if mask is not None else 0
    like: Tensor | None = None
    numbers = False
    for arg in args:
        if isinstance(arg, Tensor):
            if like is None:
                like = arg
            elif like.dtype != arg.dtype:
                return None
            rank = max(rank, arg.dim())
        elif isinstance(arg, PerLane):
            numbers = True
    if like is None or (numbers and like.dtype in _COARSE):
        return None
    operands = args if mask is None else (*args, mask)
    return [_align(arg, rank, like) for arg in operands]


def _align(arg: Any, rank: int, like: Tensor) -> Any:
    if isinstance(arg, Tensor):
        if not is_lane_tensor(arg):
            return arg
        stack = stack_of(arg)
        missing = rank + 1 - stack.dim()
        return stack.view(stack.shape[0], *(1,) * missing, *stack.shape[1:]) if missing else stack
    if isinstance(arg, PerLane):
        return number_stack(arg, like.dtype, like.device).view(-1, *(1,) * rank)
    return arg


def _mixed(mode: LaneMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Several types, or options: torch's batching promotes two tensors as it should, more of them not always.

    Reduced precision goes lane by lane, for there torch computes with a number itself and not with its rounding.
    """
    values = (*args, *kwargs.values())
    dtypes = {value.dtype for value in values if isinstance(value, Tensor)}
    coarse = not dtypes.isdisjoint(_COARSE)
    if not any(isinstance(value, PerLane) for value in values):
        if len(dtypes) == 1 or (len(args) == 2 and not coarse):
            return mode.run_in_level(func, args, kwargs)
        return mode.run_looped(func, args, kwargs)
    if coarse or len(dtypes) != 1 or any(isinstance(kwargs.get(name), PerLane) for name in ("alpha", "value")):
        return mode.run_looped(func, args, kwargs)
    (dtype,) = dtypes
    device = next(value.device for value in values if isinstance(value, Tensor))

    def number(value: Any) -> Any:
        return lanes_of(number_stack(value, dtype, device)) if isinstance(value, PerLane) else value

    return mode.run_in_level(func, [number(arg) for arg in args], {key: number(arg) for key, arg in kwargs.items()})


def _common_dtype(values: tuple[Any, ...]) -> torch.dtype | None:
    dtypes = [value.dtype for value in values if isinstance(value, Tensor)]
    return reduce(torch.promote_types, dtypes) if dtypes else None


_COARSE = (torch.float16, torch.bfloat16)
_ONE = (
    "relu sigmoid tanh exp log log1p log2 sqrt rsqrt abs neg square sin cos erf isnan isfinite isinf logical_not "
    "reciprocal sign floor ceil round expm1 log10 softplus relu6 gelu silu elu leaky_relu hardtanh hardswish "
    "hardsigmoid mish selu celu softsign logsigmoid tanhshrink"
)
_CASTS = "__neg__ __abs__ detach float double half bfloat16 long int bool"
_MANY = (
    "mul div rsub pow true_divide maximum minimum eq ne lt le gt ge lerp remainder floor_divide logical_and logical_or "
    "atan2 fmod clamp clamp_min clamp_max clip"
)
_OPERATORS = (
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __rpow__ __eq__ __ne__ __lt__ "
    "__le__ __gt__ __ge__ __and__ __or__ __div__ __rdiv__"
)
_SCALED = "add sub subtract addcmul addcdiv"


def _spellings(names: str, suffix: str = "") -> list[Any]:
    """Find every function that torch gives these names, in its modules and on tensors."""
    homes = (torch, Tensor, F, OPERATORS)
    found = [getattr(home, name + suffix, None) for name in names.split() for home in homes]
    return [func for func in found if callable(func)]


RULES: dict[Any, Any] = {
    **dict.fromkeys(_spellings(_ONE) + _spellings(_CASTS), _one),
    **dict.fromkeys(_spellings(_ONE, "_"), _one_in_place),
    **dict.fromkeys(_spellings(_MANY) + _spellings(_OPERATORS), _many),
    **dict.fromkeys(_spellings(_MANY, "_") + _spellings("masked_fill_"), _many_in_place),
    **dict.fromkeys(_spellings(_SCALED) + _spellings(_SCALED, "_"), _scaled),
    **dict.fromkeys(_spellings("where"), _where),
    **dict.fromkeys(_spellings("masked_fill"), _masked_fill),
}
