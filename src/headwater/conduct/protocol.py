"""The contract between who decides and who runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from headwater.plan.jobs import Part
from headwater.trials import Brief, Device, DevicePool, Event, Lane, Order, Placement


class Conductor(Protocol):
    """Says what to run next: one study, the stages of a surrogate study, or many studies on one cluster.

    Whoever runs placements calls `place` whenever devices are idle, at the beginning and after every event, and `hear`
    with everything that happens, in order. When nothing runs and `place` returns nothing, it is over.
    """

    @property
    def name(self) -> str:
        """What the record calls all that it conducts."""

    def brief(self, study: str) -> Brief:
        """Return what a worker must know to run placements of this study."""

    def place(self, idle: Sequence[Device]) -> Sequence[Placement]:
        """Return what these devices are to do now; each is in one placement at most, and some may stay idle."""

    def list_lanes(self) -> Sequence[Lane] | None:
        """Return the lanes that wait or train, each from the epoch that it stands at; none where all is done.

        What comes next is asked for if nothing is left. None: it is not known what will come.
        """

    def is_to_end(self) -> bool:
        """Tell whether the run is to end now; asked where nothing runs, and nobody is there to run anything."""

    @property
    def part(self) -> Part:
        """Which part of a study with a surrogate the lanes belong to; of any other all are the search."""

    def foresee(self) -> float | None:
        """Return how many seconds all that is left takes on what it has now; None where that is open."""

    def want_devices(self, pool: DevicePool) -> Sequence[str]:
        """Return which devices are wanted, of those that there are and could be; whoever runs placements sees to it."""

    def regroup(self, devices: Collection[str] | None = None) -> None:
        """Have what trains now leave at its next report, with its state saved, and be placed anew.

        With `devices`, only what trains on one of these: they are about to go, or gone, and are offered no more.
        """

    def hear(self, event: Event) -> Order | None:
        """Take in what happened; whoever reported waits for the order that it gets."""
