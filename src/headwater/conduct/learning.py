"""What a study learns of its function while it runs, and where that is written down."""

from __future__ import annotations

from dataclasses import replace

from headwater.conduct.setup import StudySetup, name_learnt
from headwater.conduct.waiting import WaitingLanes, Work
from headwater.plan.surface import Surface
from headwater.trials import ChosenWay, Learnt, LoadingCost, Measured, Measurement, Profile, Purpose


class Learning:
    """Takes in what was measured, and records what is known by now."""

    def __init__(self, setup: StudySetup, waiting: WaitingLanes, surface: Surface) -> None:
        self._setup = setup
        self._waiting = waiting
        self._surface = surface
        self._ways = {(way.key, way.magnitude): way for way in setup.learnt.strategies}

    @property
    def learnt(self) -> Learnt:
        """What is known of the function by now."""
        known = replace(self._waiting.grouper.learnt, strategies=tuple(self._ways.values()))
        return self._surface.hand_on(known)

    def take(self, ways: tuple[ChosenWay, ...], *, is_new: bool) -> None:
        """Record what is known by now, where there is news."""
        if ways or is_new or self._surface.has_news:
            self._surface.has_news = False
            self._ways |= {(way.key, way.magnitude): way for way in ways}
            options = self._setup.brief.space.options
            self._setup.recorder.add_fact(name_learnt(self._setup.brief.device), self.learnt.to_json(options))

    def finish(self, num_devices: int) -> None:
        """Record what epochs took in a run that has come to its end, if it had several devices."""
        self.take((), is_new=num_devices > 1 and bool(self._surface.epochs))

    def hear(self, work: Work, event: Measured) -> None:
        """Take in what was measured."""
        ending, wanted = event.ending, work.wanted
        if ending is not None:
            lanes = tuple(lane for lane in work.groups[0].lanes if lane.number in event.numbers)
            ending = replace(ending, lanes=lanes)
        if wanted is None:
            assert isinstance(event.finding, LoadingCost | None)
            self._waiting.take_cost(work.groups[0], event.finding)
        elif work.purpose is Purpose.ALONE:
            assert isinstance(event.finding, Measurement | None)
            self._waiting.take_alone(wanted, event.finding)
        else:
            assert isinstance(event.finding, Profile)
            self._waiting.take_profile(wanted, event.finding, ending)
        self.take(event.ways, is_new=True)
