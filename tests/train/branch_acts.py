"""Actions with an `if` that lanes answer differently, together or apart."""

from __future__ import annotations

import copy
import functools
import math
import random
from collections import defaultdict
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

LIMIT = 0.5


class Best:
    """What loops keep of their best epoch."""

    def __init__(self) -> None:
        self.score = 0.0
        self.counter = 0
        self.stop = False

    def update(self, score: Any) -> None:
        if score > self.score:
            self.score = score
            self.counter = 0
        else:
            self.counter += 1
            if self.counter >= 2:
                self.stop = True

    def keep(self, score: Any) -> None:
        self.score = score


def assign(x: Any, model: Any) -> Any:
    best, count = 0.1, 0
    if x > LIMIT:
        best = x
        count += 1
    return best + count


def choose_sides(x: Any, model: Any) -> Any:
    if x > LIMIT:
        answer, other = x * 2, 1.0
    else:
        answer, other = x + 10, 3.0
    return answer + other


def nest(x: Any, model: Any) -> Any:
    answer = 0.0
    if x > 0.3:
        answer = 1.0
        if x > 0.7:
            answer += x
        elif x > LIMIT:
            answer = 5.0
    else:
        answer = -x
    return answer


def track(x: Any, model: Any) -> Any:
    best = Best()
    for factor in (1.0, 0.5 + x, 1.5 - x, 0.9, 0.95):
        best.update(factor)
    return best.score + best.counter * 10 + int(best.stop) * 100


def call_method(x: Any, model: Any) -> Any:
    best = Best()
    if x > LIMIT:
        best.keep(x)
    return best.score


def write_items(x: Any, model: Any) -> Any:
    kept = {"best": 0.0, "list": 1}
    if x > LIMIT:
        kept["best"] = x
        kept["list"] += 1
    return kept["best"] + kept["list"]


def copy_weights(x: Any, model: Any) -> Any:
    kept = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(1 + x)
    if x > LIMIT:
        kept = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(3.0)
    return sum(value.sum().item() for value in kept.values())


def keep_tensor(x: Any, model: Any) -> Any:
    out = model(torch.ones(2, 1)).detach()
    kept = out * 0
    if out.mean() > LIMIT:
        kept = out * 2
    return kept.sum().item()


def use_and(x: Any, model: Any) -> Any:
    phase, best = "val", 0.0
    if phase == "val" and x > LIMIT:
        best = x
    return best


def loop_inside(x: Any, model: Any) -> Any:
    total, factor = 0.0, 0
    if x > LIMIT:
        for factor in [1, 2, 3]:
            total = total + factor * x
    return total


def annotate(x: Any, model: Any) -> Any:
    best = Best()
    if x > LIMIT:
        best.score: float = x  # type: ignore[misc]  # what is tested
    return best.score


def append(x: Any, model: Any) -> Any:
    seen: list[Any] = []
    if x > LIMIT:
        seen.append(x)
    return len(seen)


def draw(x: Any, model: Any) -> Any:
    extra = 0.0
    if x > LIMIT:
        extra = torch.rand(()).item()
    return extra * 0 + torch.rand(()).item()


def draw_by_numpy(x: Any, model: Any) -> Any:
    extra = 0.0
    if x > LIMIT:
        extra = np.random.rand()
    return extra * 0 + np.random.rand() + random.random()


def change_in_place(x: Any, model: Any) -> Any:
    kept = torch.zeros(2)
    if x > LIMIT:
        kept += x
    return kept.sum().item()


def add_to_list(x: Any, model: Any) -> Any:
    kept = [0.0]
    other = kept
    if x > LIMIT:
        kept += [x]
    return len(other)


def alias_weights(x: Any, model: Any) -> Any:
    kept = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    if x > LIMIT:
        kept = dict(model.state_dict())
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(3.0)
    return sum(value.sum().item() for value in kept.values())


def alias_list(x: Any, model: Any) -> Any:
    rows, kept = [1.0, 2.0], [0.0, 0.0]
    if x > LIMIT:
        kept = rows
    rows[0] = 7.0
    return kept[0]


