"""Runs a model on fake tensors whose sizes are symbols, and notes what it requires of them.

Guards are not proved, as torch itself would do at length, but read off the present
values: what matters here is which sizes were compared and found equal.
"""

from __future__ import annotations

import dis
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import sympy  # type: ignore[import-untyped]  # it has no types
import torch
from torch import SymInt, Tensor
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from headwater.scale.equations import Equation, Kind
from headwater.scale.layouts import Layout
from headwater.scale.operations import answer_of, notes_of
from headwater.scale.polynomials import Polynomial, constant, variable
from headwater.torch_private import (
    TRACE_LOGGERS,
    FakeTensorMode,
    TorchDispatchMode,
    expression_of,
    range_of_sizes,
    schema_of,
    tree_leaves,
    tree_map,
)

_FLOAT_FUNCTIONS = frozenset({"sqrt", "log", "log2", "exp", "float", "pow"})
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_METHOD", "LOAD_ATTR", "LOAD_DEREF", "LOAD_FAST"})


class Symbols:
    """The variables of one trace, and what the model requires of them."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.kinds: dict[str, Kind] = {}
        self.equations: list[Equation] = []
        self.pins: list[tuple[Polynomial, str]] = []
        self.layouts: list[tuple[Polynomial, Layout]] = []
        self.modules: list[str] = []
        self._polynomials: dict[Any, Polynomial] = {}
        self._seen: set[Any] = set()
        self._quotients: dict[tuple[Polynomial, Polynomial], Polynomial] = {}
        self._env = _Env(self)
        self._fake = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)
        self._fake.cache_enabled = False

    def new(self, name: str, value: int, kind: Kind) -> Polynomial:
        """A variable for a width; sizes below two are never widths."""
        if value < 2:
            return constant(value)
        self.values[name] = value
        self.kinds[name] = kind
        return variable(name)

    def size(self, polynomial: Polynomial) -> int:
        """The polynomial as a number that torch takes for a size."""
        if polynomial.is_constant:
            return polynomial.offset
        expression = sympy.Add(*[c * sympy.Mul(*[_symbol(name) for name in m]) for m, c in polynomial.terms])
        return SymInt(_Node(expression, self._env, int, polynomial.at(self.values)))  # type: ignore[return-value]  # a SymInt acts as an int

    def polynomial(self, size: int | SymInt) -> Polynomial:
        """The polynomial behind a size."""
        return self._convert(expression_of(size.node)) if isinstance(size, SymInt) else constant(int(size))

    @property
    def where(self) -> str:
        """The module that runs now."""
        return self.modules[-1] if self.modules else "the model"

    def require_equal(self, left: Any, right: Any) -> None:
        """Note that two expressions are equal."""
        if (left, right) not in self._seen:
            self._seen.add((left, right))
            self.require(self._convert(left) - self._convert(right))

    def require(self, zero: Polynomial) -> None:
        """Note that a polynomial is zero."""
        if zero.terms and not zero.is_constant:
            self.equations.append(Equation(zero, self.where))

    def pin(self, polynomial: Polynomial, why: str) -> None:
        """Note that a size must stay as it is."""
        if not polynomial.is_constant:
            self.pins.append((polynomial, f"{why} in {self.where}"))

    @contextmanager
    def tracing(self) -> Iterator[FakeTensorMode]:
        """Within, torch runs on fake tensors and everything it requires is noted."""
        with self._fake, _Notes(self), _quiet(), torch.no_grad():
            yield self._fake

    def _convert(self, expression: Any) -> Polynomial:
        known = self._polynomials.get(expression)
        if known is None:
            known = self._polynomials[expression] = self._convert_new(expression)
        return known

    def _convert_new(self, expression: Any) -> Polynomial:
        if isinstance(expression, int) or expression.is_Integer:
            return constant(int(expression))
        if expression.is_Symbol:
            return variable(_name(expression))
        convert = _CONVERSIONS.get(type(expression).__name__)
        if convert is None:
            return self._opaque(expression)
        return convert(self, expression.args)

    def sum(self, args: tuple[Any, ...]) -> Polynomial:
        """The polynomial of a sum."""
        total = constant(0)
        for arg in args:
            total = total + self._convert(arg)
        return total

    def product(self, args: tuple[Any, ...]) -> Polynomial:
        """The polynomial of a product."""
        result = constant(1)
        for arg in args:
            result = result * self._convert(arg)
        return result

    def power(self, args: tuple[Any, ...]) -> Polynomial:
        """The polynomial of a power with a constant exponent."""
        return self.product((args[0],) * int(args[1]))

    def largest(self, args: tuple[Any, ...]) -> Polynomial:
        """The argument that is the largest now."""
        return max((self._convert(arg) for arg in args), key=lambda item: (item.at(self.values), not item.is_constant))

    def smallest(self, args: tuple[Any, ...]) -> Polynomial:
        """The argument that is the smallest now."""
        return min((self._convert(arg) for arg in args), key=lambda item: (item.at(self.values), item.is_constant))

    def quotient(self, args: tuple[Any, ...]) -> Polynomial:
        """The polynomial of a // b."""
        return self.quotient_of(*(self._convert(arg) for arg in args))

    def quotient_of(self, dividend: Polynomial, divisor: Polynomial) -> Polynomial:
        """A variable t for a // b, with a = b * t + what remains now."""
        if (dividend, divisor) not in self._quotients:
            size = divisor.at(self.values)
            value, rest = divmod(dividend.at(self.values), size)
            result = self.new(f"({dividend})//({divisor})", value, Kind.QUOTIENT)
            self._quotients[dividend, divisor] = result
            rounds_up = rest > 0 and rest == size - 1
            self.require(dividend - divisor * result - (divisor - constant(1) if rounds_up else constant(rest)))
        return self._quotients[dividend, divisor]

    def remainder(self, args: tuple[Any, ...]) -> Polynomial:
        """What remains now, as a constant that `quotient` makes a requirement."""
        self.quotient(args)
        dividend, divisor = (self._convert(arg).at(self.values) for arg in args)
        return constant(dividend % divisor)

    def rounded(self, args: tuple[Any, ...]) -> Polynomial:
        """An integer made of a fraction, as int(a / b) is."""
        if type(args[0]).__name__ in {"IntTrueDiv", "FloatTrueDiv"}:
            return self.quotient(args[0].args)
        return self._opaque(args[0])

    def _opaque(self, expression: Any) -> Polynomial:
        """Something that is no polynomial: what it is made of stays as it is."""
        values = {symbol: self.values[_name(symbol)] for symbol in expression.free_symbols}
        for symbol in values:
            self.pin(variable(_name(symbol)), "a number is computed from it")
        return constant(int(expression.subs(values)))


