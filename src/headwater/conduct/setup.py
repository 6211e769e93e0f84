"""What a study is conducted with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

from headwater.conduct.absences import Absences
from headwater.conduct.grouping import Grouper, Tell
from headwater.conduct.limits import Limits
from headwater.conduct.listeners import Listener
from headwater.conduct.packing import HURRIED_UNITS, MAX_UNITS, Packer
from headwater.conduct.saving import TrialStates
from headwater.conduct.waiting import WaitingLanes
from headwater.plan import Packing
from headwater.plan.allocation import Policy
from headwater.plan.surface import Surface
from headwater.search import Searcher
from headwater.store import KEPT, Recorder, StateFiles
from headwater.trials import Brief, ChosenWay, Learnt, Objective, Silence, TrialRecord, Watcher


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySetup:
    """What a study is conducted with."""

    brief: Brief
    recorder: Recorder
    searcher: Searcher
    limits: Limits
    origin_s: float
    """When the study began, by the clock of this run, were there no time between its runs: spans count from there."""
    lanes: int | None = None
    """How many trials train as one; None to measure what is fastest."""
    packing: Packing | None = None
    save_every: int | str | None = None
    known: Sequence[TrialRecord] = ()
    watcher: Watcher = field(default_factory=Silence)
    listeners: Sequence[Listener] = ()
    learnt: Learnt = field(default_factory=Learnt)
    """What is known of the function already."""
    remarks: Sequence[str] = ()
    """What is to be said when the run begins."""
    allocation: Policy = Policy.FIFO
    """How devices that nothing waits for are allocated."""
    can_widen: bool = False
    """Whether a trial may train on several devices, whose sums round otherwise."""
    spreads: bool = False
    """Whether a group gets all devices that are idle when it is placed."""
    keys: Iterator[int] = field(default_factory=count)
    """What numbers placements; conductors that share devices share it."""
    absences: Absences = field(default_factory=Absences)
    """Which devices are away; conductors that share devices share it too."""


def open_states(setup: StudySetup) -> TrialStates:
    """Return what knows which states of trials there are, and says which are saved."""

    def note_kept(number: int, epoch: int) -> None:
        setup.recorder.add_fact(KEPT, {"number": number, "epoch": epoch})

    info = setup.recorder.info
    every = setup.save_every if setup.recorder.store.is_shared else None
    return TrialStates(
        StateFiles(setup.brief.states, note_kept),
        Objective(info.metric, info.mode),
        setup.known,
        every=every,
        clock=setup.limits.deadline.clock,
    )


def open_waiting(setup: StudySetup, tell: Tell) -> WaitingLanes:
    """Return where lanes wait for a device."""
    max_units = MAX_UNITS if setup.limits.deadline.seconds is None else HURRIED_UNITS
    packer = Packer(setup.packing, setup.brief.space, Random(setup.recorder.info.seed), tell, max_units)
    grouper = Grouper(
        setup.lanes,
        tell,
        setup.recorder.add_profile,
        shares_loading=setup.brief.shares_loading,
        pack_of=packer.key,
        learnt=setup.learnt,
    )
    return WaitingLanes(grouper, packer)


def record_learnt(
    setup: StudySetup, grouper: Grouper, surface: Surface, ways: Sequence[ChosenWay] = (), *, is_new: bool
) -> None:
    """Write down what is known of the function by now, where there is news, for later runs of this study and of others.

    The ways of computing are those that were chosen since.
    """
    grouper.take_ways(ways)
    if ways or is_new or surface.has_news:
        surface.has_news = False
        text = surface.hand_on(grouper.learnt).to_json(setup.brief.space.options)
        setup.recorder.add_fact(name_learnt(setup.brief.device), text)


def name_learnt(device: str) -> str:
    """Return what the record calls what was learnt on a kind of device."""
    return f"learnt: {device.partition(':')[0]}"
