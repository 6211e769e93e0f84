"""The input stream: whose n-th pass depends on the seed and n alone, and whose batches are torch's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator, Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from headwater.errors import TrialError
from headwater.train.seeding import mix_seed
from headwater.train.streams import Stream, open_stream

CPU = torch.device("cpu")
NUMBERS = TensorDataset(torch.arange(10), torch.arange(10) * 10.0)


class Squares(Dataset[Any]):
    """Samples that are dictionaries, as many datasets have them."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.tensor([index, index]), "y": index * index, "name": f"number {index}"}

    def __len__(self) -> int:
        return 7


class Pair(NamedTuple):
    left: Tensor
    right: float


class Pairs(Dataset[Any]):
    """Samples that are named tuples."""

    def __getitem__(self, index: int) -> Pair:
        return Pair(torch.tensor([index]), index / 2)

    def __len__(self) -> int:
        return 5


class Counting(IterableDataset[Any]):
    """Data without an index."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


class EvenFirst(Sampler[int]):
    """An order of the user's own."""

    def __iter__(self) -> Iterator[int]:
        return iter([*range(0, 10, 2), *range(1, 10, 2)])

    def __len__(self) -> int:
        return 10


def open_numbers(seed: int = 3, **options: Any) -> Stream:
    return open_stream(NUMBERS, seed, CPU, **{"batch_size": 4, "shuffle": True, **options})


def order(batches: Any) -> list[int]:
    """Return the first column of all batches in a row."""
    return [int(number) for batch in batches for number in (batch[0] if isinstance(batch, list) else batch)]


def test_the_order_belongs_to_the_seed() -> None:
    assert order(open_numbers(seed=3)) == order(open_numbers(seed=3))
    assert order(open_numbers(seed=3)) != order(open_numbers(seed=4))


def test_the_global_seed_changes_nothing() -> None:
    torch.manual_seed(1)
    first = order(open_numbers())
    torch.manual_seed(2)
    assert order(open_numbers()) == first


def test_reading_draws_no_global_random_numbers() -> None:
    before = torch.get_rng_state()
    order(open_numbers())
    assert torch.equal(torch.get_rng_state(), before)


def test_each_pass_has_an_order_of_its_own() -> None:
    stream = open_numbers()
    passes = [order(stream) for _ in range(3)]
    assert all(sorted(one) == list(range(10)) for one in passes)
    assert passes[0] != passes[1] != passes[2]


def test_the_nth_pass_does_not_depend_on_what_was_read_before() -> None:
    stream = open_numbers()
    order(stream)
    next(iter(stream))  # a pass that is broken off
    third = order(stream)
    resumed = open_numbers()
    resumed.num_passes = 2
    assert order(resumed) == third
    assert stream.num_passes == resumed.num_passes == 3


def test_the_order_is_that_of_a_plain_loader_with_the_documented_seed() -> None:
    stream = open_numbers(seed=3)
    for number in range(2):
        generator = Generator().manual_seed(mix_seed(3, "pass", number))
        assert order(stream) == order(DataLoader(NUMBERS, batch_size=4, shuffle=True, generator=generator))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4},
        {"batch_size": 4, "shuffle": True},
        {"batch_size": 4, "shuffle": True, "drop_last": True},
        {"batch_size": 4, "sampler": EvenFirst()},
        {"batch_sampler": BatchSampler(EvenFirst(), batch_size=3, drop_last=False)},
        {"batch_size": None},
        {"batch_size": None, "sampler": EvenFirst()},
        {"batch_size": None, "shuffle": True},
        {},
    ],
    ids=["in order", "shuffled", "drop_last", "sampler", "batch_sampler", "single", "single by sampler",
         "single shuffled", "defaults"],
)  # fmt: skip
def test_a_dataset_with_keywords_and_a_loader_give_the_same(options: dict[str, Any]) -> None:
    from_keywords = open_stream(NUMBERS, 3, CPU, **options)
    from_loader = open_stream(DataLoader(NUMBERS, **options), 3, CPU)
    plain = DataLoader(NUMBERS, **options, generator=Generator().manual_seed(mix_seed(3, "pass", 0)))
    expected = list(plain)
    require_same(list(from_keywords), expected)
    require_same(list(from_loader), expected)
    assert len(from_keywords) == len(from_loader) == len(plain)


@pytest.mark.parametrize(
    "data", [NUMBERS, Squares(), Pairs(), [1, 2, 3, 4, 5]], ids=["tensors", "dicts", "tuples", "list"]
)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_are_torchs_own(data: Any, num_workers: int) -> None:
    options: dict[str, Any] = {"batch_size": 2, "shuffle": True, "num_workers": num_workers}
    plain = DataLoader(data, **options, generator=Generator().manual_seed(mix_seed(3, "pass", 0)))
    require_same(list(open_stream(data, 3, CPU, **options)), list(plain))


def test_columns_of_any_type_and_rank_come_as_torch_collates_them() -> None:
    tensors = (torch.rand(6, 2, 3), torch.arange(6), torch.rand(6) > 0.5, torch.rand(6, 1).half(), torch.rand(6, 0))
    data = TensorDataset(*tensors)
    require_same(list(open_stream(data, 0, CPU, batch_size=4)), list(DataLoader(data, batch_size=4)))


