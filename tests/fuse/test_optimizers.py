from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from tests.fuse.racing import CASES, Race, Settings, check_states, every_case
from torch import Tensor, nn
from torch.optim import Optimizer

from headwater.errors import CannotFuseError
from headwater.fuse.hyperparameters import merge
from headwater.fuse.mode import LaneMode
from headwater.fuse.optimizers import fuse_optimizer
from headwater.fuse.per_lane import PerLane, PerLaneText, PerLaneThing
from headwater.fuse.rules import RULES
from headwater.torch_private import lanes_of, stack_of


@pytest.mark.parametrize("order", [("SGD", "SGD", "AdamW", "NAdam"), ("SGD", "NAdam", "SGD", "AdamW")])
def test_lanes_with_different_optimizers_share_one(order: tuple[str, ...]) -> None:
    race = Race(4)
    race.solo_optimizers = [
        getattr(torch.optim, name)(solo.parameters(), lr=0.1 * (lane + 1), weight_decay=0.01)
        for lane, (name, solo) in enumerate(zip(order, race.solos, strict=True))
    ]
    lr = PerLane([0.1 * (lane + 1) for lane in range(4)], race.roster)
    classes = PerLaneText(order, race.roster, None)
    optimizer = fuse_optimizer(classes, race.model.parameters(), race.roster, lr=lr, weight_decay=0.01)
    race.run(optimizer, 5)
    for place, solo in enumerate(race.solo_optimizers):
        check_states(optimizer.lane_state(place), solo.state_dict())
    race.narrow(optimizer, [0, 1, 3])
    race.run(optimizer, 5)
    race.check()


def test_parameter_groups_have_their_own_hyperparameters() -> None:
    race = Race(3)
    betas = [(0.9 - 0.1 * lane, 0.99) for lane in range(3)]

    def groups(model: Any, lr: Any, pairs: Any) -> list[Settings]:
        return [{"params": model[0].parameters(), "lr": lr}, {"params": model[1].parameters(), "betas": pairs}]

    race.solo_optimizers = [
        torch.optim.Adam(groups(solo, 0.1 * (lane + 1), betas[lane]), lr=0.02, weight_decay=0.1 * lane)
        for lane, solo in enumerate(race.solos)
    ]
    lr = PerLane([0.1 * (lane + 1) for lane in range(3)], race.roster)
    decay = PerLane([0.1 * lane for lane in range(3)], race.roster)
    pairs = PerLaneThing(betas, race.roster)
    optimizer = fuse_optimizer(
        torch.optim.Adam, groups(race.model, lr, pairs), race.roster, lr=0.02, weight_decay=decay
    )
    race.run(optimizer, 10)
    race.check()
    for place, solo in enumerate(race.solo_optimizers):
        check_states(optimizer.lane_state(place), solo.state_dict())


@pytest.mark.parametrize("name", ["SGD", "NAdam"])
def test_groups_can_be_added_later(name: str) -> None:
    race = Race(2)
    build = getattr(torch.optim, name)
    race.solo_optimizers = [build(solo[0].parameters(), lr=0.1) for solo in race.solos]
    lanes: Any = race.model
    optimizer = fuse_optimizer(name, lanes[0], race.roster, lr=0.1)
    race.run(optimizer, 2)
    for lane, (solo, model) in enumerate(zip(race.solo_optimizers, race.solos, strict=True)):
        solo.add_param_group({"params": list(model[1].parameters()), "lr": 0.2 * (lane + 1)})
    optimizer.add_param_group({"params": lanes[1].parameters(), "lr": PerLane([0.2, 0.4], race.roster)})
    race.run(optimizer, 2)
    race.check()


@every_case
def test_hyperparameters_can_be_assigned_by_hand(case: str) -> None:
    race = Race(3)
    optimizer = race.start(*CASES[case])
    rates = PerLane([0.3, 0.2, 0.1], race.roster)
    for lr in (rates, 0.05, rates * 2):
        optimizer.param_groups[0]["lr"] = lr
        for lane, solo in enumerate(race.solo_optimizers):
            solo.param_groups[0]["lr"] = lr.values[lane] if isinstance(lr, PerLane) else lr
        race.run(optimizer, 2)
    optimizer.param_groups[0]["lr"] *= 0.5
    for solo in race.solo_optimizers:
        solo.param_groups[0]["lr"] *= 0.5
    race.run(optimizer, 2)
    race.check()


