"""Every model of the zoo, with an example of its input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tests.scale.zoo import convnets, recurrent, resnets, small, transformers
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Example:
    """A model and what it is called with."""

    build: Callable[[], nn.Module]
    args: tuple[Tensor, ...]
    scales: tuple[int, ...] = (2, 4, 8)


def picture(side: int) -> tuple[Tensor, ...]:
    return (torch.randn(2, 3, side, side),)


def rows(*shape: int) -> tuple[Tensor, ...]:
    return (torch.randn(2, *shape),)


def tokens(count: int, steps: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, count, (2, steps)),)


LARGE: Mapping[str, Example] = {
    "resnet18": Example(resnets.resnet18, picture(32)),
    "resnet50": Example(lambda: resnets.resnet50((1, 1, 1, 1)), picture(64)),
    "wide_resnet50": Example(lambda: resnets.wide_resnet50((1, 1, 1, 1)), picture(64)),
    "resnext50": Example(lambda: resnets.resnext50((1, 1, 1, 1)), picture(64)),
    "resnet20_padded": Example(resnets.resnet20_padded, picture(32)),
    "vgg11": Example(convnets.vgg11, picture(32)),
    "mobilenet_v3": Example(convnets.mobilenet_v3, picture(64)),
    "densenet": Example(lambda: convnets.densenet121((3, 3, 2, 2)), picture(64)),
    "convnext": Example(lambda: convnets.convnext((1, 1, 1, 1)), picture(64)),
    "vit": Example(lambda: transformers.vit(2), picture(64)),
    "swin": Example(lambda: transformers.swin((2, 1, 1, 1)), picture(224), (2, 4)),
    "swin_even": Example(transformers.swin_even, picture(112), (2, 4)),
    "gpt": Example(transformers.Gpt, tokens(65, 32)),
    "lstm": Example(lambda: recurrent.RecurrentModel(nn.LSTM), tokens(100, 12)),
    "gru": Example(lambda: recurrent.RecurrentModel(nn.GRU, bidirectional=True), tokens(100, 12)),
    "lstm_steps_first": Example(lambda: recurrent.RecurrentModel(nn.LSTM, batch_first=False), tokens(100, 12)),
}

SMALL: Mapping[str, Example] = {
    "perceptron": Example(small.Perceptron, rows(3, 4, 4)),
    "joining": Example(small.Joining, rows(12)),
    "gated": Example(small.Gated, rows(12), (2,)),
    "grouped": Example(small.Grouped, picture(8), (2, 4)),
    "flattening": Example(small.Flattening, picture(8), (2, 4)),
    "twice": Example(small.Twice, rows(12)),
    "grouped_query": Example(small.GroupedQuery, tokens(50, 16)),
    "text_encoder": Example(small.TextEncoder, tokens(50, 16)),
    "auto_encoder": Example(small.AutoEncoder, picture(8)),
    "shuffled": Example(small.Shuffled, picture(8)),
    "unet": Example(small.UNet, picture(16), (2, 4)),
    "translator": Example(small.Translator, tokens(50, 9), (2, 4)),
    "cells": Example(small.Cells, rows(5, 12)),
}


def first_of(output: Any) -> Tensor:
    """The tensor that a model of the zoo answers with."""
    if isinstance(output, dict):
        return output["logits"]  # type: ignore[no-any-return]  # a tensor by construction
    answer: Tensor = output[0] if isinstance(output, tuple) else output
    return answer
