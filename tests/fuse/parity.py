"""Lanes against each lane alone: the same program, once per lane and once for all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, nn

from headwater.fuse.mode import LaneMode
from headwater.fuse.models import fuse_models, lane_state
from headwater.fuse.per_lane import PerLane
from headwater.fuse.roster import Roster
from headwater.fuse.rules import RULES
from headwater.fuse.strategies import Strategies
from headwater.torch_private import is_lane_tensor, lanes_of, stack_of

Build: TypeAlias = Callable[[], nn.Module]
Program: TypeAlias = Callable[..., Any]

LEARNING_RATE = 0.05
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 1e-2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Trains models apart and as lanes, and compares all that can be seen of the two."""

    dtype: torch.dtype = torch.float64
    tolerance: float | None = None
    num_steps: int = 2
    strategies: Strategies | None = None

    def check(self, build: Build, step: Program, num_lanes: int = 3, *, train: bool = True) -> None:
        """Compare what `step` returns, the gradients, the updated weights and the buffers.

        The step gets the model and returns a tensor or several; their weighted sum is the loss.
        """
        models = [self._build(build, seed, train) for seed in range(num_lanes)]
        alone = [self._train(copy.deepcopy(model), step) for model in models]
        fused = fuse_models([copy.deepcopy(model) for model in models])
        with make_mode(num_lanes, self.strategies):
            _, together = self._train(fused, step)
        for lane, (model, seen) in enumerate(alone):
            for expected, lane_values in zip(seen, together, strict=True):
                self._compare(value_of(lane_values, lane), expected)
            state = lane_state(fused, lane)
            for name, expected in model.state_dict().items():
                self._compare(state[name], expected)

    def _build(self, build: Build, seed: int, train: bool) -> nn.Module:
        torch.manual_seed(seed)
        return build().to(self.dtype).train(train)

    def _train(self, model: nn.Module, step: Program) -> tuple[nn.Module, list[Any]]:
        """Take a few steps of plain gradient descent; return what they showed."""
        seen: list[Any] = []
        torch.manual_seed(99)
        for _ in range(self.num_steps):
            model.zero_grad()
            outputs = tensors_in(step(model))
            seen += [output.detach() for output in outputs]
            backward_from(outputs)
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        seen.append(parameter.grad.clone())
                        parameter.sub_(parameter.grad * LEARNING_RATE)
        seen.append(torch.get_rng_state())
        return model, seen

    def _compare(self, actual: Any, expected: Any) -> None:
        tolerance = self.tolerance or TOLERANCE[self.dtype]
        scale = max(1.0, float(expected.abs().max())) if expected.numel() and expected.is_floating_point() else 1.0
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Runs a program on tensors and numbers of three lanes, apart and together, and compares what comes out."""

    tolerance: float = 1e-11

    def check(self, program: Program, *stacks: Tensor, numbers: Sequence[Sequence[Any]] = ()) -> None:
        """Compare values, types, gradients and the random numbers that were drawn.

        The program gets one lane of each stack, with gradient where it is floating, then one of each row of numbers.
        """
        num_lanes = len(stacks[0])
        alone = []
        for lane in range(num_lanes):
            leaves = [_leaf(stack[lane]) for stack in stacks]
            seen = _run(program, leaves, [row[lane] for row in numbers])
            alone.append((seen, [leaf.grad for leaf in leaves], torch.get_rng_state()))
        mode = make_mode(num_lanes)
        leaves = [_leaf(stack) for stack in stacks]
        with mode:
            together = _run(
                program, [lanes_of(leaf) for leaf in leaves], [PerLane(row, mode.roster) for row in numbers]
            )
        drawn = torch.get_rng_state()
        for lane, (seen, grads, drawn_alone) in enumerate(alone):
            assert torch.equal(drawn, drawn_alone), "lanes draw other random numbers than one lane alone"
            for actual, expected in zip(together, seen, strict=True):
                self._compare(value_of(actual, lane), expected)
            for leaf, expected in zip(leaves, grads, strict=True):
                self._compare(zeros_for_none(leaf.grad, leaf)[lane], zeros_for_none(expected, leaf[lane]))

    def _compare(self, actual: Any, expected: Any) -> None:
        if not isinstance(expected, Tensor):
            assert type(actual) is type(expected)
            assert actual == expected or actual == pytest.approx(expected, nan_ok=True)
            return
        tolerance = max(self.tolerance, TOLERANCE.get(expected.dtype, 0.0))
        torch.testing.assert_close(actual.detach(), expected.detach(), rtol=tolerance, atol=tolerance, equal_nan=True)


def make_mode(num_lanes: int, strategies: Strategies | None = None) -> LaneMode:
    return LaneMode(Roster([{} for _ in range(num_lanes)]), RULES, strategies)


def backward_from(outputs: Sequence[Any]) -> None:
    loss = sum(weighted(output) for output in outputs if isinstance(output, Tensor) and output.requires_grad)
    if isinstance(loss, Tensor):
        loss.backward()


def weighted(output: Tensor) -> Tensor:
    """A sum in which every element counts differently, so that no gradient is lost in symmetry."""
    weights = torch.linspace(0.5, 1.5, max(output.numel(), 1), dtype=torch.float64).to(output.dtype)
    return (output * weights[: output.numel()].view(output.shape)).sum()


def tensors_in(outputs: Any) -> list[Tensor]:
    return [item for item in flat(outputs) if isinstance(item, Tensor)]


def flat(outputs: Any) -> list[Any]:
    if isinstance(outputs, dict):
        return [item for part in outputs.values() for item in flat(part)]
    if isinstance(outputs, list | tuple):
        return [item for part in outputs for item in flat(part)]
    return [] if outputs is None else [outputs]


def value_of(value: Any, lane: int) -> Any:
    """What one lane sees of a value."""
    if isinstance(value, Tensor):
        return stack_of(value)[lane] if is_lane_tensor(value) else value
    return value.values[lane] if isinstance(value, PerLane) else value


def zeros_for_none(grad: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if grad is None else grad


def _leaf(value: Tensor) -> Tensor:
    leaf = value.detach().clone()
    return leaf.requires_grad_() if leaf.is_floating_point() else leaf


def _run(program: Program, leaves: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
    torch.manual_seed(5)
    outputs = flat(program(*leaves, *numbers))
    backward_from(outputs)
    return outputs
