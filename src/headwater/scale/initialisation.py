"""How a surrogate starts: with blocks of its target's own initial weights, spread as its width wants it.

The target starts as the user wrote it. Activations keep their size if the weights that sum over a width are spread as
one over the root of it, so those of a surrogate are larger than the target's by m_in^-½; all others are as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from headwater.errors import CannotScaleError
from headwater.scale.roles import Ratio, Role

_SUMMING = (Role.HIDDEN, Role.READOUT)


def spread_weights(surrogate: nn.Module, ratios: Mapping[str, Ratio]) -> None:
    """Spread the weights of a surrogate, which are blocks of its target's, as the rules want it.

    Args:
        surrogate: The narrow model, filled with blocks of the target's weights.
        ratios: Those of the surrogate to its target.

    Raises:
        CannotScaleError: A weight that sums over a width does not start at random around zero, so that no rule says how
            it goes with width.
    """
    with torch.no_grad():
        for name, parameter in surrogate.named_parameters():
            if ratios[name].role in _SUMMING:
                _require_centred(name, parameter)
                parameter.mul_(ratios[name].m_in ** -0.5)


def _require_centred(name: str, weight: Tensor) -> None:
    """Refuse what is no sample around zero: a constant, an identity, a matrix with a mean."""
    values = weight.detach().flatten().float()
    is_pattern = weight.dim() == 2 and len(weight) > 4 and int(values.count_nonzero()) in range(1, len(weight) + 1)
    spread = float(values.std(correction=0))
    margin = max(0.5, 6 / values.numel() ** 0.5)
    if is_pattern or float(values.mean().abs()) > margin * spread:
        raise CannotScaleError(
            f"`{name}` does not start at random around zero (mean {float(values.mean()):.3g}, spread {spread:.3g}), "
            "and no rule says how such a matrix goes with width; draw it at random, or tune without a surrogate"
        )
