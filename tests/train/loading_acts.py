"""Data sets that compute with what is tuned: those that lanes can read together, and those that they cannot."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, Dataset, Subset

NUM = 24
INPUTS = torch.randn(NUM, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
ARRAYS = INPUTS.numpy().copy()
LABELS = [index % 4 for index in range(NUM)]
HOME: dict[str, Any] = {}


class Reading(Dataset[Any]):
    """Gives examples that follow from a number of the trial's."""

    def __init__(self, x: Any, read: Callable[[Reading, int], Any]) -> None:
        self.x = x
        self.read = read
        self.count = 0
        self.cache: dict[int, Any] = {}
        self.list: list[Any] = []
        self.own = INPUTS.clone()
        self.arrays = ARRAYS.copy()
        self.dice = random.Random(3)
        self.generator = np.random.default_rng(3)
        self.torch_dice = torch.Generator().manual_seed(3)
        self.iterator = iter(range(1000))

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> Any:
        return self.read(self, index)


def add_noise(data: Reading, index: int) -> Any:
    return INPUTS[index] + data.x * torch.randn_like(INPUTS[index]), LABELS[index]


def read_plainly(data: Reading, index: int) -> Any:
    return INPUTS[index], LABELS[index]


def scale_plain_numbers(data: Reading, index: int) -> Any:
    return INPUTS[index] * (data.x / 2 + 1), data.x * index


def branch(data: Reading, index: int) -> Any:
    if random.random() < data.x:
        return INPUTS[index].flip(0), 0
    return INPUTS[index], 1


def draw_as_many_as_it_takes(data: Reading, index: int) -> Any:
    lam = np.random.beta(data.x, data.x)
    other = random.randrange(NUM)
    return lam * INPUTS[index] + (1 - lam) * INPUTS[other], lam


def smooth_labels(data: Reading, index: int) -> Any:
    label = torch.full((4,), data.x / 3, dtype=torch.float64)
    label[LABELS[index]] = 1 - data.x
    return INPUTS[index], label


def erase_in_a_copy(data: Reading, index: int) -> Any:
    image = data.own[index].clone()
    width = int(data.x * 3)
    image[0:width] = 0.0
    image.mul_(2.0)
    image += data.x
    return image, width


def write_into_a_new_array(data: Reading, index: int) -> Any:
    row = data.arrays[index].copy()
    row[1] = data.x
    row[0:1] += np.random.normal(0, data.x)
    row.sort()
    return row, float(row.sum())


def fill_a_new_dictionary(data: Reading, index: int) -> Any:
    item = {"x": INPUTS[index]}
    item["noisy"] = INPUTS[index] * data.x
    parts = []
    for part in item.values():
        parts.append(part + data.x)  # noqa: PERF401 - what is tested
    item.update(sum=torch.stack(parts).sum())
    return item


def make_an_object(data: Reading, index: int) -> Any:
    window = Window(index)
    window.move(data.x)
    return INPUTS[index] * window.place, Point(data.x, 2.0).length()


class Window:
    """Something with attributes."""

    def __init__(self, place: int) -> None:
        self.place: float = place
        self.moves: list[float] = []

    def move(self, distance: float) -> None:
        self.place += distance
        self.moves.append(distance)


@dataclass
class Point:
    """Something whose attributes a dataclass sets."""

    x: float
    y: float

    def length(self) -> float:
        return float((self.x**2 + self.y**2) ** 0.5)


def catch_an_error(data: Reading, index: int) -> Any:
    try:
        if index % 2:
            raise ValueError("odd")
        return INPUTS[index], data.x
    except ValueError:
        return INPUTS[index] * data.x, 1.0


def go_through_a_zip(data: Reading, index: int) -> Any:
    total = torch.zeros((), dtype=torch.float64)
    for one, factor in zip(INPUTS[index], (1.0, data.x, 2.0), strict=True):
        total = total + one * factor
    return total, [F.relu(INPUTS[index] - data.x)]


def call_nothing_that_differs(data: Reading, index: int) -> Any:
    return INPUTS[index] + torch.randn(3, dtype=torch.float64), LABELS[index]


def give_a_text(data: Reading, index: int) -> Any:
    return INPUTS[index] * data.x, f"{index}"


TOGETHER = [
    add_noise, scale_plain_numbers, branch, draw_as_many_as_it_takes, smooth_labels, erase_in_a_copy,
    write_into_a_new_array, fill_a_new_dictionary, make_an_object, catch_an_error, go_through_a_zip,
    call_nothing_that_differs, give_a_text,
]  # fmt: skip


def keep_in_a_dictionary(data: Reading, index: int) -> Any:
    if index not in data.cache:
        data.cache[index] = INPUTS[index] * data.x
    return data.cache[index], 0


def keep_in_a_dictionary_by_method(data: Reading, index: int) -> Any:
    return data.cache.setdefault(index, INPUTS[index] * data.x), 0


def keep_in_a_list(data: Reading, index: int) -> Any:
    data.list.append(data.x)
    return INPUTS[index] * data.list[0], len(data.list)


def keep_in_a_global(data: Reading, index: int) -> Any:
    HOME["last"] = data.x
    return INPUTS[index] * HOME["last"], 0


def count(data: Reading, index: int) -> Any:
    data.count += 1
    return INPUTS[index] * data.x, data.count


