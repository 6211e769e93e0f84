from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from headwater.errors import CannotScaleError
from headwater.scale.roles import Ratio, Role, find_ratios, shapes_of

WIDTHS = st.integers(min_value=1, max_value=24)


def compare(build: Callable[[int], nn.Module], base: int = 4, width: int = 12) -> dict[str, Ratio]:
    return find_ratios(build(width), shapes_of(build(base)))


class Conv1D(nn.Module):
    """As in Hugging Face's transformers: its weight is [in, out]."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.empty(nx, nf))


class Holder(nn.Module):
    """A module of unknown kind."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(*shape))


class Tied(nn.Module):
    def __init__(self, width: int, *, head_first: bool = False) -> None:
        super().__init__()
        embedding, head = nn.Embedding(20, width), nn.Linear(width, 20)
        head.weight = embedding.weight
        self.first: nn.Module = head if head_first else embedding
        self.second: nn.Module = embedding if head_first else head


INPUT = Ratio(role=Role.INPUT, m_out=3.0)
HIDDEN = Ratio(role=Role.HIDDEN, m_in=3.0, m_out=3.0)
READOUT = Ratio(role=Role.READOUT, m_in=3.0)
VECTOR = Ratio(role=Role.VECTOR, m_out=3.0)
FIXED = Ratio(role=Role.FIXED)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(lambda w: nn.Linear(5, w), {"weight": INPUT, "bias": VECTOR}, id="first linear"),
        pytest.param(lambda w: nn.Linear(w, 2 * w), {"weight": HIDDEN, "bias": VECTOR}, id="linear"),
        pytest.param(lambda w: nn.Linear(w, 5), {"weight": READOUT, "bias": FIXED}, id="last linear"),
        pytest.param(lambda w: nn.Linear(w * 49, 5, bias=False), {"weight": READOUT}, id="linear after flatten"),
        pytest.param(lambda w: nn.Linear(w, 3 * w, bias=False), {"weight": HIDDEN}, id="fused qkv"),
        pytest.param(lambda w: nn.Conv2d(3, w, 3), {"weight": INPUT, "bias": VECTOR}, id="first convolution"),
        pytest.param(lambda w: nn.Conv2d(w, w, 3, bias=False), {"weight": HIDDEN}, id="convolution"),
        pytest.param(lambda w: nn.Conv2d(w, 5, 1), {"weight": READOUT, "bias": FIXED}, id="last convolution"),
        pytest.param(lambda w: nn.Conv2d(w, w, 3, groups=w, bias=False), {"weight": VECTOR}, id="depthwise"),
        pytest.param(lambda w: nn.Conv2d(w, w, 3, groups=2, bias=False), {"weight": HIDDEN}, id="two groups"),
        pytest.param(lambda w: nn.Conv1d(w, w, 3, groups=w // 2, bias=False), {"weight": INPUT}, id="more groups"),
        pytest.param(lambda w: nn.ConvTranspose2d(5, w, 3, bias=False), {"weight": INPUT}, id="first transposed"),
        pytest.param(lambda w: nn.ConvTranspose2d(w, 5, 3, bias=False), {"weight": READOUT}, id="last transposed"),
        pytest.param(
            lambda w: nn.ConvTranspose2d(w, w, 3, groups=w, bias=False), {"weight": VECTOR}, id="depthwise transposed"
        ),
        pytest.param(lambda w: nn.Embedding(9, w), {"weight": INPUT}, id="embedding"),
        pytest.param(lambda w: Conv1D(5, w), {"weight": READOUT}, id="last Conv1D"),
        pytest.param(lambda w: Conv1D(w, 5), {"weight": INPUT}, id="first Conv1D"),
        pytest.param(lambda w: nn.LayerNorm([w, 7]), {"weight": VECTOR, "bias": VECTOR}, id="layer norm"),
        pytest.param(lambda w: nn.GroupNorm(2, w), {"weight": VECTOR, "bias": VECTOR}, id="group norm"),
        pytest.param(nn.PReLU, {"weight": VECTOR}, id="PReLU"),
        pytest.param(lambda w: Holder(1, 7, w), {"table": VECTOR}, id="positions"),
        pytest.param(lambda w: Holder(7, w), {"table": VECTOR}, id="positions, flat"),
        pytest.param(lambda w: Holder(1, 1, w), {"table": VECTOR}, id="class token"),
        pytest.param(lambda w: Holder(w, 1, 1), {"table": VECTOR}, id="layer scale"),
        pytest.param(lambda w: Holder(6, w, 2 * w), {"table": HIDDEN}, id="experts"),
        pytest.param(lambda _: nn.Linear(5, 2), {"weight": FIXED, "bias": FIXED}, id="nothing grows"),
    ],
)
def test_layers_give_their_parameters_a_role(build: Callable[[int], nn.Module], expected: dict[str, Ratio]) -> None:
    assert compare(build) == expected


def test_a_matrix_of_a_recurrent_network_is_as_in_a_linear_layer() -> None:
    ratios = compare(lambda w: nn.LSTM(5, w, num_layers=2, proj_size=3, bidirectional=True))
    assert ratios["weight_ih_l0"] == INPUT
    assert ratios["weight_hh_l0"] == INPUT
    assert ratios["weight_hr_l1_reverse"] == READOUT
    assert ratios["bias_hh_l1"] == VECTOR
    assert compare(lambda w: nn.GRU(5, w))["weight_hh_l0"] == HIDDEN