_CONVERSIONS: Mapping[str, Callable[[Symbols, tuple[Any, ...]], Polynomial]] = {
    "Add": Symbols.sum,
    "Mul": Symbols.product,
    "Pow": Symbols.power,
    "PowByNatural": Symbols.power,
    "Max": Symbols.largest,
    "Min": Symbols.smallest,
    "FloorDiv": Symbols.quotient,
    "CleanDiv": Symbols.quotient,
    "Mod": Symbols.remainder,
    "PythonMod": Symbols.remainder,
    "TruncToInt": Symbols.rounded,
    "FloorToInt": Symbols.rounded,
}


class _Node(SymNode):
    """A symbolic number that survives being copied: models copy their settings while they run."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Node:
        return self


class _Env(ShapeEnv):
    """A shape environment that answers from present values and hands the questions to `Symbols`."""

    def __init__(self, symbols: Symbols) -> None:
        super().__init__(duck_shape=False, specialize_zero_one=False)
        self._symbols = symbols

    def evaluate_sym_node(self, sym_node: SymNode, size_oblivious: bool = False, fallback_value: Any = None) -> Any:
        value = sym_node.hint
        if isinstance(value, bool):
            self._note(expression_of(sym_node), value)
        elif isinstance(value, int) and not _asks_for_float(sys._getframe(1)):
            self._symbols.pin(self._symbols._convert(expression_of(sym_node)), f"{value} is used as a plain number")
        return value

    def _note(self, expression: Any, value: bool) -> None:
        name = type(expression).__name__
        if (name == "Equality" and value) or (name == "Unequality" and not value):
            self._symbols.require_equal(*expression.args)
        elif (name == "And" and value) or (name == "Or" and not value):
            for part in expression.args:
                self._note(part, value)
        elif name == "Not":
            self._note(expression.args[0], not value)

    def evaluate_expr(self, orig_expr: Any, hint: Any = None, *args: Any, **kwargs: Any) -> Any:
        values = {_symbol(name): value for name, value in self._symbols.values.items()}
        answer = hint if hint is not None else orig_expr.xreplace(values)
        if answer in (True, False):
            self._note(orig_expr, bool(answer))
        return answer

    def _maybe_evaluate_static(self, expr: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # there it is cached
        decided = expr is sympy.true or expr is sympy.false or getattr(expr, "is_number", False)
        return expr if decided else None

    def bound_sympy(self, expr: Any, size_oblivious: bool = False) -> Any:
        return range_of_sizes()

    def replace(self, expr: Any) -> Any:  # type: ignore[override]  # there it is cached
        return expr

    def simplify(self, expr: Any, size_oblivious: bool = False) -> Any:  # type: ignore[override]  # likewise
        return expr


class _Notes(TorchDispatchMode):
    """Notes what operations require that no comparison of sizes shows."""

    def __init__(self, symbols: Symbols) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self._symbols = symbols

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = answer_of(schema_of(func).name)
        result = answer(args) if answer is not None else None
        if result is None:
            result = func(*args, **(kwargs or {}))
        notes = notes_of(schema_of(func).name)
        if notes is not None:
            notes(self._symbols, args, result)
        return result


class _AttentionCheck(TorchDispatchMode):
    """Compares the heads of queries and keys, which attention itself does not: it would read beyond its memory."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if schema_of(func).name.startswith("aten::_scaled_dot_product"):
            heads, fewer, also = (tensor.shape[-3] for tensor in args[:3])
            if heads % fewer or fewer != also:
                raise ValueError(f"{heads} heads of queries meet {fewer} of keys and {also} of values")
        return func(*args, **(kwargs or {}))


