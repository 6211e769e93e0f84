"""What we use of torch's private parts does what we rely on; a release that changes it fails here first."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import SymInt

from headwater.scale.equations import Equation, Kind, solve
from headwater.scale.polynomials import constant, variable
from headwater.scale.symbols import Symbols, plain_fakes


@pytest.fixture
def symbols() -> Symbols:
    return Symbols()


def test_sizes_stay_symbols_through_operations(symbols: Symbols) -> None:
    width = symbols.new("w", 64, Kind.DIMENSION)
    with symbols.tracing():
        x = torch.empty(3, symbols.size(width))
        joined = torch.cat([x, x], dim=1)
    assert isinstance(joined.shape[1], SymInt)
    assert symbols.polynomial(joined.shape[1]) == constant(2) * width
    assert joined.shape[1] == 128


def test_a_comparison_becomes_an_equation(symbols: Symbols) -> None:
    one, other = symbols.new("a", 64, Kind.DIMENSION), symbols.new("b", 64, Kind.DIMENSION)
    with symbols.tracing():
        torch.empty(3, symbols.size(one)) + torch.empty(3, symbols.size(other))
    assert solve(symbols.equations, symbols.values, symbols.kinds).reduce(one - other).terms == ()


def test_a_matrix_product_ties_the_inner_sizes(symbols: Symbols) -> None:
    one, other = symbols.new("a", 64, Kind.DIMENSION), symbols.new("b", 64, Kind.DIMENSION)
    with symbols.tracing():
        torch.empty(3, symbols.size(one)) @ torch.empty(symbols.size(other), 5)
    assert solve(symbols.equations, symbols.values, symbols.kinds).reduce(one - other).terms == ()


def test_a_view_ties_a_width_to_the_product_of_its_factors(symbols: Symbols) -> None:
    width, heads = symbols.new("w", 64, Kind.DIMENSION), symbols.new("h", 4, Kind.HEADS)
    with symbols.tracing():
        symbols_width, symbols_heads = symbols.size(width), symbols.size(heads)
        x = torch.empty(3, symbols_width)
        y = x.view(3, symbols_heads, symbols_width // symbols_heads)
    solver = solve(symbols.equations, symbols.values, symbols.kinds)
    assert solver.reduce(width) == solver.reduce(heads * symbols.polynomial(y.shape[2]))


def test_a_plain_number_pins_its_symbol_but_a_root_does_not(symbols: Symbols) -> None:
    width = symbols.new("w", 64, Kind.DIMENSION)
    size = symbols.size(width)
    with symbols.tracing():
        assert math.sqrt(size) == 8.0
        assert symbols.pins == []
        assert len(range(size)) == 64
    assert symbols.pins[0][0] == width


@pytest.mark.parametrize("name", ["u.weight", "z", "f0", "s1", "i"])
def test_a_name_may_begin_with_any_letter(symbols: Symbols, name: str) -> None:
    """Torch takes a symbol whose name begins with u for one without a value."""
    width = symbols.new(name, 64, Kind.DIMENSION)
    with symbols.tracing():
        assert symbols.polynomial(torch.empty(3, symbols.size(width)).t().shape[0]) == width


def test_a_symbol_survives_a_deep_copy(symbols: Symbols) -> None:
    size = symbols.size(symbols.new("w", 64, Kind.DIMENSION))
    again = copy.deepcopy({"size": size})["size"]
    assert symbols.polynomial(again) == variable("w")


def test_attention_whose_heads_differ_is_noticed() -> None:
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with plain_fakes(), pytest.raises(ValueError, match="4 heads of queries meet 8 of keys"):
        attend(*(torch.empty(2, heads, 5, 16) for heads in (4, 8, 8)))


def test_products_of_equal_factors_are_matched() -> None:
    names = {"h1": 4, "d1": 16, "h2": 4, "d2": 16}
    kinds = {name: Kind.HEADS if name[0] == "h" else Kind.HEAD_SIZE for name in names}
    zero = variable("h1") * variable("d1") - variable("h2") * variable("d2")
    solver = solve([Equation(zero, "here")], names, kinds)
    assert solver.reduce(variable("h1") - variable("h2")).terms == ()
    assert solver.pinned == {}


def test_a_sum_that_equals_a_number_pins_its_parts() -> None:
    solver = solve(
        [Equation(variable("a") + variable("b") - constant(96), "there")],
        {"a": 64, "b": 32},
        {"a": Kind.DIMENSION, "b": Kind.DIMENSION},
    )
    assert solver.reduce(variable("a")) == constant(64)
    assert solver.pinned["b"] == "a + b = 96 in there"


def test_multiples_share_a_factor() -> None:
    zero = constant(2) * variable("a") - constant(3) * variable("b")
    solver = solve([Equation(zero, "")], {"a": 48, "b": 32}, {"a": Kind.DIMENSION, "b": Kind.DIMENSION})
    (name,) = solver.reduce(variable("a")).variables
    assert solver.values[name] == 16