def test_flags_and_momentum_can_change_on_the_way() -> None:
    race = Race(4)
    optimizer = race.start("SGD", lambda lane: {"lr": 0.1, "momentum": 0.0, "dampening": 0.5})
    plans: list[tuple[list[float], list[bool]]] = [
        ([0.0, 0.9, 0.0, 0.5], [False] * 4),
        ([0.4, 0.0, 0.0, 0.5], [False, False, True, True]),
        ([0.4, 0.9, 0.3, 0.0], [True, False, True, False]),
    ]
    for momentum, maximize in plans:
        optimizer.param_groups[0]["momentum"] = PerLane(momentum, race.roster)
        optimizer.param_groups[0]["maximize"] = PerLane(maximize, race.roster)
        for lane, solo in enumerate(race.solo_optimizers):
            solo.param_groups[0].update(momentum=momentum[lane], maximize=maximize[lane])
        race.run(optimizer, 2)
    race.check()
    for place, solo in enumerate(race.solo_optimizers):
        check_states(optimizer.lane_state(place), solo.state_dict())


def test_a_rate_multiplied_for_long_keeps_no_history() -> None:
    race = Race(2)
    optimizer = race.start("SGD", lambda lane: {"lr": 0.1 * (lane + 1)})
    optimizer.param_groups[0]["lr"] = PerLane([0.1, 0.2], race.roster)
    for _ in range(3):
        optimizer.param_groups[0]["lr"] *= 0.9
        optimizer.step()
    assert optimizer.param_groups[0]["lr"].recipe is None


def test_the_learning_rate_may_be_a_tensor() -> None:
    race = Race(2)
    race.solo_optimizers = [torch.optim.SGD(solo.parameters(), lr=torch.tensor(0.1)) for solo in race.solos]
    rate = torch.tensor(0.1)
    optimizer = fuse_optimizer("SGD", race.model, race.roster, lr=rate)
    race.run(optimizer, 1)
    rate.fill_(0.3)
    for solo in race.solo_optimizers:
        solo.param_groups[0]["lr"].fill_(0.3)
    race.run(optimizer, 1)
    race.check()
    by_lane = fuse_optimizer("SGD", race.model, race.roster, lr=lanes_of(torch.tensor([0.1, 0.2])))
    assert str(by_lane.param_groups[0]["lr"]) == "[0.10000000149011612 0.20000000298023224]"


def test_state_dict_leads_back_also_after_lanes_have_left() -> None:
    race = Race(3)
    optimizer = race.start(*CASES["adam"])
    race.run(optimizer, 3)
    kept = optimizer.state_dict()
    solo_kept = copy.deepcopy([solo.state_dict() for solo in race.solo_optimizers])
    race.run(optimizer, 3)
    race.narrow(optimizer, [0, 2])
    optimizer.load_state_dict(kept)
    for solo, state in zip(race.solo_optimizers, [solo_kept[0], solo_kept[2]], strict=True):
        solo.load_state_dict(state)
    race.run(optimizer, 3)
    race.check()
    assert kept["param_groups"][0]["lr"].values == (0.01, 0.03)


def test_emptying_the_state_starts_anew_and_reading_it_is_refused() -> None:
    race = Race(2)
    optimizer = race.start("SGD", lambda lane: {"lr": 0.1, "momentum": 0.9})
    race.run(optimizer, 2)
    optimizer.state = {}
    for solo in race.solo_optimizers:
        solo.state.clear()
    race.run(optimizer, 2)
    race.check()
    with pytest.raises(CannotFuseError, match=r"optimizer\.state"):
        _ = optimizer.state


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_clears_every_lane(set_to_none: bool) -> None:
    race = Race(2)
    optimizer = race.start("SGD", lambda lane: {"lr": 0.1})
    race.set_grads(skip=[1])
    optimizer.zero_grad(set_to_none)
    grads = [stack_of(param).grad for param in race.model.parameters()]
    assert [grad is None for grad in grads] == ([True] * 4 if set_to_none else [False, True, False, False])
    assert not any(grad.any() for grad in grads if grad is not None)


def test_a_loop_in_the_lane_mode_trains_with_a_closure_and_hooks() -> None:
    race = Race(2)
    optimizer = race.start("AdamW", lambda lane: {"lr": 0.1 * (lane + 1)})
    x = torch.randn(5, 4, dtype=torch.float64)
    calls: list[object] = []
    optimizer.register_step_post_hook(lambda *args: calls.append(args))
    with LaneMode(race.roster, RULES):

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = race.model(x).square().mean()
            loss.backward()
            return loss

        losses = [stack_of(optimizer.step(closure)) for _ in range(3)]
    for lane, (solo, model) in enumerate(zip(race.solo_optimizers, race.solos, strict=True)):
        for step in range(3):
            solo.zero_grad()
            loss: Tensor = model(x).square().mean()
            loss.backward()
            solo.step()
            torch.testing.assert_close(losses[step][lane], loss)
    race.check()
    assert len(calls) == 3


