"""Which states are saved and whose weights are kept, without a tensor."""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from tests.clocks import JumpingClock

from headwater.conduct.saving import SAVING_SHARE, TrialStates
from headwater.store import StateFiles
from headwater.store.state_files import name_kept
from headwater.store.state_format import StateHeader, seal_state
from headwater.trials import Constraint, Objective, Report, Saved, StatesPlace, Status, TrialRecord

NO_TENSORS = (2).to_bytes(8, "little") + b"{}"


def make_states(
    folder: Path, *known: TrialRecord, kept: tuple[int, int] | None = None, mode: str = "min", **saving: Any
) -> TrialStates:
    files = StateFiles(StatesPlace(url=str(folder), study="mine", kept=kept))
    return TrialStates(files, Objective("loss", mode), known, **saving)


def save(states: TrialStates, folder: Path, *numbers: int, epoch: int = 1) -> Saved:
    """Write states as a worker would, and return what it tells."""
    for number in numbers:
        header = StateHeader(study="mine", trial=number, epoch=epoch, tree='{"$map": []}')
        (folder / f"{number}-{epoch}.safetensors").write_bytes(seal_state(header, NO_TENSORS))
    return Saved(key=0, group=0, epochs=dict.fromkeys(numbers, epoch))


def report(number: int, loss: float) -> Report:
    return Report(number=number, epoch=1, metrics={"loss": loss})


def test_saving_takes_no_more_than_its_share_of_the_time(tmp_path: Path) -> None:
    clock = JumpingClock()
    begin, states, num_saved = clock(), make_states(tmp_path, every="auto", clock=clock), 0
    for epoch in range(1, 1001):
        clock.jump(0.5)
        if states.is_due(epoch):
            clock.jump(1.0)
            states.take_saved(Saved(key=0, group=0, epochs={}, seconds=1.0))
            num_saved += 1
    assert num_saved / (clock() - begin) == pytest.approx(SAVING_SHARE, rel=0.1)


def test_a_trial_is_saved_after_every_so_many_epochs(tmp_path: Path) -> None:
    states = make_states(tmp_path, every=3)
    assert [epoch for epoch in range(1, 8) if states.is_due(epoch)] == [3, 6]


def test_without_an_interval_nothing_is_due(tmp_path: Path) -> None:
    assert not make_states(tmp_path, every=None).is_due(1)


def test_who_pauses_is_saved_always_and_who_goes_on_when_it_is_due(tmp_path: Path) -> None:
    states = make_states(tmp_path)
    reports = [report(number, 1.0) for number in range(4)]
    leaving = {0: Status.PAUSED, 1: Status.STOPPED}
    assert states.choose_saved(reports, leaving, is_due=False) == [0]
    assert states.choose_saved(reports, leaving, is_due=True) == [0, 2, 3]


def test_the_weights_of_a_trial_that_ends_are_kept_if_it_is_the_best_so_far(tmp_path: Path) -> None:
    states = make_states(tmp_path)
    assert states.choose_kept([report(0, 0.5), report(1, 0.4)]) == 1
    assert states.choose_kept([report(2, 0.6)]) is None
    assert states.choose_kept([report(3, 0.4)]) is None
    assert states.choose_kept([report(4, math.nan), report(5, -math.inf)]) is None
    assert states.choose_kept([]) is None
    assert states.choose_kept([report(6, 0.3)]) == 6


def test_nothing_that_is_not_finite_is_kept(tmp_path: Path) -> None:
    assert make_states(tmp_path).choose_kept([report(0, math.nan), report(1, math.inf)]) is None


def test_in_mode_max_the_largest_is_kept(tmp_path: Path) -> None:
    states = make_states(tmp_path, mode="max")
    assert states.choose_kept([report(0, 0.5), report(1, 0.7)]) == 1
    assert states.choose_kept([report(2, 0.6)]) is None


def test_a_trial_that_keeps_to_the_constraints_is_kept_before_all_that_do_not(tmp_path: Path) -> None:
    files = StateFiles(StatesPlace(url=str(tmp_path), study="mine"))
    states = TrialStates(files, Objective("loss", constraints=(Constraint("size", "<=", 10),)))

    def choose(number: int, loss: float, size: float) -> int | None:
        return states.choose_kept([Report(number=number, epoch=1, metrics={"loss": loss, "size": size})])

    assert choose(0, 0.1, 30) == 0, "the nearest, while there is nothing better"
    assert choose(1, 0.2, 20) == 1
    assert choose(2, 0.9, 10) == 2
    assert choose(3, 0.1, 11) is None
    assert choose(4, math.nan, 5) is None


def test_a_resumed_study_compares_with_the_trial_whose_weights_are_kept(tmp_path: Path) -> None:
    states = make_states(tmp_path, make_record(7, Status.COMPLETED, 0.4), kept=(7, 1))
    assert states.choose_kept([report(8, 0.5)]) is None
    assert states.choose_kept([report(9, 0.3)]) == 9


