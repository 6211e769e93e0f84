"""What a loop is: a training function, and what of it is tuned."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import headwater as hw

LR = hw.loguniform(1e-3, 1e-1)


@dataclass(frozen=True)
class Loop:
    name: str
    train: Callable[[hw.Trial], None]
    space: dict[str, Any]
    metric: str
    mode: str


LOOPS: list[Loop] = []


def loop(metric: str = "loss", mode: str = "min", **space: Any) -> Callable[..., Any]:
    """Enter a function into the list, under its own name."""

    def enter(function: Callable[[hw.Trial], None]) -> Callable[[hw.Trial], None]:
        LOOPS.append(Loop(function.__name__, function, {"lr": LR, **space}, metric, mode))
        return function

    return enter
