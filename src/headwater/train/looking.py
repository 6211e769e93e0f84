"""Running the training function just far enough to see what its models are called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import CannotScaleError, LanesLeave, WidthsWanted
from headwater.space.configuration import freeze
from headwater.train.engines import LaneState, ModelSource, PlainEngine, build_model
from headwater.train.scaling import Scaling
from headwater.train.seeding import seed_everything
from headwater.train.trial import Trial
from headwater.trials import Decision, Lane, Report


def look_at_widths(function: Callable[[Trial], Any], lane: Lane, device: torch.device, scaling: Scaling) -> None:
    """Run the function for one lane, on models as they are written, until it calls one that was never seen at work.

    Raises:
        CannotScaleError: The function never calls a model that it prepares.
        Exception: Whatever the function raises before it does.
    """
    engine = _LookingEngine(lane, device, scaling)
    trial = Trial([lane], freeze(lane.config), engine, EndAtOnce(), None, device)
    seed_everything(trial.seed)
    try:
        function(trial)
    except WidthsWanted:
        return
    except LanesLeave:
        pass
    raise CannotScaleError(
        f"the training function prepares {engine.describe_unseen()} but does not call it before its first report, so "
        "its widths cannot be found; call the model itself, not a method of it, or tune without a surrogate"
    )


class EndAtOnce:
    """Ends the function at its first report."""

    def report(self, reports: Sequence[Report], capture: Callable[[int], LaneState | None]) -> Sequence[Decision]:
        """Stop."""
        return [Decision.STOP] * len(reports)

    def expect(self, num_epochs: int) -> None:
        """Take no interest."""

    def step(self, num_lanes: int) -> None:
        """Take no interest: a model that was seen before may train until another is called."""


class _LookingEngine:
    """A plain engine whose unseen models are watched."""

    def __init__(self, lane: Lane, device: torch.device, scaling: Scaling) -> None:
        self._plain = PlainEngine(lane, device)
        self._lane = lane
        self._scaling = scaling
        self._unseen: list[str] = []

    def describe_unseen(self) -> str:
        """Name the models that were watched in vain."""
        return " and ".join(f"a {name}" for name in self._unseen) or "a model"

    def add_model(self, source: ModelSource, states: Sequence[Mapping[str, Tensor]] | None) -> nn.Module:
        """Watch a model of a new kind; the others run as they are written too."""
        model = self._plain.add_model(lambda: build_model(source, self._lane), None)
        if not self._scaling.knows(model):
            self._scaling.watch(model)
            self._unseen.append(type(model).__name__)
        return model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)
