"""How long a training function takes: as a user wrote it down, as it was measured, and on devices of another kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from headwater.errors import PlanError
from headwater.plan.catalogue import Offer, read_offer
from headwater.plan.estimates import Ability, Work, compare_kinds, estimate_epoch, load_abilities, recognise_kind
from headwater.plan.given_numbers import read_count, read_mapping, read_number, read_numbers
from headwater.plan.jobs import AT_ONCE, Billing, Duration, EpochSeconds, Instance

FASTEST = 1e6
"""No device is so many times as fast as another."""
NEEDED = (
    "`seconds_per_epoch: {number of devices: seconds}` and, unless --instance names one, `instance: {devices, "
    "dollars_per_hour, provision_s, initialise_s}`, all numbers"
)
_KEYS = (
    "instance",
    "seconds_per_epoch",
    "seconds_per_epoch_by_lanes",
    "spread",
    "start_up_s",
    "checkpoint_s",
    "device",
    "flops_per_epoch",
    "bytes_per_epoch",
    "billing",
    "max_instances",
    "widths",
)


class Basis(StrEnum):
    """Where the times of a plan come from."""

    GIVEN = "given"
    MEASURED = "measured"
    """On a device of the kind that is planned for."""
    SCALED = "scaled"
    """Measured on another kind of device, and scaled by what the user says of the two."""
    ESTIMATED = "estimated"
    """By floating-point operations and bytes, as devices' makers count them: right to a factor of two or three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeProfile:
    """How long a training function takes, by the number of devices and of lanes."""

    epoch_seconds: EpochSeconds | None = None
    """None where only the work is known."""
    start_up: Duration = AT_ONCE
    checkpoint: Duration = AT_ONCE
    device: str | None = None
    """On what it was measured; None: on whatever is planned for."""
    work: Work | None = None
    offer: Offer | None = None
    billing: Billing = Billing.INSTANCE
    max_instances: int | None = None
    by_scale: Mapping[int, EpochSeconds] = field(default_factory=dict)
    """How long epochs take of narrower models, by how many times narrower they are."""
    notes: tuple[str, ...] = field(default=())
    """What a reader should know of the numbers."""

    def fit_to(self, instance: Instance, relative_speed: float | None = None) -> tuple[TimeProfile, Basis]:
        """Return the profile on the devices of an instance, and what it is based on.

        Raises:
            PlanError: Nothing says how fast those are.
        """
        abilities = load_abilities()
        kind = self._find_kind(abilities)
        if self.epoch_seconds is None:
            return self._estimate(instance, abilities)
        if relative_speed is None and self.device is None and kind in (None, instance.kind):
            return self, Basis.GIVEN
        if relative_speed is None and instance.kind is not None and kind == instance.kind:
            return self, Basis.MEASURED
        if relative_speed is not None:
            return self._scale(relative_speed), Basis.SCALED
        if kind is None or instance.kind not in abilities:
            raise PlanError(
                f"times are those of {self.device or kind}, {instance.name} has {instance.kind or 'other'} devices; "
                "say how many times faster those are with --relative-speed"
            )
        return self._scale(compare_kinds(abilities[kind], abilities[instance.kind], self.work)), Basis.ESTIMATED

    def _find_kind(self, abilities: Mapping[str, Ability]) -> str | None:
        """Return the kind of device that the times are for: as measured, or of the profile's own instance."""
        if self.device is not None:
            return recognise_kind(self.device, abilities)
        return None if self.offer is None else self.offer.kind

    def _scale(self, speed: float) -> TimeProfile:
        if not 1 / FASTEST <= speed <= FASTEST:
            raise PlanError(f"--relative-speed is {speed}; it must be from {1 / FASTEST:g} to {FASTEST:g}")
        assert self.epoch_seconds is not None
        by_scale = {scale: times.slow_down(1 / speed) for scale, times in self.by_scale.items()}
        return replace(self, epoch_seconds=self.epoch_seconds.slow_down(1 / speed), by_scale=by_scale)

    def _estimate(self, instance: Instance, abilities: Mapping[str, Ability]) -> tuple[TimeProfile, Basis]:
        if self.work is None or instance.kind is None or instance.kind not in abilities:
            raise PlanError(f"nothing says how long an epoch takes on {instance.name}; the profile needs {NEEDED}")
        seconds = estimate_epoch(self.work, abilities[instance.kind])
        return replace(self, epoch_seconds=EpochSeconds(by_devices={1: seconds})), Basis.ESTIMATED


