"""Polynomials over named widths, with integer coefficients: how one dimension depends on others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import TypeAlias

Monomial: TypeAlias = tuple[str, ...]
"""The variables of a product in order, a power as repetition; the empty product is one."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of products of variables. Equal polynomials are equal values."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Polynomial) -> Polynomial:
        return collect([*self.terms, *other.terms])

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other * constant(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        return collect((tuple(sorted((*a, *b))), c * d) for a, c in self.terms for b, d in other.terms)

    def __str__(self) -> str:
        return " + ".join("*".join([*([str(c)] if c != 1 or not m else []), *m]) for m, c in self.terms) or "0"

    @property
    def variables(self) -> frozenset[str]:
        """Every variable that occurs."""
        return frozenset(name for monomial, _ in self.terms for name in monomial)

    @property
    def offset(self) -> int:
        """The constant term."""
        return next((c for monomial, c in self.terms if not monomial), 0)

    @property
    def is_constant(self) -> bool:
        """Whether no variable occurs."""
        return not any(monomial for monomial, _ in self.terms)

    def at(self, values: Mapping[str, int]) -> int:
        """The value when the variables have these values."""
        return sum(c * prod(values[name] for name in monomial) for monomial, c in self.terms)

    def replace(self, substitution: Mapping[str, Polynomial]) -> Polynomial:
        """Put polynomials in the place of variables, once."""
        if not any(name in substitution for monomial, _ in self.terms for name in monomial):
            return self
        total = constant(0)
        for monomial, coefficient in self.terms:
            product = constant(coefficient)
            for name in monomial:
                product = product * substitution.get(name, variable(name))
            total = total + product
        return total

    def reduced(self) -> Polynomial:
        """Divide by the common factor of all terms; where this is zero, so is the polynomial (widths are positive)."""
        if not self.terms:
            return self
        factor = gcd(*(c for _, c in self.terms))
        shared = Counter(self.terms[0][0])
        for monomial, _ in self.terms[1:]:
            shared &= Counter(monomial)
        return collect((tuple(sorted((Counter(m) - shared).elements())), c // factor) for m, c in self.terms)


def collect(terms: Iterable[tuple[Monomial, int]]) -> Polynomial:
    """Add up terms, which may repeat a monomial."""
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    return Polynomial(tuple(sorted((m, c) for m, c in sums.items() if c)))


def constant(value: int) -> Polynomial:
    """The polynomial without variables."""
    return collect([((), value)])


def variable(name: str) -> Polynomial:
    """The polynomial that is one variable."""
    return Polynomial((((name,), 1),))
