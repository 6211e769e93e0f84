"""Finds the widths of a model that hang together, and chooses new values for them.

Parameter dimensions and integers of modules become variables, one forward runs on fake tensors, and what it
requires of their sizes are the couplings. What is tied to the input or to the first tensor of the output stays,
every other width may shrink.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from torch import nn

from headwater.errors import CannotScaleError
from headwater.scale.answers import Answers
from headwater.scale.equations import Kind, Solver
from headwater.scale.layers import AttributePath, Shape
from headwater.scale.layouts import Blocks, Layout
from headwater.scale.polynomials import Monomial, Polynomial, variable
from headwater.scale.tracing import Trace, trace

Place: TypeAlias = tuple[str, AttributePath]
"""The path of a module and the way from it to an integer."""

MIN_WIDTH = 8
_LARGEST_SHORTFALL = 2.0
_WAY_OUT = "give Headwater a model that can be narrower, or tune the model itself with surrogate=None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fraction:
    """A float of a module that looks as if computed from widths: the power of any of these equals it."""

    place: str
    value: float
    widths: tuple[Polynomial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Couplings:
    """How the sizes of a model hang together.

    Every dimension of a tensor and every integer that is a width is a polynomial in free variables, `values` are
    their present values. Only the `shrinking` ones may change; `kept` says of others why they cannot. An integer that
    no size was compared with is one of the `followers`: it goes with the widths of its module that equal it.
    """

    values: Mapping[str, int]
    kinds: Mapping[str, Kind]
    shrinking: frozenset[str]
    kept: Mapping[str, str]
    tensors: Mapping[str, Shape]
    attributes: Mapping[Place, Polynomial]
    followers: Mapping[Place, tuple[Polynomial, ...]]
    layouts: Mapping[Polynomial, Layout]
    fractions: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The new shape of every tensor, the new value of every integer that changes, and which entries stay."""

    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[Place, int]
    dimensions: Mapping[str, Shape]
    blocks: Blocks


def find_couplings(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], answers: Answers = ()
) -> Couplings:
    """Trace one forward of a copy of the model on fake tensors; the model itself is not touched.

    The arguments are only looked at for their shapes, and what the model asks of values is answered by `answers`. The
    model runs in the mode (training or not) it is in.

    Raises:
        CannotScaleError: The model cannot run on tensors without values.
    """
    found = trace(model, args, kwargs, answers)
    solver = found.solver
    tensors = {name: tuple(solver.reduce(size) for size in shape) for name, shape in found.tensors.items()}
    attributes = {place: solver.reduce(size) for place, size in found.attributes.items()}
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    free = {name for shape in tensors.values() for size in shape for name in size.variables}
    free |= {name for size in attributes.values() for name in size.variables}
    shrinking = {name for key in parameters for size in tensors[key] for name in size.variables}
    return Couplings(
        values={name: solver.values[name] for name in sorted(free)},
        kinds={name: solver.kinds[name] for name in sorted(free)},
        shrinking=frozenset(shrinking),
        kept={name: why for name, why in solver.pinned.items() if "//" not in name},
        tensors=tensors,
        attributes=attributes,
        followers=_find_followers(solver, tensors, attributes, shrinking),
        layouts=_reduced_layouts(found, free),
        fractions=_find_fractions(found, tensors, attributes),
    )


def choose_widths(couplings: Couplings, scale: float, min_width: int = MIN_WIDTH) -> Sizes:
    """Divide every free width by `scale`, rounded to the nearest, but not below `min_width`.

    A width that is at or below `min_width` already stays. Where a width is a product (heads and their size, groups
    and channels in each) one factor after another is divided, none below one: heads before anything else, a group's
    channels before the number of groups, the size of a head last.

    Raises:
        CannotScaleError: Nothing can shrink, or a float of the model was computed from a width that must.
    """
    new = _divide(couplings, scale, min_width)
    _require_smaller(couplings, new, min_width)
    _require_fractions(couplings, new)
    shapes = {name: tuple(size.at(new) for size in shape) for name, shape in couplings.tensors.items()}
    _require_positive(shapes)
    attributes = {place: size.at(new) for place, size in couplings.attributes.items()}
    for place, leaders in couplings.followers.items():
        wanted = {leader.at(new) for leader in leaders}
        attributes[place] = wanted.pop() if len(wanted) == 1 else attributes[place]
    changed = {
        place: value for place, value in attributes.items() if value != couplings.attributes[place].at(couplings.values)
    }
    blocks = Blocks(couplings.values, new, couplings.layouts)
    return Sizes(shapes=shapes, attributes=changed, dimensions=couplings.tensors, blocks=blocks)


def _reduced_layouts(found: Trace, free: set[str]) -> dict[Polynomial, Layout]:
    """The first layout seen of each dimension that consists of several parts or factors."""
    layouts: dict[Polynomial, Layout] = {}
    for whole, layout in found.layouts:
        key = found.solver.reduce(whole)
        parts = tuple(tuple(found.solver.reduce(factor) for factor in part) for part in layout.parts)
        known = key in layouts or key.is_constant or not key.variables <= free
        plain = not any(key in part for part in parts)
        if plain and not known and all(factor.variables <= free for part in parts for factor in part):
            layouts[key] = Layout(parts)
    return layouts


