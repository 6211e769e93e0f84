"""Which devices a run has, and which somebody wishes it to have."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWish:
    """What somebody wishes of the devices of a run."""

    num_more: int = 0
    """How many are to come; below zero, how many are to go, the last ones first."""
    gone: tuple[str, ...] = ()
    """Those that are to go."""
    asker: str = ""
    """Who wishes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePool:
    """The devices of a run, as its executor has them."""

    names: tuple[str, ...]
    """Those that are given work."""
    leaving: tuple[str, ...] = ()
    """Those that are given nothing new, and go when what trains there has left."""
    kind: str = "cpu"
    num_there: int | None = None
    """How many the machine has; None where nobody knows."""
    fixed: str = ""
    """Why nobody can add any or take some away while it runs; "" where that can be done."""

    def change(self, wish: DeviceWish) -> DevicePool:
        """Return the pool as somebody wishes it; one that would have no device stays as it is.

        Devices that come are numbered as those before them; one that has not left yet stays.
        """
        kept = [name for name in self.names if name not in wish.gone]
        kept = kept[: wish.num_more] if wish.num_more < 0 else kept
        if self.fixed or not kept:
            return self
        place = 0
        for _ in range(wish.num_more):
            while f"{self.kind}:{place}" in kept:
                place += 1
            kept.insert(place, f"{self.kind}:{place}")
        there = (*self.names, *self.leaving)
        return replace(self, names=tuple(kept), leaving=tuple(name for name in there if name not in kept))
