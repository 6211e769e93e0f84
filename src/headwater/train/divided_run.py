"""One call of a model whose rows are computed by several ranks, or by one of them in turn."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import CannotDivideError, RanksLostError, TrialError
from headwater.torch_private import TreeSpec, keeps_graph
from headwater.train.calls import Call, PartOfCall
from headwater.train.exchange import Exchange, join_rows
from headwater.train.part_draws import PartDraws, RowDims, WholeDraws, find_row_dim
from headwater.train.part_reductions import PartReductions
from headwater.train.ranks import Part, RankGroup
from headwater.train.seeding import Randomness


@dataclass(slots=True)
class Layout:
    """How calls of one kind are divided: which dimensions of draws and of answers count rows."""

    draws: RowDims = field(default_factory=RowDims)
    answer: list[int | None] = field(default_factory=list)
    """For each tensor of the answer; None for one that is the same for all rows."""
    learns: list[bool] = field(default_factory=list)
    """For each tensor of the answer, whether gradients go through it."""
    num_calls: int = 0


@dataclass(frozen=True, slots=True)
class WholeRun:
    """What the whole batch has given, for a layout to be learnt from."""

    tensors: Sequence[Tensor]
    draws: WholeDraws


class Snapshot:
    """Where random numbers stand, and what the buffers of a model hold."""

    def __init__(self, model: nn.Module) -> None:
        self.randomness = Randomness()
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]

    def restore(self) -> None:
        """Bring both back."""
        self.randomness.restore()
        for buffer, values in self._buffers:
            buffer.data.copy_(values)


class DividedRun:
    """The rows of one rank: computed in one go, or in micro-batches whose graphs are built again for gradients."""

    def __init__(
        self, call: Call, group: RankGroup, num_micro: int, layout: Layout, *, whole: WholeRun | None = None
    ) -> None:
        """Learn the layout, if a run of the whole batch is given to learn from."""
        self.part = Part(0, call.num_rows, call.num_rows).split(len(group))[group.rank]
        self.has_normed = False
        """Whether a BatchNorm took statistics of its batch."""
        self._call = call
        self._group = group
        self._layout = layout
        self._whole = whole
        self._parts = self.part.split(num_micro)
        self._start = Randomness()
        self._precision = _precision_of(group.device)
        self._reads: list[list[float]] = []
        self._keeps = num_micro == 1 and torch.is_grad_enabled()
        self._kept: tuple[PartOfCall, list[Tensor]] | None = None

    def compute(self) -> tuple[list[Any], TreeSpec]:
        """Return the leaves of the answer for this rank's rows, and how they belong together."""
        answers = []
        for part in self._parts:
            if len(self._parts) > 1:
                self._start.restore()
            with torch.set_grad_enabled(self._keeps):
                one, leaves, spec = self._compute_part(part)
            answers.append(leaves)
        if any(reads != self._reads[0] for reads in self._reads):
            raise CannotDivideError("it reads a value from its batch that differs between parts of it")
        if self._keeps:
            self._keep(one, tensors_of(leaves))
        return self._join(answers), spec

    def compute_together(self, exchange: Exchange) -> tuple[list[Any], TreeSpec, list[Tensor]]:
        """Return also the tensors of the answer for the rows of all ranks.

        Raises:
            CannotDivideError: A rank could not compute its rows, for whatever reason.
        """
        try:
            leaves, spec = self.compute()
        except RanksLostError:
            raise
        except Exception as error:  # of the user's model; where all rows are computed, it raises again
            with suppress(CannotDivideError):
                exchange.join(self._key, None, [], self.part)
            raise CannotDivideError(str(error)) from error
        return leaves, spec, exchange.join(self._key, tensors_of(leaves), self._layout.answer, self.part)

    @property
    def _key(self) -> Hashable:
        return self._call.kind, tuple(tuple(tensor.shape) for tensor in tensors_of(self._call.leaves))

    def _keep(self, one: PartOfCall, tensors: list[Tensor]) -> None:
        self._kept = (one, tensors)
        self._layout.learns = [tensor.requires_grad for tensor in tensors]

    def find_strays(self) -> list[Tensor]:
        """Return what else would get gradients by this call, besides parameters and arguments."""
        if self._kept is None:
            self._keep(*self._compute_again(self._parts[0]))
        assert self._kept is not None
        one, tensors = self._kept
        return list(one.strays(tensors))

    @property
    def fixed(self) -> list[int]:
        """The places of those tensors of the answer that no gradient goes through."""
        return [place for place, learns in enumerate(self._layout.learns) if not learns]

    def differentiate(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the gradients of the arguments that want one and of all parameters, for the whole batch.

        Raises:
            TrialError: Gradients of gradients are asked for.
        """
        if torch.is_grad_enabled():
            raise TrialError(
                f"the gradients of {type(self._call.model).__name__} are to be differentiated again "
                "(create_graph=True), which a trial on several devices or with micro-batches cannot do; "
                "train it on one device"
            )
        if self._keeps and self._kept is None:
            raise RuntimeError("this call's graph is gone; give backward retain_graph=True to go through it twice")
        by_part = [self._differentiate_part(part, gradients) for part in self._parts]
        if not keeps_graph():
            self._kept = None
        num_inputs = len(self._call.inputs)
        by_input = [list(each) for each in zip(*(found[:num_inputs] for found in by_part), strict=True)]
        by_param = [_add(each) for each in zip(*(found[num_inputs:] for found in by_part), strict=True)]
        inputs = [self._sum_input(leaf, each) for leaf, each in zip(self._call.inputs, by_input, strict=True)]
        return [*inputs, *self._sum_params(by_param)]

    def _compute_part(self, part: Part) -> tuple[PartOfCall, list[Any], TreeSpec]:
        one = self._call.cut(part)
        with self._computing(part, self._whole):
            leaves, spec = one.run()
        self._learn_answer(part, tensors_of(leaves))
        return one, leaves, spec

    def _compute_again(self, part: Part) -> tuple[PartOfCall, list[Tensor]]:
        """Build the graph of a micro-batch, and leave no other trace."""
        now = Snapshot(self._call.model)
        self._start.restore()
        one = self._call.cut(part)
        with torch.enable_grad(), _as_precise(self._group.device, self._precision), self._computing(part):
            leaves, _ = one.run()
        now.restore()
        return one, tensors_of(leaves)

    @contextmanager
    def _computing(self, part: Part, whole: WholeRun | None = None) -> Iterator[PartDraws]:
        reads: list[float] = []
        self._reads.append(reads)

        def agree(value: float) -> bool:
            reads.append(value)
            return len({repr(row) for row in self._group.gather_numbers(value)}) == 1

        is_one = len(self._parts) == 1
        reductions = PartReductions(
            self._group, sums_losses=is_one, uses_running=self._whole is not None and not is_one
        )
        draws = PartDraws(part, self._layout.draws, agree, None if whole is None else whole.draws)
        with self._group.dividing(), draws, reductions:
            yield draws
        self.has_normed = self.has_normed or reductions.has_normed

    def _learn_answer(self, part: Part, own: Sequence[Tensor]) -> None:
        if self._whole is None:
            if len(own) != len(self._layout.answer):
                raise CannotDivideError("its answers have not always as many tensors")
            return
        if len(own) != len(self._whole.tensors):
            raise CannotDivideError("it returns other tensors for a part of a batch than for the whole")
        pairs = zip(self._whole.tensors, own, strict=True)
        self._layout.answer = [find_row_dim(one.shape, two.shape, part) for one, two in pairs]

    def _join(self, answers: Sequence[list[Any]]) -> list[Any]:
        """Put micro-batches together."""
        if len(answers) == 1:
            return answers[0]
        dims = iter(self._layout.answer)
        joined = []
        for leaves in zip(*answers, strict=True):
            dim = next(dims) if isinstance(leaves[0], Tensor) else None
            joined.append(leaves[0] if dim is None else torch.cat(leaves, dim))
        return joined

    def _differentiate_part(self, part: Part, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        one, tensors = self._kept or self._compute_again(part)
        cut = [self._cut_gradient(*pair, part) for pair in zip(gradients, self._layout.answer, strict=True)]
        chosen = [place for place, gradient in enumerate(cut) if gradient is not None and tensors[place].requires_grad]
        wanted = [*one.inputs, *self._call.params]
        if not chosen:
            return [None] * len(wanted)
        with self._computing_again(part):
            found = torch.autograd.grad(
                [tensors[place] for place in chosen],
                wanted,
                [cut[place] for place in chosen],
                retain_graph=keeps_graph(),
                allow_unused=True,
            )
        return list(found)

    @contextmanager
    def _computing_again(self, part: Part) -> Iterator[None]:
        """Let a checkpoint inside the model draw what it drew before."""
        if not self._layout.draws.draws_again:
            yield
            return
        with self._computing(part) as draws:
            draws.start_again()
            yield

    def _cut_gradient(self, gradient: Tensor | None, dim: int | None, part: Part) -> Tensor | None:
        """Take the rows of a part; what is the same for all rows is the first part's business."""
        if gradient is None:
            return None
        if dim is None:
            return gradient if part.start == 0 else torch.zeros_like(gradient)
        num_each = gradient.shape[dim] // part.total
        return gradient.narrow(dim, num_each * part.start, num_each * len(part))

    def _sum_input(self, leaf: Tensor, by_part: Sequence[Tensor | None]) -> Tensor:
        if not self._call.has_rows(leaf):
            return self._group.sum([_filled(_add(by_part), leaf)])[0]
        rows = [
            leaf.new_zeros(len(part), *leaf.shape[1:]) if found is None else found
            for part, found in zip(self._parts, by_part, strict=True)
        ]
        return join_rows(self._group, torch.cat(rows), self.part.total)

    def _sum_params(self, own: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Sum over ranks; a parameter that no rank has used keeps no gradient, as alone."""
        params = self._call.params
        if not params:
            return []
        is_used = params[0].new_tensor([float(gradient is not None) for gradient in own])
        filled = [_filled(*pair) for pair in zip(own, params, strict=True)]
        *sums, num_users = self._group.sum([*filled, is_used])
        return [one if count else None for one, count in zip(sums, num_users.tolist(), strict=True)]


def tensors_of(leaves: Sequence[Any]) -> list[Tensor]:
    """Return the tensors among the leaves of an answer."""
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _add(gradients: Sequence[Tensor | None]) -> Tensor | None:
    found = [gradient for gradient in gradients if gradient is not None]
    return sum(found[1:], found[0]) if found else None


def _filled(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def _precision_of(device: torch.device) -> torch.dtype | None:
    """Return what autocast computes in now; None where it is off."""
    is_on = torch.is_autocast_enabled(device.type)
    return torch.get_autocast_dtype(device.type) if is_on else None


def _as_precise(device: torch.device, dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)
