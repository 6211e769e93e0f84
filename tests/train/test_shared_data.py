"""A data set is read once for all lanes: one that uses a value that differs between them makes them part by it."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.train.lab import run, run_alone
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from headwater.train import Trial
from headwater.trials import Outcome

NUM = 24
INPUTS = torch.randn(NUM, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
VALUES = (0.2, 0.9, 0.2, 0.5)
CONFIGS = [{"x": value, "lr": 0.1 + number / 10} for number, value in enumerate(VALUES)]


class Reading(Dataset[Any]):
    """Gives examples that follow from a number of the trial's, which it gets after the loader was made."""

    def __init__(self, read: Callable[[Reading, int], Any]) -> None:
        self.x: Any = None
        self.read = read
        self.counts: defaultdict[str, float] = defaultdict(float)
        self.list: list[Any] = []
        self.array = np.zeros(3)
        self.numbers = iter(range(1000))

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> Any:
        return self.read(self, index)

    @functools.cached_property
    def factor(self) -> Any:
        return self.x * 2


def add_noise(data: Reading, index: int) -> Any:
    return INPUTS[index] + data.x * torch.randn_like(INPUTS[index])


def read_a_cached_property(data: Reading, index: int) -> Any:
    return INPUTS[index] * data.factor


def count_in_a_defaultdict(data: Reading, index: int) -> Any:
    data.counts["seen"] += data.x
    return INPUTS[index] * data.counts["seen"]


def write_to_a_positional_out(data: Reading, index: int) -> Any:
    np.multiply(INPUTS[index].numpy(), data.x, data.array)
    return torch.from_numpy(data.array.copy()) + INPUTS[index]


def append_by_the_class(data: Reading, index: int) -> Any:
    list.append(data.list, data.x)
    return INPUTS[index] * sum(data.list)


def use_up_an_iterator(data: Reading, index: int) -> Any:
    first, second = next(data.numbers), next(data.numbers)
    return INPUTS[index] * data.x + first - second


def compare(data: Reading, index: int) -> Any:
    return INPUTS[index] if data.x > 0.3 else INPUTS[index].flip(0)


def write_as_text(data: Reading, index: int) -> Any:
    return INPUTS[index] * len(f"{data.x}")


def give_the_value(data: Reading, index: int) -> Any:
    return INPUTS[index], data.x


def hand_it_to_numpy(data: Reading, index: int) -> Any:
    return torch.from_numpy(np.full(3, data.x)) + INPUTS[index]


def hand_it_to_torch(data: Reading, index: int) -> Any:
    return torch.full((3,), data.x, dtype=torch.float64) + INPUTS[index]


def catch_everything(data: Reading, index: int) -> Any:
    try:
        return INPUTS[index] * data.x
    except BaseException:  # the worst that code can do
        return INPUTS[index]


ACTS = [
    add_noise, read_a_cached_property, count_in_a_defaultdict, write_to_a_positional_out, append_by_the_class,
    use_up_an_iterator, compare, write_as_text, give_the_value, hand_it_to_numpy, hand_it_to_torch, catch_everything,
]  # fmt: skip


def train_on(
    read: Callable[[Reading, int], Any], collate: Callable[[Any, list[Any]], Any] | None = None, **options: Any
) -> Callable[[Trial], None]:
    """Return a function that reports a number that follows from all batches."""

    def train(trial: Trial) -> None:
        data = Reading(read)
        if collate is not None:
            options["collate_fn"] = lambda examples: collate(held["x"], examples)
        held: dict[str, Any] = {}
        loader = trial.prepare_data_loader(data, batch_size=5, shuffle=True, **options)
        data.x = held["x"] = trial.config["x"]
        for _ in trial.epochs(2):
            total = 0.0
            for batch in loader:
                rows = batch[0] if isinstance(batch, list) else batch
                total = total * 0.5 + rows.sum() * trial.config["lr"]
            trial.report(loss=total)

    return train


