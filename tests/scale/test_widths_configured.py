"""Models of Hugging Face shrink by their configurations, exactly as if built from a smaller one."""

from __future__ import annotations

import pytest
import torch
from tests.scale.zoo.hugging_face import CONFIGURED
from torch import nn

from headwater.scale.configuring import rescale
from headwater.scale.shrinking import Shrinker, shrink


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("scale", [2, 4, 8])
@pytest.mark.parametrize("name", CONFIGURED)
def test_shapes_are_those_of_the_scaled_configuration(name: str, scale: int) -> None:
    configured = CONFIGURED[name]
    small = shrink(configured.build(), scale, (), configured.kwargs)
    assert shapes_of(small) == shapes_of(configured.build_scaled(scale))
    assert type(small) is configured.kind


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_smaller_model_learns_and_the_given_one_is_untouched(name: str) -> None:
    configured = CONFIGURED[name]
    model = configured.build()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    small = shrink(model, 4, (), configured.kwargs)
    small(**configured.kwargs).logits.square().mean().backward()
    assert [key for key, parameter in small.named_parameters() if parameter.grad is None] == []
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert not any(tensor.is_meta for tensor in (*small.parameters(), *small.buffers()))


def test_building_does_not_draw_from_the_global_generator() -> None:
    configured = CONFIGURED["t5"]
    model = configured.build()
    torch.manual_seed(0)
    shrink(model, 2, (), configured.kwargs)
    after = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(3))


def test_fused_query_key_and_value_keep_the_leading_block_of_each() -> None:
    model = CONFIGURED["gpt2"].build()
    small = shrink(model, 2, (), CONFIGURED["gpt2"].kwargs)
    whole = model.get_parameter("transformer.h.0.attn.c_attn.weight")
    part = small.get_parameter("transformer.h.0.attn.c_attn.weight")
    for third in range(3):
        expected = whole[:64, third * 128 : third * 128 + 64]
        torch.testing.assert_close(part[:, third * 64 : (third + 1) * 64], expected)


def test_embeddings_that_are_tied_stay_tied() -> None:
    small = shrink(CONFIGURED["gpt2"].build(), 2, (), CONFIGURED["gpt2"].kwargs)
    assert small.get_parameter("lm_head.weight") is small.get_parameter("transformer.wte.weight")


def test_with_fewer_heads_than_the_scale_the_size_of_the_last_shrinks() -> None:
    config = rescale(CONFIGURED["bert"].config, 16, 8)
    assert (config.hidden_size, config.num_attention_heads) == (8, 1)
    assert config.intermediate_size == 16


def test_heads_that_the_scale_does_not_divide_are_rounded() -> None:
    config = rescale(CONFIGURED["llama"].config, 3, 8)
    assert (config.num_attention_heads, config.num_key_value_heads, config.hidden_size) == (3, 1, 48)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
def test_inside_another_model_it_shrinks_by_its_couplings_to_the_same_shapes(name: str) -> None:
    configured = CONFIGURED[name]

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = configured.build()

        def forward(self, **kwargs: torch.Tensor) -> torch.Tensor:
            return self.inner(**kwargs).logits  # type: ignore[no-any-return]  # a tensor by construction

    shrinker = Shrinker()
    model = Wrapped()
    for scale in (2, 4):
        small = shrinker.shrink(model, scale, (), configured.kwargs)
        assert shapes_of(small.get_submodule("inner")) == shapes_of(configured.build_scaled(scale))
        small(**configured.kwargs).square().mean().backward()
        assert [key for key, parameter in small.named_parameters() if parameter.grad is None] == []
