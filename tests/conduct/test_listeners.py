"""Who is told what a study does, and how often."""

from __future__ import annotations

from tests.conduct.lab import ConductedStudy

from headwater.conduct.listeners import PULSE_EVERY_S
from headwater.trials import Placement, Pulse, Silence, Spending, Spent, Stepped


class Pulses(Silence):
    """Keeps what is shown of a study."""

    def __init__(self) -> None:
        self.seen: list[Pulse] = []
        self.has_ended = False

    def pulse(self, pulse: Pulse) -> None:
        assert not self.has_ended
        self.seen.append(pulse)

    def end(self) -> None:
        self.has_ended = True


def watch_study(watcher: Silence) -> tuple[ConductedStudy, Placement]:
    """Return a study that is watched, and the placement that trains first."""
    study = ConductedStudy(num_trials=2, watcher=watcher)
    (placement,) = study.place("cpu:0")
    study.start(placement)
    return study, placement


def take_steps(study: ConductedStudy, placement: Placement, num_steps: int, every_s: float) -> None:
    for place in range(num_steps):
        event = Stepped(key=placement.key, group=placement.groups[0].key, num_lane_steps=2, time_s=place * every_s)
        study.conductor.hear(event)


def test_of_many_events_a_few_in_a_second_are_shown() -> None:
    watcher = Pulses()
    study, placement = watch_study(watcher)
    take_steps(study, placement, num_steps=1001, every_s=0.01)
    assert len(watcher.seen) == 10.0 / PULSE_EVERY_S + 1
    assert watcher.seen[1].num_lane_steps - watcher.seen[0].num_lane_steps == 2 * PULSE_EVERY_S / 0.01


def test_events_that_are_far_apart_are_all_shown() -> None:
    watcher = Pulses()
    study, placement = watch_study(watcher)
    take_steps(study, placement, num_steps=10, every_s=2 * PULSE_EVERY_S)
    assert [pulse.num_lane_steps for pulse in watcher.seen] == [2 * place for place in range(1, 11)]


def test_what_is_shown_last_is_where_the_study_stands() -> None:
    watcher = Pulses()
    study, placement = watch_study(watcher)
    take_steps(study, placement, num_steps=5, every_s=0.0)
    for epoch in (1, 2, 3):
        study.report(placement, epoch, {0: 1.0 / epoch, 1: 2.0})
    study.save(placement, (), 3)
    study.end(placement, (0, 1))
    assert len(watcher.seen) == 1
    study.conductor.close()
    last = watcher.seen[-1]
    assert (last.num_done, last.num_lanes, last.num_lane_steps, last.best_number) == (2, 0, 10, 0)


def test_a_run_of_which_nothing_has_happened_ends_without_a_pulse() -> None:
    watcher = Pulses()
    ConductedStudy(watcher=watcher).conductor.close()
    assert watcher.seen == []
    assert watcher.has_ended


def test_what_is_spent_is_shown_at_once() -> None:
    watcher = Pulses()
    study, placement = watch_study(watcher)
    take_steps(study, placement, num_steps=2, every_s=0.0)
    spending = Spending(seconds=1.0, cost_dollars=2.0, num_nodes=1)
    study.conductor.hear(Spent(spending=spending))
    assert [pulse.spending for pulse in watcher.seen] == [None, spending]
