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
from headwater.space.sampled import LogRandInt, SampleFrom, lograndint, sample_from
from headwater.space.space import Draw, Kind, Space, SpaceRow

__all__ = [
    "Choice",
    "Config",
    "Domain",
    "Draw",
    "Grid",
    "Kind",
    "LogRandInt",
    "LogUniform",
    "QLogUniform",
    "QUniform",
    "RandInt",
    "SampleFrom",
    "Space",
    "SpaceRow",
    "Uniform",
    "choice",
    "grid",
    "lograndint",
    "loguniform",
    "qloguniform",
    "quniform",
    "randint",
    "sample_from",
    "show_plain",
    "uniform",
]
