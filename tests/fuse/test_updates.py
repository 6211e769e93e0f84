from __future__ import annotations

import pytest
import torch
from tests.fuse.racing import CASES, Race, check_states, every_case
from torch import Tensor

from headwater.torch_private import stack_of

every_type = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@every_case
@every_type
@pytest.mark.parametrize("num_lanes", [1, 2, 7])
def test_lanes_match_separate_optimizers(case: str, dtype: torch.dtype, num_lanes: int) -> None:
    race = Race(num_lanes, dtype)
    race.run(race.start(*CASES[case]), 20)
    race.check()


@every_case
def test_lane_states_are_those_of_separate_optimizers(case: str) -> None:
    race = Race(5)
    optimizer = race.start(*CASES[case])
    for num_steps in (0, 1, 3):
        race.run(optimizer, num_steps)
        for place, solo in enumerate(race.solo_optimizers):
            check_states(optimizer.lane_state(place), solo.state_dict())


@every_case
def test_a_lane_that_goes_on_alone_equals_one_that_stays(case: str) -> None:
    race = Race(5)
    optimizer = race.start(*CASES[case])
    race.run(optimizer, 5)
    for place, solo in enumerate(race.solo_optimizers):
        for group in solo.param_groups:
            group["lr"] = 99.0
        solo.load_state_dict(optimizer.lane_state(place))
    race.run(optimizer, 5)
    race.check()


@every_case
def test_solo_optimizers_of_different_ages_join_as_lanes(case: str) -> None:
    race = Race(5)
    name, settings = CASES[case]
    optimizer = race.start(name, lambda lane: settings(lane) | {"lr": 0.5})
    build = getattr(torch.optim, name)
    race.solo_optimizers = [build(solo.parameters(), **settings(lane)) for lane, solo in enumerate(race.solos)]
    for lane, solo in enumerate(race.solo_optimizers):
        for _ in range(lane):
            race.set_grads(skip=[1] if lane == 3 else [])
            solo.step()
    with torch.no_grad():
        for index, param in enumerate(race.model.parameters()):
            stack_of(param).copy_(torch.stack([list(solo.parameters())[index] for solo in race.solos]))
    optimizer.load_lane_states([solo.state_dict() for solo in race.solo_optimizers])
    race.run(optimizer, 5)
    race.check()
    for place, solo in enumerate(race.solo_optimizers):
        check_states(optimizer.lane_state(place), solo.state_dict())


@every_case
def test_lanes_that_remain_are_not_disturbed_when_others_leave(case: str) -> None:
    race = Race(7)
    optimizer = race.start(*CASES[case])
    race.run(optimizer, 3)
    race.narrow(optimizer, [0, 2, 3, 5])
    race.run(optimizer, 3)
    race.narrow(optimizer, [1])
    race.run(optimizer, 3)
    race.check()
    check_states(optimizer.lane_state(0), race.solo_optimizers[0].state_dict())


@every_case
def test_parameters_without_gradients_are_passed_over(case: str) -> None:
    race = Race(3)
    optimizer = race.start(*CASES[case])
    for skip in ([0], [], [1, 2], [0, 1, 2, 3], []):
        race.set_grads(skip)
        optimizer.step()
        for solo in race.solo_optimizers:
            solo.step()
    race.check()
    check_states(optimizer.lane_state(1), race.solo_optimizers[1].state_dict())


@every_case
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_broken_gradient_stays_in_its_lane(case: str, bad: float) -> None:
    results: list[list[Tensor]] = []
    for value in (0.5, bad):
        race = Race(5)
        optimizer = race.start(*CASES[case])
        for _ in range(4):
            race.set_grads()
            for param in race.model.parameters():
                grad = stack_of(param).grad
                assert grad is not None
                grad[2] = value
            optimizer.step()
        results.append([stack_of(param).detach()[[0, 1, 3, 4]] for param in race.model.parameters()])
    for whole, beside_broken in zip(*results, strict=True):
        assert torch.equal(whole, beside_broken)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", ["sgd-momentum", "adam", "adagrad", "rmsprop"])
def test_narrow_floats_match_within_their_precision(case: str, dtype: torch.dtype) -> None:
    race = Race(4, dtype)
    name, settings = CASES[case]
    race.run(race.start(name, lambda lane: settings(lane) | ({} if name == "SGD" else {"eps": 1e-3})), 5)
    for index, param in enumerate(race.model.parameters()):
        expected = torch.stack([list(solo.parameters())[index].detach() for solo in race.solos])
        torch.testing.assert_close(stack_of(param).detach(), expected, rtol=2e-2, atol=2e-2)
