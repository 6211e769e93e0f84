"""Values that differ by lane: they add, divide and compare lane by lane, in plain Python arithmetic.

A stand-in never lies about the lanes: what Python asks of it is answered for every lane, or the lanes part.
"""

from __future__ import annotations

import math
import operator
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from numbers import Number
from types import FunctionType
from typing import Any

from headwater.errors import CannotFuseError
from headwater.fuse.callers import find_stranger, is_debugging, package_of
from headwater.fuse.operators import Operation, Operators
from headwater.fuse.roster import IS_LOADING, ROSTER, Roster
from headwater.fuse.shortage import is_out_of_memory
from headwater.fuse.texts import merge_texts, shorten
from headwater.fuse.users_code import is_users_module
from headwater.space.configuration import FrozenConfig
from headwater.torch_private import is_asked
from headwater.trials import Recipe
from headwater.trials.recipes import Call, Constant

_NO_NUMBERS = (list, tuple, bytes)
_OURS = frozenset({"torch", "headwater"})
"""Packages that know what a PerLane is, or ask only whether it is one of their own things."""


def lane_value(values: Sequence[Any], roster: Roster, recipe: Recipe | None) -> Any:
    """Return the one value that all lanes share, or a stand-in where they differ."""
    first = values[0]
    if all(same(first, value) for value in values):
        return first
    if all(isinstance(value, Number) for value in values):
        return PerLane(values, roster, recipe)
    if all(type(value) is str for value in values):
        return PerLaneText(values, roster, recipe)
    return PerLaneThing(values, roster, recipe)


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are interchangeable: of one type, and equal or both NaN, in all their parts."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return [*a] == [*b] and all(map(same, a.values(), b.values()))
    try:
        return bool(a == b or (a != a and b != b))
    except (TypeError, ValueError, RuntimeError):  # of arrays and tensors, which have no one answer
        return False


def describe_misfit(error: BaseException) -> str:
    """Return why the lanes cannot be one, if an exception comes of a value that differs by lane; empty otherwise."""
    is_value = isinstance(error, TypeError | ValueError | AttributeError) and "PerLane" in str(error)
    # torch's batching rules say so where the lane mode is off, as inside the function that `Tensor.apply_` calls.
    is_misfit = is_value or (isinstance(error, RuntimeError) and "vmap" in str(error))
    return f"something does not take a value that differs by lane: {error}" if is_misfit else ""


def run_by_lane(
    operation: Operation, rows: Iterable[Sequence[Any]], roster: Roster, recipe: Recipe | None = None
) -> list[Any]:
    """Compute for each lane.

    Raises:
        LanesPart: It fails for some lanes only, or not in the same way for all: only those may see the exception.
    """
    values: list[Any] = []
    errors: list[Exception | None] = []
    for row in rows:
        try:
            values.append(operation(*row))
            errors.append(None)
        except CannotFuseError:
            raise
        except Exception as error:  # whatever the user's values make of it
            if is_out_of_memory(error):
                raise roster.run_short(error) from error
            errors.append(error)
    cause = next((error for error in errors if error is not None), None)
    if cause is None:
        return values
    kinds = ["" if error is None else type(error).__name__ for error in errors]
    if len(set(kinds)) == 1:
        raise cause
    name = getattr(operation, "__name__", "it")
    failing = None if recipe is None else Recipe(f"what {recipe.label} raises", recipe.source, asks_failure=True)
    raise roster.part(failing, f"for some lanes only, {name} fails: {cause!r}", kinds) from cause


def gather(values: Sequence[Any], roster: Roster, recipe: Recipe | None) -> Any:
    """Return one value that stands for what each lane computed: numbers, text, and lists, tuples and dicts of these.

    Raises:
        LanesPart: There is no stand-in for what the lanes have.
    """
    first = values[0]
    if all(type(value) is bool for value in values) and all(value is first for value in values):
        return first
    if all(isinstance(value, Number) for value in values):
        return PerLane(values, roster, recipe)
    if all(same(first, value) for value in values):
        return first
    if all(type(value) is str for value in values):
        text = PerLaneText(values, roster, recipe)
        return text if roster.place is None else text.one()
    if recipe is None and roster.place is None and _are_arrays(values):
        return _arrays_of(values, roster)
    return _gather_items(values, roster, recipe)


def _gather_items(values: Sequence[Any], roster: Roster, recipe: Recipe | None) -> Any:
    first = values[0]
    if type(first) in (list, tuple) and all(type(v) is type(first) and len(v) == len(first) for v in values):
        places = range(len(first))
        return type(first)(gather([v[place] for v in values], roster, _item(recipe, place)) for place in places)
    if type(first) is dict and all(type(v) is dict and [*v] == [*first] for v in values):
        return {key: gather([v[key] for v in values], roster, _item(recipe, key)) for key in first}
    if recipe is None and roster.place is None and len({type(value) for value in values}) > 1:
        kinds = [type(value).__name__ for value in values]
        raise roster.part(None, f"lanes computed values of different types ({', '.join(sorted({*kinds}))})", kinds)
    return PerLaneThing(values, roster, recipe).one()


