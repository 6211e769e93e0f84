"""The Hugging Face models of the parity suite, in tiny configurations; dropout is what it is by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers as hf
from tests.parity.tasks import (
    NUM_CLASSES,
    NUM_TOKENS,
    Settings,
    Task,
    draw_continuations,
    draw_images,
    draw_sentences,
)
from torch import Tensor, nn


def _task(build: Callable[..., Any], *input_names: str, smooth: Settings | None = None, **options: Any) -> Task:
    """Ask the model for logits; in single precision, train it by the loss that it computes itself.

    `smooth` holds what the configuration needs to be free of kinks.
    """

    def call(model: nn.Module, x: Tensor, **labels: Tensor) -> Any:
        return model(**dict.fromkeys(input_names, x), **labels)

    return Task(
        build=lambda settings: build(),
        build_smooth=None if smooth is None else lambda settings: build(**smooth),
        logits=lambda model, x: call(model, x).logits,
        own_loss=lambda model, x, y: call(model, x, labels=y).loss,
        **options,
    )


def _build_gpt2() -> Any:
    sizes = {"vocab_size": NUM_TOKENS, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def _build_bert() -> Any:
    return hf.BertForSequenceClassification(
        hf.BertConfig(
            vocab_size=NUM_TOKENS,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
            num_labels=NUM_CLASSES,
        )
    )


def _build_llama() -> Any:
    return hf.LlamaForCausalLM(
        hf.LlamaConfig(
            vocab_size=NUM_TOKENS,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=16,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def _build_vit() -> Any:
    return hf.ViTForImageClassification(
        hf.ViTConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=16,
            patch_size=4,
            num_labels=NUM_CLASSES,
        )
    )


def _build_swin() -> Any:
    return hf.SwinForImageClassification(
        hf.SwinConfig(
            image_size=32,
            patch_size=4,
            embed_dim=8,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=4,
            num_labels=NUM_CLASSES,
        )
    )


def _build_t5() -> Any:
    return hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=NUM_TOKENS,
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=2,
            num_heads=2,
            decoder_start_token_id=0,
            pad_token_id=0,
        )
    )


def _build_resnet(hidden_act: str = "relu") -> Any:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 12, 16], "depths": [1, 2, 1], "layer_type": "basic"}
    return hf.ResNetForImageClassification(hf.ResNetConfig(**sizes, hidden_act=hidden_act, num_labels=NUM_CLASSES))


def _build_mobilenet(**options: Any) -> Any:
    sizes = {"image_size": 32, "depth_multiplier": 0.25}
    return hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(**sizes, **options, num_labels=NUM_CLASSES))


HUGGING_FACE_TASKS = {
    "gpt2": _task(_build_gpt2, "input_ids", draw=draw_continuations(9), max_norm=1.0),
    "bert": _task(_build_bert, "input_ids", draw=draw_sentences(9)),
    "llama": _task(_build_llama, "input_ids", draw=draw_continuations(9), max_norm=1.0),
    "vit": _task(_build_vit, "pixel_values", draw=draw_images(16)),
    "swin": _task(_build_swin, "pixel_values", draw=draw_images(32)),
    "t5": _task(_build_t5, "input_ids", "decoder_input_ids", draw=draw_continuations(7), max_norm=1.0),
    "hf-resnet": _task(
        _build_resnet, "pixel_values", draw=draw_images(32), smooth={"hidden_act": "silu"}, lr=0.02, max_norm=0.3
    ),
    "mobilenet-v2": _task(
        _build_mobilenet,
        "pixel_values",
        draw=draw_images(32),
        smooth={"hidden_act": "silu", "layer_norm_eps": 0.1},
        lr=0.001,
        max_norm=0.1,
    ),
}
