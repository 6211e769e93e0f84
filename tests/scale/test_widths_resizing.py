"""The tensors of a smaller model: leading blocks of each part, fresh leaves, tied where they were tied."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import torch
from tests.scale.zoo import recurrent, small, transformers
from tests.scale.zoo.convnets import densenet121
from tests.scale.zoo.models import LARGE, SMALL, picture, rows
from torch import nn

from headwater.scale.shrinking import shrink


def test_a_plain_layer_keeps_its_leading_block() -> None:
    model = nn.Sequential(nn.Linear(12, 64), nn.Linear(64, 32), nn.Linear(32, 10))
    less = shrink(model, 2, rows(12), {})
    torch.testing.assert_close(less.get_parameter("1.weight"), model.get_parameter("1.weight")[:16, :32])
    torch.testing.assert_close(less.get_parameter("2.weight"), model.get_parameter("2.weight")[:, :16])


def test_fused_query_key_and_value_keep_the_leading_block_of_each() -> None:
    model = transformers.Gpt()
    less = shrink(model, 2, LARGE["gpt"].args, {})
    name = "blocks.0.attn.c_attn.weight"
    for whole, part in zip(model.get_parameter(name).chunk(3), less.get_parameter(name).chunk(3), strict=True):
        torch.testing.assert_close(part, whole[:64, :64])


def test_torch_attention_keeps_the_leading_block_of_each_projection() -> None:
    model = small.TextEncoder()
    less = shrink(model, 2, SMALL["text_encoder"].args, {})
    name = "encoder.layers.0.self_attn.in_proj_weight"
    for whole, part in zip(model.get_parameter(name).chunk(3), less.get_parameter(name).chunk(3), strict=True):
        torch.testing.assert_close(part, whole[:32, :32])


def test_gates_keep_the_leading_block_of_each() -> None:
    model = recurrent.RecurrentModel(nn.LSTM)
    less = shrink(model, 4, LARGE["lstm"].args, {})
    for name in ("rnn.weight_hh_l0", "rnn.weight_hh_l1"):
        for whole, part in zip(model.get_parameter(name).chunk(4), less.get_parameter(name).chunk(4), strict=True):
            torch.testing.assert_close(part, whole[:64, :64])


def test_joined_parts_keep_the_leading_block_of_each() -> None:
    model = small.Joining()
    less = shrink(model, 2, rows(12), {})
    whole = model.head.weight
    expected = torch.cat([whole[:, :32], whole[:, 64:80], whole[:, 96:]], dim=1)
    torch.testing.assert_close(less.get_parameter("head.weight"), expected)


def test_split_parts_keep_the_leading_block_of_each() -> None:
    model = small.Gated()
    less: Any = shrink(model, 2, rows(12), {})
    whole = model.three.bias
    torch.testing.assert_close(less.get_parameter("three.bias"), torch.cat([whole[:24], whole[48:56], whole[64:80]]))
    assert less.sizes == [24, 8, 16]


def test_features_of_dense_layers_keep_the_leading_block_of_each() -> None:
    model = densenet121((3,))
    less = shrink(model, 2, picture(64), {})
    whole = model.get_parameter("4.layers.2.norm1.weight")
    with torch.no_grad():
        whole.copy_(torch.arange(128.0))
    less = shrink(model, 2, picture(64), {})
    edges = [0, 64, 96, 128]
    expected = torch.cat([whole[a : a + (b - a) // 2] for a, b in pairwise(edges)])
    torch.testing.assert_close(less.get_parameter("4.layers.2.norm1.weight"), expected)


def test_flattened_channels_keep_all_places_of_the_leading_ones() -> None:
    model = small.Flattening()
    less = shrink(model, 2, picture(8), {})
    torch.testing.assert_close(less.get_parameter("fc.weight"), model.fc.weight[:32, : 16 * 16])


def test_a_smaller_model_computes_what_the_leading_blocks_do() -> None:
    """Where the rest of the weights is zero, both models agree."""
    model = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)).double()
    with torch.no_grad():
        model.get_parameter("2.weight")[:, 32:] = 0
        model.get_parameter("4.weight")[:, 32:] = 0
    x = torch.randn(3, 12, dtype=torch.float64)
    torch.testing.assert_close(shrink(model, 2, (x,), {})(x), model(x))


def test_embeddings_that_are_tied_stay_tied() -> None:
    less = shrink(transformers.Gpt(), 2, LARGE["gpt"].args, {})
    assert less.get_parameter("lm_head.weight") is less.get_parameter("wte.weight")
    assert less.get_parameter("wte.weight").shape == (65, 64)


def test_tensors_are_fresh_contiguous_leaves_of_the_same_kind() -> None:
    model = small.Grouped().to(torch.bfloat16)
    model.stem.weight.requires_grad_(False)
    less = shrink(model, 2, (picture(8)[0].to(torch.bfloat16),), {})
    whole = dict(model.named_parameters())
    for name, parameter in less.named_parameters():
        assert parameter.is_leaf
        assert parameter.is_contiguous()
        assert parameter.requires_grad == whole[name].requires_grad
        assert parameter.dtype == torch.bfloat16
        assert parameter.untyped_storage().data_ptr() != whole[name].untyped_storage().data_ptr()
        assert parameter.untyped_storage().nbytes() == parameter.numel() * 2


def test_buffers_shrink_with_the_widths_they_belong_to() -> None:
    model = small.TextEncoder()
    less = shrink(model, 2, SMALL["text_encoder"].args, {})
    torch.testing.assert_close(less.get_buffer("positions"), model.get_buffer("positions")[:, :, :32])


def test_a_shrunk_model_can_be_copied_saved_and_shrunk_again() -> None:
    args = LARGE["lstm"].args
    less = shrink(recurrent.RecurrentModel(nn.LSTM), 2, args, {})
    twin = copy.deepcopy(less)
    twin.load_state_dict(less.state_dict())
    again: Any = shrink(twin, 2, args, {})
    assert again.rnn.hidden_size == 64
    again(*args)[0].sum().backward()
