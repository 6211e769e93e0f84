"""How numbers read: short, aligned within a column, with their unit."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"
_NO_VALUE = "·"
_SCALES = ((1e-6, "ns", 1e9), (1e-3, "µs", 1e6), (1.0, "ms", 1e3))
_LONGEST = 24


def show_number(value: float, num_digits: int = 4) -> str:
    """Write a number with at most so many significant digits: 0.0123, 1.2e-5, 1234."""
    if isinstance(value, int):
        return str(value)
    if not 0 < abs(value) < 1e-3 and "e" not in (text := f"{value:.{num_digits}g}"):
        return text
    mantissa, exponent = f"{value:.{num_digits - 1}e}".split("e")
    digits = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{digits}e{int(exponent)}"


def show_column(values: Sequence[float]) -> list[str]:
    """Write the numbers of a column alike: as many decimals for all, unless they span orders of magnitude."""
    sizes = [abs(value) for value in values if math.isfinite(value) and value != 0]
    if not sizes or all(isinstance(value, int) for value in values):
        return [show_number(value) for value in values]
    least, most = min(sizes), max(sizes)
    if most >= 1e5 or most < 1e-3 or least / most <= 1e-2:
        return [show_number(value, 3) for value in values]
    num_decimals = max(0, 3 - math.floor(math.log10(most)))
    return [f"{value:.{num_decimals}f}" for value in values]


def show_cell(value: object) -> str:
    """Write a hyperparameter: numbers as above, anything else as short text."""
    if isinstance(value, float):
        return show_number(value)
    text = f"[{', '.join(map(show_cell, value))}]" if isinstance(value, list) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def show_cells(values: Sequence[object]) -> list[str]:
    """Write the hyperparameters of a column, numbers alike."""
    numbers = [value for value in values if isinstance(value, float | int) and not isinstance(value, bool)]
    return show_column(numbers) if len(numbers) == len(values) else [show_cell(value) for value in values]


def show_count(count: int, noun: str) -> str:
    """Write how many there are of something: 1 lane, 2 lanes."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def show_standing(metric: str, value: float, number: int) -> str:
    """Write how a trial stands, alike wherever the best one is named: accuracy 0.9018 (trial 19)."""
    return f"{metric} {show_number(value)} (trial {number})"


def show_seconds(seconds: float) -> str:
    """Write a stretch of time as a person says it: 850 µs, 3.2 s, 4 min 10 s, 2 h 5 min."""
    if seconds < 1:
        unit, scale = next((unit, scale) for limit, unit, scale in _SCALES if seconds < limit)
        return f"{show_number(seconds * scale, 3)} {unit}"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def show_clock(seconds: float) -> str:
    """Write a stretch of time as a clock does, in a width that hardly changes: 0:07, 12:30, 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def show_bytes(count: float) -> str:
    """Write a size in memory: 640 KiB, 1.2 GiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB" if count < 1000 else f"{count:.0f} GiB"


def draw_sparkline(values: Sequence[float], width: int = 40) -> str:
    """Draw a curve in one line, at most so wide; a dot stands where a value is not finite."""
    step = max(1.0, len(values) / width)
    points = [values[min(int((place + 1) * step), len(values)) - 1] for place in range(int(len(values) / step))]
    finite = [value for value in points if math.isfinite(value)]
    if not finite:
        return _NO_VALUE * len(points)
    # Halves, because the distance between two floats may be more than a float can hold.
    low, span = min(finite) / 2, (max(finite) / 2 - min(finite) / 2) or 1.0
    heights = [round((value / 2 - low) / span * (len(_BARS) - 1)) if math.isfinite(value) else None for value in points]
    return "".join(_NO_VALUE if height is None else _BARS[height] for height in heights)
