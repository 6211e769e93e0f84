"""Lanes against separate models: the same steps, once per model and once for all lanes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, nn

from headwater.fuse.functorch import is_lane_tensor, stack_of
from headwater.fuse.mode import LaneMode
from headwater.fuse.models import fuse_models, lane_state
from headwater.fuse.per_lane import PerLane
from headwater.fuse.roster import Roster
from headwater.fuse.rules import RULES

Build: TypeAlias = Callable[[], nn.Module]
Step: TypeAlias = Callable[[Any], Any]

LEARNING_RATE = 0.05
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 1e-2}


@pytest.fixture
def lanes() -> Callable[[int], LaneMode]:
    """Return a mode for so many lanes."""
    return lambda num_lanes: LaneMode(Roster([{} for _ in range(num_lanes)]), RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Trains models apart and as lanes, and compares all that can be seen of the two."""

    dtype: torch.dtype = torch.float64
    num_steps: int = 2

    def check(self, build: Build, step: Step, num_lanes: int = 3, *, train: bool = True) -> None:
        """Compare what `step` returns, the gradients, the updated weights and the buffers.

        The step gets the model and returns a tensor or several; their weighted sum is the loss.
        """
        models = [self._build(build, seed, train) for seed in range(num_lanes)]
        alone = [self._train(copy.deepcopy(model), step) for model in models]
        mode = LaneMode(Roster([{} for _ in models]), RULES)
        fused = fuse_models([copy.deepcopy(model) for model in models])
        with mode:
            together = self._train(fused, step)
        for lane, (model, seen) in enumerate(alone):
            for expected, lane_values in zip(seen, together[1], strict=True):
                self._compare(value_of(lane_values, lane), expected)
            state = lane_state(fused, lane)
            for name, expected in model.state_dict().items():
                self._compare(state[name], expected)

    def _build(self, build: Build, seed: int, train: bool) -> nn.Module:
        torch.manual_seed(seed)
        return build().to(self.dtype).train(train)

    def _train(self, model: nn.Module, step: Step) -> tuple[nn.Module, list[Any]]:
        """Take a few steps of plain gradient descent; return what they showed."""
        seen: list[Any] = []
        torch.manual_seed(99)
        for _ in range(self.num_steps):
            model.zero_grad()
            outputs = listed(step(model))
            seen += [output.detach() for output in outputs]
            loss = sum(weighted(output) for output in outputs if output.is_floating_point())
            if isinstance(loss, Tensor) and loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        seen.append(parameter.grad.clone())
                        parameter.sub_(parameter.grad * LEARNING_RATE)
        return model, seen

    def _compare(self, actual: Any, expected: Any) -> None:
        tolerance = TOLERANCE[self.dtype]
        scale = max(1.0, float(expected.abs().max())) if expected.numel() and expected.is_floating_point() else 1.0
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


@pytest.fixture
def parity() -> Parity:
    """Compare in double precision."""
    return Parity()


@pytest.fixture
def single_parity() -> Parity:
    """Compare in single precision."""
    return Parity(dtype=torch.float32)


def listed(outputs: Any) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    items = outputs.values() if isinstance(outputs, dict) else outputs
    return [tensor for item in items if item is not None for tensor in listed(item)]


def weighted(output: Tensor) -> Tensor:
    """A sum in which every element counts differently, so that no gradient is lost in symmetry."""
    weights = torch.linspace(0.5, 1.5, max(output.numel(), 1), dtype=torch.float64).to(output.dtype)
    return (output * weights[: output.numel()].view(output.shape)).sum()


def value_of(value: Any, lane: int) -> Any:
    """What one lane sees of a value."""
    if isinstance(value, Tensor):
        return stack_of(value)[lane] if is_lane_tensor(value) else value
    if isinstance(value, PerLane):
        return value.values[lane]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return type(value)(value_of(item, lane) for item in value)  # type: ignore[call-arg]
    return value
