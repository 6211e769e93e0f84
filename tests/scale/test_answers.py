"""Models that ask for values in their forward are narrowed by what they were told when they were called."""

from __future__ import annotations

import pytest
import torch
from tests.scale.zoo import small
from torch import Tensor, nn

from headwater.scale.shrinking import shrink

X_NTI = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))


class Asking(nn.Module):
    """Cuts its input by what it holds, and branches on it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.norm = nn.Linear(8, 64), nn.Linear(64, 3), nn.BatchNorm1d(64)

    def forward(self, x_NTI: Tensor) -> Tensor:
        length = int((x_NTI[0, :, 0] > -9).sum())
        if x_NTI.abs().max() > 100:
            raise ValueError("too large")
        scale = x_NTI.std().item()
        answer: Tensor = self.last(self.norm(self.first(x_NTI[:, : length - 1] / scale).relu().mean(1)))
        return answer


@pytest.mark.parametrize("scale", [2, 4])
def test_a_model_that_asks_for_values_is_narrowed(scale: int) -> None:
    narrow = shrink(Asking(), scale, (X_NTI,), {})
    assert isinstance(narrow, Asking)
    assert narrow.first.weight.shape == (64 // scale, 8)
    assert narrow(X_NTI).shape == (4, 3)


def test_a_model_that_is_asked_is_left_as_it_was() -> None:
    model = Asking()
    shrink(model, 2, (X_NTI,), {})
    assert model.norm.num_batches_tracked == 0
    assert not model.norm.running_mean.any()  # type: ignore[union-attr]  # it has one


def test_a_model_that_branches_on_a_value_is_narrowed() -> None:
    narrow = shrink(small.Looking(), 2, (X_NTI.repeat(1, 1, 2)[..., :12],), {})
    assert narrow.get_parameter("into.weight").shape == (32, 12)
