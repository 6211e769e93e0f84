"""The lane mode leaves alone what touches no lane, and answers for each lane what does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import make_mode
from torch import Tensor, nn

from headwater.errors import CannotFuseError, LanesPart
from headwater.fuse.mode import LaneMode, current_mode
from headwater.fuse.models import repeat_model
from headwater.fuse.per_lane import PerLane
from headwater.fuse.roster import Roster
from headwater.fuse.rules import RULES
from headwater.torch_private import is_lane_tensor, lanes_of, stack_of


def test_calls_without_lanes_are_torchs_own() -> None:
    x = torch.ones(3)
    with make_mode(2):
        answer, made = x + 1, torch.zeros(2, dtype=torch.float64)
    assert not is_lane_tensor(answer)
    assert made.dtype == torch.float64


def test_the_mode_of_this_thread_is_found_while_it_is_on() -> None:
    mode = make_mode(2)
    assert current_mode() is None
    with mode:
        assert current_mode() is mode
        with mode:
            assert current_mode() is mode
        assert current_mode() is mode
    assert current_mode() is None


def test_a_rule_answers_first_and_may_leave_the_call_to_torch() -> None:
    def seven(mode: LaneMode, func: Any, *args: Any) -> int:
        return 7

    def decline(mode: LaneMode, func: Any, *args: Any) -> Any:
        return NotImplemented

    x = lanes_of(torch.ones(2, 3))
    with LaneMode(Roster([{}, {}]), {torch.sin: seven, torch.cos: decline}):
        assert torch.sin(x) == 7
        assert torch.equal(stack_of(torch.cos(x)), torch.ones(2, 3).cos())


WRONG: dict[str, Callable[[Tensor], Any]] = {
    "shape": lambda x: x @ torch.ones(7, 2),
    "softmax-over-no-dimension": lambda x: x.softmax(2),
    "softmax-before-the-first": lambda x: x.softmax(-3),
    "transpose-of-no-dimension": lambda x: x.transpose(0, -3),
    "permute-of-no-dimension": lambda x: x.permute(0, 5),
    "flatten-of-no-dimension": lambda x: x.flatten(-3),
    "view": lambda x: x.view(5, 5),
    "dropout": lambda x: F.dropout(x, 1.5),
    "item-of-many": lambda x: x.item(),
    "backward-of-many": lambda x: (x * torch.ones(4)).backward(),
    "leaf-in-place": lambda x: x.add_(1),
    "argument": lambda x: x.sum(nonsense=1),  # type: ignore[call-overload]
    "integer-division-in-place": lambda x: x.detach().long().div_(2),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_fails_alone_fails_for_lanes_in_the_same_way(name: str) -> None:
    with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)) as alone:
        WRONG[name](torch.ones(3, 4, requires_grad=True))
    lanes = lanes_of(torch.ones(2, 3, 4, requires_grad=True))
    with make_mode(2), pytest.raises(type(alone.value)):
        WRONG[name](lanes)


def test_a_call_that_torch_cannot_batch_draws_its_random_numbers_once() -> None:
    def program(x: Tensor) -> Tensor:
        return F.gumbel_softmax(x, hard=True) * torch.multinomial(x.softmax(1), 2).sum()

    stack = torch.randn(2, 3, 4)
    torch.manual_seed(0)
    alone = program(stack[0]), torch.rand(1)
    torch.manual_seed(0)
    with make_mode(2):
        together = program(lanes_of(stack)), torch.rand(1)
    torch.testing.assert_close(stack_of(together[0])[0], alone[0])
    assert torch.equal(together[1], alone[1])


def test_results_of_different_shapes_are_refused() -> None:
    x = lanes_of(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    with make_mode(2), pytest.raises(CannotFuseError, match="different shapes"):
        x[x > 0]


def test_sparse_results_are_refused() -> None:
    with make_mode(2), pytest.raises(CannotFuseError, match="sparse"):
        lanes_of(torch.eye(3).expand(2, 3, 3)).to_sparse()


def test_lane_tensors_that_slip_past_the_mode_are_refused_and_not_the_trials_fault() -> None:
    x = lanes_of(torch.ones(2, 3))
    with pytest.raises(CannotFuseError, match="several lanes at once"), make_mode(2), torch._C.DisableTorchFunction():
        x.sum()


def test_an_error_of_the_users_own_passes_unchanged() -> None:
    with pytest.raises(RuntimeError, match=r"^mine$"), make_mode(2):
        raise RuntimeError("mine")


def test_lanes_parting_passes_through_torch() -> None:
    mode = make_mode(2)
    x = lanes_of(torch.tensor([1.0, -1.0]))
    with pytest.raises(LanesPart), mode:
        torch.nn.functional.relu(x) if x > 0 else x
    assert mode.roster.question is not None


def test_one_lane_computes_as_many_do() -> None:
    model = repeat_model(nn.Linear(3, 2), 1)
    with make_mode(1):
        loss = model(torch.ones(4, 3)).sum()
        loss.backward()
        assert loss.item().values == pytest.approx((stack_of(loss).item(),))
    assert all(stack_of(parameter).grad is not None for parameter in model.parameters())


def test_the_losses_of_lanes_are_summed_and_never_averaged() -> None:
    stack = torch.ones(5, 3, requires_grad=True)
    with make_mode(5):
        lanes_of(stack).mean().backward()
    assert stack.grad is not None
    torch.testing.assert_close(stack.grad, torch.full((5, 3), 1 / 3))


@pytest.mark.parametrize("name", [name for name in dir(torch) if name.startswith("_foreach_")])
def test_every_operator_over_lists_has_a_rule(name: str) -> None:
    assert getattr(torch, name) in RULES


LIST_CALLS: dict[str, Callable[[list[Tensor]], Any]] = {
    "number": lambda c: torch._foreach_mul(c, 0.5),
    "numbers": lambda c: torch._foreach_add(c, [0.5, 0.7]),
    "tensors": lambda c: torch._foreach_div(c, [t * 2 + 5 for t in c]),
    "tensor": lambda c: torch._foreach_mul(c, torch.tensor(0.5)),
    "lane-tensor": lambda c: torch._foreach_mul(c, c[0][0]),
    "in-place": lambda c: torch._foreach_add_([t.clone() for t in c], c, alpha=0.3),
    "norms": lambda c: [*torch._foreach_norm(c), *torch._foreach_norm(c, 1), *torch._foreach_norm(c, float("inf"))],
    "limits": lambda c: [*torch._foreach_clamp_min(c, -0.1), *torch._foreach_maximum(c, 0.3)],
    "scaled": lambda c: torch._foreach_addcmul(c, c, c, 0.5),
    "divided": lambda c: torch._foreach_addcdiv(c, c, [t + 5 for t in c], [1.0, 2.0]),
    "lerp": lambda c: torch._foreach_lerp(c, [t * 2 for t in c], 0.3),
    "powers": lambda c: [*torch._foreach_pow(2.0, c), *torch._foreach_pow(c, 2)],
}


@pytest.mark.parametrize("name", LIST_CALLS)
def test_operators_over_lists_act_on_each_lane(name: str) -> None:
    stacks = [torch.rand(3, 4), torch.rand(3, 2)]
    with make_mode(3), torch.no_grad():
        together = LIST_CALLS[name]([lanes_of(stack) for stack in stacks])
    for lane in range(3):
        for actual, expected in zip(together, LIST_CALLS[name]([stack[lane] for stack in stacks]), strict=True):
            torch.testing.assert_close(stack_of(actual)[lane], expected)


def test_numbers_that_differ_reach_every_kind_of_argument() -> None:
    mode = make_mode(2)
    x = lanes_of(torch.ones(2, 3))
    with mode:
        number: Any = PerLane((1.0, 2.0), mode.roster)
        answers = [torch.full((3,), number), x * number, torch.where(x > 0, number, 0.0), torch.stack([x * number])[0]]
    for answer in answers:
        assert torch.equal(stack_of(answer), torch.tensor([[1.0] * 3, [2.0] * 3]))


def test_a_mode_can_be_copied_with_what_holds_it_only_by_reference() -> None:
    mode = make_mode(2)
    value = {"lr": PerLane((0.1, 0.2), mode.roster)}
    assert copy.deepcopy(value)["lr"] is value["lr"]
