"""One process runs a study: its lease, the wish to stop that it hears, and what becomes of a process that lost it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest

from headwater.errors import StoreError, StudyError
from headwater.space import Space, uniform
from headwater.store import (
    Batch,
    Lease,
    Note,
    Recorder,
    Runner,
    Store,
    StudyInfo,
    ask_to_stop,
    find_asker,
    find_runner,
    open_store,
)
from headwater.store.leases import SILENT_S
from headwater.trials import Lane, Report

INFO = StudyInfo(name="first", metric="accuracy", mode="max", seed=7)

HOLDER = """
import sys
from headwater.store import Lease, open_store

with open_store(sys.argv[1]) as store:
    lease = Lease(store, store.study()).__enter__()
    print("running", flush=True)
    input()
"""


@dataclass
class Clock:
    """Time that passes only by waiting; `while_waiting` is done then."""

    now: float = 100.0
    while_waiting: Callable[[], None] = lambda: None
    told: list[str] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.while_waiting()

    def open(self, store: Store, study: StudyInfo) -> Lease:
        """Return a lease for which time passes so."""
        return Lease(store, study, tell=self.told.append, clock=self, sleep=self.sleep)


@pytest.fixture
def study(store: Store) -> StudyInfo:
    store.create_study(INFO)
    return store.study()


def place_elsewhere(store: Store, study: StudyInfo) -> Runner:
    """Let a process of another machine hold the lease."""
    runner = replace(Runner.here(), host="elsewhere", pid=1, process="other boot/1/5", holder="other")
    fence = store.take_lease(study.id, runner, instead_of=find_runner(store, study.id))
    assert fence is not None
    return replace(runner, fence=fence)


def test_a_study_has_a_runner_while_it_runs(store: Store, study: StudyInfo) -> None:
    assert find_runner(store, study.id) is None
    with Lease(store, study):
        runner = find_runner(store, study.id)
        assert runner is not None
        assert (runner.pid, runner.host) == (os.getpid(), socket.gethostname())
        assert runner.may_live()
    assert find_runner(store, study.id) is None


def test_each_acquisition_has_a_higher_fence(store: Store, study: StudyInfo) -> None:
    fences = []
    for _ in range(3):
        with Lease(store, study) as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))


def test_a_wish_is_heard_at_most_once_a_second(store: Store, study: StudyInfo) -> None:
    clock = Clock()
    with clock.open(store, study) as lease:
        assert lease.hear_asker() is None
        runner = find_runner(store, study.id)
        assert runner is not None
        ask_to_stop(store, study.id, runner, "anna on host")
        clock.now += 0.9
        assert lease.hear_asker() is None
        clock.now += 0.2
        assert lease.hear_asker() == ("anna on host" if store.is_shared else None)  # in memory, nobody could ask


def test_a_wish_does_not_outlive_the_run_that_it_was_meant_for(store: Store, study: StudyInfo) -> None:
    with Lease(store, study):
        runner = find_runner(store, study.id)
        assert runner is not None
        ask_to_stop(store, study.id, runner, "anna")
    with Lease(store, study) as lease:
        assert lease.hear_asker() is None
    assert find_asker(store, study.id, runner) == "anna"


def test_a_holder_elsewhere_whose_counter_grows_is_left_alone(store: Store, study: StudyInfo) -> None:
    runner = place_elsewhere(store, study)
    clock = Clock(while_waiting=lambda: store.beat_lease(study.id, runner.fence))
    with pytest.raises(StudyError, match="'first' is still running, in process 1 on elsewhere; wait for it"):
        clock.open(store, study).__enter__()
    assert clock.now - 100 <= 1
    assert "waiting up to 60 s" in clock.told[0]


def test_a_holder_elsewhere_that_is_silent_is_replaced_after_a_minute_of_our_own_clock(
    store: Store, study: StudyInfo
) -> None:
    runner = place_elsewhere(store, study)
    clock = Clock()
    with clock.open(store, study) as lease:
        assert lease.fence > runner.fence
        assert clock.now - 100 == pytest.approx(SILENT_S, abs=1)


def test_a_holder_that_gives_the_lease_back_is_followed_at_once(store: Store, study: StudyInfo) -> None:
    runner = place_elsewhere(store, study)
    clock = Clock(while_waiting=lambda: store.release_lease(study.id, runner.fence))
    with clock.open(store, study):
        assert clock.now - 100 <= 1


def test_a_holder_that_wakes_up_while_it_is_replaced_keeps_the_lease(store: Store, study: StudyInfo) -> None:
    seen = find_runner_of(store, study, place_elsewhere(store, study))
    store.beat_lease(study.id, seen.fence)
    assert store.take_lease(study.id, Runner.here(), instead_of=seen) is None


def find_runner_of(store: Store, study: StudyInfo, runner: Runner) -> Runner:
    found = find_runner(store, study.id)
    assert found is not None
    assert found.holder == runner.holder
    return found


@pytest.mark.parametrize("what", ["add", "write", "note", "add_fact", "add_profile"])
def test_every_write_of_a_run_that_lost_its_lease_is_refused(store: Store, study: StudyInfo, what: str) -> None:
    if what in ("write", "note") and not store.is_shared:
        pytest.skip("no other process can take the lease of a study in memory")
    with Lease(store, study) as lease:
        recorder = Recorder(store, study, Space({"lr": uniform(0, 1)}), lease)
        lane = Lane(number=0, config={"lr": 0.5}, seed=0)
        writes: dict[str, Callable[[], object]] = {
            "add": lambda: recorder.add([lane]),
            "write": lambda: recorder.write([Report(number=0, epoch=1, metrics={"a": 1.0})]),
            "note": lambda: recorder.note("kind", "text"),
            "add_fact": lambda: recorder.add_fact("key", 1),
            "add_profile": lambda: recorder.add_fact("lanes: all", 1),
        }
        if what != "add":
            recorder.add([lane])
        place_elsewhere(store, study)
        with pytest.raises(StoreError, match="lost its study to process 1 on elsewhere"):
            writes[what]()
    assert len(store.trials(study.id)) == (what != "add")
    assert store.facts(study.id) == {}
    assert find_runner(store, study.id) is not None, "the other keeps it"


def test_without_a_lease_anybody_may_write(store: Store, study: StudyInfo) -> None:
    place_elsewhere(store, study)
    store.write(study.id, Batch(notes=(Note(kind="k", text="t"),)))
    assert len(store.notes(study.id)) == 1


def test_another_process_of_this_machine_is_refused_at_once_and_follows_once_the_holder_is_dead(
    shared_url: str,
) -> None:
    with open_store(shared_url) as store:
        store.create_study(INFO)
        study = store.study()
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, shared_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "running\n"
        clock = Clock()
        with pytest.raises(StudyError, match=f"still running, in process {holder.pid} on "):
            clock.open(store, study).__enter__()
        holder.kill()
        assert wait_without_burying(holder.pid)
        with clock.open(store, study):
            assert clock.now == 100, "neither took any time"
        holder.communicate()


def wait_without_burying(pid: int) -> bool:
    """Wait for the end of a child and leave its corpse: its number stays in use."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) is not None


