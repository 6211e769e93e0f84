"""Look-ups of lanes equal those of separate tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import Parity, make_mode
from torch import Tensor, nn

from headwater.errors import CannotFuseError
from headwater.torch_private import lanes_of

WORDS = torch.tensor([[1, 0, 3], [3, 3, 2]])


class Chained(nn.Module):
    """Looks up what another look-up has found, so that each lane asks for other rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(5, 3), nn.Linear(3, 5)

    def forward(self, words: Tensor) -> Tensor:
        found: Tensor = self.table(self.linear(self.table(words)).argmax(-1))
        return found


TABLES: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "plain": (lambda: nn.Embedding(5, 3), (WORDS,)),
    "padded": (lambda: nn.Embedding(5, 3, padding_idx=3), (WORDS,)),
    "padded-from-the-end": (lambda: nn.Embedding(5, 3, padding_idx=-2), (WORDS,)),
    "by-frequency": (lambda: nn.Embedding(5, 3, scale_grad_by_freq=True, padding_idx=2), (WORDS,)),
    "renormalised": (lambda: nn.Embedding(5, 3, max_norm=0.7), (WORDS,)),
    "one-word": (lambda: nn.Embedding(5, 3), (WORDS[0, 0],)),
    "no-words": (lambda: nn.Embedding(5, 3), (WORDS[:0],)),
    "short-integers": (lambda: nn.Embedding(5, 3), (WORDS.int(),)),
    "lane-words": (Chained, (WORDS,)),
    "bag-sum": (lambda: nn.EmbeddingBag(5, 3, mode="sum", padding_idx=2), (WORDS,)),
    "bag-mean": (lambda: nn.EmbeddingBag(5, 3, mode="mean"), (WORDS.flatten(), torch.tensor([0, 2]))),
    "bag-max": (lambda: nn.EmbeddingBag(5, 3, mode="max"), (WORDS,)),
    "bag-renormalised": (lambda: nn.EmbeddingBag(5, 3, max_norm=0.7), (WORDS,)),
}


@pytest.mark.parametrize("num_lanes", [1, 2, 7])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_equals_separate_tables(name: str, num_lanes: int) -> None:
    build, words = TABLES[name]
    Parity().check(build, lambda m: m(*words), num_lanes)


@pytest.mark.parametrize("index", [5, -1])
def test_a_word_that_no_table_has_never_reads_another_lane(index: int) -> None:
    table = lanes_of(torch.randn(3, 5, 2))
    with make_mode(3), pytest.raises(IndexError):
        F.embedding(torch.tensor([index]), table)


@pytest.mark.parametrize("table", [nn.Embedding(5, 3, sparse=True), nn.EmbeddingBag(5, 3, sparse=True)])
def test_sparse_gradients_are_refused(table: nn.Module) -> None:
    with pytest.raises(CannotFuseError, match="sparse=True"):
        Parity().check(lambda: table, lambda m: m(WORDS).pow(2))
