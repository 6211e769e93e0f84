"""Numbers and words that differ by lane: they add, divide and compare lane by lane, in plain Python arithmetic."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from numbers import Number
from typing import Any, SupportsIndex, TypeAlias

from headwater.errors import CannotFuseError
from headwater.fuse.roster import Roster
from headwater.trials import Recipe

Operation: TypeAlias = Callable[..., Any]

_NO_NUMBERS = (list, tuple, bytes)


def lane_value(values: Sequence[Any], roster: Roster, recipe: Recipe | None) -> Any:
    """Return the one value that all lanes share, or a PerLane where they differ."""
    first = values[0]
    if all(same(first, value) for value in values):
        return first
    if all(isinstance(value, str) for value in values):
        return PerLaneText(values, roster, recipe)
    if all(isinstance(value, Number) for value in values):
        return PerLane(values, roster, recipe)
    return PerLaneThing(values, roster, recipe)


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are interchangeable: of one type, and equal or both NaN."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    return bool(a == b or (a != a and b != b))


class PerLane:
    """One value per lane. Arithmetic goes lane by lane; asking for one value makes the lanes part.

    Code that runs for one lane by itself, such as the factory of its model, gets the value of that lane instead.

    A PerLane that follows from the configuration carries the recipe, so that the lanes can be sorted by it; one that
    was computed by a model carries none.
    """

    __slots__ = ("_roster", "_values", "recipe")
    __array_ufunc__ = None  # NumPy's numbers leave the arithmetic to us

    def __init__(self, values: Sequence[Any], roster: Roster, recipe: Recipe | None = None) -> None:
        self._values = tuple(values)
        self._roster = roster
        self.recipe = recipe

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the lanes that are still in the group."""
        if len(self._values) != len(self._roster):
            self._values = tuple(self._values[place] for place in self._roster.places_since(len(self._values)))
        return self._values

    def one(self) -> Any:
        """Return the value that all lanes share; where they differ, that of the lane that code runs for, or part."""
        values = self.values
        if all(same(values[0], value) for value in values):
            return values[0]
        if self._roster.place is not None:
            self._roster.note(self.recipe)
            return values[self._roster.place]
        if self.recipe is not None:
            raise self._roster.part(self.recipe, f"the code needs one value of `{self.recipe.label}`")
        raise self._roster.part(None, f"the code branches on a value that lanes computed ({self})", values)

    @classmethod
    def __torch_function__(cls, func: Operation, types: object, args: object = (), kwargs: object = None) -> Any:
        return NotImplemented  # its presence lets torch accept a PerLane; the lane mode then takes the call

    def __copy__(self) -> PerLane:
        return self  # immutable, and bound to its roster

    def __deepcopy__(self, memo: object) -> PerLane:
        return self

    def __reduce_ex__(self, protocol: object) -> Any:
        raise CannotFuseError(f"the code pickles a value that differs by lane ({self}); report it with trial.report")

    def __str__(self) -> str:
        return f"{self}"

    def __repr__(self) -> str:
        return f"PerLane({self})"

    def __format__(self, spec: str) -> str:
        if self._roster.place is not None:
            return format(self.one(), spec)
        return f"[{' '.join(format(value, spec) for value in self.values)}]"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(self.values[self._roster.place or 0], name):
            raise AttributeError(name)
        return getattr(self.one(), name)

    def __bool__(self) -> bool:
        return bool(self.one() if isinstance(self.values[0], bool) else self._map(bool, "bool({})").one())

    def __int__(self) -> int:
        return int(self.one())

    def __index__(self) -> int:
        return operator.index(self.one())

    def __float__(self) -> float:
        return float(self.one())

    def __hash__(self) -> int:
        return hash(self.one())

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

    def __pos__(self) -> PerLane:
        return self

    def __abs__(self) -> Any:
        return self._map(operator.abs, "abs({})")

    def __round__(self, digits: int | None = None) -> Any:
        return self._map(lambda value: round(value, digits), "round({})")

    def __trunc__(self) -> Any:
        return self._map(math.trunc, "trunc({})")

    def __floor__(self) -> Any:
        return self._map(math.floor, "floor({})")

    def __ceil__(self) -> Any:
        return self._map(math.ceil, "ceil({})")

    def _map(self, operation: Operation, label: str) -> Any:
        recipe = self.recipe
        if recipe is not None:
            evaluate = recipe.evaluate
            recipe = Recipe(label.format(recipe.label), lambda config: operation(evaluate(config)))
        return self._lane_by_lane(operation, [(value,) for value in self.values], recipe)

    def _apply(self, operation: Operation, other: Any, symbol: str, swapped: bool = False) -> Any:
        if isinstance(other, _NO_NUMBERS) or (not isinstance(other, PerLane) and hasattr(other, "__torch_function__")):
            return NotImplemented  # a tensor's or a list's own operator takes over
        others = other.values if isinstance(other, PerLane) else [other] * len(self._roster)
        pairs = zip(others, self.values, strict=True) if swapped else zip(self.values, others, strict=True)
        recipe = _combine(self.recipe, other, operation, symbol, swapped)
        return self._lane_by_lane(operation, list(pairs), recipe)

    def _lane_by_lane(self, operation: Operation, rows: Sequence[tuple[Any, ...]], recipe: Recipe | None) -> Any:
        """Compute for each lane; where that fails for some lanes only, the lanes part."""
        place = self._roster.place
        if place is not None and any(_fails(operation, row) for row in rows):
            self._roster.note(self.recipe)
            return operation(*rows[place])
        values = []
        for lane, row in enumerate(rows):
            try:
                values.append(operation(*row))
            except ArithmeticError as error:
                if all(_fails(operation, other) for other in rows):
                    raise
                raise self._roster.part(
                    None, f"for some lanes only, arithmetic fails: {error} (lane {lane})"
                ) from error
        kind = PerLane if all(isinstance(value, Number) for value in values) else PerLaneThing
        return kind(values, self._roster, recipe)


