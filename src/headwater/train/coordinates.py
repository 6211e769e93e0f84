"""The first steps of the training function at one width: how large the outputs of its modules are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headwater.errors import LanesLeave
from headwater.scale.checks import mean_size, note_sizes
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


def take_first_steps(setup: TrainingSetup, lane: Lane) -> FirstSteps:
    """Train one lane until every module has answered with something, or the setup's deadline is over.

    Raises:
        CannotScaleError: The model has no surrogate of the setup's width.
    """
    assert setup.scaling is not None
    watch = _Watch(lambda: setup.deadline.is_over)
    scaling = setup.scaling.watched(watch.attach)
    try:
        ending = run_group(replace(setup, scaling=scaling), TrialGroup(lanes=(lane,)), watch)
    finally:
        watch.detach()
    error = ending.error.rstrip().splitlines()[-1] if ending.outcome is Outcome.RAISED else ""
    num_passes = None if ending.num_steps_foreseen is None else watch.num_epochs
    return FirstSteps(sizes=watch.sizes, num_passes=num_passes, error=error)


class _Watch:
    """Notes sizes, and ends the run when there is nothing more to see."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self.sizes: dict[str, float] = {}
        self.num_epochs: int | None = None
        self._is_over = is_over
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

    def expect(self, num_epochs: int) -> None:
        """Note it."""
        self.num_epochs = num_epochs

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        """Take no interest."""

    def step(self, num_lanes: int) -> None:
        """Take the sizes of this step, where a module was silent before, and end the run if none is silent now."""
        self._num_steps += 1
        for name, sizes in self._seen.items():
            self.sizes[name] = self.sizes.get(name) or sum(sizes) / len(sizes)
        self._seen.clear()
        if all(self.sizes.values()) or self._num_steps == MOST_STEPS or self._is_over():
            raise LanesLeave

    def report(self, reports: Sequence[Report], capture: Capture) -> Sequence[Decision]:
        """Go on, unless the function takes no steps at all."""
        return [Decision.CONTINUE if self._num_steps else Decision.STOP] * len(reports)


def _spread_of(output: Tensor) -> float:
    """How far outputs lie from their mean over the examples, which depends on chance much more than they do."""
    centred = output - output.mean(0) if output.dim() else output
    return mean_size(centred) or mean_size(output)
