"""A closed world: a value that differs by lane goes where its effect is known, and everything else splits the lanes.

Each program computes a number with a value `x` of the model, or a tensor `t`, that differs by lane. A group must report
the numbers of separate training. The lanes may split on the way where the program is in `SPLITTING`.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import functools
import heapq
import importlib
import io
import itertools
import json
import math
import operator
import random
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import sklearn.metrics
import torch
from tests.train.lab import run, run_alone
from torch import Tensor, nn

from headwater.train import Trial
from headwater.trials import Outcome

sys.path.append(str(Path(__file__).parent / "site-packages"))
library_code: Any = importlib.import_module("library_code")
"""A package that knows nothing of lanes."""
VALUES = (0.25, 0.5, 0.75)
SPLIT = (Outcome.PARTED, Outcome.APART)


class Point(NamedTuple):
    a: Any
    b: Any


@dataclass
class Record:
    best: Any = 0.0
    items: list[Any] = field(default_factory=list)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Counting:
    """A key function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, value: Any) -> Any:
        self.calls += 1
        return -value


def push_heap(x: Any, t: Tensor) -> Any:
    heap: list[Any] = []
    for value in (0.6, x, 0.3):
        heapq.heappush(heap, value)
    return len(heap) + heap[0]


def push_pairs(x: Any, t: Tensor) -> Any:
    heap: list[Any] = [[x, 1]]
    heapq.heappush(heap, [0.4, 2])
    heapq.heappush(heap, [x * 2, 3])
    return len(heap) + heapq.heappop(heap)[0]


def keep_best_three(x: Any, t: Tensor) -> Any:
    best: list[Any] = [0.1, 0.2, 0.3]
    heapq.heapify(best)
    heapq.heappushpop(best, x)
    return sum(best) + sum(heapq.nlargest(2, best))


def insert_sorted(x: Any, t: Tensor) -> Any:
    values = [0.3, 0.6]
    bisect.insort(values, x)
    return len(values) + values[1] + bisect.bisect(values, x)


def insert_in_list_of_values(x: Any, t: Tensor) -> Any:
    values = [x * 0, x * 4]
    bisect.insort(values, x)
    return len(values) + values[1]


def copy_shallow(x: Any, t: Tensor) -> Any:
    outer: list[Any] = [[x], 2.0]
    inner = copy.copy(outer)
    inner[0].append(5.0)
    return sum(outer[0])


def copy_an_object(x: Any, t: Tensor) -> Any:
    record = Record(best=x, items=[x])
    other = copy.copy(record)
    other.items.append(1.0)
    return sum(record.items) + other.best


def view_of_a_mapping(x: Any, t: Tensor) -> Any:
    table = {"a": x}
    view = MappingProxyType(table)
    table["a"] = x * 2
    return view["a"]


def chain_of_mappings(x: Any, t: Tensor) -> Any:
    first: dict[str, Any] = {}
    chain = collections.ChainMap(first, {"a": x})
    chain["b"] = x * 3
    return first["b"] + chain["a"]


def count_key_calls(x: Any, t: Tensor) -> Any:
    key = Counting()
    best = max([x, 0.4, x * 2], key=key)
    return best + key.calls


def count_sorted_calls(x: Any, t: Tensor) -> Any:
    calls: list[Any] = []

    def key(value: Any) -> Any:
        calls.append(value)
        return -value

    return sorted([x, 0.4, 0.1], key=key)[0] + len(calls)


def pick_an_object(x: Any, t: Tensor) -> Any:
    first, second = [x, 1.0], [0.4, 2.0]
    max(first, second).append(9.0)
    return sum(first) + 10 * sum(second)


def sort_objects(x: Any, t: Tensor) -> Any:
    rows = [[x, 1.0], [0.4, 2.0]]
    sorted(rows)[0].append(9.0)
    return sum(rows[0]) + 10 * sum(rows[1])


def clip_into(x: Any, t: Tensor) -> Any:
    array = t.numpy()
    np.clip(array, 0, 0.4, array)
    return array.sum()


def clip_shared_into(x: Any, t: Tensor) -> Any:
    array = np.array([0.1, 0.5, 0.9])
    np.clip(array, 0, x, array)
    return array.sum()