def read_profile(content: Mapping[str, Any]) -> TimeProfile:  # Any: what a YAML file holds
    """Read a profile from what a YAML file holds.

    Raises:
        PlanError: It says something that makes no sense, or lacks something.
    """
    return _read(content)


def write_profile(profile: TimeProfile) -> dict[str, Any]:  # Any: JSON values
    """Return a profile as `read_profile` reads it."""
    seconds = profile.epoch_seconds
    content: dict[str, Any] = {"device": profile.device} if profile.device else {}
    if seconds is not None:
        content |= _write_epochs(seconds)
        content["spread"] = _round(seconds.spread)
    if profile.by_scale:
        content["widths"] = {scale: _write_epochs(times) for scale, times in sorted(profile.by_scale.items())}
    for key, duration in (("start_up_s", profile.start_up), ("checkpoint_s", profile.checkpoint)):
        if duration.mean_s:
            content[key] = {"mean": _round(duration.mean_s), "spread": _round(duration.spread)}
    return content


def _write_epochs(seconds: EpochSeconds) -> dict[str, Any]:  # Any: as above
    content = {"seconds_per_epoch": {count: _round(value) for count, value in sorted(seconds.by_devices.items())}}
    if seconds.by_lanes:
        by_lanes = {count: _round(value) for count, value in sorted(seconds.by_lanes.items())}
        content["seconds_per_epoch_by_lanes"] = by_lanes
    return content


def _read(content: Mapping[str, Any]) -> TimeProfile:
    if unknown := [key for key in content if key not in _KEYS]:
        raise PlanError(f"it has {', '.join(map(repr, unknown[:5]))}; it may have {', '.join(sorted(_KEYS))}")
    billing = content.get("billing", "instance")
    if billing not in list(Billing):
        raise PlanError(f"its billing is {billing!r}; it must be 'instance' or 'function'")
    most, device = content.get("max_instances"), content.get("device")
    work = _read_work(content)
    widths = read_mapping("widths", content.get("widths", {}))
    return TimeProfile(
        epoch_seconds=_read_epochs(content) if work is None or "seconds_per_epoch" in content else None,
        start_up=_read_duration("start_up_s", content),
        checkpoint=_read_duration("checkpoint_s", content),
        device=None if device is None else str(device),
        work=work,
        offer=_read_own_offer(content.get("instance")),
        billing=Billing(billing),
        max_instances=None if most is None else read_count("max_instances", most),
        by_scale={read_count("a scale of widths", scale): _read_epochs(times) for scale, times in widths.items()},
    )


def _read_own_offer(given: Any) -> Offer | None:  # Any: what a YAML file holds
    """Return what a profile says of its instance; what takes no time, it need not say."""
    if given is None:
        return None
    values = {key: value for key, value in read_mapping("instance", given).items() if value is not None}
    return read_offer({"provision_s": 0.0, "initialise_s": 0.0, **values})


def _read_work(content: Mapping[str, Any]) -> Work | None:
    flops, moved = (content.get(key) for key in ("flops_per_epoch", "bytes_per_epoch"))
    if flops is None:
        return None
    return Work(read_number("flops_per_epoch", flops), read_number("bytes_per_epoch", moved or 0.0))


def _read_epochs(given: Any) -> EpochSeconds:  # Any: as above
    content = read_mapping("a width", given)
    if "seconds_per_epoch" not in content:
        raise PlanError(f"it needs {NEEDED}")
    seconds, by_lanes = (
        read_numbers(key, content.get(key, {})) for key in ("seconds_per_epoch", "seconds_per_epoch_by_lanes")
    )
    return EpochSeconds(by_devices=seconds, by_lanes=by_lanes, spread=read_number("spread", content.get("spread", 0.0)))


def _read_duration(name: str, content: Mapping[str, Any]) -> Duration:
    given = content.get(name, 0.0)  # a number, or a mean with its spread
    if isinstance(given, Mapping):
        return Duration(
            read_number(f"the mean of {name}", given.get("mean")),
            read_number(f"the spread of {name}", given.get("spread", 0.0)),
        )
    return Duration(read_number(name, given))


def _round(value: float) -> float:
    return float(f"{value:.6g}")