def _are_arrays(values: Sequence[Any]) -> bool:
    return all(type(value).__module__ == "numpy" and type(value).__name__ == "ndarray" for value in values)


def _arrays_of(values: Sequence[Any], roster: Roster) -> Any:
    from headwater.fuse.arrays import PerLaneArray

    return PerLaneArray(values, roster)


def _item(recipe: Recipe | None, key: Any) -> Recipe | None:
    if recipe is None:
        return None
    return Recipe(f"{recipe.label}[{key!r}]", Call(operator.getitem, (recipe.source, Constant(key))))


class PerLane(Operators):
    """One number per lane. Arithmetic goes lane by lane; asking for one value makes the lanes part.

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
        if roster.is_running and (stranger := find_stranger(roster.code.base, roster.code.variants)):
            raise roster.part(recipe, f"{stranger} is not known, and values that differ by lane are computed there")

    @property  # type: ignore[misc]  # what isinstance and match ask for
    def __class__(self) -> type[Any]:
        kinds = {type(value) for value in self.values}
        if len(kinds) == 1 and type(self) is PerLane:
            return kinds.pop()
        if package_of(sys._getframe(1)) in _OURS:
            return type(self)
        kind: type[Any] = self._map(type, "type({})")
        return kind

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the lanes that are still in the group."""
        if IS_LOADING.get():
            raise (ROSTER.get() or self._roster).part_by_loading(self.recipe)
        if len(self._values) != len(self._roster):
            self._values = tuple(self._values[place] for place in self._roster.places_since(len(self._values)))
        return self._values

    @property
    def roster(self) -> Roster:
        """Whose values these are."""
        return self._roster

    def one(self) -> Any:
        """Return the value that all lanes share; where they differ, that of the lane that code runs for, or part."""
        values = self.values
        if all(same(values[0], value) for value in values):
            return values[0]
        if self._roster.place is not None:
            self._roster.note(self.recipe)
            return self.values[self._roster.place]
        if self.recipe is not None:
            raise self._roster.part(self.recipe, f"the code needs one value of `{self.recipe.label}`")
        answers = [value if isinstance(value, bool) else repr(value) for value in self.values]
        asks = "branches on" if all(isinstance(value, bool) for value in values) else "needs one value of"
        raise self._roster.part(None, f"the code {asks} what lanes computed ({shorten(self._show())})", answers)

    @classmethod
    def __torch_function__(cls, func: Operation, types: object, args: Any = (), kwargs: Any = None) -> Any:
        """Make the lanes part where no lane mode takes the call, as in a dataset that all lanes read."""
        named = {key: _one_of(value) for key, value in (kwargs or {}).items()}
        return func(*map(_one_of, args), **named)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        import numpy as np

        return np.asarray(self.one(), *args, **kwargs)

    def __copy__(self) -> PerLane:
        return self  # immutable, and bound to its roster

    def __deepcopy__(self, memo: object) -> PerLane:
        return self

    def __reduce_ex__(self, protocol: object) -> Any:
        return _give, (self.one(),)

    def __str__(self) -> str:
        return self._show() if self._roster.shows else str(self.one())

    def __repr__(self) -> str:
        return f"PerLane({self._show()})" if self._roster.shows or is_debugging() else repr(self.one())

    def __format__(self, spec: str) -> str:
        return self._show(spec) if self._roster.shows else format(self.one(), spec)

    def _show(self, spec: str = "") -> str:
        """Write down the values of all lanes, for eyes only."""
        return f"[{' '.join(format(value, spec) for value in self.values)}]"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not any(hasattr(value, name) for value in self.values):
            raise AttributeError(name)
        if self.recipe is not None or self._roster.place is not None or type(self) is not PerLane:
            return getattr(self.one(), name)
        if any(callable(getattr(value, name, None)) for value in self.values):
            return partial(_call_method, self, name)
        return self._by_lane(operator.attrgetter(name), [(value,) for value in self.values], None)

    def __bool__(self) -> bool:
        if all(isinstance(value, bool) for value in self.values):
            return bool(self.one())
        return bool(self._map(bool, "bool({})"))

    def __int__(self) -> int:
        return int(self.one())

    def __index__(self) -> int:
        return operator.index(self.one())

    def __float__(self) -> float:
        return float(self.one())

    def __hash__(self) -> int:
        return hash(self.one())

    def _map(self, operation: Operation, label: str, *rest: Any) -> Any:
        recipe = self.recipe
        if recipe is not None:
            source = Call(operation, (recipe.source, *map(Constant, rest)))
            recipe = Recipe(label.replace("{}", recipe.label), source)
        return self._by_lane(operation, [(value, *rest) for value in self.values], recipe)

    def _apply(self, operation: Operation, other: Any, symbol: str, swapped: bool = False) -> Any:
        is_list = isinstance(other, _NO_NUMBERS) and operation not in (operator.eq, operator.ne)
        kind: Any = type(other)  # mypy does not take a class for hashable
        takes_over = hasattr(other, "__torch_function__") or _has_own_operators(kind)
        if not isinstance(other, PerLane) and (is_list or takes_over):
            if not is_list and not is_asked():  # in a dataset, which all lanes read
                return operation(other, self.one()) if swapped else operation(self.one(), other)
            return NotImplemented  # the operator of a tensor, a list or an object of the user's takes over, once
        others = other.values if isinstance(other, PerLane) else [other] * len(self._roster)
        pairs = zip(others, self.values, strict=True) if swapped else zip(self.values, others, strict=True)
        recipe = _combine(self.recipe, other, operation, symbol, swapped)
        return self._by_lane(operation, list(pairs), recipe)

    def _by_lane(self, operation: Operation, rows: Sequence[tuple[Any, ...]], recipe: Recipe | None) -> Any:
        place = self._roster.place
        if place is not None and any(_fails(operation, row) for row in rows):
            self._roster.note(self.recipe)
            return operation(*rows[place])
        return gather(run_by_lane(operation, rows, self._roster, recipe), self._roster, recipe)


