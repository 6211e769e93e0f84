"""Whether the models of a training function start with pretrained weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import CannotScaleError, LanesLeave
from headwater.scale.traces import find_trained
from headwater.train.looking import EndAtOnce
from headwater.train.running import TrainingSetup, run_group
from headwater.train.scaling import Scaling
from headwater.trials import Lane, Surrogate, TrialGroup


def require_fresh(setup: TrainingSetup, lane: Lane, other_seed: int) -> None:
    """Refuse a function whose models start with pretrained weights.

    Those are weights that look trained and are the same under another seed, which is only tried where some look so.

    Raises:
        CannotScaleError: There are such weights.
    """
    trained = _find_trained(setup, lane)
    if not trained:
        return
    again = _find_trained(setup, replace(lane, seed=other_seed))
    names = [name for name, tensor in trained.items() if name in again and torch.equal(tensor, again[name])]
    if names:
        others = f" and {len(names) - 1} others" if len(names) > 1 else ""
        raise CannotScaleError(
            f"`{names[0]}`{others} start with pretrained weights: they are the same under two seeds, and their rows "
            "differ more than an initialiser leaves them; a surrogate has only a part of each, which means nothing; "
            "use them without training (features = trial.prepare_frozen(backbone)) and tune a head on them, or tune "
            "the model at full width with surrogate=None; hw.Surrogate(allow_pretrained=True) narrows it all the same"
        )


def _find_trained(setup: TrainingSetup, lane: Lane) -> Mapping[str, Tensor]:
    """Run the function with models as they are written until it calls one, and see what has traces of training then."""
    gallery = _Gallery()
    scaling = Scaling(Surrogate(), 1).watched(gallery.attach)
    run_group(replace(setup, scaling=scaling), TrialGroup(lanes=(lane,)), EndAtOnce())
    return gallery.trained


class _Gallery:
    """Looks at all models when the first of them is called: weights may be loaded after a model is prepared."""

    def __init__(self) -> None:
        self.trained: dict[str, Tensor] = {}
        self._models: list[nn.Module] = []

    def attach(self, model: nn.Module) -> None:
        """Wait for the model's call."""
        self._models.append(model)

        def look(called: nn.Module, args: Any) -> None:
            for place, one in enumerate(self._models):
                prefix = f"{place}." if place else ""
                self.trained |= {f"{prefix}{name}": value.detach().clone() for name, value in find_trained(one).items()}
            raise LanesLeave

        model.register_forward_pre_hook(look)
