"""Whether something that was written into is held by anybody but those who got it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from headwater.fuse.turns import Turn

TENSOR = torch.zeros(4, 3)
ARRAY = np.zeros((4, 3))
KEPT: dict[str, Any] = {"list": [torch.zeros(3)]}


def write_into_a_copy(turn: Turn) -> Any:
    row = TENSOR[0].clone()
    turn.write(row)
    return row, 3


def write_into_a_view_of_a_copy(turn: Turn) -> Any:
    row = TENSOR[0].clone()
    turn.write(row[:2])
    return [row]


def write_into_a_copied_array(turn: Turn) -> Any:
    row = ARRAY[0].copy()
    turn.write(row)
    turn.write(row[:1])
    return {"row": row}


def write_into_a_dictionary_of_old_things(turn: Turn) -> Any:
    made: dict[str, Any] = {}
    turn.write(made)
    made["old"] = TENSOR
    return made


def write_into_what_is_dropped(turn: Turn) -> Any:
    rows: list[Any] = []
    turn.write(rows)
    row = torch.zeros(3)
    turn.write(row)
    rows.append(row)
    return torch.stack(rows)


OWN = [
    write_into_a_copy, write_into_a_view_of_a_copy, write_into_a_copied_array, write_into_a_dictionary_of_old_things,
    write_into_what_is_dropped,
]  # fmt: skip


def write_into_a_row(turn: Turn) -> Any:
    row = TENSOR[0]
    turn.write(row)
    return row


def write_into_an_item(turn: Turn) -> Any:
    turn.write(KEPT["list"][0])
    return KEPT["list"]


def write_into_a_row_of_an_array(turn: Turn) -> Any:
    row = ARRAY[0]
    turn.write(row)
    return row


def write_into_the_memory_of_an_array(turn: Turn) -> Any:
    row = torch.from_numpy(ARRAY[0])
    turn.write(row)
    return row


def write_into_the_memory_of_a_tensor(turn: Turn) -> Any:
    turn.write(TENSOR[1].numpy())
    return 1


def keep_what_is_new(turn: Turn) -> Any:
    row = torch.zeros(3)
    turn.write(row)
    KEPT["row"] = row
    return row


def keep_what_holds_it(turn: Turn) -> Any:
    rows = [torch.zeros(3)]
    turn.write(rows[0])
    KEPT["rows"] = rows
    return rows


def keep_its_memory(turn: Turn) -> Any:
    row = torch.zeros(3)
    KEPT["same"] = row.detach()
    turn.write(row)
    return row


def keep_what_it_is_a_view_of(turn: Turn) -> Any:
    row = torch.zeros(3)
    KEPT["whole"] = row
    part = row[:1]
    turn.write(part)
    return part


SHARED = [
    write_into_a_row, write_into_an_item, write_into_a_row_of_an_array, write_into_the_memory_of_an_array,
    write_into_the_memory_of_a_tensor, keep_what_is_new, keep_what_holds_it, keep_its_memory,
    keep_what_it_is_a_view_of,
]  # fmt: skip


@pytest.mark.parametrize("write", OWN)
def test_what_nobody_else_holds_is_its_own(write: Callable[[Turn], Any]) -> None:
    turn = Turn()
    box = [write(turn)]
    assert turn.find_shared(box) is None


@pytest.mark.parametrize("write", SHARED)
def test_what_somebody_else_holds_is_found(write: Callable[[Turn], Any]) -> None:
    turn = Turn()
    box = [write(turn)]
    assert turn.find_shared(box) is not None
