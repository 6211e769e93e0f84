"""Small models of Hugging Face, with random weights, by their configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Configured:
    """A model, what it is called with, and the settings that its configuration has at 1/2, 1/4 and 1/8."""

    kind: type[nn.Module]
    config: Any
    kwargs: Mapping[str, Tensor]
    scaled: Mapping[str, Callable[[int], Any]]

    def build(self) -> nn.Module:
        return self.kind(self.config)

    def build_scaled(self, scale: int) -> nn.Module:
        """Build the model from a configuration written out for the scale."""
        settings = {key: value(scale) for key, value in self.scaled.items()}
        return self.kind(type(self.config)(**{**self.config.to_dict(), **settings}))


def divided(value: int) -> Callable[[int], int]:
    return lambda scale: value // scale


TOKENS = torch.randint(0, 50, (2, 9))
PICTURES = torch.randn(2, 3, 32, 32)

CONFIGURED: Mapping[str, Configured] = {
    "bert": Configured(
        transformers.BertForSequenceClassification,
        transformers.BertConfig(
            vocab_size=50,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=8,
            intermediate_size=256,
            num_labels=3,
            bos_token_id=None,
        ),
        {"input_ids": TOKENS},
        {"hidden_size": divided(128), "num_attention_heads": divided(8), "intermediate_size": divided(256)},
    ),
    "gpt2": Configured(
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(
            vocab_size=50, n_embd=128, n_layer=2, n_head=8, n_positions=32, bos_token_id=0, eos_token_id=0
        ),
        {"input_ids": TOKENS},
        {"n_embd": divided(128), "n_head": divided(8)},
    ),
    "llama": Configured(
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(
            vocab_size=50,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=4,
            intermediate_size=256,
        ),
        {"input_ids": TOKENS},
        {
            "hidden_size": divided(128),
            "num_attention_heads": divided(8),
            "num_key_value_heads": lambda scale: max(1, 4 // scale),
            "intermediate_size": divided(256),
        },
    ),
    "vit": Configured(
        transformers.ViTForImageClassification,
        transformers.ViTConfig(
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=8,
            intermediate_size=256,
            image_size=32,
            patch_size=8,
        ),
        {"pixel_values": PICTURES},
        {"hidden_size": divided(128), "num_attention_heads": divided(8), "intermediate_size": divided(256)},
    ),
    "swin": Configured(
        transformers.SwinForImageClassification,
        transformers.SwinConfig(
            image_size=32, patch_size=2, embed_dim=128, depths=[2, 1], num_heads=[8, 16], window_size=4
        ),
        {"pixel_values": PICTURES},
        {"embed_dim": divided(128), "num_heads": lambda scale: [8 // scale, 16 // scale]},
    ),
    "t5": Configured(
        transformers.T5ForConditionalGeneration,
        transformers.T5Config(
            vocab_size=50, d_model=128, num_layers=1, num_heads=8, d_kv=16, d_ff=256, decoder_start_token_id=0
        ),
        {"input_ids": TOKENS, "labels": TOKENS},
        {"d_model": divided(128), "num_heads": divided(8), "d_ff": divided(256)},
    ),
    "mobilenet_v2": Configured(
        transformers.MobileNetV2ForImageClassification,
        transformers.MobileNetV2Config(image_size=32, num_labels=3),
        {"pixel_values": PICTURES},
        {"depth_multiplier": lambda scale: 1.0 / scale},
    ),
}