def add_at(x: Any, t: Tensor) -> Any:
    array = np.zeros(2)
    np.add.at(array, [0, 0], x)
    return array[0]


def replace_nan(x: Any, t: Tensor) -> Any:
    array = np.array([np.nan, 1.0])
    np.nan_to_num(array, copy=False, nan=x)
    return array[0]


def copy_into(x: Any, t: Tensor) -> Any:
    array = np.zeros(3)
    np.copyto(array, t.numpy())
    return array.sum()


def write_out(x: Any, t: Tensor) -> Any:
    array = np.zeros(3)
    np.multiply(t.numpy(), 2.0, array)
    np.add(array, 1.0, out=array)
    return array.sum()


def fill_array(x: Any, t: Tensor) -> Any:
    array = np.zeros(3)
    array.fill(x)
    array.put([0], [x * 2])
    return array.sum()


def sum_into(x: Any, t: Tensor) -> Any:
    total = np.zeros(())
    np.sum(t.numpy(), None, None, total)
    return float(total)


def item_in_a_library(x: Any, t: Tensor) -> Any:
    return library_code.mean_of(t)


def item_compared_in_a_library(x: Any, t: Tensor) -> Any:
    return library_code.classify(t)


def number_in_a_library(x: Any, t: Tensor) -> Any:
    return library_code.scale(x)


def list_in_a_library(x: Any, t: Tensor) -> Any:
    values = [x, 1.0]
    library_code.append_twice(values)
    return sum(values)


def deque_in_a_library(x: Any, t: Tensor) -> Any:
    values = collections.deque([x, 1.0])
    library_code.append_twice(values)
    return sum(values)


def named_tuple_in_a_library(x: Any, t: Tensor) -> Any:
    return library_code.scale(Point(x, 1.0).a) + library_code.kind_of(Point(x, 1.0))


def object_in_a_library(x: Any, t: Tensor) -> Any:
    return library_code.kind_of(Record(best=x)) + library_code.kind_of(SimpleNamespace(best=x))


def slots_in_a_library(x: Any, t: Tensor) -> Any:
    return library_code.kind_of(Slotted(x))


def method_in_a_library(x: Any, t: Tensor) -> Any:
    record = Record(best=x)
    return library_code.call(functools.partial(getattr, record, "best"))


def closure_in_a_library(x: Any, t: Tensor) -> Any:
    return library_code.call(lambda: x)


def callback_in_a_library(x: Any, t: Tensor) -> Any:
    return library_code.call(lambda: t.sum().item())


def receiver_in_a_library(x: Any, t: Tensor) -> Any:
    meter = library_code.Meter()
    for value in (x, x * 2):
        meter.update(value)
    return meter.average()


def attribute_of_a_library(x: Any, t: Tensor) -> Any:
    meter = library_code.Meter()
    meter.total = x
    return meter.kind()


def swallowed_save(x: Any, t: Tensor) -> Any:
    try:
        torch.save({"x": x, "t": t}, io.BytesIO())
    except Exception:
        return -1.0
    return 1.0


def suppressed_sum(x: Any, t: Tensor) -> Any:
    totals = np.zeros(3)
    with contextlib.suppress(TypeError):
        totals[:2] += x
    return totals.sum()


def caught_apply(x: Any, t: Tensor) -> Any:
    totals = torch.zeros(2)
    try:
        totals.apply_(lambda one: one + x)
    except Exception:
        return -1.0
    return totals.sum()


def caught_item_in_apply(x: Any, t: Tensor) -> Any:
    totals = torch.zeros(2)
    try:
        totals.apply_(lambda one: one + t.sum().item())
    except Exception:
        return -1.0
    return totals.sum()


