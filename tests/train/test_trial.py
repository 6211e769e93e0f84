"""What the training function holds: epochs, reports, and what it says when it is misused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from typing import Any, cast

import numpy as np
import pytest
import torch
from tests.train.lab import SEED, Notebook, go_on, open_lanes, run, run_alone, run_done
from torch import nn
from torch.utils.data import TensorDataset

from headwater.train import Trial
from headwater.train.compiling import Compiler
from headwater.train.running import TrainingSetup, run_group
from headwater.train.seeding import mix_seed
from headwater.trials import Decision, Outcome, Report, TrialGroup

TWO = [{"lr": 0.1}, {"lr": 0.2}]

fused_and_plain = pytest.mark.parametrize("configs", [TWO, TWO[:1]], ids=["group", "alone"])


def run_either(function: Callable[[Trial], Any], configs: list[dict[str, Any]], **options: Any) -> Any:
    return run(function, configs, always_fuse=len(configs) > 1, **options)


def refusal(function: Callable[[Trial], Any], configs: list[dict[str, Any]] = TWO) -> str:
    """Return the last line of what a misused trial says."""
    done = run_either(function, configs)
    assert done.outcome is Outcome.RAISED
    return str(done.ending.error).strip().splitlines()[-1]


@fused_and_plain
def test_epochs_count_from_zero_and_reports_from_one(configs: list[dict[str, Any]]) -> None:
    seen = []

    def train(trial: Trial) -> None:
        for epoch in trial.epochs(3):
            seen.append(epoch)
            trial.report(loss=1.0)

    notes = run_either(train, configs).notes
    assert seen == [0, 1, 2]
    assert notes.epochs(0) == [1, 2, 3]
    assert notes.num_epochs == [3]


def test_reports_without_epochs_are_numbered_in_turn() -> None:
    def train(trial: Trial) -> None:
        for _ in range(3):
            trial.report(loss=1.0)

    assert run_done(train, TWO).epochs(1) == [1, 2, 3]


def test_a_report_after_the_last_epoch_counts_on() -> None:
    def train(trial: Trial) -> None:
        for _ in trial.epochs(2):
            trial.report(loss=1.0)
        trial.report(loss=0.5)

    assert run_done(train, TWO).epochs(0) == [1, 2, 3]


def test_an_epoch_without_a_report_keeps_its_number() -> None:
    def train(trial: Trial) -> None:
        for epoch in trial.epochs(5):
            if epoch % 2:
                trial.report(loss=1.0)

    assert run_done(train, TWO).epochs(0) == [2, 4]


def test_two_reports_in_an_epoch_have_different_numbers() -> None:
    def train(trial: Trial) -> None:
        for _ in trial.epochs(2):
            trial.report(loss=1.0)
            trial.report(loss=0.5)

    epochs = run_done(train, TWO).epochs(0)
    assert epochs == sorted(set(epochs))
    assert len(epochs) == 4


@fused_and_plain
def test_every_epoch_draws_from_a_seed_of_its_own(configs: list[dict[str, Any]]) -> None:
    drawn: list[Any] = []

    def train(trial: Trial) -> None:
        drawn.extend(torch.rand(1).item() for _ in trial.epochs(2))

    run_either(train, configs)
    expected = [
        torch.rand(1, generator=torch.Generator().manual_seed(mix_seed(SEED, "epoch", epoch))).item()
        for epoch in (0, 1)
    ]
    assert drawn == expected


def test_the_function_starts_from_the_seed_of_the_study() -> None:
    drawn: list[Any] = []

    def train(trial: Trial) -> None:
        drawn.append((trial.seed, torch.rand(1).item(), float(np.random.rand())))

    run(train, TWO)
    run(train, TWO[:1], always_fuse=False)
    assert drawn[0] == drawn[1]
    assert drawn[0][0] == SEED


@pytest.mark.parametrize(
    "value",
    [0.5, 1, True, np.float32(0.5), np.array(0.5), torch.tensor(0.5), torch.tensor([[0.5]])],
    ids=["float", "int", "bool", "numpy number", "numpy array", "tensor", "tensor of one element"],
)
@fused_and_plain
def test_a_number_in_any_form_is_reported_for_every_lane(value: Any, configs: list[dict[str, Any]]) -> None:
    notes = run_either(lambda trial: trial.report(loss=value), configs).notes
    assert [notes.history(number) for number in range(len(configs))] == [[float(value)]] * len(configs)
    assert all(type(report.metrics["loss"]) is float for report in notes.reports)


def test_numbers_that_differ_are_reported_lane_by_lane() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(1.0).mul_(trial.config["lr"])
        output = model(torch.ones(1, 1))
        trial.report(number=trial.config["lr"] * 10, tensor=output.sum(), column=output, shared=7)

    notes = run_done(train, TWO)
    assert notes.history(0, "number") == [1.0]
    assert notes.history(1, "number") == [2.0]
    assert notes.history(0, "tensor") == notes.history(0, "column") == [pytest.approx(0.2)]
    assert notes.history(1, "tensor") == notes.history(1, "column") == [pytest.approx(0.4)]
    assert notes.history(1, "shared") == [7.0]


@pytest.mark.parametrize(
    "garbage",
    ["high", None, [1, 2], torch.ones(3), {"a": 1}, object()],
    ids=["text", "none", "list", "tensor", "dict", "object"],
)
@fused_and_plain
def test_what_is_no_number_is_refused(garbage: Any, configs: list[dict[str, Any]]) -> None:
    assert "TrialError: report takes numbers, not" in refusal(lambda trial: trial.report(loss=garbage), configs)


def test_a_lanes_tensor_of_several_elements_is_refused() -> None:
    def train(trial: Trial) -> None:
        trial.report(loss=trial.prepare_model(nn.Linear(2, 3))(torch.ones(2)))

    assert "report takes numbers, not a tensor of shape (3,); reduce it first" in refusal(train)


def test_words_that_differ_by_lane_are_refused() -> None:
    configs: list[dict[str, Any]] = [{"rate": 0.5}, {"rate": 0.25}]
    assert "TrialError" in refusal(lambda trial: trial.report(loss=f"{trial.config['rate']} or so"), configs)


def test_a_report_without_a_metric_is_refused() -> None:
    assert "name at least one" in refusal(lambda trial: trial.report())


@fused_and_plain
def test_a_model_that_is_no_module_is_refused(configs: list[dict[str, Any]]) -> None:
    assert "takes a module or a function" in refusal(lambda trial: trial.prepare_model(3), configs)  # type: ignore[arg-type]
    assert "returned int, not a torch.nn.Module" in refusal(lambda trial: trial.prepare_model(lambda: 3), configs)  # type: ignore[type-var]


@fused_and_plain
def test_data_that_is_none_is_refused(configs: list[dict[str, Any]]) -> None:
    assert "give it a Dataset" in refusal(lambda trial: trial.prepare_data_loader(3), configs)


@fused_and_plain
def test_an_optimizer_that_torch_does_not_have_is_refused_by_name(configs: list[dict[str, Any]]) -> None:
    def train(trial: Trial) -> None:
        trial.prepare_optimizer("SDG", trial.prepare_model(nn.Linear(1, 1)), lr=0.1)

    assert "SDG" in refusal(train, configs)


@fused_and_plain
def test_a_scheduler_that_torch_does_not_have_is_refused_by_name(configs: list[dict[str, Any]]) -> None:
    def train(trial: Trial) -> None:
        optimizer = trial.prepare_optimizer("SGD", trial.prepare_model(nn.Linear(1, 1)), lr=0.1)
        trial.prepare_scheduler("StepLRR", optimizer, step_size=1)

    assert "StepLRR" in refusal(train, configs)


@fused_and_plain
def test_what_torch_says_about_a_hyperparameter_is_passed_on(configs: list[dict[str, Any]]) -> None:
    def train(trial: Trial) -> None:
        trial.prepare_optimizer(torch.optim.SGD, trial.prepare_model(nn.Linear(1, 1)), lr=-trial.config["lr"])

    assert "Invalid learning rate" in refusal(train, configs)


@fused_and_plain
def test_names_of_optimizers_and_schedulers_do_as_well_as_classes(configs: list[dict[str, Any]]) -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1))
        optimizer = trial.prepare_optimizer("SGD", model.parameters(), lr=trial.config["lr"])
        scheduler = trial.prepare_scheduler("StepLR", optimizer, step_size=1, gamma=0.5)
        model(torch.ones(2, 1)).sum().backward()
        optimizer.step()
        scheduler.step()
        trial.report(lr=scheduler.get_last_lr()[0])

    notes = run_either(train, configs).notes
    assert [notes.history(number, "lr") for number in range(len(configs))] == [[config["lr"] / 2] for config in configs]


def test_an_instance_is_copied_and_left_as_it_was() -> None:
    shared = nn.Linear(2, 2)
    before = shared.weight.detach().clone()

    def train(trial: Trial) -> None:
        model = trial.prepare_model(shared)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        trial.report(loss=model(torch.ones(1, 2)).sum())

    group, alone = run_done(train, TWO), run_alone(train, TWO[1])
    assert torch.equal(shared.weight, before)
    assert group.history(1) == pytest.approx(alone.history(0))


def test_steps_of_the_first_optimizer_are_counted_for_every_lane() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(2, 2))
        loader = trial.prepare_data_loader(TensorDataset(torch.ones(6, 2)), batch_size=2)
        first = trial.prepare_optimizer(torch.optim.SGD, [model.weight], lr=trial.config["lr"])
        second = trial.prepare_optimizer(torch.optim.SGD, [model.bias], lr=0.1)
        for _ in trial.epochs(2):
            for (x,) in loader:
                model(x).sum().backward()
                first.step()
                second.step()
            trial.report(loss=1.0)

    done = run(train, TWO, decide=stop_first)
    assert done.notes.num_lanes_by_step == [2, 2, 2, 1, 1, 1]
    assert done.ending.num_lane_steps == 9


def stop_first(report: Report) -> Decision:
    return Decision.STOP if report.number == 0 else Decision.CONTINUE


def test_epochs_are_counted_once() -> None:
    def train(trial: Trial) -> None:
        for _ in trial.epochs(1):
            trial.report(loss=1.0)
        for _ in trial.epochs(1):
            trial.report(loss=2.0)

    assert "trial.epochs was called a second time" in run(train, [{}]).ending.error


@pytest.mark.parametrize("count", ["3", 2.5, -1, None, True])
def test_what_is_no_number_of_epochs_is_refused(count: object) -> None:
    def train(trial: Trial) -> None:
        list(trial.epochs(count))  # type: ignore[arg-type]  # that is the point

    assert f"trial.epochs got {count!r}; give it how many epochs to train" in run(train, [{}]).ending.error


def test_there_is_no_state_to_go_on_from_in_the_middle_of_an_epoch_or_of_a_pass() -> None:
    def twice(trial: Trial) -> None:
        for _ in trial.epochs(1):
            trial.report(loss=1.0)
            trial.report(loss=2.0)

    def kept(trial: Trial) -> None:
        batches = iter(trial.prepare_data_loader(torch.arange(10), batch_size=2))
        for _ in trial.epochs(2):
            trial.report(loss=next(batches).sum())

    assert run(twice, [{}]).notes.states == {}
    assert run(kept, [{}]).notes.states == {}


def test_a_function_that_exits_fails_its_trial_alone() -> None:
    def train(trial: Trial) -> None:
        sys.exit("enough")

    assert "SystemExit: enough" in run(train, [{}]).ending.error


def test_how_many_steps_are_left_is_told_by_the_epochs_so_far() -> None:
    asked: list[int | None] = []

    class Watching:
        """Stands in the place of a compiler, and asks at every step."""

        def attach(self, model: nn.Module, steps_left: Callable[[], int | None]) -> None:
            model.register_forward_pre_hook(lambda *_: asked.append(steps_left()))

    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(2, 1))
        loader = trial.prepare_data_loader(TensorDataset(torch.randn(64, 2)), batch_size=4)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=0.1)
        for _ in trial.epochs(3):
            for (x,) in islice(loader, 2):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
            trial.report(loss=1.0)

    setup = TrainingSetup(train, compiler=cast(Compiler, Watching()))
    run_group(setup, TrialGroup(lanes=open_lanes({0: TWO[0]})), Notebook(go_on))
    assert asked == [None, None, 4, 3, 2, 1]
