"""The line between ranks, here between threads: gloo cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch.distributed import HashStore, Store, TCPStore  # type: ignore[attr-defined]  # torch does not list them

from headwater.errors import RanksLostError, StudyError
from headwater.train.exchange import Exchange
from headwater.train.ranks import Part, RankGroup, Ranks

Answer = TypeVar("Answer")


def together(num_ranks: int, act: Callable[[RankGroup], Answer], meeting: str | Store = "") -> list[Answer]:
    """Have every rank do something, and return their answers."""
    place = meeting or HashStore()

    def be(rank: int) -> Answer:
        group = RankGroup(Ranks(rank, num_ranks), place, timeout_s=60)
        try:
            return act(group)
        finally:
            group.close()

    with ThreadPoolExecutor(num_ranks) as threads:
        return list(threads.map(be, range(num_ranks)))


def test_ranks_meet_at_a_file(tmp_path: Path) -> None:
    found = together(2, lambda group: group.gather_numbers(group.rank), f"file://{tmp_path / 'meeting'}")
    assert found == [[(0.0,), (1.0,)]] * 2


def test_ranks_meet_at_a_server() -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, multi_tenant=True)
    found = together(2, lambda group: group.gather_numbers(group.rank), f"tcp://127.0.0.1:{server.port}")
    assert found == [[(0.0,), (1.0,)]] * 2


def test_sums_are_over_all_ranks_whatever_the_type() -> None:
    def act(group: RankGroup) -> list[torch.Tensor]:
        kinds = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
        return group.sum([torch.full((2,), group.rank + 1, dtype=kind) for kind in kinds])

    for sums in together(3, act):
        assert [tensor.tolist() for tensor in sums] == [[6.0, 6.0]] * 4


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.bfloat16, torch.complex64])
def test_tensors_of_every_type_are_gathered(kind: torch.dtype) -> None:
    found = together(2, lambda group: group.gather(torch.tensor([group.rank, 1]).to(kind)))
    expected = [torch.tensor([0, 1]).to(kind), torch.tensor([1, 1]).to(kind)]
    torch.testing.assert_close(found, [expected, expected])


def test_everyone_gets_the_tensors_of_rank_0() -> None:
    def act(group: RankGroup) -> torch.Tensor:
        tensor = torch.full((2, 3), float(group.rank)).T
        group.broadcast([tensor])
        return tensor

    assert all(tensor.eq(0).all() for tensor in together(2, act))


def test_parts_of_answers_are_joined_even_where_they_are_unequal() -> None:
    rows, columns = torch.arange(14).view(7, 2), torch.rand(3, 14)

    def act(group: RankGroup) -> list[list[torch.Tensor]]:
        part = Part(0, 7, 7).split(3)[group.rank]
        own = [rows[part.start : part.stop], columns[:, 2 * part.start : 2 * part.stop], torch.ones(())]
        exchange = Exchange(group)
        return [exchange.join("key", own, [0, 1, None], part) for _ in range(2)]

    for answers in together(3, act):
        for answer in answers:
            torch.testing.assert_close(answer, [rows, columns, torch.ones(())])


def test_a_rank_that_leaves_is_missed() -> None:
    def act(group: RankGroup) -> str:
        if group.rank == 1:
            return ""
        with pytest.raises(RanksLostError) as caught:
            group.gather_numbers(1)
        return str(caught.value)

    assert together(2, act)[0].startswith("rank 0 of 2 has lost the others: one has ended")


def test_a_rank_that_never_comes_is_missed() -> None:
    with pytest.raises(RanksLostError, match="rank 0 of 2 has lost the others"):
        RankGroup(Ranks(0, 2), HashStore(), timeout_s=0.1)


def test_a_rank_must_be_one_of_them() -> None:
    with pytest.raises(StudyError, match="rank 2 of 2 cannot be"):
        Ranks(2, 2)


def test_ranks_need_a_place_to_meet() -> None:
    with pytest.raises(StudyError, match="2 ranks need a place to meet"):
        RankGroup(Ranks(0, 2))
