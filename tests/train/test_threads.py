"""How many threads a model that trains alone gets."""

from __future__ import annotations

from collections.abc import Callable

from headwater.train.threads import NUM_STEPS, PATIENCE_S, ThreadChooser


class Machine:
    """Takes steps whose time depends on the number of threads."""

    def __init__(self, most: int = 4) -> None:
        self.seconds = 0.0
        self.used: list[int] = []
        self.chooser = ThreadChooser(most, lambda: self.seconds, self.used.append)

    def run(self, count: int, step_s: Callable[[int], float]) -> None:
        for _ in range(count):
            self.seconds += step_s(self.used[-1] if self.used else 1)
            self.chooser.step()


def parallel(num_threads: int) -> float:
    return 0.1 / num_threads


def crowded(num_threads: int) -> float:
    return 0.1 if num_threads == 1 else 1.5


def test_an_idle_machine_gives_all_threads() -> None:
    machine = Machine()
    machine.run(100, parallel)
    assert machine.used == [1, 4]


def test_a_busy_machine_gives_one_and_is_asked_ever_more_rarely() -> None:
    machine = Machine()
    machine.run(20, crowded)
    assert machine.used == [1, 4, 1]
    machine.run(2000, crowded)
    assert machine.used[-1] == 1
    num_tries = machine.used.count(4)
    assert 3 < num_tries < 8
    assert machine.seconds - 0.1 * 2020 < num_tries * 3.5  # each try costs two slow steps


def test_threads_are_given_up_when_others_come_and_taken_again_when_they_go() -> None:
    machine = Machine()
    machine.run(30, parallel)
    machine.run(20, crowded)
    assert machine.used[-1] == 1
    machine.run(int(4 * PATIENCE_S / 0.1), parallel)
    assert machine.used[-1] == 4


def test_a_pause_between_epochs_changes_nothing() -> None:
    machine = Machine()
    machine.run(30, parallel)
    for _ in range(5):
        machine.run(1, lambda num_threads: 3.0)
        machine.run(NUM_STEPS, parallel)
    assert machine.used == [1, 4]


def test_one_thread_is_left_alone() -> None:
    machine = Machine(most=1)
    machine.run(10, parallel)
    assert machine.used == []
