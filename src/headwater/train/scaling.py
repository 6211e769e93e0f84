"""Models at the width that a run trains at, and learning rates that go with it.

To make a model narrower, one has to see what it is called with. So the first time, the training function runs for one
lane with the model as written until it calls it; what was seen serves all models of that structure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import WidthsWanted
from headwater.fuse.per_lane import PerLane, PerLaneText
from headwater.scale.parametrization import SplitGroups, forward_factors, multipliers, scale_schedule, split_groups
from headwater.scale.places import Structure, structure_of
from headwater.scale.roles import Ratio, find_ratios, shapes_of
from headwater.scale.shrinking import Resize, Shrinker
from headwater.scale.starting import set_forward_factors, spread_readouts, start_surrogate, start_target
from headwater.trials import Surrogate


@dataclass(frozen=True, slots=True)
class Fitted:
    """A model at the width of a run, and how its parameters compare with those at the width the rules count from."""

    model: nn.Module
    ratios: Mapping[str, Ratio]


class Scaling:
    """Gives every model the width of one run, 1/scale of what it was written with."""

    def __init__(self, surrogate: Surrogate, scale: int) -> None:
        assert isinstance(surrogate.scale, int)
        self.scale = scale
        self._base_scale = surrogate.scale
        self._min_width = surrogate.min_width
        self._decay_exponent = surrogate.decay_exponent
        self._is_zero = surrogate.zero_readout
        self._shrinker = Shrinker()
        self._resizes: dict[Structure, Mapping[int, Resize]] = {}
        self._base_shapes: dict[Structure, Mapping[str, Sequence[int]]] = {}

    def fit(self, model: nn.Module) -> Fitted:
        """Return the model at the width of this run, ready to train; the given one may be used up.

        Raises:
            WidthsWanted: No model of this structure was seen at work.
            CannotScaleError: It cannot be resized, or no rule says how its settings go with width.
        """
        if self._base_scale == 1 and self.scale == 1:
            return Fitted(model, {})
        key = structure_of(model)
        if key not in self._resizes:
            raise WidthsWanted(key)
        with torch._C.DisableTorchFunction():  # the lane mode has no business here
            return self._fit(model, key)

    def knows(self, model: nn.Module) -> bool:
        """Tell whether a model of this structure was seen at work."""
        return structure_of(model) in self._resizes

    def watch(self, model: nn.Module) -> None:
        """Learn from the model's first call, and end that call with WidthsWanted."""
        key = structure_of(model)

        def look(seen: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            handle.remove()
            plan = partial(self._shrinker.plan, seen, args=args, kwargs=kwargs, min_width=self._min_width)
            self._resizes[key] = {scale: plan(scale) for scale in {self.scale, self._base_scale} - {1}}
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
        factors = multipliers(kind, ratios, decay_exponent=self._decay_exponent)
        return split_groups(params, options, names, factors)

    def _fit(self, model: nn.Module, key: Structure) -> Fitted:
        own = model if self.scale == 1 else self._shrink(model, self.scale, key)
        if key not in self._base_shapes:
            base = own if self.scale == self._base_scale else self._shrink(model, self._base_scale, key)
            self._base_shapes[key] = shapes_of(base)
        ratios = find_ratios(own, self._base_shapes[key])
        if own is model:
            wider, m_in = ratios, {name: ratio.m_in for name, ratio in ratios.items()}
            start_target(own, ratios, is_zero=self._is_zero)
        else:
            wider = find_ratios(model, shapes_of(own))
            m_in = {name: ratio.m_in * ratios[name].m_in for name, ratio in wider.items()}
            start_surrogate(own, wider, is_zero=self._is_zero)
            set_forward_factors(own, forward_factors(own, ratios))
        if not self._is_zero:
            spread_readouts(own, wider, m_in)
        return Fitted(own, ratios)

    def _shrink(self, model: nn.Module, scale: int, key: Structure) -> nn.Module:
        if scale == 1:
            return model
        return self._resizes[key][scale](model)


def scheduler_options(kind: Any, options: Mapping[str, Any], groups: SplitGroups | None) -> dict[str, Any]:
    """Return a scheduler's arguments for an optimizer whose groups were split."""
    return dict(options) if groups is None or not groups.factors else scale_schedule(kind, options, groups)
