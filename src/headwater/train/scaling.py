"""Models at the width that a run trains at, and learning rates that go with it.

At full width everything is left as the user wrote it. To make a model narrower, one has to see what it is called with.
So the first time, the training function runs for one lane with the model as written until it calls it; what was seen
serves all models of that structure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from headwater.errors import WidthsWanted
from headwater.fuse.per_lane import PerLane, PerLaneText
from headwater.scale.initialisation import spread_weights
from headwater.scale.parametrization import SplitGroups, multipliers, scale_schedule, split_groups
from headwater.scale.places import Structure, structure_of
from headwater.scale.roles import Ratio, Role, find_ratios, shapes_of
from headwater.torch_private import DisableTorchFunction
from headwater.trials import Surrogate

if TYPE_CHECKING:
    from headwater.scale.shrinking import Resize


@dataclass(frozen=True, slots=True)
class Fitted:
    """A model at the width of a run, and how its parameters compare with those of the target, which has no ratios."""

    model: nn.Module
    ratios: Mapping[str, Ratio]


class Scaling:
    """Gives every model the width of one run, 1/scale of what it was written with."""

    def __init__(self, surrogate: Surrogate, scale: int) -> None:
        from headwater.scale.shrinking import Shrinker  # imports sympy, which takes a third as long as torch itself

        self.scale = scale
        self._min_width = surrogate.min_width
        self._decay_exponent = surrogate.decay_exponent
        self._roles = {name: Role(role) for name, role in surrogate.roles.items()}
        self._shrinker = Shrinker()
        self._resizes: dict[Structure, Resize] = {}
        self._show: Callable[[nn.Module], None] = lambda model: None

    def watched(self, show: Callable[[nn.Module], None]) -> Scaling:
        """Return the same that shows every model before it trains."""
        watched = copy(self)
        watched._show = show
        return watched

    def fit(self, model: nn.Module) -> Fitted:
        """Return the model at the width of this run, ready to train; the given one may be used up.

        Raises:
            WidthsWanted: No model of this structure was seen at work.
            CannotScaleError: It cannot be resized, or no rule says how its settings go with width.
        """
        fitted = Fitted(model, {}) if self.scale == 1 else self._fit(model)
        self._show(fitted.model)
        return fitted

    def _fit(self, model: nn.Module) -> Fitted:
        key = structure_of(model)
        if key not in self._resizes:
            raise WidthsWanted(key)
        with DisableTorchFunction():  # the lane mode has no business here
            surrogate = self._resizes[key](model)
            ratios = find_ratios(surrogate, shapes_of(model), self._roles)
            spread_weights(surrogate, ratios)
        return Fitted(surrogate, ratios)

    def knows(self, model: nn.Module) -> bool:
        """Tell whether a model of this structure was seen at work."""
        return structure_of(model) in self._resizes

    def watch(self, model: nn.Module) -> None:
        """Learn from the model's first call, and end that call with WidthsWanted."""
        key = structure_of(model)

        def look(seen: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            handle.remove()
            self._resizes[key] = self._shrinker.plan(seen, self.scale, args, kwargs, min_width=self._min_width)
            raise WidthsWanted

        handle = model.register_forward_pre_hook(look, with_kwargs=True)

    def split(self, kind: Any, params: Any, options: Mapping[str, Any], models: Sequence[Fitted]) -> SplitGroups:
        """Return the parameter groups for an optimizer, with the learning rates that go with the width."""
        ratios = {
            f"{place}.{name}": ratio for place, fitted in enumerate(models) for name, ratio in fitted.ratios.items()
        }
        names: dict[str, Tensor] = {
            f"{place}.{name}": parameter
            for place, fitted in enumerate(models)
            for name, parameter in fitted.model.named_parameters()
            if fitted.ratios
        }
        if all(ratio == Ratio(role=ratio.role) for ratio in ratios.values()):
            return SplitGroups(params=params)
        kind = kind.one() if isinstance(kind, PerLane | PerLaneText) else kind
        found = multipliers(kind, ratios, options=options, decay_exponent=self._decay_exponent)
        return split_groups(params, options, names, found)


def scheduler_options(kind: Any, options: Mapping[str, Any], groups: SplitGroups | None) -> dict[str, Any]:
    """Return a scheduler's arguments for an optimizer whose groups were split."""
    return dict(options) if groups is None or not groups.factors else scale_schedule(kind, options, groups)