def write_into_its_tensor(data: Reading, index: int) -> Any:
    data.own[index] *= data.x
    return data.own[index].clone(), 0


def write_into_a_row_of_its_tensor(data: Reading, index: int) -> Any:
    row = data.own[index]
    row.mul_(data.x)
    return row.clone(), 0


def write_into_a_slice_of_its_tensor(data: Reading, index: int) -> Any:
    row = data.own[index]
    row[0:1] = data.x
    return row.clone(), 0


def write_into_its_array(data: Reading, index: int) -> Any:
    row = data.arrays[index]
    row += data.x
    return row.copy(), 0


def write_through_a_tensor(data: Reading, index: int) -> Any:
    row = torch.from_numpy(data.arrays[index])
    row.add_(data.x)
    return row.clone(), 0


def write_through_an_array(data: Reading, index: int) -> Any:
    row = data.own[index].numpy()
    row[:] = row * data.x
    return row.copy(), 0


def write_in_place_by_a_function(data: Reading, index: int) -> Any:
    F.relu(data.own[index].sub_(data.x), inplace=True)
    return data.own[index].clone(), 0


def write_to_out(data: Reading, index: int) -> Any:
    np.multiply(data.arrays[index], data.x, data.arrays[index])
    return data.arrays[index].copy(), 0


def copy_to_its_array(data: Reading, index: int) -> Any:
    np.copyto(data.arrays[index], data.x)
    return data.arrays[index].copy(), 0


def draw_from_its_own_dice(data: Reading, index: int) -> Any:
    return INPUTS[index] * data.x * data.dice.random(), 0


def draw_from_its_own_generator(data: Reading, index: int) -> Any:
    return INPUTS[index] * data.x, data.generator.normal()


def draw_from_its_own_torch_generator(data: Reading, index: int) -> Any:
    return INPUTS[index] * data.x + torch.randn(3, dtype=torch.float64, generator=data.torch_dice), 0


def use_up_an_iterator(data: Reading, index: int) -> Any:
    for number in data.iterator:
        return INPUTS[index] * data.x + number, 0
    return None


@functools.cache
def remembered(data: Reading, index: int) -> Any:
    return INPUTS[index] * data.x


def remember(data: Reading, index: int) -> Any:
    return remembered(data, index), 0


def shuffle_its_list(data: Reading, index: int) -> Any:
    if not data.list:
        data.list = [*range(10)]
    random.shuffle(data.list)
    return INPUTS[index] * data.x, data.list[0]


def change_its_shape(data: Reading, index: int) -> Any:
    return INPUTS[index][: 1 + int(data.x * 2)], 0


def use_a_layer(data: Reading, index: int) -> Any:
    return nn.BatchNorm1d(3).double()(INPUTS[:4] * data.x)[0].detach(), 0


def seed_its_own_dice(data: Reading, index: int) -> Any:
    data.dice.seed(int(data.x * 100))
    return INPUTS[index] * data.x, data.dice.random()


def delete_what_it_has(data: Reading, index: int) -> Any:
    data.cache[index] = data.x
    del data.cache[index]
    return INPUTS[index] * data.x, 0


def hand_out_what_it_keeps(data: Reading, index: int) -> Any:
    held = data.list[0] if data.list else None
    if held is None:
        held = [INPUTS[index].clone()]
        data.list.append(held)
    held[0] += data.x
    return held[0].clone(), 0


APART = [
    keep_in_a_dictionary, keep_in_a_dictionary_by_method, keep_in_a_list, keep_in_a_global, count,
    write_into_its_tensor, write_into_a_row_of_its_tensor, write_into_a_slice_of_its_tensor, write_into_its_array,
    write_through_a_tensor, write_through_an_array, write_in_place_by_a_function, write_to_out, copy_to_its_array,
    draw_from_its_own_dice, draw_from_its_own_generator, draw_from_its_own_torch_generator, use_up_an_iterator,
    remember, shuffle_its_list, change_its_shape, use_a_layer, seed_its_own_dice, delete_what_it_has,
    hand_out_what_it_keeps,
]  # fmt: skip


def subset(data: Reading) -> Dataset[Any]:
    return Subset(data, range(3, 19))


def joined(data: Reading) -> Dataset[Any]:
    return ConcatDataset([data, data])


def mix_batch(data: Reading, examples: list[Any]) -> Any:
    """Collate with a number of the trial's, and with random numbers of the main stream."""
    rows = torch.stack([row for row, _ in examples])
    return rows * data.x + torch.rand(1, dtype=torch.float64), torch.tensor([label for _, label in examples])


def draw_a_batch(data: Reading, examples: list[Any]) -> Any:
    """Collate with as many random numbers of the main stream as the trial's number asks for."""
    lam = np.random.beta(data.x, data.x)
    return torch.stack([row for row, _ in examples]) * lam, torch.zeros(len(examples))


def sum_up(batch: Any) -> Any:
    """Return one number that follows from all of a batch."""
    if isinstance(batch, Tensor):
        return (batch.double() * torch.linspace(1, 2, batch.numel()).view(batch.shape)).sum()
    if isinstance(batch, dict):
        return sum(sum_up(part) for part in batch.values())
    if isinstance(batch, list | tuple):
        return sum(sum_up(part) * (place + 1) for place, part in enumerate(batch))
    return 0.0