def alias_tensor(x: Any, model: Any) -> Any:
    rows, kept = torch.ones(2) * x, torch.zeros(2)
    if x > LIMIT:
        kept = rows
    rows.mul_(5)
    return kept.sum().item()


def one_side_only(x: Any, model: Any) -> Any:
    if x > LIMIT:
        found = x
    else:
        found = 1.0
        if x > 0.3:
            other = 2.0
    try:
        return found + other
    except UnboundLocalError:
        return found


def nested_first_time(x: Any, model: Any) -> Any:
    if x > LIMIT:
        found = x
    else:
        for place in range(3):
            if place > 5:
                found = 1.0
    try:
        return found
    except UnboundLocalError:
        return -1.0


def alias_changed(x: Any, model: Any) -> Any:
    rows, kept = torch.ones(2) * x, torch.zeros(2)
    if x > LIMIT:
        kept = rows
    kept.mul_(5)
    return rows.sum().item()


def alias_viewed(x: Any, model: Any) -> Any:
    rows, kept = torch.ones(2) * x, torch.zeros(2)
    part = rows[0]
    if x > LIMIT:
        kept = rows
    del rows
    part.mul_(5)
    return kept.sum().item()


def first_time(x: Any, model: Any) -> Any:
    if x > LIMIT:
        found = x
    try:
        return found
    except UnboundLocalError:
        return -1.0


def step(x: Any, model: Any) -> Any:
    if x > LIMIT:
        model.weight.data.fill_(2.0)
    return model.weight.sum().item()


def raise_some(x: Any, model: Any) -> Any:
    try:
        if x > LIMIT:
            raise ValueError(str(LIMIT))
    except ValueError:
        return 1.0
    return 0.0


def return_some(x: Any, model: Any) -> Any:
    if x > LIMIT:
        return 1.0
    return 0.0


def leave_loop(x: Any, model: Any) -> Any:
    count = 0
    for _ in range(3):
        if x > LIMIT:
            break
        count += 1
    return count


def iterate(x: Any, model: Any) -> Any:
    numbers, first = iter([1.0, 2.0, 3.0]), 0.0
    if x > LIMIT:
        first = next(numbers)
    return first + next(numbers)


def use_up(x: Any, model: Any) -> Any:
    numbers, total = iter([1.0, 2.0, 3.0]), 0.0
    if x > LIMIT:
        total = sum(numbers)
    return total + sum(numbers)


def sort_in_place(x: Any, model: Any) -> Any:
    numbers = np.array([3.0, 1.0])
    if x > LIMIT:
        numbers.sort()
    return numbers[0]


def use_before(x: Any, model: Any) -> Any:
    try:
        if x > LIMIT:
            found = x
        else:
            other = found
            found = other + 1.0
    except UnboundLocalError:
        return -1.0
    return found


def set_globally(x: Any, model: Any) -> Any:
    HOME["value"] = 0.0
    if x > LIMIT:
        fill_home(x)
    return HOME["value"]


HOME: dict[str, Any] = {}


def fill_home(x: Any) -> None:
    HOME["value"] = x
    HOME["other"] = x


def draw_from_a_generator(x: Any, model: Any) -> Any:
    dice, first = torch.Generator().manual_seed(1), 0.0
    if x > LIMIT:
        first = torch.rand(1, generator=dice).item()
    return first + torch.rand(1, generator=dice).item()


def draw_a_spare_number(x: Any, model: Any) -> Any:
    first = np.random.normal()
    if x > LIMIT:
        first = np.random.standard_normal()
    return first + np.random.standard_normal()


def copy_into_an_array(x: Any, model: Any) -> Any:
    numbers = np.zeros(2)
    if x > LIMIT:
        np.copyto(numbers, 1.0)
    return numbers[0]


def compute_into_an_array(x: Any, model: Any) -> Any:
    numbers = np.ones(2)
    if x > LIMIT:
        np.add(numbers, 1.0, numbers)
    return numbers[0]


