"""The best trial's model, taken out of its study."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import LanesLeave, StudyError
from headwater.space.configuration import freeze
from headwater.train.best_weights import choose_weights
from headwater.train.engines import LaneState, ModelSource, PlainEngine
from headwater.train.looking import EndAtOnce
from headwater.train.seeding import seed_everything
from headwater.train.trial import Trial
from headwater.trials import Lane


def rebuild_models(function: Callable[[Trial], Any], lane: Lane, state: LaneState) -> list[nn.Module]:
    """Run the training function until it has prepared its models, and return them with the best weights of the state.

    Models of the user's own are copied, for the function may use them again; ties between them stay.

    Raises:
        StudyError: Such a model cannot be copied.
    """
    engine = _BuildingEngine(lane, len(state.models))
    trial = Trial([lane], freeze(lane.config), engine, EndAtOnce())
    seed_everything(trial.seed)
    with suppress(LanesLeave), engine.running(function):
        function(trial)
    models = engine.models if engine.are_built else _copy(engine.models)
    for model, weights in zip(models, choose_weights(state), strict=True):
        model.load_state_dict(weights)
        model.eval()
    return models


def _copy(models: Sequence[nn.Module]) -> list[nn.Module]:
    """Copy models together; a tensor that was computed from others is taken as it is, and computed anew when used."""
    values = [value for model in models for module in model.modules() for value in vars(module).values()]
    computed = [value for value in values if isinstance(value, Tensor) and not value.is_leaf]
    try:
        return copy.deepcopy(list(models), {id(tensor): tensor.detach().clone() for tensor in computed})
    except Exception as error:  # whatever the copying of a user's class may raise
        names = " and ".join(type(model).__name__ for model in models)
        raise StudyError(
            f"{names} cannot be copied to be handed out ({type(error).__name__}: {error}); "
            "give prepare_model a function that builds it"
        ) from error


class _BuildingEngine:
    """A plain engine that ends the function when it has prepared so many models."""

    def __init__(self, lane: Lane, num_models: int) -> None:
        self._plain = PlainEngine(lane, torch.device("cpu"))
        self._num_models = num_models
        self.models: list[nn.Module] = []
        self.are_built = True
        """Whether functions have built them all, so that nobody else holds one."""

    def add_model(self, source: ModelSource) -> nn.Module:
        """Build a model."""
        self.models.append(self._plain.add_model(source))
        self.are_built = self.are_built and not isinstance(source, nn.Module)
        if len(self.models) == self._num_models:
            raise LanesLeave
        return self.models[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)