def test_attention_holds_hidden_matrices() -> None:
    ratios = compare(lambda w: nn.MultiheadAttention(w, 2, add_bias_kv=True))
    assert ratios["in_proj_weight"] == ratios["out_proj.weight"] == HIDDEN
    assert ratios["in_proj_bias"] == ratios["bias_k"] == VECTOR


def test_keys_of_another_width_are_read_out() -> None:
    ratios = compare(lambda w: nn.MultiheadAttention(8, 2, kdim=w, vdim=8))
    assert ratios["k_proj_weight"] == READOUT
    assert ratios["q_proj_weight"] == FIXED


@pytest.mark.parametrize("head_first", [True, False])
def test_a_readout_that_shares_an_embedding_is_an_input(head_first: bool) -> None:
    ratios = compare(lambda w: Tied(w, head_first=head_first))
    assert ratios["first.weight"] == Ratio(role=Role.INPUT, m_out=3.0)
    assert ratios["second.bias" if not head_first else "first.bias"] == FIXED


@given(base=st.tuples(WIDTHS, WIDTHS), target=st.tuples(WIDTHS, WIDTHS))
def test_ratios_are_those_of_the_fans(base: tuple[int, int], target: tuple[int, int]) -> None:
    ratio = find_ratios(nn.Linear(*target), shapes_of(nn.Linear(*base)))["weight"]
    assert ratio.m_in == target[0] / base[0]
    assert ratio.m_out == target[1] / base[1]


@given(width=WIDTHS)
def test_a_model_is_fixed_against_itself(width: int) -> None:
    model = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2))
    assert set(find_ratios(model, shapes_of(model)).values()) == {FIXED}


def test_names_of_shared_parameters_and_buffers_may_be_among_the_shapes() -> None:
    base = Tied(4)
    shapes = {name: tuple(value.shape) for name, value in base.state_dict().items()}
    assert find_ratios(Tied(12), shapes) == compare(Tied)


def test_three_growing_dimensions_are_refused_by_name() -> None:
    with pytest.raises(CannotScaleError, match=r"`table` goes from \[4, 4, 4\] to \[12, 12, 12\]"):
        compare(lambda w: Holder(w, w, w))


def test_a_product_of_two_widths_is_refused() -> None:
    with pytest.raises(CannotScaleError, match="fan-in of `weight`"):
        compare(lambda w: nn.Bilinear(w, w, 5))


def test_more_rows_of_an_embedding_are_refused() -> None:
    with pytest.raises(CannotScaleError, match="vocabulary"):
        compare(lambda w: nn.Embedding(w, 5))


def test_another_number_of_layers_is_refused() -> None:
    with pytest.raises(CannotScaleError, match=r"only one of them has 1\.bias, 1\.weight"):
        find_ratios(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), shapes_of(nn.Sequential(nn.Linear(2, 2))))


def test_another_number_of_dimensions_is_refused() -> None:
    with pytest.raises(CannotScaleError, match="`weight` has 4 dimensions and 3"):
        find_ratios(nn.Conv2d(2, 2, 1), shapes_of(nn.Conv1d(2, 2, 1)))


@pytest.mark.parametrize(("role", "expected"), [(Role.READOUT, READOUT), (Role.VECTOR, VECTOR)])
def test_what_a_shape_cannot_tell_is_refused_until_someone_says_it(role: Role, expected: Ratio) -> None:
    with pytest.raises(CannotScaleError, match=r"hw\.Surrogate\(roles=\{'table': 'readout'\}\)"):
        compare(lambda w: Holder(w, 7))
    assert find_ratios(Holder(12, 7), {"table": (4, 7)}, {"table": role}) == {"table": expected}


def test_a_weight_that_is_different_things_to_its_layers_is_refused() -> None:
    def build(ins: int, outs: int) -> nn.Module:
        linear, transposed = nn.Linear(ins, outs, bias=False), Conv1D(ins, outs)
        linear.weight = transposed.weight
        return nn.Sequential(linear, transposed)

    with pytest.raises(CannotScaleError, match=r"`0\.weight` is shared by layers"):
        find_ratios(build(16, 12), shapes_of(build(8, 4)))


def test_gpt2_of_hugging_face_is_read_aright() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    def build(width: int) -> nn.Module:
        config = GPT2Config(n_embd=width, n_head=width // 4, n_layer=1, vocab_size=30, n_positions=8)
        model: nn.Module = GPT2LMHeadModel(config)
        return model

    ratios = compare(build, base=8, width=24)
    block = "transformer.h.0."
    assert ratios["transformer.wte.weight"] == Ratio(role=Role.INPUT, m_out=3.0)
    assert ratios["transformer.wpe.weight"] == INPUT
    assert {ratios[f"{block}{name}.weight"] for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc")} == {HIDDEN}
    assert ratios[f"{block}ln_1.weight"] == ratios[f"{block}attn.c_attn.bias"] == VECTOR