def test_of_many_that_want_a_lease_at_once_one_gets_it(shared_url: str) -> None:
    with open_store(shared_url) as store:
        store.create_study(INFO)
    barrier = threading.Barrier(4)

    def take(_: int) -> int | None:
        with open_store(shared_url) as store:
            study = store.study()
            barrier.wait()
            return store.take_lease(study.id, Runner.here(), instead_of=None)

    with ThreadPoolExecutor(4) as pool:
        fences = list(pool.map(take, range(4)))
    assert sorted(fences, key=str) == [1, None, None, None]


def test_a_takeover_waits_for_a_write_that_has_begun(shared_url: str) -> None:
    """The check and the write are one: no lease changes hands between them."""
    with open_store(shared_url) as store, open_store(shared_url) as other:
        store.create_study(INFO)
        study = store.study()
        with Lease(store, study) as lease:
            seen = find_runner(store, study.id)
            order: list[str] = []

            def take() -> None:
                other.take_lease(study.id, Runner.here(), instead_of=seen)
                order.append("taken")

            taker = threading.Thread(target=take)
            with store._writing("", study.id, lease.fence):
                taker.start()
                taker.join(0.5)
                order.append("written")
            taker.join()
    assert order == ["written", "taken"]


def test_a_living_holder_adds_to_its_counter(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.store.leases.BEAT_S", 0.001)
    with open_store(shared_url) as store, open_store(shared_url, create=True) as other:
        store.create_study(INFO)
        study = store.study()
        with Lease(store, study):
            seen = other.read_lease(study.id)
            while other.read_lease(study.id) == seen:
                pass


def test_two_studies_that_start_at_once_get_two_names(shared_url: str) -> None:
    open_store(shared_url).close()
    barrier = threading.Barrier(6)

    def create(_: int) -> str:
        with open_store(shared_url) as store:
            barrier.wait()
            return store.create_numbered(INFO, "train").name

    with ThreadPoolExecutor(6) as pool:
        names = list(pool.map(create, range(6)))
    assert sorted(names) == [f"train-{number}" for number in range(1, 7)]


def test_a_clock_that_jumps_does_not_make_a_living_process_look_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner.here()
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert runner.may_live()
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert runner.may_live()


def test_a_later_process_with_the_same_number_is_another() -> None:
    runner = Runner.here()
    assert not replace(runner, process=f"{runner.process}1").may_live()


def test_a_trial_can_be_recorded_under_a_lease(store: Store, study: StudyInfo) -> None:
    with Lease(store, study) as lease:
        store.add_trials(study.id, [Lane(number=0, config={}, seed=0)], fence=lease.fence)
    assert len(store.trials(study.id)) == 1