class Amount:
    """A number of the user's that counts how often others are added to it."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __radd__(self, other: Any) -> Any:
        self.num_calls += 1
        return other + self.num_calls


def reflected_operator(x: Any, t: Tensor) -> Any:
    amount = Amount()
    return (x + amount) * (x + amount) + amount.num_calls


def iterate_twice(x: Any, t: Tensor) -> Any:
    values = iter([x, 2.0, 3.0])
    return max(itertools.islice(values, 2)) + next(values)


def best_of_a_generator(x: Any, t: Tensor) -> Any:
    seen = []

    def values() -> Any:
        for value in (x, 0.4):
            seen.append(value)
            yield value

    return min(values()) + len(seen)


def memoize(x: Any, t: Tensor) -> Any:
    calls = []

    @functools.lru_cache
    def double(value: Any) -> Any:
        calls.append(value)
        return value * 2

    return double(x) + double(x) + len(calls)


def reduce_values(x: Any, t: Tensor) -> Any:
    return functools.reduce(operator.mul, [x, 2.0, x])


def bound_method_of_a_container(x: Any, t: Tensor) -> Any:
    values: list[Any] = []
    add = values.append
    for factor in (1, 2):
        add(x * factor)
    list.append(values, x)
    return sum(values)


def rolling_window(x: Any, t: Tensor) -> Any:
    window: collections.deque[Any] = collections.deque(maxlen=2)
    window.extend([x, x * 2, x * 3])
    return sum(window) / len(window)


def defaults(x: Any, t: Tensor) -> Any:
    table: collections.defaultdict[str, list[Any]] = collections.defaultdict(list)
    table["a"].append(x)
    table["a"].append(x * 2)
    return sum(table["a"]) + len(table)


def ordered(x: Any, t: Tensor) -> Any:
    table = collections.OrderedDict(a=x, b=x * 2)
    table.move_to_end("a")
    return next(iter(table.values()))


def count_with_values(x: Any, t: Tensor) -> Any:
    counter: Any = collections.Counter()
    counter["loss"] += x
    counter.update({"loss": x})
    return counter["loss"]


def named_tuple(x: Any, t: Tensor) -> Any:
    return Point(x, 1.0)._replace(b=x * 3).b


def data_class(x: Any, t: Tensor) -> Any:
    record = Record(best=x, items=[x])
    return asdict(record)["best"] + record.items[0]


def replace_in_a_data_class(x: Any, t: Tensor) -> Any:
    return replace(Record(), best=x).best


def product_and_chain(x: Any, t: Tensor) -> Any:
    return sum(itertools.chain([x], [2.0])) + sum(a * b for a, b in itertools.product([x], [1.0, 2.0]))


def accumulate(x: Any, t: Tensor) -> Any:
    return [*itertools.accumulate([x, x, 1.0])][-1]


def zip_and_map(x: Any, t: Tensor) -> Any:
    return sum(map(operator.mul, [x, 1.0], [2.0, 3.0])) + sum(a for a, _ in zip([x], [1], strict=True))


def map_a_function(x: Any, t: Tensor) -> Any:
    return sum(map(math.exp, [x, 1.0]))


def partial_of_a_function(x: Any, t: Tensor) -> Any:
    return functools.partial(math.pow, x)(2.0) + functools.partial(max, 0.3)(x)


def fraction(x: Any, t: Tensor) -> Any:
    return float(Fraction(1, 3) * 3) * x


def medians(x: Any, t: Tensor) -> Any:
    return statistics.median([x, 0.3, 0.9]) + statistics.fmean([x, 1.0]) + math.fsum([x, x])


def collect_predictions(x: Any, t: Tensor) -> Any:
    kept, truth = [], []
    for _ in range(3):
        kept.append((t * 2).detach().cpu().numpy())
        truth.append(np.array([0, 1, 1]))
    scores, labels = np.concatenate(kept), np.concatenate(truth)
    return sklearn.metrics.accuracy_score(labels, scores > 0.9) + sklearn.metrics.roc_auc_score(labels, scores)


def collect_labels(x: Any, t: Tensor) -> Any:
    predictions: list[Any] = []
    for _ in range(2):
        predictions.extend((t > 0.4).long().tolist())
    truth = [0, 1, 1, 1, 0, 1]
    return sklearn.metrics.f1_score(truth, predictions, average="macro") + np.mean(np.array(predictions) == truth)


def tensor_of_a_list(x: Any, t: Tensor) -> Any:
    return torch.tensor([x, 1.0, x * 2]).sum().item()


def tensor_of_nested_lists(x: Any, t: Tensor) -> Any:
    return torch.tensor([[x, 1.0], [x * 2, 2.0]]).sum(dim=0)[0].item() + torch.FloatTensor([x, 2.0]).sum().item()


def tensor_of_arrays(x: Any, t: Tensor) -> Any:
    rows = [t.numpy(), t.numpy() * 2]
    return torch.from_numpy(np.stack(rows)).sum().item() + torch.as_tensor(np.array(rows)).mean().item()


def json_text(x: Any, t: Tensor) -> Any:
    return json.loads(json.dumps({"loss": x, "values": [x, 2]}))["values"][0]


def percentiles(x: Any, t: Tensor) -> Any:
    array = (t * 3).numpy()
    return np.percentile(array, 75) + np.median(array) + array.mean() + float(array.std()) + array.argmax()


def indexed_arrays(x: Any, t: Tensor) -> Any:
    array = t.numpy()
    order = np.argsort(-array)
    return array[order][0] + np.take_along_axis(array, order, axis=0)[1] + np.where(array > 0.5, 1.0, 0.0).sum()


def confusion(x: Any, t: Tensor) -> Any:
    matrix = sklearn.metrics.confusion_matrix([0, 1, 1], (t > 0.6).numpy(), labels=[0, 1])
    return np.diag(matrix).sum() / matrix.sum()


def count_batches(x: Any, t: Tensor) -> Any:
    lengths = library_code.Lengths([1.0, 2.0])
    return x * len(lengths) + lengths.first()


def split_text(x: Any, t: Tensor) -> Any:
    name = f"loss-{x:.2f}"
    return float(name.split("-")[1]) + len(name.partition("-")[0])


def sort_in_place(x: Any, t: Tensor) -> Any:
    rows = [(x, 1), (x * 2, 2), (x * 3, 3)]
    rows.sort(key=lambda row: -row[0])
    return rows[0][1]


def best_of_pairs(x: Any, t: Tensor) -> Any:
    pairs = {"a": x, "b": 0.4, "c": x * 2}
    return max(pairs.items(), key=lambda pair: pair[1])[1] + min(pairs.values())


def best_name(x: Any, t: Tensor) -> Any:
    scores = {"a": x, "b": 0.4}
    return len(max(scores, key=lambda name: scores[name]) * 3)


def update_a_dictionary(x: Any, t: Tensor) -> Any:
    table = dict(zip("ab", (x, 2.0), strict=True)) | {"c": x}
    table.update(b=x * 3)
    return sum(table.values()) + table.pop("b") + table.setdefault("z", x)


def weighted_average(x: Any, t: Tensor) -> Any:
    return np.average([x, 1.0, 2.0], weights=[1, 2, x]) + np.dot([x, 1.0], [2.0, x])


def draw_uniform(x: Any, t: Tensor) -> Any:
    generator = random.Random(3)
    return generator.uniform(0.0, x) + generator.gauss(x, 0.1) + generator.choice([x, x * 2])


def draw_from_numpy(x: Any, t: Tensor) -> Any:
    return np.random.default_rng(3).normal(0.0, x)


def running_mean_in_a_closure(x: Any, t: Tensor) -> Any:
    total = 0.0

    def add(value: Any) -> Any:
        nonlocal total
        total = 0.9 * total + 0.1 * value
        return total

    return [add(value) for value in (x, x * 2)][-1]


def context_manager(x: Any, t: Tensor) -> Any:
    @contextlib.contextmanager
    def scaled(value: Any) -> Any:
        yield value * 2

    with scaled(x) as double, contextlib.suppress(KeyError):
        return double + 1


def format_in_a_method(x: Any, t: Tensor) -> Any:
    return float("{:.2f}".format(x)) + float("%.1f" % (x * 2))  # noqa: UP032 - what is tested


def round_and_convert(x: Any, t: Tensor) -> Any:
    return round(x, 1) + int(x * 10) + float(np.float32(x)) + divmod(x, 0.2)[0] + pow(x, 2)


def unpack(x: Any, t: Tensor) -> Any:
    first, *rest = [x, x * 2, 3.0]
    return first + sum(rest)


def enumerate_and_reverse(x: Any, t: Tensor) -> Any:
    return sum(place * value for place, value in enumerate(reversed([x, x * 2, 1.0])))


def any_above(x: Any, t: Tensor) -> Any:
    return float(any(value > 10 for value in (x, x * 2))) + float(all(value > 0 for value in (x, 1.0)))


def array_of_lists(x: Any, t: Tensor) -> Any:
    return np.array([[x, 1.0], [2.0, x]]).sum(axis=0).max()


def in_place_arrays(x: Any, t: Tensor) -> Any:
    array = t.numpy().copy()
    array += 1.0
    array[0] = x
    return array.sum()


def exponential_average_of_dictionary(x: Any, t: Tensor) -> Any:
    averages: Any = collections.defaultdict(float)
    for name, value in (("loss", x), ("loss", x * 2)):
        averages[name] = 0.5 * averages[name] + 0.5 * value
    return {name: round(value, 4) for name, value in averages.items()}["loss"]


def dictionary_of_a_record(x: Any, t: Tensor) -> Any:
    namespace = SimpleNamespace(**vars(Record(best=x)))
    return namespace.best + len(vars(namespace))


def pairwise_differences(x: Any, t: Tensor) -> Any:
    return sum(b - a for a, b in itertools.pairwise([x, x * 3, 1.0]))


class OwnMeter(library_code.Meter):  # type: ignore[misc]  # it has no types
    def update(self, value: Any) -> None:
        super().update(value)


class OwnLengths(library_code.Lengths):  # type: ignore[misc]  # it has no types
    def second(self) -> Any:
        return self._values[1]


def inherited_method(x: Any, t: Tensor) -> Any:
    meter = OwnMeter()
    meter.update(x)
    return meter.average()


def inherited_constructor(x: Any, t: Tensor) -> Any:
    return OwnLengths([1.0, x]).second()


def reduce_by_a_library(x: Any, t: Tensor) -> Any:
    return functools.reduce(library_code.combine, [x, 2.0])


def sort_by_a_library(x: Any, t: Tensor) -> Any:
    rows = [x * 2, x]
    rows.sort(key=library_code.scale)
    return rows[0] + sorted([x, 0.4], key=library_code.scale)[0]


PROGRAMS: Mapping[str, Callable[[Any, Tensor], Any]] = {
    function.__name__: function
    for function in (
        push_heap, push_pairs, keep_best_three, insert_sorted, insert_in_list_of_values, copy_shallow, copy_an_object,
        view_of_a_mapping, chain_of_mappings, count_key_calls, count_sorted_calls, pick_an_object, sort_objects,
        clip_into, clip_shared_into, add_at, replace_nan, copy_into, write_out, fill_array, sum_into,
        item_in_a_library, item_compared_in_a_library, number_in_a_library, list_in_a_library, deque_in_a_library,
        named_tuple_in_a_library, object_in_a_library, slots_in_a_library, method_in_a_library, closure_in_a_library,
        callback_in_a_library, receiver_in_a_library, attribute_of_a_library, swallowed_save, iterate_twice,
        suppressed_sum, caught_apply, caught_item_in_apply, reflected_operator,
        best_of_a_generator, memoize, reduce_values, bound_method_of_a_container, rolling_window, defaults, ordered,
        count_with_values, named_tuple, data_class, replace_in_a_data_class,
        product_and_chain, accumulate, zip_and_map, map_a_function,
        partial_of_a_function, fraction, medians, collect_predictions, collect_labels, tensor_of_a_list,
        tensor_of_nested_lists, tensor_of_arrays, json_text, percentiles, indexed_arrays, confusion, count_batches,
        split_text, sort_in_place, best_of_pairs, best_name, update_a_dictionary, weighted_average, draw_uniform,
        draw_from_numpy, running_mean_in_a_closure, context_manager, format_in_a_method, round_and_convert, unpack,
        enumerate_and_reverse, any_above, array_of_lists, in_place_arrays, exponential_average_of_dictionary,
        dictionary_of_a_record, pairwise_differences, inherited_method, inherited_constructor, reduce_by_a_library,
        sort_by_a_library,
    )
}  # fmt: skip


def train_with(program: Callable[[Any, Tensor], Any]) -> Callable[[Trial], None]:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(3, 1, bias=False).double())
        with torch.no_grad():
            t = model.weight.fill_(1.0).flatten() * trial.config["x"] * torch.tensor([0.5, 1.0, 2.0]).double()
        trial.report(loss=program(t.sum().item() / 3.5, t))

    return train


SPLITTING = frozenset({
    "push_heap", "push_pairs", "keep_best_three", "insert_sorted", "pick_an_object", "sort_objects", "clip_into",
    "clip_shared_into", "add_at", "replace_nan", "copy_into", "write_out", "fill_array", "sum_into",
    "item_in_a_library", "item_compared_in_a_library", "number_in_a_library", "list_in_a_library",
    "deque_in_a_library", "named_tuple_in_a_library", "object_in_a_library", "slots_in_a_library",
    "method_in_a_library", "closure_in_a_library", "callback_in_a_library", "receiver_in_a_library",
    "suppressed_sum", "caught_apply", "caught_item_in_apply",
    "attribute_of_a_library", "swallowed_save", "memoize", "split_text", "replace_in_a_data_class", "draw_from_numpy",
    "inherited_method", "inherited_constructor", "reduce_by_a_library", "sort_by_a_library",
})  # fmt: skip
"""Programs in which a value goes where its effect is not known, or where one value is needed."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_lanes_report_the_numbers_of_separate_training_or_split(name: str) -> None:
    train = train_with(PROGRAMS[name])
    done = run(train, [{"x": value} for value in VALUES], checks=False)
    if name in SPLITTING:
        assert done.outcome in SPLIT, done.ending.error
        assert "test_closed_world.py:" in done.reason
    else:
        assert done.outcome is Outcome.DONE, (done.reason, done.ending.error)
        alone = [run_alone(train, {"x": value}).history(0) for value in VALUES]
        assert [done.notes.history(number) for number in range(3)] == alone


