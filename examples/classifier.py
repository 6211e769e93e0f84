"""A network for handwritten digits, in plain PyTorch."""

import torch.nn.functional as F
from torch import Tensor, nn


class Classifier(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.first = nn.Linear(64, width)
        self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(2)])
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + F.relu(block(x))
        return self.head(x)
