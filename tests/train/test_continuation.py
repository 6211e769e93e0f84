"""A trial that goes on after a pause reports exactly the numbers that it would have reported without the pause."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train import continued_loops as loops
from tests.train.continued_loops import CONTINUED, NUM_EPOCHS, RESTARTED, prepare, step
from tests.train.lab import Notebook, run, run_alone
from tests.train.pausing import PausedTrial, require_same, train_straight, train_with_pauses
from torch import Tensor, nn

from headwater.errors import StudyError
from headwater.train import Trial
from headwater.train.checkpoint import decode_state, encode_state
from headwater.train.running import TrainingSetup, run_group
from headwater.trials import Outcome, TrialGroup


def require_trained(trials: list[PausedTrial], num_epochs: int = NUM_EPOCHS) -> None:
    """Fail where a trial has raised, or has not reported all its epochs."""
    assert [trial.error for trial in trials] == [""] * len(trials)
    assert [len(trial.metrics) for trial in trials] == [num_epochs] * len(trials)


CONFIGS = [{"lr": 0.05}, {"lr": 0.1}, {"lr": 0.2}]


@pytest.mark.parametrize("function", CONTINUED, ids=lambda function: function.__name__)
def test_a_trial_alone_goes_on_exactly(function: Callable[[Trial], None]) -> None:
    paused = train_with_pauses(function, CONFIGS)
    require_trained(paused)
    require_same(paused, train_straight(function, CONFIGS))
    assert [trial.obstacle for trial in paused] == [""] * 3
    assert [trial.num_restarts for trial in paused] == [0] * 3


@pytest.mark.parametrize("function", CONTINUED, ids=lambda function: function.__name__)
def test_lanes_go_on_in_other_groups(function: Callable[[Trial], None]) -> None:
    paused = train_with_pauses(function, CONFIGS, size=3)
    require_trained(paused)
    require_same(paused, train_straight(function, CONFIGS), tolerance=1e-9)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("function", RESTARTED, ids=lambda function: function.__name__)
def test_a_loop_that_cannot_be_continued_is_trained_again(function: Callable[[Trial], None], size: int) -> None:
    paused = train_with_pauses(function, CONFIGS, size=size)
    require_trained(paused)
    require_same(paused, train_straight(function, CONFIGS), tolerance=0.0 if size == 1 else 1e-9)
    assert all(trial.num_restarts > 0 and trial.obstacle for trial in paused)


@pytest.mark.parametrize("size", [1, 3])
def test_a_number_that_the_set_up_reads_outside_stays_the_first(tmp_path: Path, size: int) -> None:
    def train(trial: Trial) -> None:
        model, optimizer = prepare(trial)
        folder = tmp_path / str(trial.config["lr"])
        is_new = not folder.exists()
        folder.mkdir(exist_ok=True)
        for _ in trial.epochs(NUM_EPOCHS):
            trial.report(loss=step(model, optimizer), is_new=is_new)

    paused = train_with_pauses(train, CONFIGS, size=size)
    require_trained(paused)
    assert [[metrics["is_new"] for metrics in trial.metrics] for trial in paused] == [[1.0] * NUM_EPOCHS] * 3


class Curve:
    """An object that says itself how it is saved; its attribute is of a kind that cannot be."""

    def __init__(self) -> None:
        self.numbers = iter(range(100))
        self.count = 0

    def draw(self) -> int:
        self.count += 1
        return next(self.numbers)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self.numbers = iter(range(self.count, 100))


def keep_curve(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    curve = Curve()
    trial.keep(curve=curve)
    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=step(model, optimizer), drawn=curve.draw())


@pytest.mark.parametrize("size", [1, 3])
def test_a_declared_object_goes_on_by_its_own_state_dict(size: int) -> None:
    paused = train_with_pauses(keep_curve, CONFIGS, size=size)
    require_trained(paused)
    require_same(paused, train_straight(keep_curve, CONFIGS), tolerance=1e-9)
    assert [trial.num_restarts for trial in paused] == [0] * 3


@pytest.mark.parametrize(
    ("values", "message"),
    [([{"a": 3}], "lacks state_dict or load_state_dict"), ([{"a": Curve()}, {"a": Curve()}], "a second time")],
)
def test_keep_refuses_values_that_it_cannot_save(values: list[dict[str, Any]], message: str) -> None:
    def train(trial: Trial) -> None:
        for each in values:
            trial.keep(**each)

    assert message in run(train, [{}]).ending.error


@pytest.mark.parametrize("size", [1, 3])
def test_an_open_file_is_named_with_its_variable_and_line(size: int, tmp_path: Path) -> None:
    def train(trial: Trial) -> None:
        model, optimizer = prepare(trial)
        with (tmp_path / "log.txt").open("a") as log:
            for _ in trial.epochs(3):
                loss = step(model, optimizer)
                log.flush()
                trial.report(loss=loss)

    paused = train_with_pauses(train, CONFIGS, size=size)
    line = train.__code__.co_firstlineno + 2
    assert all(trial.num_restarts == 3 for trial in paused)
    assert f"`log` (test_continuation.py:{line}) is an open file (open a log in each epoch" in paused[0].obstacle


def test_a_checkpoint_is_refused_where_the_set_up_makes_other_data() -> None:
    def train(trial: Trial) -> None:
        model, optimizer = prepare(trial)
        split = torch.frombuffer(bytearray(os.urandom(800)), dtype=torch.uint8)
        for _ in trial.epochs(2):
            trial.report(loss=step(model, optimizer) + 0 * split.sum())

    with pytest.raises(
        StudyError, match=r"`split` \(test_continuation.py:\d+\) holds other data than before the pause"
    ):
        train_with_pauses(train, CONFIGS[:1])


def test_data_that_the_set_up_makes_again_are_not_in_the_checkpoint() -> None:
    def train(trial: Trial) -> None:
        model, optimizer = prepare(trial)
        data = torch.randn(100_000, dtype=torch.float64)
        for _ in trial.epochs(2):
            trial.report(loss=step(model, optimizer) + data.mean())

    (trial,) = train_with_pauses(train, CONFIGS[:1])
    assert trial.checkpoint is not None
    assert len(trial.checkpoint) < 20_000


class Trap:
    """An object whose construction from a file would be noticed."""

    is_sprung = False

    def __init__(self) -> None:
        self.value = 1

    def __setstate__(self, state: Any) -> None:
        Trap.is_sprung = True

    def __reduce__(self) -> Any:
        return pickle.loads, (b"",)


def test_loading_a_checkpoint_runs_no_code_of_the_file() -> None:
    def train(trial: Trial) -> None:
        model, optimizer = prepare(trial)
        trap = Trap()
        for epoch in trial.epochs(3):
            trap.value += epoch
            trial.report(loss=step(model, optimizer), value=trap.value)

    paused = train_with_pauses(train, CONFIGS[:1])
    require_trained(paused, 3)
    require_same(paused, train_straight(train, CONFIGS[:1]))
    assert paused[0].num_restarts == 0
    assert not Trap.is_sprung


def test_a_checkpoint_of_a_class_that_the_set_up_does_not_make_is_refused() -> None:
    def train(trial: Trial) -> None:
        model, optimizer = prepare(trial)
        meter = loops.Meter()
        for epoch in trial.epochs(3):
            meter.update(epoch)
            trial.report(loss=step(model, optimizer))

    (trial,) = train_with_pauses(train, CONFIGS[:1])
    assert trial.checkpoint is not None
    state = decode_state(trial.checkpoint, "pausing", 0)
    state.loop["roots"]["0:meter"] = ["new", len(state.loop["new"])]
    state.loop["new"].append({"class": "0:somewhere", "kind": "object", "attributes": {}})
    again = PausedTrial(0, CONFIGS[0], trial.metrics[:1], encode_state(state, "pausing", 0))
    lane, loaded = again.open()
    assert loaded is not None
    with pytest.raises(StudyError, match="has not made when it was called again"):
        run_group(TrainingSetup(train), TrialGroup(lanes=(lane,)), Notebook(), [loaded])


def test_every_trial_finds_the_globals_as_they_were_before_the_first() -> None:
    setup = TrainingSetup(loops.global_list)
    found = []
    for number in range(2):
        notes = run(loops.global_list, {number: CONFIGS[0]}, always_fuse=False).notes
        found.append(notes.history(number, "total"))
        again = run_group(setup, TrialGroup(lanes=PausedTrial(number, CONFIGS[0]).open()[:1]), notes)
        assert again.outcome is Outcome.DONE
    assert found[0] == found[1]
    assert loops.history == []
    assert loops.totals == {"sum": 0.0}


leaf = torch.zeros(3, requires_grad=True)


def test_every_trial_finds_a_tensor_of_the_module_without_a_gradient() -> None:
    def train(trial: Trial) -> None:
        for _ in trial.epochs(2):
            leaf.sum().backward()
            assert leaf.grad is not None
            trial.report(loss=leaf.grad.sum())

    found = [run_alone(train, CONFIGS[0]).history(0) for _ in range(2)]
    assert found == [[3.0, 6.0]] * 2
    assert leaf.grad is None


def test_globals_are_put_back_after_lanes_have_parted() -> None:
    def train(trial: Trial) -> None:
        for epoch in trial.epochs(3):
            loops.history.append(1.0)
            if epoch == 1 and len(str(trial.config["lr"])) > 3:
                raise ValueError("some lanes only")
            trial.report(loss=len(loops.history))

    parted = run(train, CONFIGS)
    assert parted.outcome is not Outcome.DONE
    assert run_alone(train, CONFIGS[1]).history(0) == [1.0, 2.0, 3.0]


def test_a_cache_with_new_entries_is_named_with_its_line_and_the_way_out() -> None:
    (trial,) = train_with_pauses(loops.global_cache, CONFIGS[:1])
    line = loops.draw_number.__wrapped__.__code__.co_firstlineno
    assert f"`draw_number` of {loops.__name__} is a cached function (continued_loops.py:{line})" in trial.obstacle
    assert "call its cache_clear()" in trial.obstacle


def test_every_trial_finds_a_cache_of_the_module_empty() -> None:
    found = [run_alone(loops.global_cache, CONFIGS[0]).history(0) for _ in range(2)]
    assert found[0] == found[1]
    assert loops.draw_number.cache_info().currsize == 0


@cache
def load_data() -> Tensor:
    return torch.ones(3)


def test_a_cache_of_the_module_that_was_filled_before_keeps_its_entries() -> None:
    def train(trial: Trial) -> None:
        for _ in trial.epochs(1):
            trial.report(loss=load_data().sum())

    kept = load_data()
    assert run_alone(train, CONFIGS[0]).history(0) == [3.0]
    assert load_data() is kept


def test_a_cache_of_the_module_that_was_filled_before_is_refused_where_it_gets_entries() -> None:
    loops.draw_number(-1)
    try:
        with pytest.raises(StudyError, match=r"`draw_number`.* call its cache_clear\(\) before the study"):
            run_alone(loops.global_cache, CONFIGS[0])
    finally:
        loops.draw_number.cache_clear()
        loops.numbers[:] = range(20)


big = torch.zeros(1 << 18, dtype=torch.float64)


def test_a_large_global_tensor_that_is_changed_in_place_is_refused() -> None:
    def train(trial: Trial) -> None:
        big.add_(1)
        for _ in trial.epochs(1):
            trial.report(loss=1.0)

    with pytest.raises(StudyError, match="changes the global variable `big` in place"):
        run(train, [{}])


@pytest.mark.parametrize("size", [1, 3])
def test_code_after_the_last_report_of_a_trial_that_raises_does_not_undo_its_report(size: int) -> None:
    def train(trial: Trial) -> None:
        for _ in trial.epochs(2):
            trial.report(loss=1.0)
            raise ValueError("after the report")

    done = run(train, CONFIGS[:size], always_fuse=size > 1)
    assert [report.epoch for report in done.notes.reports] == [1] * size
    assert "after the report" in done.ending.error


def test_a_backward_pass_through_a_tensor_of_before_the_pause_fails() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1))
        kept: Any = 0.0
        for epoch in trial.epochs(2):
            loss = model(torch.ones(1)).sum()
            if epoch:
                (loss + kept).backward()
            else:
                kept = loss
            trial.report(loss=loss)

    (trial,) = train_with_pauses(train, [{}])
    assert "computed before a pause of the trial" in trial.error


@pytest.mark.parametrize("function", [loops.attributes_of_an_optimizer, loops.gradients_in_one_buffer])
def test_loops_that_train_separately_go_on_exactly(function: Callable[[Trial], None]) -> None:
    paused = train_with_pauses(function, CONFIGS)
    require_trained(paused)
    require_same(paused, train_straight(function, CONFIGS))
