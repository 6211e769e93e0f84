"""Which machines can be had, and at what price: dated data that comes with the package, and a user's own."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

from headwater.errors import PlanError
from headwater.plan.given_numbers import read_count, read_mapping, read_number
from headwater.plan.jobs import Instance

PROVISION_S = 45.0
"""How long an instance is taken to be on its way where nobody says."""
INITIALISE_S = 60.0
"""How long it is taken to prepare itself where nobody says."""
INTERRUPTIONS_PER_HOUR = 0.2
"""How often a spot instance is taken back where nobody says: on three public traces of 2023, a V100 that was there was
lost once in 0.7, 5.7 and 10.5 hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A type of machine with its prices."""

    name: str = "instance"
    devices: int
    kind: str | None = None
    """What its devices are, as `device_kinds.csv` names them."""
    memory_gib: float | None = None
    dollars_per_hour: float
    spot_dollars_per_hour: float | None = None
    provision_s: float = PROVISION_S
    provision_spread: float = 0.0
    initialise_s: float = INITIALISE_S
    initialise_spread: float = 0.0
    minimum_s: float = 60.0
    launch_dollars: float = 0.0
    interruptions_per_hour: float = INTERRUPTIONS_PER_HOUR
    spot_history: str | None = None
    """The file of what could be had of it at the spot price; whoever rents it reads that."""
    source: str = "given"
    date: str = ""

    def rent(self, *, is_spot: bool = False) -> Instance:
        """Return it as an instance, on demand or at the spot price.

        Raises:
            PlanError: It has no spot price.
        """
        price = self.spot_dollars_per_hour if is_spot else self.dollars_per_hour
        if price is None:
            raise PlanError(
                f"no spot price of {self.name} is known; give spot_dollars_per_hour in the profile or the --catalogue, "
                "or ask for no spot instances"
            )
        return Instance(
            name=self.name,
            num_devices=self.devices,
            dollars_per_hour=price,
            provision_s=self.provision_s,
            provision_spread=self.provision_spread,
            initialise_s=self.initialise_s,
            initialise_spread=self.initialise_spread,
            minimum_s=self.minimum_s,
            launch_dollars=self.launch_dollars,
            is_spot=is_spot,
            on_demand_dollars_per_hour=self.dollars_per_hour if is_spot else None,
            interruptions_per_hour=self.interruptions_per_hour if is_spot else 0.0,
            kind=self.kind,
        )


_TEXTS = ("name", "kind", "spot_history", "source", "date")
_DURATIONS = {"provision_s": "provision_spread", "initialise_s": "initialise_spread"}
OFFER_KEYS = tuple(field.name for field in fields(Offer))


def load_catalogue() -> dict[str, Offer]:
    """Return the offers that come with the package, by name."""
    return {row["name"]: read_offer(row) for row in read_table("instances.csv")}


def extend_catalogue(catalogue: Mapping[str, Offer], given: Mapping[str, Any]) -> dict[str, Offer]:
    """Return a catalogue with a user's own offers: new ones, and other values for those that it has.

    Raises:
        PlanError: An offer makes no sense, or lacks its devices or its price.
    """
    offers = dict(catalogue)
    for name, values in given.items():
        known = offers.get(str(name))
        own = {"source": "given", "date": "", **_read_values(str(name), values)}
        try:
            offers[str(name)] = replace(known, **own) if known else Offer(**{**own, "name": str(name)})
        except TypeError as error:
            raise PlanError(f"{name!r} is not in the catalogue, so it needs devices and dollars_per_hour") from error
        offers[str(name)].rent()  # which refuses what makes no sense
    return offers


def find_offer(catalogue: Mapping[str, Offer], name: str) -> Offer:
    """Return the offer of this name.

    Raises:
        PlanError: There is none.
    """
    if name in catalogue:
        return catalogue[name]
    near = get_close_matches(name, catalogue, n=3) or sorted(catalogue)[:5]
    raise PlanError(
        f"there is no instance {name!r} in the catalogue; near are {', '.join(near)}; add it with --catalogue"
    )


def read_offer(values: Mapping[str, Any]) -> Offer:
    """Return an offer from a row of a table or of a file; what is empty is left out.

    Raises:
        PlanError: It makes no sense.
    """
    name = str(values.get("name", "instance"))
    read = _read_values(name, values)
    if missing := [key for key in ("devices", "dollars_per_hour") if key not in read]:
        raise PlanError(f"{name} lacks {' and '.join(missing)}")
    offer = Offer(**read)
    offer.rent()  # which refuses what makes no sense
    return offer


def read_table(name: str) -> list[dict[str, str]]:
    """Return the rows of one of the tables that come with the package."""
    lines = files("headwater.plan").joinpath(name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def _read_values(name: str, given: Any) -> dict[str, Any]:  # Any: what a YAML file holds
    values = read_mapping(name, given)
    if unknown := [key for key in values if key not in OFFER_KEYS]:
        raise PlanError(f"{name} has {', '.join(map(repr, unknown[:5]))}; it may have {', '.join(OFFER_KEYS)}")
    read: dict[str, Any] = {}
    for key, value in values.items():
        called = f"{key} of {name}"
        if value in ("", None):
            continue
        if key in _DURATIONS and isinstance(value, Mapping):
            read |= {key: read_number(called, value.get("mean")), _DURATIONS[key]: _read_spread(called, value)}
        elif key in _TEXTS:
            read[key] = str(value)
        else:
            read[key] = read_count(called, value) if key == "devices" else read_number(called, value)
    return read


def _read_spread(name: str, given: Mapping[str, Any]) -> float:
    return read_number(f"the spread of {name}", given.get("spread", 0.0))
