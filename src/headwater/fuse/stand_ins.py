"""One small optimizer per lane that stands in for the real one, for torch's schedulers that need plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

import torch
from torch.optim import Optimizer

from headwater.fuse.hyperparameters import merge
from headwater.fuse.optimizers import LaneOptimizer
from headwater.fuse.roster import Roster
from headwater.torch_private import mark_stepped


class StandIns:
    """A stand-in per lane, with the lane's own hyperparameters and no weights.

    Schedulers change the hyperparameters of the stand-ins. `take_over` brings in what has been assigned to the real
    optimizer meanwhile, and `hand_back` carries out what a scheduler has changed. Lanes that have left their group are
    dropped at the next call.
    """

    def __init__(self, optimizer: LaneOptimizer, roster: Roster) -> None:
        self._optimizer = optimizer
        self._roster = roster
        self._lanes = [
            _StandIn(
                [_without_weights(optimizer.lane_settings(group, place)) for group in optimizer.param_groups],
                optimizer.lane_settings(optimizer.defaults, place),
            )
            for place in range(len(roster))
        ]
        self._seen: list[dict[str, Any]] = [dict(group) for group in optimizer.param_groups]
        self._before = self._snapshot()

    @property
    def lanes(self) -> list[_StandIn]:
        """The stand-ins of the lanes that are still in the group."""
        if len(self._lanes) != len(self._roster):
            self._lanes = [self._lanes[place] for place in self._roster.places_since(len(self._lanes))]
        return self._lanes

    def take_over(self, everything: bool = False) -> None:
        """Follow the real optimizer: what was assigned since the last call, or everything."""
        for number, group in enumerate(self._optimizer.param_groups):
            if number == len(self._seen):
                self._seen.append({})
                for place, lane in enumerate(self.lanes):
                    lane.add_param_group(_without_weights(self._optimizer.lane_settings(group, place)))
            seen = self._seen[number]
            changed = {key: value for key, value in group.items() if everything or seen.get(key, self) is not value}
            for place, lane in enumerate(self.lanes if changed else ()):
                lane.param_groups[number].update(self._optimizer.lane_settings(changed, place))
            seen.update(changed)
        called = self._optimizer.has_stepped
        for place, lane in enumerate(self.lanes):
            mark_stepped(lane, called or place > 0)  # so torch warns once, and only with reason
        self._before = self._snapshot()

    def hand_back(self) -> None:
        """Give the real optimizer what a scheduler has changed since `take_over`."""
        for number, group in enumerate(self._optimizer.param_groups):
            after = [lane.param_groups[number] for lane in self.lanes]
            before = [groups[number] for groups in self._before]
            for key in {key: None for lane_group in after for key in lane_group if key != "params"}:
                values = [lane_group.get(key) for lane_group in after]
                if not all(map(is_, values, (lane_group.get(key) for lane_group in before))):
                    group[key] = self._seen[number][key] = merge(values, self._roster)

    def _snapshot(self) -> list[list[dict[str, Any]]]:
        return [[dict(group) for group in lane.param_groups] for lane in self.lanes]


class _StandIn(Optimizer):
    """Hyperparameters without weights."""

    _opt_called = False

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do nothing."""


def _without_weights(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in settings.items() if key != "param_names"}, "params": [torch.zeros(1)]}
