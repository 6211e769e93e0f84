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
    spare: tuple[str, ...] = ()
    """Those that have left, and can come again."""
    limit: str = ""
    """Why no others can come than those that have left; "" where they can, and are numbered."""

    @property
    def num_away(self) -> int:
        """How many can come again, or need not go."""
        return len(self.leaving) + len(self.spare)

    def change(self, wish: DeviceWish) -> DevicePool:
        """Return the pool as somebody wishes it; one that would have no device stays as it is.

        Devices that come are numbered as those before them; one that has not left yet stays. Where there is a limit, no
        more come than have left.
        """
        kept = [name for name in self.names if name not in wish.gone]
        kept = kept[: wish.num_more] if wish.num_more < 0 else kept
        if self.fixed or not kept:
            return self
        if self.limit:
            kept += [name for name in (*self.leaving, *self.spare) if name not in wish.gone][: max(wish.num_more, 0)]
        else:
            _number(kept, self.kind, wish.num_more)
        return replace(
            self,
            names=tuple(kept),
            leaving=tuple(name for name in (*self.names, *self.leaving) if name not in kept),
            spare=tuple(name for name in self.spare if name not in kept),
        )


def _number(names: list[str], kind: str, num_more: int) -> None:
    """Add so many names, with the lowest numbers that are free."""
    place = 0
    for _ in range(num_more):
        while f"{kind}:{place}" in names:
            place += 1
        names.insert(place, f"{kind}:{place}")