def fake_tensors(tree: Any, batch: int | None = None) -> Any:
    """Return nested arguments with every tensor made anew (fake, in a mode), its first dimension `batch` if given."""

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        shape = leaf.shape if batch is None or not leaf.dim() else (batch, *leaf.shape[1:])
        return torch.empty(shape, dtype=leaf.dtype, device=leaf.device)

    return tree_map(convert, tree)


def tensors_in(tree: Any) -> list[Tensor]:
    """Every tensor of nested arguments."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


@contextmanager
def plain_fakes() -> Iterator[FakeTensorMode]:
    """Within, tensors have sizes but no values."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    fake.cache_enabled = False
    check = _AttentionCheck()  # type: ignore[no-untyped-call]  # torch's own
    with fake, check, _quiet():
        yield fake


@contextmanager
def _quiet() -> Iterator[None]:
    """Within, torch does not log the errors that end a trace: they are raised too."""
    loggers = [logging.getLogger(name) for name in TRACE_LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _symbol(name: str) -> Any:
    """The symbol of a variable; torch reads from the first letter that it is a size."""
    return sympy.Symbol(f"s {name}", integer=True, positive=True)


def _name(symbol: Any) -> str:
    return str(symbol.name).removeprefix("s ")


def _asks_for_float(frame: FrameType | None) -> bool:
    """Whether a size was turned into a number only for `math.sqrt` and the like, which is computed anew each time."""
    while frame is not None and frame.f_code.co_name not in {"__index__", "__int__"}:
        if frame.f_code.co_name == "guard_float":
            return True
        frame = (
            frame.f_back if frame.f_code.co_filename.startswith(_TORCH) or frame.f_code.co_name != "forward" else None
        )
    caller = frame.f_back if frame is not None else None
    if caller is None:
        return False
    instructions = list(dis.get_instructions(caller.f_code))
    call = next((item for item in instructions if item.offset == caller.f_lasti), None)
    if call is None or call.positions is None:
        return False
    start = call.positions[0], call.positions[2]
    return any(
        item.opname in _LOADS
        and item.argval in _FLOAT_FUNCTIONS
        and item.positions is not None
        and (item.positions[0], item.positions[2]) == start
        for item in instructions
    )


_TORCH = torch.__path__[0]
