"""A data set that computes with what is tuned gives each lane what its trial alone would get, or lanes part."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest
import torch
from tests.train import loading_acts as acts
from tests.train.lab import Notebook, open_lanes, run, run_alone
from torch import nn

from headwater.fuse.functorch import is_lane_tensor
from headwater.train import Trial, sources
from headwater.train.running import TrainingSetup, run_group
from headwater.train.streams import TimedAccess
from headwater.trials import Decision, Outcome, Report, TrialGroup

VALUES = (0.2, 0.9, 0.2, 0.5)
CONFIGS = [{"x": value, "lr": 0.1 + number / 10} for number, value in enumerate(VALUES)]


def train_on(
    read: Callable[[acts.Reading, int], Any],
    wrap: Callable[[acts.Reading], Any] = lambda data: data,
    collate: Callable[[acts.Reading, list[Any]], Any] | None = None,
    **options: Any,
) -> Callable[[Trial], None]:
    """Return a function that reports what comes of all batches, and of random numbers after each."""

    def train(trial: Trial) -> None:
        data = acts.Reading(trial.config["x"], read)
        given = {} if collate is None else {"collate_fn": partial(collate, data)}
        loader = trial.prepare_data_loader(wrap(data), batch_size=5, shuffle=True, **options, **given)
        for _ in trial.epochs(2):
            total = 0.0
            for batch in loader:
                total = total * 0.5 + acts.sum_up(batch) * trial.config["lr"]
            trial.report(loss=total + torch.rand(()).item())

    return train


def require_parity(train: Callable[[Trial], None]) -> None:
    together = run(train, CONFIGS)
    assert together.outcome is Outcome.DONE, f"{together.reason} {together.ending.error}"
    for number, config in enumerate(CONFIGS):
        assert together.notes.history(number) == run_alone(train, config).history(0)


@pytest.mark.parametrize("read", acts.TOGETHER)
def test_each_lane_reads_what_its_trial_alone_would(read: Callable[[acts.Reading, int], Any]) -> None:
    require_parity(train_on(read))


@pytest.mark.parametrize("read", acts.APART)
def test_a_data_set_that_keeps_what_it_computes_makes_lanes_part(read: Callable[[acts.Reading, int], Any]) -> None:
    together = run(train_on(read), CONFIGS)
    assert together.label is not None
    assert re.fullmatch(r".*\bx\b.*", together.label)


@pytest.mark.parametrize("wrap", [acts.subset, acts.joined])
def test_data_sets_of_torch_may_wrap_it(wrap: Callable[[acts.Reading], Any]) -> None:
    require_parity(train_on(acts.add_noise, wrap))


def test_worker_processes_leave_it_to_this_one() -> None:
    require_parity(train_on(acts.add_noise, num_workers=1))


def test_worker_processes_load_what_is_the_same_for_all_lanes() -> None:
    require_parity(train_on(acts.call_nothing_that_differs, num_workers=1))


def test_batches_may_be_collated_with_it() -> None:
    require_parity(train_on(acts.call_nothing_that_differs, collate=acts.mix_batch))


def test_batches_of_what_was_loaded_by_lane_are_collated_by_lane() -> None:
    require_parity(train_on(acts.add_noise, collate=acts.mix_batch))


def test_collating_may_not_draw_more_for_one_lane_than_for_another() -> None:
    together = run(train_on(acts.call_nothing_that_differs, collate=acts.draw_a_batch), CONFIGS)
    assert "how many random numbers it draws depends on that" in together.reason


def test_lanes_that_differ_in_shapes_part_by_what_makes_the_shapes() -> None:
    def train(trial: Trial) -> None:
        def crop(data: acts.Reading, index: int) -> Any:
            return acts.INPUTS[index][: trial.config["size"]] * data.x, 0

        for _ in trial.prepare_data_loader(acts.Reading(trial.config["x"], crop), batch_size=4):
            trial.report(loss=1.0)

    together = run(train, [{"x": 0.1 * (n + 1), "size": 1 + n % 2} for n in range(4)])
    assert together.label == "size"
    assert "it gives batches of different shapes or types: (4, 1)" in together.reason


def test_the_note_says_what_the_data_set_does_and_where() -> None:
    together = run(train_on(acts.keep_in_a_list), CONFIGS)
    assert "the data set computes with `x`, and it writes into a list that it keeps" in together.reason
    assert re.search(r"\(\w+\.py:\d+\)", together.reason)


def test_what_only_one_lane_raises_makes_lanes_part() -> None:
    def read(data: acts.Reading, index: int) -> Any:
        if data.x > 0.8:
            raise ValueError("too large")
        return acts.INPUTS[index] * data.x, 0

    together = run(train_on(read), CONFIGS)
    assert together.outcome is not Outcome.DONE
    assert "too large" in together.reason


def test_lanes_that_leave_take_their_examples_along() -> None:
    train = train_on(acts.add_noise)

    def decide(report: Report) -> Decision:
        return Decision.STOP if report.number == 1 else Decision.CONTINUE

    together = run(train, CONFIGS, decide)
    for number in (0, 2, 3):
        assert together.notes.history(number) == run_alone(train, CONFIGS[number]).history(0)


def test_lanes_that_leave_within_a_pass_leave_the_others_theirs() -> None:
    def train(trial: Trial) -> None:
        loader = trial.prepare_data_loader(acts.Reading(trial.config["x"], acts.add_noise), batch_size=3)
        for x, _ in loader:
            trial.report(loss=x.sum())

    def decide(report: Report) -> Decision:
        return Decision.STOP if report.number == 0 and report.epoch == 2 else Decision.CONTINUE

    together = run(train, CONFIGS, decide)
    for number in (1, 2, 3):
        assert together.notes.history(number) == run_alone(train, CONFIGS[number]).history(0)


def test_labels_that_lanes_share_stay_plain() -> None:
    seen: list[bool] = []

    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(3, 4).double())
        loader = trial.prepare_data_loader(acts.Reading(trial.config["x"], acts.add_noise), batch_size=8)
        for x, y in loader:
            seen.append(is_lane_tensor(y))
            trial.report(loss=nn.functional.cross_entropy(model(x), y))

    assert run(train, CONFIGS).outcome is Outcome.DONE
    assert not any(seen)


def test_what_lanes_load_for_themselves_is_told_from_what_can_be_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(sources, "read_clock", lambda: float(next(ticks)))
    found = []
    for read in (acts.add_noise, acts.read_plainly):
        access = TimedAccess()
        group = TrialGroup(lanes=open_lanes(dict(enumerate(CONFIGS))))
        ending = run_group(TrainingSetup(train_on(read), access=access, always_fuse=True), group, Notebook())
        assert ending.outcome is Outcome.DONE
        found.append((access.load_s, access.repeat_s))
    (load_s, repeat_s), (shared_s, nothing_s) = found
    assert load_s * len(CONFIGS) == pytest.approx(shared_s)
    assert repeat_s == pytest.approx(shared_s - load_s)
    assert nothing_s == 0.0
