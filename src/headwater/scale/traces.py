"""Traces that training leaves in weights: what no initialiser gives."""

from __future__ import annotations

from torch import Tensor, nn

from headwater.torch_private import NormBase, parameters_of

_NORMS = (NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_FEWEST = 16
"""A matrix with fewer rows or columns says too little."""
_DEVIATIONS = 10.0
"""So many standard deviations are no chance, among the thousands of matrices of a large model either."""


def find_trained(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters that do not look as an initialiser leaves them.

    Initialisers draw the entries of a matrix alike, so that its rows are equally long but for chance, and its columns
    too; training makes some longer. Gains and shifts of norms start with one value for all. Little training cannot be
    seen so, and a matrix whose blocks are drawn with different spreads looks trained.
    """
    trained: dict[str, Tensor] = {}
    for path, module in model.named_modules():
        for key, parameter in parameters_of(module).items():
            if parameter is not None and _looks_trained(parameter.detach(), isinstance(module, _NORMS)):
                trained[f"{path}.{key}".removeprefix(".")] = parameter
    return trained


def _looks_trained(values: Tensor, is_norm: bool) -> bool:
    if is_norm or values.dim() < 2:
        return is_norm and values.numel() >= _FEWEST and float(values.max() - values.min()) > 0
    matrix = values.flatten(1).double()
    return _has_long_rows(matrix) or _has_long_rows(matrix.T)


def _has_long_rows(matrix: Tensor) -> bool:
    """Whether rows differ in length by more than chance; rows of zeros, such as padding, do not count."""
    squares = matrix[matrix.any(1)].square()
    if min(squares.shape) < _FEWEST:
        return False
    by_chance = float(squares.var()) / squares.shape[1]
    excess = float(squares.mean(1).var()) / by_chance if by_chance > 0 else 0.0
    return bool(excess > 1 + _DEVIATIONS * (2 / (len(squares) - 1)) ** 0.5)