def loop_over_an_attribute(x: Any, model: Any) -> Any:
    best = Best()
    if x > LIMIT:
        for best.score in (1.0, 2.0):
            pass
    return best.score


def relu_in_place(x: Any, model: Any) -> Any:
    numbers = torch.tensor([-1.0, 2.0])
    other = 0.0
    if x > LIMIT:
        other = F.relu(numbers, inplace=True).sum().item()
    return numbers.sum().item() + other


def move_statistics(x: Any, model: Any) -> Any:
    mean, var, rows = torch.zeros(2), torch.ones(2), torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    out = rows
    if x > LIMIT:
        out = F.batch_norm(rows, mean, var, training=True)
    return mean.sum().item() + out.sum().item()


def clip_into_itself(x: Any, model: Any) -> Any:
    numbers = np.array([-1.0, 2.0])
    clipped = numbers
    if x > LIMIT:
        clipped = np.clip(numbers, 0, 1, numbers)
    return numbers.sum() + clipped.sum()


def add_at(x: Any, model: Any) -> Any:
    numbers = np.zeros(2)
    if x > LIMIT:
        np.add.at(numbers, [0, 0], 1.0)
    return numbers.sum()


def replace_nans_in_place(x: Any, model: Any) -> Any:
    numbers = np.array([np.nan, 2.0])
    if x > LIMIT:
        np.nan_to_num(numbers, copy=False)
    return 1.0 if np.isnan(numbers[0]) else 0.0


def append_by_its_class(x: Any, model: Any) -> Any:
    seen: list[Any] = []
    if x > LIMIT:
        list.append(seen, x)
    return len(seen)


def unpack_an_iterator(x: Any, model: Any) -> Any:
    numbers, first = iter([1.0, 2.0, 3.0]), 0.0
    if x > LIMIT:
        first, _, _ = numbers
    return first + sum(numbers)


def read_a_default(x: Any, model: Any) -> Any:
    counts: defaultdict[str, float] = defaultdict(float)
    found = 1.0
    if x > LIMIT:
        found = counts["new"]
    return found + len(counts)


class Lazy:
    """Computes a value when it is first read."""

    def __init__(self) -> None:
        self.num_computed = 0

    @functools.cached_property
    def value(self) -> int:
        self.num_computed += 1
        return 3


def read_a_cached_property(x: Any, model: Any) -> Any:
    lazy, found = Lazy(), 0
    if x > LIMIT:
        found = lazy.value
    return found + lazy.num_computed * 10


def keep_the_average_itself(x: Any, model: Any) -> Any:
    average, best = torch.ones(2) * x, torch.zeros(2)
    if x > LIMIT:
        best = average
    average.mul_(0.5)
    return best.sum().item()


def keep_a_number_itself(x: Any, model: Any) -> Any:
    loss, best = torch.ones(()) * x, torch.zeros(())
    if loss > LIMIT:
        best = loss
    loss.add_(1.0)
    return best.item()


def keep_a_number_and_write_past_its_version(x: Any, model: Any) -> Any:
    loss, best = torch.ones(()) * x, torch.zeros(())
    if loss > LIMIT:
        best = loss
    loss.data.add_(1.0)
    return best.item()


def keep_the_larger_number_itself(x: Any, model: Any) -> Any:
    loss = torch.ones(()) * x
    best = max(loss, torch.zeros(()))
    loss.add_(1.0)
    return best.item()


def keep_a_number_and_change_the_kept_one(x: Any, model: Any) -> Any:
    loss, best = torch.ones(()) * x, torch.zeros(())
    first = best
    if loss > LIMIT:
        best = loss
    best.add_(1.0)
    return loss.item() + first.item()


def keep_a_dictionary_that_others_hold(x: Any, model: Any) -> Any:
    best = {"w": torch.ones(2)}
    other = best
    if x > LIMIT:
        best = {name: value.clone() for name, value in best.items()}
    other["w"] = torch.zeros(2)
    return best["w"].sum().item()


class Guarded:
    """Counts how often it is written to."""

    def __init__(self) -> None:
        self.best = 0.0
        self.num_writes = 0

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)[name] = value
        vars(self)["num_writes"] = vars(self).get("num_writes", 0) + 1


