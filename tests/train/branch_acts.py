"""Actions with an `if` that lanes answer differently, together or apart."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import torch

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


TOGETHER = (
    assign, choose_sides, nest, track, call_method, write_items, copy_weights, keep_tensor, use_and, loop_inside,
    annotate,
)  # fmt: skip


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


APART = (
    append, draw, draw_by_numpy, change_in_place, add_to_list, alias_weights, alias_list, alias_tensor,
    alias_changed, alias_viewed, first_time, one_side_only, nested_first_time, step, raise_some, return_some,
    leave_loop, iterate, use_up, sort_in_place, use_before, set_globally, draw_from_a_generator, draw_a_spare_number,
    copy_into_an_array, compute_into_an_array, loop_over_an_attribute,
)  # fmt: skip
