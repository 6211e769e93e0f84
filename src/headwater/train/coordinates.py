"""The first steps of the training function at one width: how large the outputs of its modules are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headwater.errors import LanesLeave
from headwater.fuse.strategies import read_clock
from headwater.scale.output_sizes import mean_size, note_sizes
from headwater.train.running import TrainingSetup, run_group
from headwater.train.trial import Capture
from headwater.trials import Decision, Lane, Outcome, Report, TrialGroup

MOST_STEPS = 3
"""So many steps are taken at most; one is enough where no module starts with an output of zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSteps:
    """What the first steps of a training showed."""

    sizes: Mapping[str, float]
    """How much the outputs of each module differ between examples, in the first step where they are not zero."""
    num_passes: int | None
    """How often the function will go through its data; None where that is open."""
    error: str = ""
    """What the function raised; nothing where it went well."""


def take_first_steps(setup: TrainingSetup, lane: Lane, epoch_s: float = 0.0) -> FirstSteps:
    """Train one lane until every module has answered with something, or the setup's deadline is over.

    The end of the first epoch is waited for so long: a loop may leave its data loader before it has seen all data.

    Raises:
        CannotScaleError: The model has no surrogate of the setup's width.
    """
    assert setup.scaling is not None
    watch = _Watch(lambda: setup.deadline.is_over, epoch_s)
    scaling = setup.scaling.watched(watch.attach)
    try:
        ending = run_group(replace(setup, scaling=scaling), TrialGroup(lanes=(lane,)), watch)
    finally:
        watch.detach()
    error = ending.error.rstrip().splitlines()[-1] if ending.outcome is Outcome.RAISED else ""
    return FirstSteps(sizes=watch.sizes, num_passes=watch.count_passes(ending.num_steps_foreseen), error=error)


class _Watch:
    """Notes sizes, and ends the run when there is nothing more to see."""

    def __init__(self, is_over: Callable[[], bool], epoch_s: float) -> None:
        self.sizes: dict[str, float] = {}
        self.num_epochs: int | None = None
        self._is_over = is_over
        self._epoch_s = epoch_s
        self._begin_s = 0.0
        self._num_steps_of_epoch = 0
        self._num_steps = 0
        self._num_models = 0
        self._seen: dict[str, list[float]] = {}
        self._handles: list[RemovableHandle] = []

    def attach(self, model: nn.Module) -> None:
        """Watch a model; the names in a second one tell that it is."""
        prefix = f"{self._num_models}." if self._num_models else ""
        self._num_models += 1
        self._handles += note_sizes(model, self._seen, prefix, _spread_of)

    def detach(self) -> None:
        """Leave the models alone."""
        for handle in self._handles:
            handle.remove()

    def hinder(self, obstacle: str) -> None:
        """Take no interest."""

    def expect(self, num_epochs: int) -> None:
        """Note it."""
        self.num_epochs = num_epochs

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        """Take no interest."""

    def step(self, num_lanes: int) -> None:
        """Take the sizes of this step, where a module was silent before, and end the run if none is silent now."""
        self._begin_s = self._begin_s or read_clock()
        self._num_steps += 1
        for name, sizes in self._seen.items():
            self.sizes[name] = self.sizes.get(name) or sum(sizes) / len(sizes)
        self._seen.clear()
        awaits_report = not self._num_steps_of_epoch and read_clock() - self._begin_s < self._epoch_s
        if self._is_over() or (self._has_seen_all and not awaits_report):
            raise LanesLeave

    def report(self, reports: Sequence[Report], capture: Capture) -> Sequence[Decision]:
        """Go on, unless there is nothing more to see, or the function takes no steps at all."""
        self._num_steps_of_epoch = self._num_steps_of_epoch or self._num_steps
        is_over = not self._num_steps or self._has_seen_all
        return [Decision.STOP if is_over else Decision.CONTINUE] * len(reports)

    @property
    def _has_seen_all(self) -> bool:
        return all(self.sizes.values()) or self._num_steps >= MOST_STEPS

    def count_passes(self, num_batches: int | None) -> int | None:
        """Return how often the function will go through its data; epochs that do so have so many batches in all."""
        if not (self.num_epochs and num_batches and self._num_steps_of_epoch):
            return None if num_batches is None else self.num_epochs
        return math.ceil(self.num_epochs * self._num_steps_of_epoch / (num_batches / self.num_epochs))


def _spread_of(output: Tensor) -> float:
    """How far outputs lie from their mean over the examples, which depends on chance much more than they do."""
    centred = output - output.mean(0) if output.dim() else output
    return mean_size(centred) or mean_size(output)
