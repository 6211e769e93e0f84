"""How a study uses surrogates, and how far their ranking can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import StudyError
from headwater.settings import read_number, read_whole, set_whole

AUTO = "auto"

UNTRANSFERABLE_WORDS = ("dropout", "drop_path", "droppath", "stochastic_depth", "label_smoothing", "mixup", "cutmix")
"""A hyperparameter with one of these in its name regularises, and what regularises best depends on the width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """Search on models of 1/scale of the width, then train the target, the model as it was written.

    Raises:
        StudyError: A setting is out of range.
    """

    scale: int | str = 8
    """How many times narrower; "auto" takes the narrowest whose ranking agrees with that of twice its width."""
    at: int | None = None
    """Train everything at this scale and end there; None: search, check and train the target."""
    min_width: int = 8
    """No width goes below this; one that is there already stays."""
    decay_exponent: float = 1.0
    """How weight decay goes with the rates: 1 keeps the shrinking per step, 0 the decay itself."""
    eager: float = 0.5
    """When this share of the trials is done and a device is idle, the best so far starts on the target; 1 for never."""
    num_checked: int = 6
    """How many configurations are trained at twice the width too, to see whether they rank alike; 0 for none."""
    min_agreement: float = 0.5
    """Below this rank correlation, the best configurations are trained again at twice the width, and so on."""
    time_share: float = 0.25
    """How much of the time that the search takes may be spent on choosing the scale, where that is "auto"."""
    untransferable: Sequence[str] | None = None
    """Keys that are tuned on the target at the end, near the surrogate's answer; None: those named like dropout."""
    num_retuned: int = 4
    """How many target trainings that takes, where there are such keys."""

    def __post_init__(self) -> None:
        if self.scale != AUTO:
            object.__setattr__(self, "scale", read_whole("surrogate scale", self.scale, other="'auto' or "))
        for name, least in (("at", 1), ("min_width", 1), ("num_checked", 0), ("num_retuned", 1)):
            set_whole(self, name, least, f"surrogate {name}")
        if self.at is not None and self.scale == AUTO:
            raise StudyError(f"surrogate at is {self.at} with scale 'auto'; give scale as a whole number too")
        for name, low, high in (("decay_exponent", 0, None), ("min_agreement", -1, 1), ("time_share", 0, 1)):
            read_number(f"surrogate {name}", getattr(self, name), low, high)
        if isinstance(self.eager, bool):
            object.__setattr__(self, "eager", 0.5 if self.eager else 1.0)
        read_number("surrogate eager", self.eager, 0, 1)
        if self.untransferable is not None and not _is_names(self.untransferable):
            raise StudyError(f"surrogate untransferable is {self.untransferable!r}; it must be a list of keys, or None")

    def retuned_keys(self, keys: Sequence[str]) -> list[str]:
        """Return which of the space's keys are tuned on the target.

        Raises:
            StudyError: A key was named that the space lacks.
        """
        if self.untransferable is None:
            return [key for key in keys if any(word in key.lower() for word in UNTRANSFERABLE_WORDS)]
        for key in self.untransferable:
            if key not in keys:
                raise StudyError(f"untransferable names {key!r}, but the space draws {', '.join(map(repr, keys))}")
        return list(self.untransferable)


def _is_names(value: object) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and all(isinstance(name, str) for name in value)  # type: ignore[attr-defined]  # a sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How alike two widths rank the same configurations."""

    scale: int
    other_scale: int
    values: tuple[tuple[float, float], ...]
    """What each configuration reached at the one scale and at the other."""
    agreement: float
    """Spearman's rank correlation."""
    low: float
    high: float
    """Its interval of 95 %."""

    def __str__(self) -> str:
        return (
            f"{len(self.values)} configurations at 1/{self.scale} and 1/{self.other_scale} of the width: "
            f"rank agreement {self.agreement:.2f} (95 % interval {self.low:.2f} to {self.high:.2f})"
        )