def _find_followers(
    solver: Solver, tensors: Mapping[str, Shape], attributes: Mapping[Place, Polynomial], shrinking: set[str]
) -> dict[Place, tuple[Polynomial, ...]]:
    """For each integer that is tied to nothing, the widths near it that have its value now."""
    followers = {}
    for place, size in attributes.items():
        if size.variables and not size.variables & shrinking:
            value, kind = size.at(solver.values), solver.kinds[min(size.variables)]
            near = {w for w in _widths_near(place[0], tensors, attributes) if w.variables & shrinking}
            if kind in {Kind.HEADS, Kind.GROUPS, Kind.HEAD_SIZE}:
                near = {w for w in near if {solver.kinds[name] for name in w.variables} <= {kind, Kind.QUOTIENT}}
            leaders = sorted((width for width in near if width.at(solver.values) == value), key=str)
            if leaders:
                followers[place] = tuple(leaders)
    return followers


def _find_fractions(
    found: Trace, tensors: Mapping[str, Shape], attributes: Mapping[Place, Polynomial]
) -> tuple[Fraction, ...]:
    """Floats that are a power of a width of the same module or of its parts."""
    fractions = []
    for path, name, value in found.floats:
        near = _widths_near(path, tensors, attributes)
        matching = [width for width in near if _is_power(value, width.at(found.solver.values))]
        if matching:
            widths = tuple(sorted(matching, key=str))
            fractions.append(Fraction(place=f"{path}.{name}".removeprefix("."), value=value, widths=widths))
    return tuple(fractions)


def _widths_near(path: str, tensors: Mapping[str, Shape], attributes: Mapping[Place, Polynomial]) -> set[Polynomial]:
    """The sizes of a module and of its parts, and their factors."""
    inside = f"{path}." if path else ""
    near = {size for name, shape in tensors.items() if name.startswith(inside) for size in shape}
    near |= {size for (home, _), size in attributes.items() if home == path or home.startswith(inside)}
    near |= {variable(name) for size in near for name in size.variables}
    return {size for size in near if size.variables}


def _is_power(value: float, size: int) -> bool:
    return any(abs(value - size**power) <= 1e-9 * abs(value) for power in (-1.0, -0.5, 0.5))


def _divide(couplings: Couplings, scale: float, min_width: int) -> dict[str, int]:
    """New values of all free variables."""
    old = couplings.values
    fixed = {name for name in couplings.shrinking if _is_fixed(name, couplings)}
    new = {name: value for name, value in old.items() if name not in couplings.shrinking - fixed}
    for monomial, multiple in _products(couplings):
        width = multiple * prod(old[name] for name in monomial)
        rest = min(scale, width / min_width) * prod(new[name] / old[name] for name in monomial if name in new)
        for name in sorted(set(monomial) - new.keys(), key=lambda item: (-couplings.kinds[item], -old[item], item)):
            new[name] = max(1, round(old[name] / max(rest, 1.0)))
            rest = rest * new[name] / old[name] if new[name] == 1 else 1.0
        if rest >= _LARGEST_SHORTFALL and fixed & set(monomial):
            raise _cannot_divide(couplings, monomial, scale)
    return new


def _is_fixed(name: str, couplings: Couplings) -> bool:
    """Whether a float was computed from the size of a head."""
    return any(fraction.widths == (variable(name),) for fraction in couplings.fractions)


def _cannot_divide(couplings: Couplings, monomial: Monomial, scale: float) -> CannotScaleError:
    factors = " * ".join(str(couplings.values[name]) for name in monomial)
    fraction = next(f for f in couplings.fractions if len(f.widths) == 1 and f.widths[0].variables <= set(monomial))
    return CannotScaleError(
        f"a width of {factors} cannot become {scale:g} times smaller, since {fraction.place} = {fraction.value:g} was "
        f"computed from {fraction.widths[0].at(couplings.values)}; compute it in forward from an integer attribute, "
        f"ask for a smaller scale, or tune the model itself with surrogate=None"
    )


def _products(couplings: Couplings) -> list[tuple[Monomial, int]]:
    """Every product of shrinking variables in a tensor's shape, the longest first, with its smallest multiple.

    The first dimensions count before others, where a grouped convolution has only the channels of one group.
    """
    multiples: dict[Monomial, int] = {}
    for later in (False, True):
        found: dict[Monomial, int] = {}
        for shape in couplings.tensors.values():
            for monomial, multiple in (term for size in (shape[1:] if later else shape[:1]) for term in size.terms):
                if couplings.shrinking.intersection(monomial):
                    found[monomial] = min(found.get(monomial, abs(multiple)), abs(multiple))
        multiples = found | multiples
    return sorted(multiples.items(), key=lambda item: (-len(item[0]), item[0]))


def _require_smaller(couplings: Couplings, new: Mapping[str, int], min_width: int) -> None:
    if any(new[name] < couplings.values[name] for name in couplings.shrinking):
        return
    if couplings.shrinking:
        widest = max(couplings.values[name] for name in couplings.shrinking)
        reason = f"its widest free width is {widest}, and none may go below min_width={min_width}"
    else:
        reasons = [f"{name} ({why})" for name, why in couplings.kept.items()]
        reason = (
            f"every width is tied: {'; '.join(reasons[:3])}"
            if reasons
            else "it has no width but those of its input and output"
        )
    raise CannotScaleError(f"the model cannot be made narrower: {reason}; {_WAY_OUT}")


def _require_fractions(couplings: Couplings, new: Mapping[str, int]) -> None:
    for fraction in couplings.fractions:
        if all(width.at(new) != width.at(couplings.values) for width in fraction.widths):
            width = fraction.widths[0]
            raise CannotScaleError(
                f"{fraction.place} = {fraction.value:g} was computed from the width {width.at(couplings.values)}, "
                f"which would become {width.at(new)}; compute it in forward from an integer attribute, ask for a "
                f"smaller scale, or tune the model itself with surrogate=None"
            )


def _require_positive(shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if any(size < 1 for size in shape[:1]):
            raise CannotScaleError(f"{name} would have the shape {shape}; ask for a smaller scale, or {_WAY_OUT}")