def require_parted_by_x(train: Callable[[Trial], None]) -> None:
    together = run(train, CONFIGS)
    assert together.outcome is Outcome.PARTED, f"{together.outcome} {together.reason} {together.ending.error}"
    assert together.label == "x"
    assert re.search(r"test_shared_data\.py:\d+", together.reason)


@pytest.mark.parametrize("read", ACTS)
def test_a_data_set_that_uses_a_value_that_differs_makes_lanes_part_by_it(
    read: Callable[[Reading, int], Any],
) -> None:
    require_parted_by_x(train_on(read))


def test_the_note_names_the_value() -> None:
    assert "the data set uses `x`, which differs by lane" in run(train_on(add_noise), CONFIGS).reason


def test_a_collate_function_that_uses_such_a_value_makes_lanes_part_by_it() -> None:
    require_parted_by_x(train_on(lambda data, index: INPUTS[index], collate=lambda x, rows: torch.stack(rows) * x))


def test_a_batch_that_holds_such_a_value_makes_lanes_part_by_it() -> None:
    require_parted_by_x(train_on(lambda data, index: INPUTS[index], collate=lambda x, rows: [torch.stack(rows), x]))


def test_worker_processes_are_not_given_such_a_value() -> None:
    require_parted_by_x(train_on(add_noise, num_workers=1))


class Holder:
    """Holds a value in a slot."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda x: x,
    "list": lambda x: [1, [x]],
    "dictionary": lambda x: {"deep": {"deeper": x}},
    "partial": lambda x: functools.partial(max, x),
    "closure": lambda x: lambda: x,
    "object": Holder,
}


@pytest.mark.parametrize(
    "wrap", [lambda data: data, lambda data: Subset(data, range(9)), lambda data: ConcatDataset([data])]
)
@pytest.mark.parametrize("hold", HOLDERS)
def test_a_data_set_that_holds_such_a_value_makes_lanes_part_where_the_loader_is_made(
    hold: str, wrap: Callable[[Any], Any]
) -> None:
    def train(trial: Trial) -> None:
        data = Reading(lambda data, index: INPUTS[index])
        data.x = HOLDERS[hold](trial.config["x"])
        trial.prepare_data_loader(wrap(data), batch_size=4)
        trial.report(loss=1.0)

    require_parted_by_x(train)


def test_a_loader_of_torch_is_no_way_around_that() -> None:
    def train(trial: Trial) -> None:
        data = Reading(read_a_cached_property)
        data.x = trial.config["x"]
        total = sum(batch.sum() for batch in DataLoader(data, batch_size=4))
        trial.report(loss=total)

    require_parted_by_x(train)


def test_a_value_that_lanes_have_computed_sends_them_apart() -> None:
    def train(trial: Trial) -> None:
        data = Reading(add_noise)
        data.x = 1.0
        model = trial.prepare_model(nn.Linear(3, 1).double())
        with torch.no_grad():
            model.weight.mul_(trial.config["x"])
        loader = trial.prepare_data_loader(data, batch_size=4)
        for _ in trial.epochs(2):
            loss = sum(model(rows).sum().item() for rows in loader)
            data.x = loss
            trial.report(loss=loss)

    together = run(train, CONFIGS)
    assert together.outcome is Outcome.APART
    assert "the data set uses a value that lanes computed" in together.reason


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_data_set_without_such_values_is_read_once_for_all(num_workers: int) -> None:
    def train(trial: Trial) -> None:
        data = Reading(lambda data, index: INPUTS[index] + torch.randn(3, dtype=torch.float64))
        loader = trial.prepare_data_loader(data, batch_size=5, shuffle=True, num_workers=num_workers)
        for _ in trial.epochs(2):
            trial.report(loss=sum(rows.sum() for rows in loader) * trial.config["lr"])

    together = run(train, CONFIGS)
    assert together.outcome is Outcome.DONE, together.reason
    for number, config in enumerate(CONFIGS):
        assert together.notes.history(number) == run_alone(train, config).history(0)