class Signed(Optimizer):
    """An optimizer as users write them: it replaces the parameter instead of changing it in place."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for param in group["params"]:
                param.data = param.data - group["lr"] * param.grad.sign()

    @torch.no_grad()
    def shake(self, by: float) -> float:
        """Something that torch's optimizers do not have: it moves weights, and drops gradients."""
        for group in self.param_groups:
            for param in group["params"]:
                param.add_(param.grad * group["lr"] * by)
        self.zero_grad()
        return float(self.param_groups[0]["lr"])


def test_the_users_own_optimizer_works_lane_by_lane() -> None:
    race = Race(3)
    race.solo_optimizers = [Signed(solo.parameters(), lr=0.1 * (lane + 1)) for lane, solo in enumerate(race.solos)]
    optimizer = fuse_optimizer(Signed, race.model, race.roster, lr=PerLane([0.1, 0.2, 0.1 * 3], race.roster))
    race.run(optimizer, 3)
    race.narrow(optimizer, [1, 2])
    race.run(optimizer, 3)
    race.check()
    with pytest.raises(CannotFuseError, match="closure"):
        optimizer.step(lambda: 0.0)
    with pytest.raises(AttributeError, match="wobble"):
        optimizer.wobble()


def test_a_method_of_the_users_own_optimizer_beside_step_is_refused() -> None:
    race = Race(3)
    optimizer = fuse_optimizer(Signed, race.model, race.roster, lr=0.1)
    with pytest.raises(CannotFuseError, match=r"Signed\.shake"):
        optimizer.shake(0.5)
    assert race.roster.question is not None


def test_a_partial_names_a_class_with_some_of_its_hyperparameters() -> None:
    race = Race(2)
    race.solo_optimizers = [torch.optim.SGD(solo.parameters(), lr=0.1, momentum=0.9) for solo in race.solos]
    optimizer = fuse_optimizer(partial(torch.optim.SGD, momentum=0.9), race.model, race.roster, lr=0.1)
    race.run(optimizer, 3)
    race.check()


@pytest.mark.parametrize(
    ("name", "settings", "error", "words"),
    [
        ("SGD", {"lr": [0.1, -1.0]}, ValueError, "Invalid learning rate: -1.0"),
        ("Adam", {"betas": [(0.9, 0.99), (0.9, 1.5)]}, ValueError, "Invalid beta parameter at index 1: 1.5"),
        ("RMSprop", {"momentum": [-0.5, 0.5]}, ValueError, "Invalid momentum value: -0.5"),
        ("SGD", {"betas": [0.1, 0.2]}, TypeError, "unexpected keyword argument 'betas'"),
        ("Sgd", {"lr": [0.1, 0.2]}, ValueError, "torch.optim has no optimizer 'Sgd'"),
        ("LBFGS", {"lr": [0.1, 0.2]}, CannotFuseError, "closure"),
        ("Adam", {"differentiable": [True, True]}, CannotFuseError, "differentiable"),
    ],
)
def test_what_cannot_work_is_refused(name: str, settings: Settings, error: type[Exception], words: str) -> None:
    race = Race(2)
    merged = {key: merge(values, race.roster) for key, values in settings.items()}
    with pytest.raises(error, match=words):
        fuse_optimizer(name, race.model, race.roster, **merged)


def test_parameters_and_states_of_other_models_are_refused() -> None:
    race = Race(2)
    optimizer = race.start("SGD", lambda lane: {"lr": 0.1})
    with pytest.raises(CannotFuseError, match="prepare_model"):
        fuse_optimizer("SGD", nn.Linear(2, 2), race.roster, lr=0.1)
    with pytest.raises(ValueError, match="empty parameter list"):
        fuse_optimizer("SGD", [], race.roster, lr=0.1)
    with pytest.raises(TypeError, match="iterable of Tensors"):
        fuse_optimizer("SGD", next(race.model.parameters()), race.roster, lr=0.1)
    with pytest.raises(ValueError, match="groups of sizes"):
        optimizer.load_lane_states([torch.optim.SGD([torch.zeros(1)]).state_dict()] * 2)


@every_case
def test_complex_parameters_are_updated_as_by_separate_optimizers(case: str) -> None:
    race = Race(4, torch.complex128)
    optimizer = race.start(*CASES[case])
    race.run(optimizer, 3)
    for place, solo in enumerate(race.solo_optimizers):
        check_states(optimizer.lane_state(place), solo.state_dict())
    optimizer.load_lane_states([solo.state_dict() for solo in race.solo_optimizers])
    race.narrow(optimizer, [0, 2, 3])
    race.run(optimizer, 3)
    race.check()
