"""Running the training function just far enough to see what its models are called with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from headwater.errors import CannotScaleError, LanesLeave, WidthsWanted
from headwater.scale.places import Structure, describe_change, structure_of
from headwater.space.configuration import freeze
from headwater.train.engines import ModelSource, PlainEngine
from headwater.train.scaling import Scaling
from headwater.train.seeding import seed_everything
from headwater.train.trial import Capture, Trial
from headwater.trials import Decision, Lane, Report


def look_at_widths(
    function: Callable[[Trial], Any],
    lane: Lane,
    device: torch.device,
    scaling: Scaling,
    wanted: Sequence[Structure] = (),
) -> None:
    """Run the function for one lane, on models as they are written, until it calls one that was never seen at work.

    Args:
        function: The training function.
        lane: The lane.
        device: Where it trains.
        scaling: Learns from what is seen.
        wanted: The structures that this run of the function has wanted so far, the present one last.

    Raises:
        CannotScaleError: The function never calls a model that it prepares, or prepares others than it wanted.
        Exception: Whatever the function raises before it does.
    """
    lane = replace(lane, start_epoch=0)  # one that has trained all its epochs would call nothing
    engine = _LookingEngine(lane, device, scaling)
    trial = Trial([lane], freeze(lane.config), engine, EndAtOnce(), None, device)
    seed_everything(trial.seed)
    try:
        with engine.running(function):
            function(trial)
    except WidthsWanted:
        engine.require_prepared(wanted)
        return
    except LanesLeave:
        pass
    raise CannotScaleError(
        f"the training function prepares {engine.describe_unseen()} but does not call it before its first report, so "
        "its widths cannot be found; call the model itself, not a method of it, or tune without a surrogate"
    )


class EndAtOnce:
    """Ends the function at its first report."""

    def report(self, reports: Sequence[Report], capture: Capture) -> Sequence[Decision]:
        """Stop."""
        return [Decision.STOP] * len(reports)

    def hinder(self, obstacle: str) -> None:
        """Take no interest."""

    def expect(self, num_epochs: int) -> None:
        """Take no interest."""

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        """Take no interest."""

    def step(self, num_lanes: int) -> None:
        """Take no interest: a model that was seen before may train until another is called."""


class _LookingEngine:
    """A plain engine whose unseen models are watched."""

    def __init__(self, lane: Lane, device: torch.device, scaling: Scaling) -> None:
        self._plain = PlainEngine(lane, device)
        self._scaling = scaling
        self._unseen: list[str] = []
        self._structures: list[Structure] = []

    def describe_unseen(self) -> str:
        """Name the models that were watched in vain."""
        return " and ".join(f"a {name}" for name in self._unseen) or "a model"

    def require_prepared(self, wanted: Sequence[Structure]) -> None:
        """Refuse a function whose models are never those that it wanted: it would be looked at for ever."""
        if wanted and (wanted[-1] not in self._structures or wanted.count(wanted[-1]) > len(self._structures)):
            raise CannotScaleError(
                f"the training function builds its {self._unseen[-1]} differently each time it runs "
                f"({describe_change(wanted[-1], self._structures[-1])}), so its widths cannot be found; build it alike "
                "for one configuration and seed, or tune it at full width with surrogate=None"
            )

    def add_model(self, source: ModelSource) -> nn.Module:
        """Watch a model of a new kind; the others run as they are written too."""
        model = self._plain.add_model(source)
        self._structures.append(structure_of(model))
        if not self._scaling.knows(model):
            self._scaling.watch(model)
            self._unseen.append(type(model).__name__)
        return model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)