def test_a_paused_trial_that_is_dropped_is_kept_if_its_last_value_is_better(tmp_path: Path) -> None:
    states = make_states(tmp_path)
    states.see([report(1, 0.2)])
    states.take_saved(save(states, tmp_path, 1))
    assert states.choose_kept([report(0, 0.5)]) == 0
    states.drop(1)
    assert states.files.kept == (1, 1)


def test_a_state_goes_when_a_newer_one_is_recorded(tmp_path: Path) -> None:
    states = make_states(tmp_path)
    states.take_saved(save(states, tmp_path, 0, epoch=1))
    newer = save(states, tmp_path, 0, epoch=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-1.safetensors", "0-2.safetensors"]
    states.take_saved(newer)
    assert [path.name for path in tmp_path.iterdir()] == ["0-2.safetensors"]


def test_a_dropped_trial_that_is_the_best_is_kept_apart(tmp_path: Path) -> None:
    states = make_states(tmp_path)
    for number, loss in ((0, 0.4), (1, 0.6)):
        states.see([report(number, loss)])
    states.take_saved(save(states, tmp_path, 0, 1))
    states.drop(0)
    states.drop(1)
    assert states.files.kept == (0, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["best-0-1.safetensors"]


def test_a_trial_that_fails_after_a_good_report_is_not_the_best(tmp_path: Path) -> None:
    states = make_states(tmp_path)
    states.see([report(0, 0.1)])
    states.take_saved(save(states, tmp_path, 0))
    states.fail(0)
    states.drop(0)
    assert states.files.kept is None


def test_where_no_trial_came_to_its_end_the_best_under_way_is_kept(tmp_path: Path) -> None:
    states = make_states(tmp_path)
    for number, loss in ((0, 0.6), (1, 0.4), (2, 0.5)):
        states.see([report(number, loss)])
    states.take_saved(save(states, tmp_path, 0, 1, 2))
    states.keep_unfinished()
    assert states.files.kept == (1, 1)
    assert list(states.files) == [0, 1, 2]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_trials_that_end_at_the_same_time_the_best_is_kept(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Each is the best when it reports; all have written their weights before the first is heard of."""
    states = make_states(tmp_path)
    for number in range(3):
        assert states.choose_kept([report(number, 3.0 - number)]) == number
        (tmp_path / name_kept(number, 1)).touch()
    for number in order:
        event = Saved(key=0, group=number, epochs={}, kept={number: 1})
        states.take_saved(states.leave_out_overtaken(event))
        assert states.files.kept is not None
        assert (tmp_path / name_kept(*states.files.kept)).exists()
    assert states.files.kept == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == [name_kept(2, 1)]


def make_record(number: int, status: Status, *losses: float) -> TrialRecord:
    history = tuple(Report(number=number, epoch=epoch, metrics={"loss": loss}) for epoch, loss in enumerate(losses, 1))
    return TrialRecord(number=number, config={}, status=status, history=history, error=None, seconds=1.0)


def test_an_older_state_of_a_trial_that_had_ended_is_not_what_it_came_to(tmp_path: Path) -> None:
    """A run that broke off has recorded the trial's end, and has not come to remove its last state but one."""
    save(make_states(tmp_path), tmp_path, 0, epoch=1)
    states = make_states(tmp_path, make_record(0, Status.COMPLETED, 0.5, 0.4), kept=(0, 2))
    assert list(states.files) == []
    states.keep_unfinished()
    assert states.files.kept == (0, 2)


def test_the_last_state_of_a_trial_that_was_let_go_is_kept_if_it_is_the_best(tmp_path: Path) -> None:
    save(make_states(tmp_path), tmp_path, 0, 1, 2, epoch=1)
    states = make_states(
        tmp_path,
        make_record(0, Status.STOPPED, 0.5),
        make_record(1, Status.FAILED, 0.3),
        make_record(2, Status.STOPPED, 0.4),
    )
    assert states.files.kept == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["best-2-1.safetensors"]


def test_a_state_that_is_older_than_what_is_kept_is_not_kept(tmp_path: Path) -> None:
    save(make_states(tmp_path), tmp_path, 0, epoch=1)
    states = make_states(tmp_path, make_record(0, Status.RUNNING, 0.5, 0.4), kept=(0, 2))
    states.keep_unfinished()
    assert states.files.kept == (0, 2)


def test_weights_that_an_earlier_run_left_behind_go(tmp_path: Path) -> None:
    (tmp_path / name_kept(4, 2)).touch()
    states = make_states(tmp_path)
    (tmp_path / name_kept(5, 9)).touch()
    states.files.set_kept(5, 9)
    assert [path.name for path in tmp_path.iterdir()] == [name_kept(5, 9)]
