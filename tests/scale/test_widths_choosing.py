"""What widths become: rounding, the floor, heads and groups, floats; and what is refused, with which words."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.scale.zoo import small, transformers
from tests.scale.zoo.models import LARGE, SMALL, rows
from tests.scale.zoo.resnets import resnext50
from torch import Tensor, nn

from headwater.errors import CannotScaleError
from headwater.scale.shrinking import shrink
from headwater.scale.widths import choose_widths, find_couplings

ROW = rows(12)


def stack(*widths: int) -> nn.Sequential:
    """Linear layers from one width to the next."""
    return nn.Sequential(*[nn.Linear(into, out) for into, out in pairwise(widths)])


def widths_of(model: nn.Module) -> list[int]:
    return [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)]


def test_widths_are_rounded_to_the_nearest() -> None:
    assert widths_of(shrink(stack(12, 100, 62, 10), 8, ROW, {})) == [12, 8, 10]
    assert widths_of(shrink(stack(12, 100, 62, 10), 3, ROW, {})) == [33, 21, 10]


def test_no_width_goes_below_the_floor_and_one_below_it_stays() -> None:
    assert widths_of(shrink(stack(12, 64, 20, 6, 10), 8, ROW, {})) == [8, 8, 6, 10]
    assert widths_of(shrink(stack(12, 64, 20, 6, 10), 8, ROW, {}, min_width=4)) == [8, 4, 4, 10]


def test_a_head_is_not_mistaken_for_a_width_that_equals_it() -> None:
    assert widths_of(shrink(stack(12, 64, 64), 2, ROW, {})) == [32, 64]


def test_attributes_go_with_the_tensors() -> None:
    model = small.Cells()
    less: Any = shrink(model, 2, rows(5, 12), {})
    assert (less.hidden, less.cell.hidden_size, less.cell.input_size, model.hidden) == (32, 32, 12, 64)


def test_heads_shrink_before_their_size() -> None:
    less: Any = shrink(small.GroupedQuery(), 4, SMALL["grouped_query"].args, {})
    assert (less.n_heads, less.n_kv_heads, less.head_dim) == (2, 1, 16)
    less = shrink(small.GroupedQuery(), 16, SMALL["grouped_query"].args, {})
    assert (less.n_heads, less.n_kv_heads, less.head_dim) == (1, 1, 8)


def test_heads_are_rounded_and_their_size_kept() -> None:
    less: Any = shrink(transformers.vit(1), 8, LARGE["vit"].args, {})
    attention = less.get_submodule("blocks.0.attention")
    assert isinstance(attention, nn.MultiheadAttention)
    assert (attention.num_heads, attention.head_dim, attention.embed_dim) == (2, 64, 128)


def test_a_group_shrinks_before_the_number_of_groups() -> None:
    settings = []
    for scale in (2, 4, 8):
        conv = shrink(resnext50((1, 1)), scale, LARGE["resnext50"].args, {}).get_submodule("stages.0.0.conv2")
        assert isinstance(conv, nn.Conv2d)
        settings.append((conv.groups, conv.in_channels, conv.out_channels))
    assert settings == [(32, 64, 64), (32, 32, 32), (16, 16, 16)]


def test_a_number_that_only_floats_are_made_of_goes_with_its_width() -> None:
    less: Any = shrink(transformers.Gpt(), 2, LARGE["gpt"].args, {})
    assert (less.settings.n_embd, less.settings.n_head, less.settings.vocab_size) == (64, 4, 65)
    text: Any = shrink(small.TextEncoder(), 2, SMALL["text_encoder"].args, {})
    assert text.d_model == 32


def test_a_batch_as_large_as_a_width_does_not_keep_it() -> None:
    assert widths_of(shrink(stack(12, 64, 64, 10), 2, (torch.randn(64, 12),), {})) == [32, 32, 10]


def test_an_embedding_keeps_its_rows() -> None:
    model = nn.Sequential(nn.Embedding(64, 64), nn.Flatten(), nn.Linear(64 * 5, 10))
    less: Any = shrink(model, 2, (torch.randint(0, 64, (2, 5)),), {})
    assert isinstance(less[0], nn.Embedding)
    assert less[0].weight.shape == (64, 32)
    assert less[0].num_embeddings == 64


def test_couplings_serve_every_scale() -> None:
    couplings = find_couplings(stack(12, 64, 10), ROW, {})
    assert choose_widths(couplings, 2).shapes["0.weight"] == (32, 12)
    assert choose_widths(couplings, 4).shapes["0.weight"] == (16, 12)


@pytest.mark.parametrize(
    ("model", "args", "scale", "words"),
    [
        (nn.Linear(12, 10), ROW, 2, "every width is tied"),
        (stack(12, 8, 10), ROW, 2, "min_width=8"),
        (small.Literal(), ROW, 2, "every width is tied"),
        (small.OneHead(), rows(5, 12), 2, "scaling = 0.125 was computed from"),
        (transformers.swin_even(), LARGE["swin_even"].args, 8, r"a width of 32 \* 4 cannot become 8 times smaller"),
        (stack(12, 64, 10), ROW, 0.5, "scale must be at least 1"),
        (stack(11, 64, 10), ROW, 2, "does not run on tensors without values"),
    ],
)
def test_what_cannot_shrink_is_refused_with_a_reason(
    model: nn.Module, args: tuple[Tensor, ...], scale: float, words: str
) -> None:
    with pytest.raises(CannotScaleError, match=words):
        shrink(model, scale, args, {})


def test_every_refusal_says_what_to_do() -> None:
    for model in (nn.Linear(12, 10), small.Literal()):
        with pytest.raises(CannotScaleError, match="surrogate=None"):
            shrink(model, 2, ROW, {})