def write_what_is_guarded(x: Any, model: Any) -> Any:
    keeper = Guarded()
    if x > LIMIT:
        keeper.best = x
    return keeper.best + keeper.num_writes


def close_over_what_is_assigned(x: Any, model: Any) -> Any:
    best = 0.0

    def double() -> Any:
        return best * 2

    other = 0.0
    if x > LIMIT:
        best = x
        other = double()
    return best + other


def divide_by_nothing(x: Any, model: Any) -> Any:
    rate = 0.0
    try:
        if x > LIMIT:
            rate = x / rate
    except ZeroDivisionError:
        rate = -1.0
    return rate


def shadow_a_builtin(x: Any, model: Any) -> Any:
    seen: list[Any] = []

    def float(value: Any) -> Any:  # noqa: A001 - what is tested
        seen.append(value)
        return value

    best = 0.0
    if x > LIMIT:
        best = float(x)
    return best + len(seen)


def assign_chosen_values(x: Any, model: Any) -> Any:
    loss, best, text = torch.ones(()) * x, torch.zeros(()), "0.0"
    if loss > LIMIT:
        best = loss
        text = f"{loss:.1f}"
    return best.item() + float(text)


def divide_on_one_side(x: Any, model: Any) -> Any:
    rest = x - 0.2
    if rest > LIMIT / 10:  # noqa: SIM108 - what is tested
        score = math.log(rest) / rest
    else:
        score = 0.0
    return score


def stop_early(x: Any, model: Any) -> Any:
    stopper = Stopper()
    flags = [stopper.goes_on(factor) for factor in (x, 0.5, 0.55, 0.6)]
    return stopper.best * 10 + sum(flags)


class Stopper:
    """Stops when a score has not become better for some time."""

    patience = 1

    def __init__(self) -> None:
        self.best = 0.0
        self.num_bad = 0

    def goes_on(self, score: Any) -> Any:
        """Tell whether to go on."""
        if score > self.best:
            self.remember(score)
            return True
        if self.num_bad < self.patience:
            self.num_bad += 1
            return True
        return False

    def remember(self, score: Any) -> None:
        self.best = float(score)
        self.num_bad = 0


def keep_a_dictionary_of_clones(x: Any, model: Any) -> Any:
    best = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        model.weight.mul_(2.0)
    if x > LIMIT:
        best = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        model.weight.mul_(2.0)
    model.load_state_dict(best)
    return model.weight.sum().item()


def use_a_variable_of_one_side(x: Any, model: Any) -> Any:
    best = 0.0
    if x > LIMIT:
        state = {"score": x, "twice": x * 2}
        best = state["twice"] - state["score"]
    return best


TOGETHER = (
    assign, choose_sides, nest, track, call_method, copy_weights, keep_tensor, use_and, annotate, return_some,
    assign_chosen_values, divide_on_one_side, stop_early, keep_a_dictionary_of_clones, use_a_variable_of_one_side,
)  # fmt: skip

APART = (
    append, draw, draw_by_numpy, change_in_place, add_to_list, alias_weights, alias_list, alias_tensor,
    alias_changed, alias_viewed, first_time, one_side_only, nested_first_time, step, raise_some,
    leave_loop, iterate, use_up, sort_in_place, use_before, set_globally, draw_from_a_generator, draw_a_spare_number,
    copy_into_an_array, compute_into_an_array, loop_over_an_attribute, write_items, loop_inside,
    relu_in_place, move_statistics, clip_into_itself, add_at, replace_nans_in_place, append_by_its_class,
    unpack_an_iterator, read_a_default, read_a_cached_property, keep_the_average_itself, keep_a_number_itself,
    keep_a_number_and_write_past_its_version, keep_a_number_and_change_the_kept_one,
    keep_the_larger_number_itself,
    keep_a_dictionary_that_others_hold, write_what_is_guarded, close_over_what_is_assigned, divide_by_nothing,
    shadow_a_builtin,
)  # fmt: skip
