"""The operators of Python, for a class that says how one is applied."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

Operation: TypeAlias = Callable[..., Any]


class Operators:
    """Hands every operator on to `_apply` or `_map`, with a way to write it down."""

    __slots__ = ()

    def _map(self, operation: Operation, label: str, *rest: Any) -> Any:
        raise NotImplementedError

    def _apply(self, operation: Operation, other: Any, symbol: str, swapped: bool = False) -> Any:
        raise NotImplementedError

    def __hash__(self) -> int:
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return self._apply(operator.add, other, symbol="+")

    def __radd__(self, other: Any) -> Any:
        return self._apply(operator.add, other, symbol="+", swapped=True)

    def __sub__(self, other: Any) -> Any:
        return self._apply(operator.sub, other, symbol="-")

    def __rsub__(self, other: Any) -> Any:
        return self._apply(operator.sub, other, symbol="-", swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._apply(operator.mul, other, symbol="*")

    def __rmul__(self, other: Any) -> Any:
        return self._apply(operator.mul, other, symbol="*", swapped=True)

    def __truediv__(self, other: Any) -> Any:
        return self._apply(operator.truediv, other, symbol="/")

    def __rtruediv__(self, other: Any) -> Any:
        return self._apply(operator.truediv, other, symbol="/", swapped=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._apply(operator.floordiv, other, symbol="//")

    def __rfloordiv__(self, other: Any) -> Any:
        return self._apply(operator.floordiv, other, symbol="//", swapped=True)

    def __mod__(self, other: Any) -> Any:
        return self._apply(operator.mod, other, symbol="%")

    def __rmod__(self, other: Any) -> Any:
        return self._apply(operator.mod, other, symbol="%", swapped=True)

    def __pow__(self, other: Any) -> Any:
        return self._apply(operator.pow, other, symbol="**")

    def __rpow__(self, other: Any) -> Any:
        return self._apply(operator.pow, other, symbol="**", swapped=True)

    def __and__(self, other: Any) -> Any:
        return self._apply(operator.and_, other, symbol="&")

    def __rand__(self, other: Any) -> Any:
        return self._apply(operator.and_, other, symbol="&", swapped=True)

    def __or__(self, other: Any) -> Any:
        return self._apply(operator.or_, other, symbol="|")

    def __ror__(self, other: Any) -> Any:
        return self._apply(operator.or_, other, symbol="|", swapped=True)

    def __xor__(self, other: Any) -> Any:
        return self._apply(operator.xor, other, symbol="^")

    def __rxor__(self, other: Any) -> Any:
        return self._apply(operator.xor, other, symbol="^", swapped=True)

    def __lshift__(self, other: Any) -> Any:
        return self._apply(operator.lshift, other, symbol="<<")

    def __rlshift__(self, other: Any) -> Any:
        return self._apply(operator.lshift, other, symbol="<<", swapped=True)

    def __rshift__(self, other: Any) -> Any:
        return self._apply(operator.rshift, other, symbol=">>")

    def __rrshift__(self, other: Any) -> Any:
        return self._apply(operator.rshift, other, symbol=">>", swapped=True)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __eq__(self, other: object) -> Any:
        return self._apply(operator.eq, other, symbol="==")

    def __ne__(self, other: object) -> Any:
        return self._apply(operator.ne, other, symbol="!=")

    def __lt__(self, other: Any) -> Any:
        return self._apply(operator.lt, other, symbol="<")

    def __le__(self, other: Any) -> Any:
        return self._apply(operator.le, other, symbol="<=")

    def __gt__(self, other: Any) -> Any:
        return self._apply(operator.gt, other, symbol=">")

    def __ge__(self, other: Any) -> Any:
        return self._apply(operator.ge, other, symbol=">=")

    def __neg__(self) -> Any:
        return self._map(operator.neg, "-{}")

    def __pos__(self) -> Any:
        return self._map(operator.pos, "+{}")

    def __invert__(self) -> Any:
        return self._map(operator.invert, "~{}")

    def __abs__(self) -> Any:
        return self._map(operator.abs, "abs({})")

    def __round__(self, digits: int | None = None) -> Any:
        return self._map(round, "round({})", digits)

    def __trunc__(self) -> Any:
        return self._map(math.trunc, "trunc({})")

    def __floor__(self) -> Any:
        return self._map(math.floor, "floor({})")

    def __ceil__(self) -> Any:
        return self._map(math.ceil, "ceil({})")