def test_lanes_split_by_the_recipe_of_a_value_that_goes_to_unknown_code() -> None:
    def train(trial: Trial) -> None:
        trial.report(loss=library_code.scale(trial.config["x"] * 2))

    done = run(train, [{"x": value} for value in VALUES])
    assert (done.outcome, done.label) == (Outcome.PARTED, "x * 2")
    assert "scale is not known" in done.reason


def test_unknown_code_gets_a_value_that_lanes_share_as_a_plain_number() -> None:
    def train(trial: Trial) -> None:
        trial.report(loss=library_code.scale(float(trial.config["x"] > 0)) + trial.config["x"])

    done = run(train, [{"x": value} for value in VALUES])
    assert done.outcome is Outcome.DONE, done.reason
    assert [done.notes.history(number) for number in range(3)] == [[value + 2.0] for value in VALUES]


def test_a_factory_gives_unknown_code_the_number_of_the_lane_that_is_built() -> None:
    def train(trial: Trial) -> None:
        def build() -> nn.Module:
            model = nn.Linear(3, int(trial.config["width"] / 2)).double()
            for parameter in model.parameters():
                nn.init.constant_(parameter, library_code.scale(trial.config["x"]))
                parameter.data.mul_(trial.config["x"])
            with torch.no_grad():
                model.weight.mul_(trial.config["x"])
            return model

        trial.report(loss=trial.prepare_model(build).get_parameter("weight").sum())

    configs = [{"x": value, "width": width} for value, width in zip(VALUES, (4, 5, 4), strict=True)]
    done = run(train, configs)
    assert done.outcome is Outcome.DONE, done.reason
    alone = [run_alone(train, config).history(0) for config in configs]
    assert [done.notes.history(number) for number in range(3)] == alone


def test_a_learning_rate_that_the_loop_assigns_is_that_of_each_lane() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(3, 1).double())
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["x"])
        for epoch in trial.epochs(3):
            for group in optimizer.param_groups:
                group["lr"] = trial.config["x"] * (0.1 ** (epoch // 2)) * min(1.0, (epoch + 1) / 2)
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3).double()).square().mean()
            loss.backward()
            optimizer.step()
            trial.report(loss=loss.item())

    done = run(train, [{"x": value} for value in VALUES])
    assert done.outcome is Outcome.DONE, done.reason
    for number, value in enumerate(VALUES):
        assert done.notes.history(number) == pytest.approx(run_alone(train, {"x": value}).history(0), rel=1e-12)
