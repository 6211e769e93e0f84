"""Solves the equations between widths: which variables are free, and how the others follow from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from headwater.scale.polynomials import Monomial, Polynomial, constant, variable


class Kind(IntEnum):
    """What a variable stands for, the least willing to shrink first, where one of several factors must give way."""

    HEAD_SIZE = 0
    GROUPS = 1
    ATTRIBUTE = 2
    QUOTIENT = 3
    DIMENSION = 4
    HEADS = 5


@dataclass(frozen=True, slots=True)
class Equation:
    """Something that must be zero, and where in the model it was found."""

    zero: Polynomial
    where: str


@dataclass(slots=True)
class Solver:
    """Takes equations one by one; every variable is either free, pinned or a polynomial of free ones.

    `values` are the present values of the variables, which satisfy every equation.
    """

    values: dict[str, int]
    kinds: dict[str, Kind]
    replaced: dict[str, Polynomial] = field(default_factory=dict)
    pinned: dict[str, str] = field(default_factory=dict)

    def reduce(self, polynomial: Polynomial) -> Polynomial:
        """Write a polynomial in free variables alone."""
        while any(name in self.replaced for name in polynomial.variables):
            polynomial = polynomial.replace(self.replaced)
        return polynomial

    def pin(self, polynomial: Polynomial, why: str) -> None:
        """Keep every free variable of a polynomial at its present value."""
        for name in sorted(self.reduce(polynomial).variables):
            self.pinned[name] = why
            self.replaced[name] = constant(self.values[name])

    def require(self, equation: Equation) -> None:
        """Make an equation true by replacing one of its variables, or by pinning where nothing else helps."""
        zero = self.reduce(equation.zero).reduced()
        while zero.terms:
            if self._forces_constants(zero):
                self.pin(zero, f"{_said(zero)} in {equation.where}")
            elif not (self._replace_one(zero) or self._replace_two(zero) or self._match_factors(zero)):
                self._pin_stubborn(zero, equation.where)
            zero = self.reduce(zero).reduced()

    def _forces_constants(self, zero: Polynomial) -> bool:
        """Whether a sum of widths equals a number, or a number enters among attributes only."""
        if not zero.offset:
            return False
        same_side = len({coefficient > 0 for monomial, coefficient in zero.terms if monomial}) == 1
        return same_side or all(self.kinds[name] != Kind.DIMENSION for name in zero.variables)

    def _replace_one(self, zero: Polynomial) -> bool:
        """Replace a variable that is a whole term with coefficient one, best one that stands alone on its side."""
        uses = Counter(name for monomial, _ in zero.terms for name in set(monomial))
        lone = [(m[0], c) for m, c in zero.terms if len(m) == 1 and uses[m[0]] == 1 and abs(c) == 1]
        if not lone:
            return False
        signs = Counter(coefficient > 0 for _, coefficient in zero.terms)
        name, coefficient = max(lone, key=lambda item: (signs[item[1] > 0] == 1, -self.kinds[item[0]], item[0]))
        self._set(name, variable(name) - zero * constant(coefficient))
        return True

    def _set(self, name: str, polynomial: Polynomial) -> None:
        """Replace a variable; where it is a multiple of one other, that is henceforth what it was."""
        if len(polynomial.terms) == 1 and len(polynomial.terms[0][0]) == 1:
            other = polynomial.terms[0][0][0]
            self.kinds[other] = _stronger(self.kinds[name], self.kinds[other])
        self.replaced[name] = polynomial

    def _replace_two(self, zero: Polynomial) -> bool:
        """Where 2a = 3b, make a = 3t and b = 2t."""
        if len(zero.terms) != 2 or any(len(monomial) != 1 for monomial, _ in zero.terms):
            return False
        ((a,), times_a), ((b,), times_b) = zero.terms
        name = f"{a}&{b}"
        self.values[name] = self.values[a] // abs(times_b)
        self.kinds[name] = _stronger(self.kinds[a], self.kinds[b])
        self.replaced[a] = constant(abs(times_b)) * variable(name)
        self.replaced[b] = constant(abs(times_a)) * variable(name)
        return True

    def _match_factors(self, zero: Polynomial) -> bool:
        """Where two products of equal factors are equal (the heads of two layers, say), make the factors equal."""
        if len(zero.terms) != 2 or abs(zero.terms[0][1]) != abs(zero.terms[1][1]):
            return False
        (left, _), (right, _) = zero.terms
        pairs = list(zip(self._by_value(left), self._by_value(right), strict=False))
        if len(left) != len(right) or any(self.values[a] != self.values[b] for a, b in pairs):
            return False
        for a, b in pairs:
            if a not in self.replaced and b not in self.replaced and a != b:
                self._set(a, variable(b))
        return True

    def _by_value(self, monomial: Monomial) -> list[str]:
        return sorted(monomial, key=lambda name: (self.values[name], self.kinds[name], name))

    def _pin_stubborn(self, zero: Polynomial, where: str) -> None:
        """Pin the variables least willing to shrink: of squares first, then of products."""
        squares = {name for monomial, _ in zero.terms for name in monomial if monomial.count(name) > 1}
        factors = squares or {name for monomial, _ in zero.terms for name in monomial if len(monomial) > 1}
        lowest = min(self.kinds[name] for name in factors or zero.variables)
        for name in sorted(factors or zero.variables):
            if name in squares or self.kinds[name] == lowest:
                self.pin(variable(name), f"{_said(zero)} in {where}")


def solve(equations: Iterable[Equation], values: Mapping[str, int], kinds: Mapping[str, Kind]) -> Solver:
    """Take all equations, the simplest first."""
    solver = Solver(dict(values), dict(kinds))
    for equation in sorted(equations, key=lambda item: (_degree(item.zero), len(item.zero.terms))):
        solver.require(equation)
    return solver


def _degree(polynomial: Polynomial) -> int:
    return max((len(monomial) for monomial, _ in polynomial.terms), default=0)


def _stronger(a: Kind, b: Kind) -> Kind:
    """The kind of two variables that are one: a name that says heads or groups outweighs a mere dimension."""
    named = [kind for kind in (a, b) if kind in {Kind.HEADS, Kind.GROUPS, Kind.HEAD_SIZE}]
    return named[0] if named else max(a, b)


def _said(zero: Polynomial) -> str:
    right = constant(0) - Polynomial(tuple((m, c) for m, c in zero.terms if c < 0))
    left = Polynomial(tuple((m, c) for m, c in zero.terms if c > 0))
    return f"{left} = {right}"
