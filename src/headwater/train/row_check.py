"""Whether the rows of a model's batch can be computed apart: tried, by computing one batch both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isclose
from typing import TypeVar

import torch
from torch import Tensor, nn

from headwater.errors import CannotDivideError, RanksLostError, TrialError
from headwater.torch_private import MODULE_TABLES, BatchNorm, tree_leaves
from headwater.train.calls import Call, flatten_answer
from headwater.train.divided_run import DividedRun, Layout, Snapshot, WholeRun, tensors_of
from headwater.train.exchange import Exchange
from headwater.train.originals import Originals
from headwater.train.part_draws import WholeDraws
from headwater.train.part_reductions import PartReductions
from headwater.train.ranks import RankGroup, Ranks

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class _Whole:
    """What is left when a batch was computed as a whole."""

    run: WholeRun
    buffers: Sequence[Tensor]
    after: Snapshot


class RowCheck:
    """Computes a call whole and divided, and leaves no trace of either."""

    def __init__(self, call: Call, exchange: Exchange, num_micro: int) -> None:
        self._call = call
        self._exchange = exchange
        self._group = exchange.group
        self._num_micro = num_micro

    def learn(self) -> tuple[Layout | None, str]:
        """Return how calls of this kind are divided; or None, and why they cannot be.

        Raises:
            TrialError: The ranks are not in the same call.
        """
        self._require_alike()
        layout = Layout()
        try:
            whole = self._untraced(self._compute_whole)
            reason = self._untraced(lambda: self._compare(layout, whole))
        except RanksLostError:
            raise
        except Exception as error:  # of the user's model; where all rows are computed, it raises again
            reason = str(error) if isinstance(error, CannotDivideError) else f"{type(error).__name__}: {error}"
        is_well = [ok for (ok,) in self._group.gather_numbers(not reason)]
        return (layout, "") if all(is_well) else (None, reason or "another rank has found that it cannot be")

    def _untraced(self, compute: Callable[[], Answer]) -> Answer:
        """Compute something, and put the model and random numbers back to where they were."""
        originals, before = Originals(), Snapshot(self._call.model)
        originals.keep(self._call.model)
        try:
            return compute()
        finally:
            originals.restore()
            before.restore()

    def _compute_whole(self) -> _Whole:
        model = self._call.model
        held = list(_attributes(model))
        draws = WholeDraws()
        alone = PartReductions(RankGroup(Ranks(0, 1)), sums_losses=False, uses_running=self._num_micro > 1)
        with torch.no_grad(), self._group.dividing(), draws, alone:
            answer = self._call.run()
        if any(all(tensor is not known for known in held) for tensor in _attributes(model)):
            raise CannotDivideError("it keeps tensors of a call in its attributes")
        run = WholeRun(tensors_of(flatten_answer(answer)[0]), draws)
        return _Whole(run, self._copy_buffers(), Snapshot(model))

    def _copy_buffers(self) -> list[Tensor]:
        """Copy what must not depend on how rows are divided: in micro-batches, statistics of BatchNorm do."""
        left_out = BatchNorm if self._num_micro > 1 else ()
        modules = [module for module in self._call.model.modules() if not isinstance(module, left_out)]
        return [buffer.clone() for module in modules for buffer in module.buffers(recurse=False)]

    def _compare(self, layout: Layout, whole: _Whole) -> str:
        """Compute the call divided; return in what it differs from the whole."""
        run = DividedRun(self._call, self._group, self._num_micro, layout, whole=whole.run)
        _, _, tensors = run.compute_together(self._exchange)
        buffers = self._copy_buffers()
        if not Snapshot(self._call.model).randomness.stands_as(whole.after.randomness):
            return "it draws other random numbers for a part of a batch than for the whole"
        if not all(_is_close(*pair) for pair in zip(tensors, whole.run.tensors, strict=True)):
            return "its rows depend on each other"
        if not all(_is_close(*pair) for pair in zip(buffers, whole.buffers, strict=True)):
            return "its buffers depend on all rows"
        if layout.draws.draws_again and self._group.device.type != "cpu":
            return "it draws random numbers in checkpoints"
        if torch.is_grad_enabled() and run.find_strays():
            return "it computes with tensors that learn and are not among its parameters"
        return ""

    def _require_alike(self) -> None:
        """Make sure that all ranks are in the same call, with the same weights and the same batch."""
        tensors = [*self._call.model.parameters(), *tensors_of(self._call.leaves)]
        prints = self._group.gather_numbers(*_fingerprint(tensors))
        pairs = [pair for row in prints for pair in zip(row, prints[0], strict=True)]
        if not all(isclose(*pair, rel_tol=1e-5) for pair in pairs):
            raise TrialError(
                f"the ranks of a trial call {type(self._call.model).__name__} with different batches or weights; the "
                "function must do the same in each of them: give every generator of random numbers a seed"
            )


def _is_close(own: Tensor, whole: Tensor) -> bool:
    """Tell whether tensors agree but for rounding, which grows with the sizes that are summed over."""
    if own.shape != whole.shape or not whole.is_floating_point():
        return torch.equal(own, whole)
    eps = torch.finfo(whole.dtype).eps
    if whole.is_cuda and whole.dtype == torch.float32:
        eps = 2.0**-10  # convolutions round to so many digits there
    largest = whole.abs().nan_to_num().max().item() if whole.numel() else 0.0
    return torch.allclose(own, whole, rtol=0, atol=largest * eps**0.5, equal_nan=True)


def _fingerprint(tensors: Sequence[Tensor]) -> Iterator[float]:
    """Yield numbers by which tensors with other values, or in another order, can be told apart."""
    for tensor in tensors:
        flat = tensor.detach().reshape(-1)
        values = (flat.abs() if flat.is_complex() else flat).double().nan_to_num()
        yield (values * torch.linspace(1, 2, len(values), dtype=torch.float64, device=values.device)).sum().item()


def _attributes(model: nn.Module) -> Iterator[Tensor]:
    """Yield the tensors that modules hold besides parameters and buffers."""
    for module in model.modules():
        others = [value for name, value in vars(module).items() if name not in MODULE_TABLES]
        yield from (leaf for leaf in tree_leaves(others) if isinstance(leaf, Tensor))
