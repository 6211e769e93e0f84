"""What goes wrong in one lane stays there, to the last bit of its neighbours."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import make_mode
from torch import Tensor, nn

from headwater.fuse.models import fuse_models, lane_state
from headwater.fuse.strategies import Strategies
from headwater.torch_private import lanes_of

IMAGES = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0))
WORDS = torch.tensor([0, 2, 1])
NUM_LANES, SICK = 4, 2


class Everything(nn.Module):
    """Convolution, both norms, attention, look-up, recurrence and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.batch, self.widen = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 8)
        self.attention, self.layer = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1), nn.LayerNorm(8)
        self.words, self.recurrent, self.head = nn.Embedding(5, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, images: Tensor, words: Tensor) -> Tensor:
        tokens = self.widen(self.batch(self.convolution(images)).relu().flatten(2).transpose(1, 2))
        tokens = self.layer(tokens + self.words(words)[:, None])
        tokens = tokens + self.attention(tokens, tokens, tokens)[0]
        scores: Tensor = self.head(F.dropout(self.recurrent(tokens)[0], 0.2).mean(1))
        return scores


@pytest.mark.parametrize(
    "ways", [("wide", "fused", "product", "side by side"), ("batched", "looped")], ids=lambda w: w[0]
)
@pytest.mark.parametrize("sickness", ["nan weights", "infinite weights", "nan loss"])
def test_a_sick_lane_leaves_its_neighbours_untouched(sickness: str, ways: tuple[str, ...]) -> None:
    strategies = Strategies(preset=ways)
    healthy, sick = train(strategies, ""), train(strategies, sickness)
    for lane in range(NUM_LANES):
        alike = all(torch.equal(healthy[lane][name], sick[lane][name]) for name in healthy[lane])
        assert alike == (lane != SICK)


def train(strategies: Strategies, sickness: str) -> list[dict[str, Tensor]]:
    """Take a few steps with clipped gradients and momentum; return the weights of each lane."""
    model = fuse_models([build(seed, sickness if seed == SICK else "") for seed in range(NUM_LANES)])
    factor = torch.tensor([math.nan if sickness == "nan loss" and lane == SICK else 1.0 for lane in range(NUM_LANES)])
    torch.manual_seed(0)
    with make_mode(NUM_LANES, strategies):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(IMAGES, WORDS), WORDS, label_smoothing=0.1) * lanes_of(factor)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return [lane_state(model, lane) for lane in range(NUM_LANES)]


def build(seed: int, sickness: str) -> Everything:
    torch.manual_seed(seed)
    model = Everything()
    value = {"nan weights": math.nan, "infinite weights": math.inf}.get(sickness)
    if value is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.view(-1)[0] = value
    return model
