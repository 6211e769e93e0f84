"""Several studies that train together on one set of devices, those of one function as lanes of common groups.

Each study is conducted, recorded and judged by its own conductor, as if it were alone. Here its groups are placed:
where lanes of other studies wait that could train in the same group, they go along, and what the group reports is told
to each study about its own trials alone. A group does not know: its trials have joint numbers, which say whose they
are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from headwater.conduct.joint_events import join_orders, rename_lanes, split_event
from headwater.conduct.study_conductor import StudyConductor
from headwater.plan.jobs import Part
from headwater.trials import (
    Brief,
    Device,
    DevicePool,
    Ended,
    Ending,
    Event,
    Lane,
    Lost,
    Measured,
    Order,
    Outcome,
    Placement,
    Purpose,
    Reported,
    Saved,
    Started,
    Starting,
    Stepped,
    TrialGroup,
)


@dataclass(slots=True)
class Share:
    """What one study has in a placement that runs."""

    study: StudyConductor
    member: int
    """The how manieth of the studies that may share groups it is."""
    placement: Placement
    """As the study knows it."""
    numbers: set[int] = field(default_factory=set)
    """Its trials that are still in the group."""
    awaits_save: bool = False
    since_s: float = math.inf
    """When the group first reported."""
    is_over: bool = False
    """Whether the study has heard the end of it; what is left of it leaves at the next report."""


class JointConductor:
    """Conducts several studies on one set of devices."""

    def __init__(
        self,
        studies: Sequence[StudyConductor],
        kinds: Sequence[Hashable],
        conclude: Callable[[StudyConductor], None] = lambda study: None,
        turn_s: float = math.inf,
    ) -> None:
        """Take studies, and what is equal for those whose lanes may share groups.

        `conclude` is told of each that has come to its end, at once: others may go on for long. After `turn_s`, a group
        gives its device to a study that waits and has none.
        """
        self._studies = list(studies)
        self._conclude_study = conclude
        self._turn_s = turn_s
        self._turns: dict[StudyConductor, int] = dict.fromkeys(studies, 0)
        """When each was last placed, in the order of placements."""
        pairs = list(zip(studies, kinds, strict=True))
        self._families = [[study for study, other in pairs if other == kind] for kind in dict.fromkeys(kinds)]
        for study in studies:
            study.waiting.grouper.count_beside = partial(self._count_beside, study)
        self._shares: dict[int, list[Share]] = {}
        self._stop_reason: str | None = None

    @property
    def stop_reason(self) -> str | None:
        """Why all studies are to end after their next reports; set it to have that."""
        return self._stop_reason

    @stop_reason.setter
    def stop_reason(self, reason: str | None) -> None:
        self._stop_reason = reason
        for study in self._studies:
            study.end.stop_reason = reason

    def begin(self) -> None:
        """Say everywhere that the run begins."""
        for study in self._studies:
            study.begin()

    @property
    def name(self) -> str:
        """What the record calls the studies."""
        return " and ".join(study.name for study in self._studies)

    def brief(self, study: str) -> Brief:
        """Return what a worker must know of studies that share groups."""
        family = self._families[int(study)]
        briefs = [one.brief(one.name) for one in family]
        states = tuple(brief.states for brief in briefs)
        return replace(briefs[0], learnt=family[0].learnt, more_states=states[1:])

    def place(self, idle: Sequence[Device]) -> list[Placement]:
        """Return what these devices are to do now; who trains on the fewest is asked first, who did last last."""
        self._let_go()
        for study in self._studies:
            study.see_devices(idle)
        left = tuple(idle)
        placements: list[Placement] = []
        for study in sorted(self._studies, key=lambda study: (len(study.devices), self._turns[study])):
            found = study.place(left) if left else []
            placements += [self._join(study, placement) for placement in found]
            used = {name for placement in found for name in placement.devices}
            left = tuple(device for device in left if device.name not in used)
        return placements

    def _join(self, study: StudyConductor, placement: Placement) -> Placement:
        """Return a placement of a study with all that other studies can add to it."""
        family = self._find_family(study)
        assert len(placement.groups) == 1, "studies that train together make no packs"
        first = placement.groups[0].lanes[0]
        shares = [Share(study, family.index(study), placement, set(placement.groups[0].numbers))]
        lanes = rename_lanes(shares[0].member, placement.groups[0].lanes)
        if placement.purpose is Purpose.TRAIN and len(placement.devices) == 1:
            for other in self._find_mates(study):
                room = min(one.waiting.grouper.count_most(first) for one in (study, other)) - len(lanes)
                beside = other.place_beside(first, placement.devices, room) if room > 0 else None
                if beside is not None:
                    shares.append(Share(other, family.index(other), beside, set(beside.groups[0].numbers)))
                    lanes += rename_lanes(shares[-1].member, beside.groups[0].lanes)
        elif placement.purpose is Purpose.PROFILE:  # how many lanes pay is seen with all that could be together
            for other in self._find_mates(study):
                lanes += rename_lanes(family.index(other), other.waiting.list_like(first))
        self._shares[placement.key] = shares
        self._turns |= {share.study: placement.key + 1 for share in shares}
        return replace(placement, study=str(self._families.index(family)), groups=(TrialGroup(lanes=tuple(lanes)),))

    def _count_beside(self, study: StudyConductor) -> int:
        return sum(other.waiting.num_lanes for other in self._find_others(study))

    def _find_mates(self, study: StudyConductor) -> list[StudyConductor]:
        return [other for other in self._find_others(study) if other.list_lanes()]

    def _find_others(self, study: StudyConductor) -> list[StudyConductor]:
        """Return the studies that may share groups with this one, and have not ended."""
        return [other for other in self._find_family(study) if other is not study and other in self._studies]

    def _let_go(self) -> None:
        for study in [one for one in self._studies if _is_over(one)]:
            self._studies.remove(study)
            self._conclude_study(study)

    def hear(self, event: Event) -> Order | None:
        """Tell each study what happened to its own trials, and return what becomes of all of them."""
        order = self._hear(event)
        if isinstance(event, Reported | Saved | Measured | Ended | Lost):
            self._let_go()
        return order

    def _hear(self, event: Event) -> Order | None:
        shares = self._shares.get(event.key)
        if shares is None:  # of no placement
            if self._studies:
                self._studies[0].hear(event)
            return None
        if isinstance(event, Reported):
            self._give_turn(shares, event)
        active = [share for share in shares if not share.is_over]
        orders = [(share, self._tell(share, event)) for share in active]
        if isinstance(event, Measured | Ended):
            self._pass_on(shares[0].study)
        if isinstance(event, Measured | Ended | Lost):
            del self._shares[event.key]
            return None
        self._end_shares(orders, event)
        if isinstance(event, Starting | Started):
            return Order(leave=self._list_numbers(shares)) if all(share.is_over for share in shares) else None
        if isinstance(event, Reported):
            given = {share.member: order for share, order in orders if order is not None}
            return join_orders(given, [report.number for report in event.reports])
        return None

    def _give_turn(self, shares: Sequence[Share], event: Reported) -> None:
        """Have a group leave with this report that has trained long enough while another study has no device."""
        if event.reports[0].epoch == event.num_epochs:
            return  # it has no more to train
        now_s, since_s = event.time_s, min(share.since_s for share in shares)
        if since_s == math.inf:
            for share in shares:
                share.since_s = now_s
        elif now_s - since_s >= self._turn_s and any(not one.is_running and one.list_lanes() for one in self._studies):
            for share in shares:
                share.study.regroup()

    def _tell(self, share: Share, event: Event) -> Order | None:
        if isinstance(event, Saved) and not share.awaits_save:
            return None
        own = split_event(event, share.member, share.placement, len(self._list_numbers(self._shares[event.key])))
        order = share.study.hear(own)
        if isinstance(own, Reported):
            assert order is not None, "a report gets an order"
            share.numbers -= order.leave
            share.awaits_save = bool(order.save or order.keep)
        elif isinstance(own, Saved):
            share.awaits_save = False
        elif isinstance(own, Stepped):
            share.numbers -= {*own.done}
        return order

    def _end_shares(self, orders: Sequence[tuple[Share, Order | None]], event: Event) -> None:
        """Let studies go whose trials have all left a group, or are not to begin, while others go on in it."""
        for share, order in orders:
            is_called_off = isinstance(event, Starting) and order is not None
            share.is_over = is_called_off
            has_left = isinstance(event, Reported | Saved | Stepped) and not share.numbers and not share.awaits_save
            goes_on = any(one.numbers and not one.is_over for one in self._shares[event.key])  # for others
            if (has_left and goes_on) or (isinstance(event, Started) and order is not None):
                self._conclude(share, event)

    def _conclude(self, share: Share, event: Event) -> None:
        share.is_over = True
        ended = Ended(
            key=share.placement.key,
            device=event.device,
            time_s=event.time_s,
            group=share.placement.groups[0].key,
            ending=Ending(outcome=Outcome.DONE, lanes=()),
            numbers=(),
            seconds=0.0,
        )
        share.study.hear(ended)

    def _pass_on(self, study: StudyConductor) -> None:
        """Have those that share groups with a study know what it has learnt."""
        for other in self._find_others(study):
            other.waiting.adopt(study.learnt)

    def _find_family(self, study: StudyConductor) -> list[StudyConductor]:
        return next(family for family in self._families if study in family)

    def _list_numbers(self, shares: Sequence[Share]) -> frozenset[int]:
        lanes = [lane for one in shares for lane in rename_lanes(one.member, one.placement.groups[0].lanes)]
        return frozenset(lane.number for lane in lanes)

    def is_to_end(self) -> bool:
        """Tell whether all that have anything left are to end now, without a device."""
        return all(study.is_to_end() or not study.list_lanes() for study in self._studies)

    def list_lanes(self) -> list[Lane]:
        """Return the lanes of all studies that wait or train."""
        return [lane for study in self._studies for lane in study.list_lanes()]

    @property
    def part(self) -> Part:
        """Which part the lanes belong to: there is one."""
        return Part.SEARCH

    def foresee(self) -> float | None:
        """Return how many seconds all that is left takes on what it has now; None where that is open."""
        seconds = [study.foresee() for study in self._studies if study.list_lanes()]
        known = [one for one in seconds if one is not None]
        return sum(known) if len(known) == len(seconds) else None

    def want_devices(self, pool: DevicePool) -> tuple[str, ...]:
        """Return which devices are wanted, by those who wish anything of one of the studies."""
        for study in self._studies:
            pool = replace(pool, names=study.want_devices(pool))
        return pool.names

    def regroup(self, devices: Collection[str] | None = None) -> None:
        """Have what trains now, or trains on one of these devices, be placed anew after its next report."""
        for study in self._studies:
            study.regroup(devices)

    def close(self) -> None:
        """Let go of whoever watches, however the run ended."""
        for study in self._studies:
            study.close()


def _is_over(study: StudyConductor) -> bool:
    """Tell whether nothing of a study is under way, and nothing more will be."""
    if study.is_running:
        return False
    study.end.listen()
    has_lanes = bool(study.list_lanes())  # also of one that has not begun: it has been stopped then, and not done
    return not has_lanes or study.ended_early is not None or study.end.stop_reason is not None