def _fails(operation: Operation, row: tuple[Any, ...]) -> bool:
    try:
        operation(*row)
    except (ArithmeticError, TypeError, ValueError):
        return True
    return False


def _combine(recipe: Recipe | None, other: Any, operation: Operation, symbol: str, swapped: bool) -> Recipe | None:
    """Write down how the result of an operation follows from the configuration, if both operands do."""
    other_recipe = other.recipe if isinstance(other, PerLane) else Recipe(repr(other), lambda config: other)
    if recipe is None or other_recipe is None:
        return None
    left, right = (other_recipe, recipe) if swapped else (recipe, other_recipe)
    return Recipe(
        f"{left.label} {symbol} {right.label}",
        lambda config: operation(left.evaluate(config), right.evaluate(config)),
    )


class PerLaneThing(PerLane):
    """Values that are not numbers: classes, tuples, None. Whatever is done with them needs one value."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the one value that all lanes share."""
        return self.one()(*args, **kwargs)

    def __len__(self) -> int:
        return len(self.one())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.one())

    def __getitem__(self, key: Any) -> Any:
        return self.one()[key]

    def __contains__(self, item: Any) -> bool:
        return item in self.one()


class PerLaneText(str):
    """Words that differ by lane, for instance the name of an activation.

    A real `str`, so that `getattr(nn, name)` accepts it and then asks for its hash; every other use of it goes through
    `one`, and lanes part by the word itself.
    """

    _per_lane: PerLane

    def __new__(cls, values: Sequence[str], roster: Roster, recipe: Recipe | None) -> PerLaneText:
        """Make a string whose own characters are never read."""
        text = super().__new__(cls, "<differs by lane>")
        text._per_lane = PerLane(values, roster, recipe)
        return text

    @property
    def values(self) -> tuple[str, ...]:
        """The words of the lanes that are still in the group."""
        return self._per_lane.values

    def one(self) -> str:
        """Return the word that all lanes share; where they differ, the lanes part."""
        word: str = self._per_lane.one()
        return word

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in ("values", "one"):
            return super().__getattribute__(name)
        return getattr(self.one(), name)

    def __hash__(self) -> int:
        return hash(self.one())

    def __eq__(self, other: object) -> bool:
        if all(value == other for value in self.values) or not any(value == other for value in self.values):
            return self.values[0] == other
        return self.one() == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __str__(self) -> str:
        return str(self._per_lane)

    def __repr__(self) -> str:
        return repr(self._per_lane)

    def __format__(self, spec: str) -> str:
        return format(self._per_lane, spec)

    def __len__(self) -> int:
        return len(self.one())

    def __iter__(self) -> Iterator[str]:
        return iter(self.one())

    def __contains__(self, item: object) -> bool:
        return str(item) in self.one()

    def __copy__(self) -> PerLaneText:
        return self

    def __deepcopy__(self, memo: object) -> PerLaneText:
        return self

    def __bool__(self) -> bool:
        return bool(self._per_lane._map(len, "len({})"))

    def __int__(self) -> int:
        return int(self.one())

    def __float__(self) -> float:
        return float(self.one())

    def __add__(self, other: str) -> str:
        return self.one() + other

    def __radd__(self, other: str) -> str:
        return other + self.one()

    def __mul__(self, times: SupportsIndex) -> str:
        return self.one() * times

    def __rmul__(self, times: SupportsIndex) -> str:
        return self.one() * times

    def __lt__(self, other: str) -> bool:
        return self.one() < other

    def __gt__(self, other: str) -> bool:
        return self.one() > other

    def __mod__(self, other: Any) -> str:
        word: str = self.one() % other
        return word

    def __getitem__(self, key: Any) -> str:
        return self.one()[key]
