"""`torch._foreach_*`, the operators over lists of tensors: each member of the list by itself, for all lanes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwater.fuse.mode import LaneMode
from headwater.fuse.targets import writes_in_place


def _for_each(mode: LaneMode, func: Any, *args: Any, **kwargs: Any) -> Any:
    values = (*args, *kwargs.values())
    length = next(len(value) for value in values if isinstance(value, list | tuple))
    rows = zip(*(_column(arg, length) for arg in args), strict=True)
    options = [{key: _column(value, length)[i] for key, value in kwargs.items()} for i in range(length)]
    with mode:
        answers = [_MEMBERS[func](*row, **option) for row, option in zip(rows, options, strict=True)]
    return list(args[0]) if writes_in_place(func) else tuple(answers)


def _column(value: Any, length: int) -> Any:
    return value if isinstance(value, list | tuple) else [value] * length


def _with_factor(name: str) -> Any:
    """`addcmul` and `addcdiv`, whose factor may come as a number or as a tensor."""

    def member(tensor: Tensor, first: Tensor, second: Tensor, value: Any = 1, scalars: Any = None) -> Any:
        factor = value if scalars is None else scalars
        if isinstance(factor, Tensor):
            return getattr(tensor, name)(first * factor, second)
        return getattr(tensor, name)(first, second, value=factor)

    return member


def _sum_of_powers(tensor: Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> Tensor:
    return tensor.abs().pow(ord).sum(dtype=dtype)


def _member_of(name: str) -> Any:
    """Find what `torch._foreach_<name>` does with each member of a list."""
    special = {
        "norm": torch.linalg.vector_norm,
        "powsum": _sum_of_powers,
        "pow": torch.pow,
        "maximum": Tensor.clamp_min,
        "maximum_": Tensor.clamp_min_,
        "minimum": Tensor.clamp_max,
        "minimum_": Tensor.clamp_max_,
        **{name: _with_factor(name) for name in ("addcmul", "addcmul_", "addcdiv", "addcdiv_")},
    }
    return special.get(name) or getattr(Tensor, name)


_PREFIX = "_foreach_"
_MEMBERS = {
    getattr(torch, name): _member_of(name.removeprefix(_PREFIX)) for name in dir(torch) if name.startswith(_PREFIX)
}

RULES: dict[Any, Any] = dict.fromkeys(_MEMBERS, _for_each)
