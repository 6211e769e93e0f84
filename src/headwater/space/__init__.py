"""What may vary: domains, the space they make up, and the configurations drawn from it."""

from headwater.space.configuration import Config, show_plain
from headwater.space.domains import (
    Choice,
    Domain,
    Grid,
    LogUniform,
    QLogUniform,
    QUniform,
    RandInt,
    Uniform,
    choice,
    grid,
    loguniform,
    qloguniform,
    quniform,
    randint,
    uniform,
)
from headwater.space.space import Draw, Kind, Space, SpaceRow

__all__ = [
    "Choice",
    "Config",
    "Domain",
    "Draw",
    "Grid",
    "Kind",
    "LogUniform",
    "QLogUniform",
    "QUniform",
    "RandInt",
    "Space",
    "SpaceRow",
    "Uniform",
    "choice",
    "grid",
    "loguniform",
    "qloguniform",
    "quniform",
    "randint",
    "show_plain",
    "uniform",
]
