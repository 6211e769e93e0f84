"""Calls that are divided within one process: micro-batches use all that ranks use but the line between them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.train import rank_models, rank_tasks
from tests.train.lab import Notebook, open_lanes, require_equal_states, run_alone
from torch import Tensor, nn
from torch.utils.data import DataLoader

from headwater.errors import StudyError, TrialError
from headwater.train import Trial
from headwater.train.part_draws import find_row_dim
from headwater.train.ranks import Part, RankGroup, Ranks
from headwater.train.running import TrainingSetup, run_group
from headwater.train.shared_calls import Sharing, _is_due
from headwater.trials import Ending, Outcome, TrialGroup

CLOSE = 1e-9
MICRO = 3

EXACT = [
    "train_mlp", "train_transformer", "train_with_sum_and_penalty", "train_two_heads", "train_noisy",
    "train_checkpointed",
]  # fmt: skip


def run_micro(function: Callable[[Trial], Any], micro_batches: int = MICRO) -> tuple[Ending, Notebook]:
    notes = Notebook()
    setup = TrainingSetup(function, micro_batches=micro_batches)
    return run_group(setup, TrialGroup(lanes=open_lanes({0: {}})), notes), notes


def share(model: nn.Module, micro_batches: int = MICRO) -> RankGroup:
    group = RankGroup(Ranks(0, 1))
    Sharing(group, micro_batches).share(model)
    return group


@pytest.mark.parametrize("name", EXACT)
def test_micro_batches_train_what_whole_batches_train(name: str) -> None:
    function = dict(rank_tasks.every_function())[name]
    expected = run_alone(function, {})
    ending, notes = run_micro(function)
    assert ending.outcome is Outcome.DONE, ending.error
    assert ending.notes == ()
    for ours, theirs in zip(notes.reports, expected.reports, strict=True):
        assert ours.metrics == pytest.approx(theirs.metrics, rel=CLOSE, abs=CLOSE)
    require_equal_states(notes.states[0], expected.states[0], CLOSE)


def test_batch_norm_in_micro_batches_is_noted() -> None:
    ending, _ = run_micro(rank_tasks.train_conv, 2)
    assert ending.outcome is Outcome.DONE, ending.error
    note = "BatchNorm in ConvNet takes its statistics of each of 2 micro-batches, not of the whole batch"
    assert note in ending.notes


def test_batch_norm_keeps_running_statistics_once_for_each_micro_batch() -> None:
    model, rows = nn.BatchNorm1d(4), torch.randn(6, 4)
    other = copy.deepcopy(model)
    share(model)
    model(rows).sum().backward()
    for part in rows.split(2):
        other(part)
    torch.testing.assert_close(model.running_var, other.running_var)
    assert model.num_batches_tracked == MICRO


def test_memory_is_that_of_a_micro_batch() -> None:
    kept: list[int] = []

    class Layer(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                kept.append(len(x))
            return super().forward(x)

    model = Layer(4, 4)
    share(model)
    model(torch.randn(9, 4))
    kept.clear()
    loss = model(torch.randn(9, 4)).sum()
    assert kept == []
    loss.backward()
    assert kept == [3, 3, 3]


def test_the_users_model_is_as_it_was_after_the_run() -> None:
    model = rank_models.make_mlp()
    weights = copy.deepcopy(model.state_dict())

    def train(trial: Trial) -> None:
        prepared = trial.prepare_model(model)
        assert prepared is model
        optimizer = trial.prepare_optimizer("SGD", prepared, lr=0.1)
        prepared(torch.randn(8, 4, dtype=rank_models.DOUBLE)).sum().backward()
        optimizer.step()
        trial.report(loss=1.0)

    assert run_micro(train)[0].outcome is Outcome.DONE
    assert model._compiled_call_impl is None
    torch.testing.assert_close(model.state_dict(), weights)


def test_copies_of_a_model_compute_by_themselves() -> None:
    model = rank_models.make_mlp()
    share(model)
    twin = copy.deepcopy(model)
    assert twin._compiled_call_impl is None
    with torch.no_grad():
        next(twin.parameters()).zero_()
    x = torch.randn(8, 4, dtype=rank_models.DOUBLE)
    assert not torch.equal(twin.eval()(x), model.eval()(x))


def test_gradients_of_gradients_are_refused() -> None:
    model = nn.Linear(4, 1)
    share(model)
    x = torch.randn(6, 4, requires_grad=True)
    with pytest.raises(TrialError, match=r"gradients of Linear .*\(create_graph=True\), .* train it on one device"):
        torch.autograd.grad(model(x).sum(), x, create_graph=True)


def test_a_graph_can_be_gone_through_twice_if_it_is_kept() -> None:
    model, x = nn.Linear(4, 1), torch.randn(6, 4)
    share(model)
    loss = model(x).square().sum()
    loss.backward(retain_graph=True)
    once = model.weight.grad
    assert once is not None
    once = once.clone()
    loss.backward()
    torch.testing.assert_close(model.weight.grad, 2 * once)


def test_a_model_that_uses_parameters_of_others_is_computed_whole() -> None:
    outside = nn.Parameter(torch.ones(3))

    class Borrowing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * outside

    model = Borrowing(4, 3)
    group = share(model)
    model(torch.randn(6, 4)).sum().backward()
    assert outside.grad is not None
    assert group.notes == [
        "every rank computes all of Borrowing's batches: it computes with tensors that learn and are not among its "
        "parameters"
    ]


def test_a_model_whose_rows_come_to_depend_on_each_other_raises() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.share = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return x - self.share * x.mean(0)

    model = Growing()
    group = share(model)
    model(torch.randn(6, 4))
    assert group.notes == []
    with torch.no_grad():
        model.share.fill_(1.0)
    for _ in range(6):
        model(torch.randn(6, 4))
    with pytest.raises(TrialError, match=r"by rows for 7 calls, which is right no longer \(its rows depend on each"):
        model(torch.randn(6, 4))


def test_hooks_see_the_gradients_of_the_whole_batch() -> None:
    model, x = nn.Linear(4, 1), torch.randn(6, 4)
    group = share(model)
    seen: list[Tensor] = []
    model.weight.register_hook(seen.append)
    model(x).sum().backward()
    torch.testing.assert_close(seen, [x.sum(0, keepdim=True)])
    assert group.notes == ["every rank computes all of Linear's batches: hooks look into it"]


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
def test_evaluation_is_divided_too(switch: Callable[[], Any]) -> None:
    sizes: list[int] = []

    class Layer(nn.BatchNorm1d):
        def forward(self, x: Tensor) -> Tensor:
            sizes.append(len(x))
            return super().forward(x)

    model, x = Layer(4).eval(), torch.randn(6, 4)
    share(model)
    with switch():
        model(x)
        sizes.clear()
        torch.testing.assert_close(model(x), x, rtol=1e-4, atol=1e-4)
    assert sizes == [2, 2, 2]


class Cache:
    def __init__(self, states: Tensor) -> None:
        self.states = states


class Caching(nn.Linear):
    def forward(self, x: Tensor) -> Any:
        states = super().forward(x)
        return {"states": states, "cache": Cache(states)}


def test_objects_that_hold_a_part_of_an_answer_are_withheld() -> None:
    model, x = Caching(4, 3), torch.randn(6, 4)
    group = share(model)
    answer = model(x)
    torch.testing.assert_close(answer["states"], F.linear(x, model.weight, model.bias))
    with pytest.raises(TrialError, match="returns a Cache beside its tensors, which holds some rows of the batch only"):
        _ = answer["cache"].states
    assert group.notes == []


def test_a_model_that_returns_an_object_alone_is_computed_whole() -> None:
    class Boxing(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return Cache(super().forward(x))

    model = Boxing(4, 3)
    group = share(model)
    assert model(torch.randn(6, 4)).states.shape == (6, 3)
    assert group.notes == [
        "every rank computes all of Boxing's batches: it returns a Cache, in which no tensors can be found"
    ]


def test_parts_are_computed_again_in_the_precision_of_the_call() -> None:
    kinds: list[torch.dtype] = []

    class Layer(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            answer = super().forward(x)
            kinds.append(answer.dtype)
            return answer

    model = Layer(4, 1)
    share(model)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.randn(6, 4)).sum()
    kinds.clear()
    loss.backward()
    assert kinds == [torch.bfloat16] * MICRO


def test_losses_inside_a_model_are_not_divided_in_micro_batches() -> None:
    function = rank_tasks.train_loss_inside
    ending, notes = run_micro(function)
    assert notes.history(0) == pytest.approx(run_alone(function, {}).history(0), rel=CLOSE)
    assert len(ending.notes) == 1


def test_small_batches_are_computed_whole() -> None:
    model = nn.Linear(4, 3)
    group = share(model)
    x = torch.randn(2 * MICRO - 1, 4)
    torch.testing.assert_close(model(x), F.linear(x, model.weight, model.bias))
    assert group.notes == []


def test_batches_of_a_users_own_sampler_are_divided() -> None:
    data = rank_tasks.make_data(4)
    batches = [[0, 5, 7, 2, 9, 1], [3, 4, 6, 8, 10, 11, 12]]

    def train(trial: Trial) -> None:
        model = trial.prepare_model(rank_models.make_mlp())
        optimizer = trial.prepare_optimizer("SGD", model, lr=0.1)
        for _ in trial.epochs(2):
            for x, y in trial.prepare_data_loader(DataLoader(data, batch_sampler=batches)):
                optimizer.zero_grad()
                loss = rank_tasks.classify(model, x, y)
                loss.backward()
                optimizer.step()
            trial.report(loss=loss)

    ending, notes = run_micro(train)
    assert ending.outcome is Outcome.DONE, ending.error
    assert notes.history(0) == pytest.approx(run_alone(train, {}).history(0), rel=CLOSE)


def test_several_lanes_cannot_train_on_ranks() -> None:
    group = TrialGroup(lanes=open_lanes({0: {}, 1: {}}))
    with pytest.raises(StudyError, match="2 trials in one group cannot train on 1 ranks"):
        run_group(TrainingSetup(rank_tasks.train_mlp), group, Notebook(), ranks=RankGroup(Ranks(0, 1)))


def test_parts_are_nearly_equal_and_complete() -> None:
    parts = Part(0, 8, 8).split(3)
    assert [(part.start, part.stop) for part in parts] == [(0, 2), (2, 5), (5, 8)]
    assert [(part.start, part.stop) for part in parts[1].split(2)] == [(2, 3), (3, 5)]


def test_the_dimension_of_rows_is_the_one_that_a_part_has_less_of() -> None:
    part = Part(2, 4, 8)
    assert find_row_dim((8, 5), (2, 5), part) == 0
    assert find_row_dim((5, 32, 3), (5, 8, 3), part) == 1
    assert find_row_dim((8, 5), (8, 5), part) is None


def test_checks_are_due_at_powers_of_eight() -> None:
    assert [number + 1 for number in range(600) if _is_due(number)] == [1, 8, 64, 512]
