"""The record says who runs a study, and carries the wish to stop to that run alone."""

from __future__ import annotations

import os

from headwater.store import Presence, Store, ask_to_stop, find_asker, find_runner


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_study_has_a_runner_while_it_runs(store: Store, study_id: int) -> None:
    assert find_runner(store, study_id) is None
    with Presence(store, study_id):
        runner = find_runner(store, study_id)
        assert runner is not None
        assert runner.pid == os.getpid()
    assert find_runner(store, study_id) is None


def test_a_wish_is_heard_at_most_once_a_second(store: Store, study_id: int) -> None:
    clock = Clock()
    with Presence(store, study_id, clock) as presence:
        assert presence.hear_asker() is None
        runner = find_runner(store, study_id)
        assert runner is not None
        ask_to_stop(store, study_id, runner, "anna on host")
        clock.now += 0.9
        assert presence.hear_asker() is None
        clock.now += 0.2
        assert presence.hear_asker() == "anna on host"


def test_a_wish_does_not_outlive_the_run_that_it_was_meant_for(store: Store, study_id: int) -> None:
    with Presence(store, study_id):
        runner = find_runner(store, study_id)
        assert runner is not None
        ask_to_stop(store, study_id, runner, "anna")
    with Presence(store, study_id) as presence:
        assert presence.hear_asker() is None
    assert find_asker(store, study_id, runner) == "anna"


def test_the_latest_fact_counts(store: Store, study_id: int) -> None:
    assert store.fact(study_id, "lanes") is None
    store.add_fact(study_id, "lanes", 4)
    store.add_fact(study_id, "other", 1)
    store.add_fact(study_id, "lanes", [8])
    assert store.fact(study_id, "lanes") == [8]
