"""The best trial's model, taken out of its study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import LanesLeave
from headwater.space.configuration import freeze
from headwater.train.engines import LaneState, ModelSource, PlainEngine
from headwater.train.looking import EndAtOnce
from headwater.train.seeding import seed_everything
from headwater.train.trial import Trial
from headwater.trials import Lane


def rebuild_models(function: Callable[[Trial], Any], lane: Lane, state: LaneState) -> list[nn.Module]:
    """Run the training function until it has prepared its models, and give them the weights of the state."""
    engine = _BuildingEngine(lane, len(state.models))
    trial = Trial([lane], freeze(lane.config), engine, EndAtOnce())
    seed_everything(trial.seed)
    with suppress(LanesLeave):
        function(trial)
    for model, weights in zip(engine.models, state.models, strict=True):
        model.load_state_dict(weights)
        model.eval()
    return engine.models


class _BuildingEngine:
    """A plain engine that ends the function when it has prepared so many models."""

    def __init__(self, lane: Lane, num_models: int) -> None:
        self._plain = PlainEngine(lane, torch.device("cpu"))
        self._num_models = num_models
        self.models: list[nn.Module] = []

    def add_model(self, source: ModelSource, states: Sequence[Mapping[str, Tensor]] | None) -> nn.Module:
        """Build a model."""
        self.models.append(self._plain.add_model(source, None))
        if len(self.models) == self._num_models:
            raise LanesLeave
        return self.models[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)
