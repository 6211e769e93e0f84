"""Memory of lanes that have left: who shared it shares it afterwards, and it goes when nobody holds it."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from headwater.errors import CannotFuseError
from headwater.fuse.narrowed_memory import NarrowedMemory

PLACES = [0, 3]


def make_stack(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def share_memory(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def test_what_nobody_shares_is_copied() -> None:
    stack = make_stack(5, 2, 3)
    kept, places = NarrowedMemory().keep(stack, PLACES)
    assert torch.equal(kept, stack[PLACES])
    assert places == PLACES


@pytest.mark.parametrize(
    "part",
    [
        lambda stack: stack[:, 1],
        lambda stack: stack[:, :, 1:],
        lambda stack: stack.transpose(1, 2),
        lambda stack: stack.unsqueeze(2),
        lambda stack: stack.flatten(1)[:, 2:5],
        lambda stack: stack[:, 0].unsqueeze(1).expand(-1, 7, -1),
    ],
)
@pytest.mark.parametrize("lanes_at", [0, 1, 2])
def test_parts_of_one_stack_lie_in_one_memory_afterwards(lanes_at: int, part: object) -> None:
    assert callable(part)
    shape = [2, 3]
    shape.insert(lanes_at, 5)
    stack = make_stack(*shape).movedim(lanes_at, 0)
    try:
        shown = part(stack)
    except RuntimeError:
        pytest.skip("torch has no such view")
    wanted = shown[PLACES].clone()
    memory = NarrowedMemory()
    row, _ = memory.keep(shown, PLACES)
    whole, _ = memory.keep(stack, PLACES)
    assert torch.equal(row, wanted)
    assert torch.equal(whole, stack[PLACES])
    if share_memory(shown, stack):
        whole.zero_()
        assert not row.any()


def test_pairs_of_numbers_and_complex_ones_stay_one() -> None:
    pairs = make_stack(5, 3, 2)
    numbers = torch.view_as_complex(pairs)
    memory = NarrowedMemory()
    kept_pairs, _ = memory.keep(pairs, PLACES)
    kept_numbers, _ = memory.keep(numbers, PLACES)
    kept_pairs[..., 1] = 0.0
    assert torch.equal(kept_numbers.real, pairs[PLACES][..., 0])
    assert not kept_numbers.imag.any()


def test_who_comes_late_follows_one_leaving_after_the_other() -> None:
    stack = make_stack(5, 3)
    late = stack[:, 1]
    memory = NarrowedMemory()
    first, _ = memory.keep(stack, [0, 2, 3])
    second, _ = memory.keep(first, [0, 2])
    kept, places = memory.keep(late, [0, 3])
    assert places == [0, 2, 3]
    kept, _ = memory.keep(kept, [0, 2])
    second.fill_(7.0)
    assert kept.tolist() == [7.0, 7.0]


def test_what_all_lanes_have_in_common_stays_where_it_is() -> None:
    plain = make_stack(3)
    kept, _ = NarrowedMemory().keep(plain.expand(5, 3), PLACES)
    assert kept.shape == (2, 3)
    assert share_memory(kept, plain)


def test_memory_is_given_back_when_nobody_holds_the_old_one() -> None:
    memory = NarrowedMemory()
    stack = make_stack(5, 3)
    row = stack[:, 0]
    kept, _ = memory.keep(stack, PLACES)
    heir = StorageWeakRef(kept.untyped_storage())
    del stack, row, kept
    gc.collect()
    memory.keep(make_stack(4, 2), [1])
    assert heir.expired()


def test_lanes_that_lie_across_one_another_are_kept_once_and_then_refused() -> None:
    numbers = make_stack(12)
    overlapping = numbers.as_strided((5, 3), (2, 1))
    memory = NarrowedMemory()
    kept, _ = memory.keep(overlapping, PLACES)
    assert torch.equal(kept, overlapping[PLACES])
    for shared in (overlapping, numbers[:10].view(5, 2)):
        with pytest.raises(CannotFuseError, match=r"shares its memory with others.*keep a clone\(\) of it"):
            memory.keep(shared, PLACES)


def test_a_tensor_that_nobody_is_seen_to_share_is_found_again_by_who_holds_it() -> None:
    stack = make_stack(5, 3)
    memory = NarrowedMemory()
    one, _ = memory.keep(stack, PLACES)
    other, _ = memory.keep(stack, PLACES)
    assert share_memory(one, other)
