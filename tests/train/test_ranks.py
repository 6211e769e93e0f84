"""Trials that several processes train: real ones, over gloo, with the numbers of one process alone."""

from __future__ import annotations

import pytest
from tests.train import rank_tasks
from tests.train.lab import Notebook, require_equal_states, run_alone
from tests.train.rank_lab import TIMEOUT_S, Done, Task, train_together

from headwater.trials import Outcome

CLOSE = 1e-9

pytestmark = pytest.mark.timeout(TIMEOUT_S + 60)

EXACT = [
    "train_mlp", "train_conv", "train_transformer", "train_with_sum_and_penalty", "train_accumulating",
    "train_two_heads", "train_loss_inside", "train_adversaries", "train_noisy", "train_checkpointed",
    "train_keeping_best",
]  # fmt: skip
"""Functions whose models are computed by rows."""
WHOLE = {
    "train_cross_rows": "its rows depend on each other",
    "train_keeping_loss": "it keeps tensors of a call in its attributes",
    "train_reading": "for some batches it reads a value from its batch that differs between parts of it",
    "train_hooked": "hooks look into it",
}
"""Functions whose models are not, and why."""
RESIZES = [
    Task("train_long", 2, until=2, states="long"),
    Task("train_long", 3, until=4, states="long"),
    Task("train_long", 1, states="long"),
]
MICRO = [Task("train_mlp", 1, 3), Task("train_transformer", 2, 2)]
LOADING = [Task("train_images", 2), Task("train_images", 3)]
RAISING = Task("train_raising_at_one_rank", 2)
UNLIKE = Task("train_with_other_batches", 2)
TASKS = [
    *(Task(name, num_ranks) for name in (*EXACT, *WHOLE) for num_ranks in (2, 3)),
    *RESIZES,
    *MICRO,
    *LOADING,
    RAISING,
    UNLIKE,
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, Task], Done]:
    return train_together(TASKS, tmp_path_factory.mktemp("ranks"))


def alone(function: str) -> Notebook:
    return run_alone(dict(rank_tasks.every_function())[function], {})


def require_as_alone(found: Done, expected: Notebook) -> None:
    assert found.ending.outcome is Outcome.DONE, found.ending.error
    reports = expected.reports[-len(found.history) :]
    assert [report.epoch for report in found.history] == [report.epoch for report in reports]
    for ours, theirs in zip(found.history, reports, strict=True):
        assert ours.metrics == pytest.approx(theirs.metrics, rel=CLOSE, abs=CLOSE)
    assert found.state is not None
    require_equal_states(found.state, expected.states[0], CLOSE)


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("function", EXACT)
def test_ranks_train_what_one_process_trains(done: dict[tuple[int, Task], Done], function: str, num_ranks: int) -> None:
    found = done[0, Task(function, num_ranks)]
    require_as_alone(found, alone(function))
    assert [note for note in found.ending.notes if "no effect before BatchNorm" not in note] == []


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("function", WHOLE)
def test_what_cannot_be_divided_is_computed_whole_and_noted(
    done: dict[tuple[int, Task], Done], function: str, num_ranks: int
) -> None:
    found = done[0, Task(function, num_ranks)]
    require_as_alone(found, alone(function))
    assert len(found.ending.notes) == 1
    assert found.ending.notes[0].endswith(WHOLE[function])


def test_a_trial_goes_on_with_another_number_of_ranks(done: dict[tuple[int, Task], Done]) -> None:
    expected = alone("train_long")
    stretches = [done[0, task] for task in RESIZES]
    assert [[report.epoch for report in found.history] for found in stretches] == [[1, 2], [3, 4], [5, 6]]
    history = [report.metrics for found in stretches for report in found.history]
    for ours, theirs in zip(history, [report.metrics for report in expected.reports], strict=True):
        assert ours == pytest.approx(theirs, rel=CLOSE, abs=CLOSE)
    assert stretches[-1].state is not None
    require_equal_states(stretches[-1].state, expected.states[0], CLOSE)


@pytest.mark.parametrize("task", MICRO, ids=str)
def test_micro_batches_train_what_whole_batches_train(done: dict[tuple[int, Task], Done], task: Task) -> None:
    require_as_alone(done[0, task], alone(task.function))
    assert done[0, task].ending.notes == ()


def test_only_the_first_rank_reports(done: dict[tuple[int, Task], Done]) -> None:
    ranks = [done[rank, Task("train_mlp", 3)] for rank in range(3)]
    assert [len(found.history) for found in ranks] == [rank_tasks.NUM_EPOCHS, 0, 0]


def test_a_rank_that_raises_ends_the_others_at_once(done: dict[tuple[int, Task], Done]) -> None:
    first, second = (done[rank, RAISING].ending for rank in range(2))
    assert (first.outcome, second.outcome) == (Outcome.LOST, Outcome.RAISED)
    assert "ValueError: this rank alone" in second.error
    assert first.error.startswith("rank 0 of 2 has lost the others")
    assert len(done[0, RAISING].history) == 1


def test_ranks_with_different_batches_raise(done: dict[tuple[int, Task], Done]) -> None:
    errors = [done[rank, UNLIKE].ending.error for rank in range(2)]
    assert all("TrialError: the ranks of a trial call Sequential with different batches" in error for error in errors)


@pytest.mark.parametrize("task", LOADING, ids=str)
def test_ranks_load_and_compute_their_part_of_a_batch(done: dict[tuple[int, Task], Done], task: Task) -> None:
    (ours,), (theirs,) = (done[0, task].history, alone(task.function).reports)
    assert ours.metrics["loss"] == pytest.approx(theirs.metrics["loss"], rel=CLOSE)
    assert (ours.metrics["loaded"], theirs.metrics["loaded"]) == (32, 64)  # in blocks of eight, from their start
    assert (ours.metrics["rows"], theirs.metrics["rows"]) == (32 // task.num_ranks, 32)