def test_a_batch_shares_no_memory_with_the_data() -> None:
    data = TensorDataset(torch.zeros(4, 2))
    for (batch,) in open_stream(data, 0, CPU, batch_size=4):
        batch.add_(1)
    assert data.tensors[0].sum() == 0


def test_a_collate_function_of_the_users_own_is_called() -> None:
    stream = open_stream(NUMBERS, 0, CPU, batch_size=5, collate_fn=lambda samples: [len(samples), *samples[0]])
    assert [batch[0] for batch in stream] == [5, 5]


@pytest.mark.parametrize("as_loader", [False, True], ids=["keywords", "loader"])
def test_an_iterable_dataset_is_read_in_its_own_order(as_loader: bool) -> None:
    data = Counting()
    stream = open_stream(
        DataLoader(data, batch_size=3) if as_loader else data, 0, CPU, **({} if as_loader else {"batch_size": 3})
    )
    assert [batch.tolist() for batch in stream] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_sampler_that_draws_from_a_generator_of_its_own_keeps_to_the_pass_too() -> None:
    def open_weighted() -> Stream:
        sampler = WeightedRandomSampler([1.0] * 10, 10, generator=Generator().manual_seed(0))
        return open_stream(NUMBERS, 3, CPU, batch_size=5, sampler=sampler)

    first = open_weighted()
    passes = [order(first), order(first)]
    resumed = open_weighted()
    resumed.num_passes = 1
    assert order(resumed) == passes[1] != passes[0]


def test_drawing_with_replacement_is_kept() -> None:
    loader = DataLoader(NUMBERS, batch_size=10, sampler=RandomSampler(NUMBERS, replacement=True, num_samples=30))
    torch.manual_seed(0)
    numbers = order(open_stream(loader, 3, CPU))
    assert len(numbers) == 30
    assert len(set(numbers)) <= 10


def test_a_generator_that_is_none_is_as_good_as_no_generator() -> None:
    assert order(open_numbers(generator=None)) == order(open_numbers())


def test_a_stream_answers_what_a_loader_answers() -> None:
    stream = open_numbers()
    assert len(stream) == 3
    assert stream.batch_size == 4
    assert len(stream.dataset) == 10
    assert isinstance(open_numbers(shuffle=False).sampler, SequentialSampler)


def test_a_loader_with_keywords_is_refused() -> None:
    with pytest.raises(TrialError, match=r"got a DataLoader and also \['batch_size'\]"):
        open_stream(DataLoader(NUMBERS), 0, CPU, batch_size=3)


def test_what_is_no_data_is_refused() -> None:
    with pytest.raises(TrialError, match="got a int; give it a Dataset"):
        open_stream(3, 0, CPU)


def require_same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if isinstance(theirs, Tensor):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            require_same(ours[key], theirs[key])
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            require_same(one, other)
    else:
        assert ours == theirs


class Lengths(Dataset[Any]):
    """Examples of one length, then of another, as a data set sorted by length has them."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x" if index < 20 else "z": torch.full((5 if index < 20 else 6,), index)}

    def __len__(self) -> int:
        return 40


def test_no_example_is_lost_where_its_neighbours_have_another_shape() -> None:
    expected = list(DataLoader(Lengths(), batch_size=10))
    require_same(list(open_stream(Lengths(), 0, CPU, batch_size=10)), expected)


def test_batches_of_one_may_have_any_shape() -> None:
    require_same(list(open_stream(Lengths(), 0, CPU, batch_size=1)), list(DataLoader(Lengths(), batch_size=1)))


def test_a_sampler_without_a_generator_draws_from_the_pass_and_leaves_the_rest_alone() -> None:
    sampler = WeightedRandomSampler([1.0] * 10, 10)
    before = torch.get_rng_state()
    first = order(open_stream(NUMBERS, 3, CPU, batch_size=5, sampler=sampler))
    torch.manual_seed(123)
    assert order(open_stream(NUMBERS, 3, CPU, batch_size=5, sampler=sampler)) == first
    torch.set_rng_state(before)


class Broken(Dataset[Any]):
    """Data of which some cannot be read."""

    def __getitem__(self, index: int) -> Tensor:
        if index >= 12:
            raise OSError("no such file")
        return torch.tensor(index)

    def __len__(self) -> int:
        return 100


@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_cannot_be_read_raises_where_it_is_asked_for(num_workers: int) -> None:
    batches = iter(open_stream(Broken(), 0, CPU, batch_size=3, num_workers=num_workers))
    assert [next(batches).tolist() for _ in range(4)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    with pytest.raises(OSError, match="no such file"):
        next(batches)


def test_a_pass_that_never_ends_is_not_laid_out_beforehand() -> None:
    sampler = RandomSampler(NUMBERS, replacement=True, num_samples=10**12)
    stream = open_stream(NUMBERS, 0, CPU, batch_size=4, sampler=sampler)
    assert stream.source is None
    assert len(next(iter(stream))[0]) == 4


def test_a_stream_knows_whether_it_is_being_read() -> None:
    stream = open_numbers()
    batches = iter(stream)
    next(batches)
    assert stream.num_open == 1
    list(batches)
    assert stream.num_open == 0
    for _ in stream:
        break
    assert stream.num_open == 0
