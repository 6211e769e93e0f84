"""The best weights that a trial's models have had, lane by lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import TrialError
from headwater.train.engines import Engine, LaneState
from headwater.trials import INFEASIBLE, Objective

MODES = ("min", "max")


def choose_weights(state: LaneState) -> list[dict[str, Tensor]]:
    """Return what is handed out of each model: its best weights where the function has named any, else its last.

    What else a state dict holds is as it was at last.
    """
    bests = [*state.bests, *({} for _ in state.models[len(state.bests) :])]
    return [{**last, **best.get("weights", {})} for last, best in zip(state.models, bests, strict=True)]


def show_epochs(state: LaneState) -> str:
    """Say of which epochs the best weights are; nothing where the function has named none."""
    epochs = sorted({best["epoch"] for best in state.bests if best})
    return f"epoch{'s' * (len(epochs) > 1)} {' and '.join(map(str, epochs))}" if epochs else ""


class BestWeights:
    """Holds for each prepared model the best weights of every lane, and the values that said so."""

    def __init__(self, engine: Engine, states: Sequence[LaneState] | None, num_lanes: int) -> None:
        self._engine = engine
        self._states = states
        self._num_lanes = num_lanes
        self._bests: list[_Best] = []

    def add(self, model: nn.Module) -> None:
        """Take in the next model, with what the lanes have kept of it before."""
        index = len(self._bests)
        best = _Best(model, [{} for _ in range(self._num_lanes)])
        for place, state in enumerate(self._states or ()):
            saved = state.bests[index] if index < len(state.bests) else {}
            if saved:
                best.facts[place] = {name: saved[name] for name in ("value", "epoch")}
                best.put([place], {name: tensor[None] for name, tensor in saved["weights"].items()})
        self._bests.append(best)

    def offer(self, model: nn.Module, values: Sequence[float], mode: str, epoch: int) -> None:
        """Keep the present weights of the lanes whose value is better than all before; of equals, the first stay."""
        best = next((best for best in self._bests if best.model is model), None)
        if best is None:
            raise TrialError(
                f"keep_best got a {type(model).__name__} that is no model of the trial's; give it what "
                "trial.prepare_model returned"
            )
        if mode not in MODES:
            raise TrialError(f"keep_best got mode={mode!r}; it must be 'min' or 'max'")
        score = Objective("", mode).score
        scores = [(score(value), score(fact["value"]) if fact else INFEASIBLE) for value, fact in best.pair(values)]
        places = [place for place, (now, before) in enumerate(scores) if now < before]
        if places:
            best.put(places, {name: rows[places] for name, rows in self._engine.stack_weights(model).items()})
            for place in places:
                best.facts[place] = {"value": values[place], "epoch": epoch}

    def narrow(self, places: Sequence[int]) -> None:
        """Keep the lanes at these places."""
        self._num_lanes = len(places)
        for best in self._bests:
            best.facts = [best.facts[place] for place in places]
            best.stacks = {name: stack[list(places)] for name, stack in best.stacks.items()}

    def take(self, place: int) -> list[dict[str, Any]]:
        """Return what a lane has kept of each model, to be saved with its state; nothing where it has kept none."""
        if not any(best.facts[place] for best in self._bests):
            return []
        return [best.take(place) for best in self._bests]


@dataclass(slots=True)
class _Best:
    """The best weights of one model, lanes first; `facts` has the value and the epoch of each lane that has any."""

    model: nn.Module
    facts: list[dict[str, Any]]
    stacks: dict[str, Tensor] = field(default_factory=dict)

    def pair(self, values: Sequence[float]) -> list[tuple[float, dict[str, Any]]]:
        return list(zip(values, self.facts, strict=True))

    def put(self, places: Sequence[int], rows: dict[str, Tensor]) -> None:
        """Copy the weights of some lanes."""
        with torch.no_grad():
            for name, values in rows.items():
                if name not in self.stacks:
                    self.stacks[name] = values.new_zeros((len(self.facts), *values.shape[1:]))
                self.stacks[name][list(places)] = values

    def take(self, place: int) -> dict[str, Any]:
        if not self.facts[place]:
            return {}
        weights = {name: stack[place].clone() for name, stack in self.stacks.items()}
        return {**self.facts[place], "weights": weights}