def _call_method(number: PerLane, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of each lane's number, which changes none of them."""
    rows = [
        (value, *rest) for value, *rest in zip(number.values, *(_by_lane(arg, number) for arg in args), strict=True)
    ]
    named = {key: _by_lane(value, number) for key, value in kwargs.items()}

    def call(place: int, own: Any, *rest: Any) -> Any:
        return getattr(own, name)(*rest, **{key: values[place] for key, values in named.items()})

    call.__name__ = name
    placed = [(place, *row) for place, row in enumerate(rows)]
    return gather(run_by_lane(call, placed, number.roster), number.roster, None)


@cache
def _has_own_operators(kind: type) -> bool:
    """Tell whether a class of the user's says how numbers compute with its objects."""
    parts = [part for base in kind.__mro__ if is_users_module(base.__module__) for part in vars(base).items()]
    return any(name in vars(Operators) and isinstance(part, FunctionType) for name, part in parts)


def _by_lane(value: Any, like: PerLane) -> Sequence[Any]:
    return value.values if isinstance(value, PerLane) else [value] * len(like.roster)


def _fails(operation: Operation, row: tuple[Any, ...]) -> bool:
    try:
        operation(*row)
        return False
    except Exception:  # whatever the user's values make of it
        return True


def _combine(recipe: Recipe | None, other: Any, operation: Operation, symbol: str, swapped: bool) -> Recipe | None:
    """Write down how the result of an operation follows from the configuration, if both operands do."""
    other_recipe = other.recipe if isinstance(other, PerLane) else Recipe(repr(other), Constant(other))
    if recipe is None or other_recipe is None:
        return None
    left, right = (other_recipe, recipe) if swapped else (recipe, other_recipe)
    return Recipe(f"{left.label} {symbol} {right.label}", Call(operation, (left.source, right.source)))


class PerLaneText(PerLane):
    """Words that differ by lane, such as a line to print. No `str`, whose characters C code would read: of one lane."""

    __slots__ = ()

    def _show(self, spec: str = "") -> str:
        return format(merge_texts(self.values), spec)

    def __len__(self) -> int:
        return operator.index(self._map(len, "len({})"))

    def __iter__(self) -> Iterator[str]:
        return iter(self.one())

    def __getitem__(self, key: Any) -> Any:
        return self._map(operator.getitem, f"{{}}[{key!r}]", key)

    def __contains__(self, item: Any) -> bool:
        return bool(self._apply(operator.contains, item, symbol="contains"))


class PerLaneThing(PerLane):
    """Values of any kind, on their way into a place that takes them by lane. Whatever else is done with them parts."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the one value that all lanes share."""
        return self.one()(*args, **kwargs)

    def __mro_entries__(self, bases: object) -> tuple[Any, ...]:
        return (self.one(),)

    def __len__(self) -> int:
        return len(self.one())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.one())

    def __getitem__(self, key: Any) -> Any:
        return self.one()[key]

    def __contains__(self, item: Any) -> bool:
        return item in self.one()


class PerLaneMapping(Mapping[str, Any]):
    """A configuration: what its keys hold may differ by lane."""

    roster: Roster

    @property  # type: ignore[misc]  # what isinstance and match ask for
    def __class__(self) -> type[Any]:
        return FrozenConfig

    @abstractmethod
    def keeping(self) -> PerLaneMapping:
        """Return one that hands out whatever differs by lane, to be taken by lane."""

    @property
    @abstractmethod
    def recipe(self) -> Recipe:
        """What a trial of a configuration has in the place of this one."""

    def by_lane(self) -> list[Any]:
        """Return what each lane alone would have."""
        return [self.recipe.evaluate(self.roster.configs[member]) for member in self.roster.members]


def _one_of(value: Any) -> Any:
    return value.one() if isinstance(value, PerLane) else value


def _give(value: Any) -> Any:
    """Return what was pickled."""
    return value
