"""How long a training function takes: as a user wrote it down, as it was measured, and on devices of another kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from headwater.errors import PlanError
from headwater.plan.catalogue import Offer, read_offer
from headwater.plan.estimates import Ability, Work, compare_kinds, estimate_epoch, load_abilities, recognise_kind
from headwater.plan.jobs import AT_ONCE, Billing, Duration, EpochSeconds, Instance

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
        if not 0 < speed < float("inf"):
            raise PlanError(f"--relative-speed is {speed}; it must be above 0")
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
    try:
        return _read(content)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"it needs {NEEDED}; reading it ended with {error!r}") from error


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
        raise PlanError(f"it has {', '.join(map(repr, unknown))}; it may have {', '.join(sorted(_KEYS))}")
    billing = content.get("billing", "instance")
    if billing not in list(Billing):
        raise PlanError(f"its billing is {billing!r}; it must be 'instance' or 'function'")
    most = content.get("max_instances")
    flops = content.get("flops_per_epoch")
    given = content.get("instance")
    device = content.get("device")
    return TimeProfile(
        epoch_seconds=_read_epochs(content) if flops is None or "seconds_per_epoch" in content else None,
        start_up=_read_duration(content.get("start_up_s", 0.0)),
        checkpoint=_read_duration(content.get("checkpoint_s", 0.0)),
        device=None if device is None else str(device),
        work=None if flops is None else Work(float(flops), float(content.get("bytes_per_epoch", 0.0))),
        offer=None if given is None else read_offer({"provision_s": 0.0, "initialise_s": 0.0, **given}),
        billing=Billing(billing),
        max_instances=None if most is None else int(most),
        by_scale={int(scale): _read_epochs(times) for scale, times in content.get("widths", {}).items()},
    )


def _read_epochs(content: Mapping[str, Any]) -> EpochSeconds:
    seconds, by_lanes = (
        {int(count): float(value) for count, value in given.items()}
        for given in (content["seconds_per_epoch"], content.get("seconds_per_epoch_by_lanes", {}))
    )
    return EpochSeconds(by_devices=seconds, by_lanes=by_lanes, spread=float(content.get("spread", 0.0)))


def _read_duration(given: Any) -> Duration:  # Any: a number, or a mean with its spread
    if isinstance(given, Mapping):
        return Duration(float(given["mean"]), float(given.get("spread", 0.0)))
    return Duration(float(given))


def _round(value: float) -> float:
    return float(f"{value:.6g}")
