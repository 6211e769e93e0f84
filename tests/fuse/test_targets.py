"""Tensors that change under their holders: those that take in lanes, and those that lose some."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.fuse.parity import Agreement, make_mode
from torch import Tensor, nn

from headwater.errors import CannotFuseError, LanesPart
from headwater.fuse.per_lane import PerLane
from headwater.fuse.targets import writes_in_place
from headwater.torch_private import is_lane_tensor, lanes_of, stack_of


def test_everyone_who_holds_a_shared_tensor_sees_the_lanes_in_it() -> None:
    total = torch.zeros(3)
    holders = {"first": total, "second": [total]}
    with make_mode(2):
        total += lanes_of(torch.ones(2, 3))
    assert is_lane_tensor(total)
    assert holders["first"] is total


def write_into_a_slice_of_three(x: Tensor) -> None:
    whole = torch.zeros(4, 3)
    kept = whole[0], whole[1]
    kept[0].add_(x)


def write_into_data_of_a_plain_weight(x: Tensor) -> None:
    layer = nn.Linear(3, 1)
    layer.weight.data.mul_(0.9).add_(x)


def write_into_a_plain_weight(x: Tensor) -> None:
    with torch.no_grad():
        nn.Linear(3, 1).weight.copy_(x)


def write_into_what_numpy_holds(x: Tensor) -> None:
    array = np.zeros(3, dtype=np.float32)
    torch.from_numpy(array).add_(x)


def write_into_an_alias(x: Tensor) -> None:
    first = torch.zeros(3)
    second = first.detach()
    second.add_(x)


SHARING: dict[str, Callable[[Tensor], Any]] = {  # Any: whoever sees the memory
    "a view": lambda tensor: tensor[1:],
    "a detached tensor": lambda tensor: tensor.detach(),
    "a bit view": lambda tensor: tensor.view(torch.int32),
    "set_": lambda tensor: torch.zeros(0).set_(tensor),  # type: ignore[call-overload]  # one of its signatures
    "a storage": lambda tensor: tensor.untyped_storage(),
    "a NumPy array": lambda tensor: tensor.numpy(),
    "DLPack": np.from_dlpack,
    "shared memory": lambda tensor: tensor.share_memory_(),
    "a graph": lambda tensor: torch.ones(3, requires_grad=True) * tensor,
    "a subclass": nn.Parameter,
}


@pytest.mark.parametrize("share", SHARING.values(), ids=SHARING)
def test_writing_is_refused_whoever_sees_the_memory(share: Callable[[Tensor], Any]) -> None:
    tensor = torch.zeros(3)
    seer = share(tensor)
    with make_mode(2), pytest.raises(CannotFuseError, match="memory other tensors share"):
        tensor.add_(lanes_of(torch.ones(2, 3)))
    assert seer is not None


@pytest.mark.parametrize(
    "write",
    [
        write_into_a_slice_of_three, write_into_data_of_a_plain_weight, write_into_a_plain_weight,
        write_into_what_numpy_holds, write_into_an_alias,
    ],
)  # fmt: skip
def test_writing_where_others_would_miss_it_is_refused(write: Callable[[Tensor], None]) -> None:
    with make_mode(2), pytest.raises(CannotFuseError):
        write(lanes_of(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])))


def test_a_weight_may_be_initialised_with_numbers_that_differ() -> None:
    mode, scales = make_mode(2), (0.1, 0.2)
    layer = nn.Linear(3, 1)
    torch.manual_seed(0)
    with mode:
        nn.init.normal_(layer.weight, std=PerLane(scales, mode.roster))  # type: ignore[arg-type]
    drawn = torch.get_rng_state()
    for lane, scale in enumerate(scales):
        torch.manual_seed(0)
        alone = nn.init.normal_(torch.empty(1, 3), std=scale)
        torch.testing.assert_close(stack_of(layer.weight)[lane].detach(), alone)
        assert torch.equal(torch.get_rng_state(), drawn)
    with mode:
        assert layer.weight.requires_grad


@pytest.mark.parametrize("share", [Tensor.detach, lambda weight: weight.detach().numpy()])
def test_initial_values_that_differ_make_lanes_part_where_others_see_the_weight(share: Callable[[Tensor], Any]) -> None:
    mode, layer = make_mode(2), nn.Linear(3, 1)
    seen = share(layer.weight)
    with mode, pytest.raises(LanesPart):
        nn.init.normal_(layer.weight, std=PerLane((0.1, 0.2), mode.roster))  # type: ignore[arg-type]
    assert not is_lane_tensor(layer.weight)
    assert len(seen) == 1


def test_a_result_goes_into_the_tensor_that_was_given_for_it() -> None:
    x, room = lanes_of(torch.ones(2, 3)), torch.empty(3)
    with make_mode(2):
        answer = torch.mul(x, 3, out=room)
    assert answer is room
    assert torch.equal(stack_of(room), torch.full((2, 3), 3.0))


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(3, affine=False), nn.InstanceNorm1d(3, track_running_stats=True)])
def test_a_norm_that_was_never_prepared_keeps_statistics_of_each_lane(norm: nn.Module) -> None:
    def program(x: Tensor) -> Any:
        own = copy.deepcopy(norm)
        return own(x), own(x * 2), own.running_mean, own.running_var, own.eval()(x)

    Agreement().check(program, torch.randn(3, 4, 3, 2))


KEPT: dict[str, Callable[[Any, Tensor], Any]] = {
    "added": lambda kept, x: kept.add_(x),
    "set": lambda kept, x: kept.__setitem__(0, x[0]),
    "read": lambda kept, x: kept * x,
}


@pytest.mark.parametrize("name", KEPT)
def test_a_tensor_kept_from_before_loses_the_lanes_that_left(name: str) -> None:
    mode, kept = make_mode(4), lanes_of(torch.arange(12.0).view(4, 3))
    mode.roster.narrow([1, 3])
    before = stack_of(kept)[[1, 3]].clone()
    x = torch.ones(2, 3)
    with mode:
        KEPT[name](kept, lanes_of(x))
    expected = before.clone()
    KEPT[name](expected, x) if name != "set" else expected.__setitem__((slice(None), 0), x[:, 0])
    assert torch.equal(stack_of(kept), expected)


def test_a_leaf_kept_from_before_stays_a_leaf_with_its_gradient() -> None:
    mode, stack = make_mode(3), torch.ones(3, 2, requires_grad=True)
    kept = lanes_of(stack)
    with mode:
        (kept * 3).sum().backward()
        mode.roster.narrow([0, 2])
        (kept * 2).sum().backward()
        grad = kept.grad
    assert grad is not None
    assert torch.equal(stack_of(grad), torch.full((2, 2), 5.0))


def test_numbers_kept_from_before_lose_the_lanes_that_left() -> None:
    mode = make_mode(3)
    total = copy.deepcopy(PerLane((1, 2, 3), mode.roster))
    mode.roster.narrow([0, 2])
    assert (total + 1).values == (2, 4)


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        (Tensor.add_, True), (Tensor.__setitem__, True), (Tensor.__iand__, True), (torch.relu_, True),
        (Tensor.add, False), (Tensor.__invert__, False), (Tensor.__int__, False), (Tensor.__iter__, False),
    ],
)  # fmt: skip
def test_functions_tell_by_their_name_whether_they_write(func: Any, expected: bool) -> None:
    assert writes_in_place(func) == expected
