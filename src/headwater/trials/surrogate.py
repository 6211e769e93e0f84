"""How a study uses surrogates, and how far their ranking can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import StoreError, StudyError
from headwater.settings import check_one_of, read_number, read_whole, set_whole

AUTO = "auto"
AUTO_SCALES = (16, 8, 4, 2)
"""What "auto" tries, the narrowest first."""
START = "start"
"""Under which key the record has a StartCheck."""
ROLES = ("input", "hidden", "readout", "vector", "fixed")
"""What a parameter can be to the width."""
MANY_PASSES = 4
"""Examples that are seen more often than this are learnt by heart by a model that is wide enough."""

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
    spread: str = "auto"
    """How the target uses several devices: with "threads" in one process, as "ranks" with a process each, or "auto",
    which is threads on a CPU and ranks on GPUs."""
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
    on_drift: str | None = "warn"
    """What to do where the sizes of activations go with the width: "warn", or "refuse" the study; None: do not look,
    at how often data are seen neither."""
    allow_pretrained: bool = False
    """Whether models that start with pretrained weights may be narrowed; what is left of these means little."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """What parameters are to the width, by their names: "input", "hidden", "readout", "vector" or "fixed"; only needed
    where a message asks for it."""

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
        check_one_of("surrogate spread", self.spread, ("auto", "threads", "ranks"))
        check_one_of("surrogate on_drift", self.on_drift, ("warn", "refuse", None))
        check_one_of("surrogate allow_pretrained", self.allow_pretrained, (True, False))
        self._check_roles()
        if self.untransferable is not None and not _is_names(self.untransferable):
            raise StudyError(f"surrogate untransferable is {self.untransferable!r}; it must be a list of keys, or None")

    def _check_roles(self) -> None:
        if not isinstance(self.roles, Mapping):
            raise StudyError(f"surrogate roles is {self.roles!r}; it must be a dictionary of roles by parameter name")
        for name, role in self.roles.items():
            check_one_of(f"surrogate role of {name!r}", role, ROLES)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """How the size of a module's output goes with the width: as its power of so much, by several starts."""

    mean: float
    error: float
    """The standard error of the mean."""

    @property
    def is_clear(self) -> bool:
        """Whether it is too large for chance."""
        return abs(self.mean) > MAX_SLOPE and abs(self.mean) > 2 * self.error + MAX_CHANCE


MAX_SLOPE = 0.3
"""A size that goes with the width by a higher power than this drifts: a sum that is not divided goes by 0.5 or 1."""
MAX_CHANCE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Whether the sizes of activations go with the width, at the start of training at several widths."""

    scales: tuple[int, ...]
    num_starts: int
    """How many configurations and seeds were looked at."""
    slopes: Mapping[str, Slope]
    """By module."""

    @property
    def drifting(self) -> tuple[str, ...]:
        """The modules whose outputs go with the width, the worst first."""
        names = [name for name, slope in self.slopes.items() if slope.is_clear]
        return tuple(sorted(names, key=lambda name: -abs(self.slopes[name].mean)))

    def __str__(self) -> str:
        widths = ", ".join("the whole" if scale == 1 else f"1/{scale}" for scale in self.scales)
        where = f"at {widths} of the width ({self.num_starts} start{'s' * (self.num_starts > 1)})"
        if not self.drifting:
            return f"activations keep their size {where}"
        names = ", ".join(f"`{name}` as width^{self.slopes[name].mean:+.2f}" for name in self.drifting[:3])
        more = f" and {len(self.drifting) - 3} more" if len(self.drifting) > 3 else ""
        return f"activations drift with the width {where}: {names}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCheck:
    """What the first steps of a study with surrogates say about how far its answer will carry over."""

    drift: Drift | None = None
    num_passes: int | None = None
    """How often the target will go through its data; None where that is open."""

    @classmethod
    def read(cls, fact: Mapping[str, Any]) -> StartCheck:  # Any: JSON values
        """Make it of what `asdict` gave.

        Raises:
            StoreError: It is something else.
        """
        try:
            found, num_passes = fact["drift"], fact["num_passes"]
            num_passes = None if num_passes is None else int(num_passes)
            if found is None:
                return cls(num_passes=num_passes)
            slopes = {
                name: Slope(mean=float(slope["mean"]), error=float(slope["error"]))
                for name, slope in found["slopes"].items()
            }
            scales = tuple(map(int, found["scales"]))
            drift = Drift(scales=scales, num_starts=int(found["num_starts"]), slopes=slopes)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise StoreError(f"it is no check of the start ({type(error).__name__})") from error
        return cls(drift=drift, num_passes=num_passes)

    @property
    def sees_data_often(self) -> bool:
        """Whether the target may learn its examples by heart."""
        return self.num_passes is not None and self.num_passes > MANY_PASSES

    def describe(self) -> list[str]:
        """Say it in sentences."""
        lines = [] if self.drift is None else [str(self.drift)]
        if self.drift is not None and self.drift.drifting:
            lines[0] += (
                "; the best settings of the surrogate may not be the target's; divide sums over a width by it, use "
                "nn.Linear for the last layer, give the role of a parameter of your own, as in "
                "hw.Surrogate(roles={'NAME': 'readout'}), or tune at full width with surrogate=None"
            )
        if self.sees_data_often:
            lines.append(
                f"the target goes {self.num_passes} times through its data: where it learns examples by heart, which a "
                "narrow surrogate cannot, it wants smaller rates than that, and the answer may not carry over; "
                "compare it with a few trials at full width (surrogate=None), or train on more data, fewer times"
            )
        return lines
