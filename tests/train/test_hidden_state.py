"""State that a loop keeps where nobody looks for it: hooks of tensors, ids, modules, settings of the process, files."""

from __future__ import annotations

import contextvars
import decimal
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.train import hidden_variables
from tests.train.continued_loops import inputs, make_net, prepare, step, targets
from tests.train.lab import run_alone
from tests.train.pausing import require_same, train_straight, train_with_pauses
from torch import Tensor, nn

from headwater.train import Trial
from headwater.train.user_globals import UserGlobals

CONFIGS = [{"lr": 0.05}, {"lr": 0.1}, {"lr": 0.2}]
NUM_EPOCHS = 4


def shrink(grad: Tensor) -> Tensor:
    return 0.1 * grad


def shrink_late(param: Tensor) -> None:
    assert param.grad is not None
    param.grad.mul_(0.1)


def tensor_hook_added(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        if epoch == 1:
            next(model.parameters()).register_hook(shrink)
        trial.report(loss=loss)


def late_hook_added(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        if epoch == 1:
            next(model.parameters()).register_post_accumulate_grad_hook(shrink_late)
        trial.report(loss=loss)


def tensor_hook_removed(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    handle = next(model.parameters()).register_hook(shrink)
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        if epoch == 1:
            handle.remove()
        trial.report(loss=loss)


def new_tensor_with_a_hook(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    scale: Any = None
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        if scale is None:
            scale = torch.ones(1, requires_grad=True)
            scale.register_hook(shrink)
        scale.grad = None
        (2 * scale).sum().backward()
        trial.report(loss=loss, kept=scale.grad.item())


class Slow:
    factor = 1.0

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> float:
        self.count += 1
        return self.factor * self.count


class Fast(Slow):
    factor = 2.0


def class_of_an_object_changed(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    pace = Slow()
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        if epoch == 1:
            pace.__class__ = Fast
        trial.report(loss=loss, kept=pace.next())


def momentum_by_id(trial: Trial) -> None:
    model = trial.prepare_model(make_net())
    slow: dict[int, Tensor] = {}
    for _ in trial.epochs(NUM_EPOCHS):
        model.zero_grad()
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        with torch.no_grad():
            for param in model.parameters():
                buffer = slow.setdefault(id(param), torch.zeros_like(param))
                assert param.grad is not None
                buffer.mul_(0.9).add_(param.grad)
                param.sub_(trial.config["lr"] * buffer)
        trial.report(loss=loss.item(), kept=len(slow))


class ById:
    """A descriptor that keeps the values of all objects."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}

    def __get__(self, owner: Any, kind: type) -> Any:
        return self.values.get(id(owner), 0.0)

    def __set__(self, owner: Any, value: Any) -> None:
        self.values[id(owner)] = value


class Total:
    value = ById()


def descriptor_with_state(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    total = Total()
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        total.value = total.value + loss
        trial.report(loss=loss, kept=total.value)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(4, size).double() for size in (4, 4, 1))
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.second(self.first(x).tanh()).tanh())
        return out


def weights_untied(trial: Trial) -> None:
    model = trial.prepare_model(Tied())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    for epoch in trial.epochs(NUM_EPOCHS):
        if epoch == 2:
            model.second.weight = nn.Parameter(model.first.weight.detach().clone())
        trial.report(loss=step(model, optimizer).item())


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = make_net()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return 2 * out


def method_replaced(trial: Trial) -> None:
    model = trial.prepare_model(Doubled())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        if epoch == 1:
            Doubled.forward = lambda self, x: self.net(x)  # type: ignore[method-assign]
        trial.report(loss=loss)


def gradients_switched_off(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = (model(inputs) - targets).square().mean()
        if torch.is_grad_enabled():
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch == 1:
            torch.set_grad_enabled(False)
        trial.report(loss=loss.item())


def decimal_precision(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        decimal.getcontext().prec -= 2
        trial.report(loss=loss, kept=float(decimal.Decimal(1) / 3))


def environment_variable(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    os.environ["HIDDEN_STATE"] = "0"
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        os.environ["HIDDEN_STATE"] = str(int(os.environ["HIDDEN_STATE"]) + 1)
        trial.report(loss=loss, kept=int(os.environ["HIDDEN_STATE"]))


current = contextvars.ContextVar("current", default=0)


def context_variable(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        current.set(current.get() + 1)
        trial.report(loss=loss, kept=current.get())


class AttributeDict(dict[str, Any]):
    """A dictionary that raises KeyError for a missing attribute, as many do."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


def table_of_losses(trial: Trial) -> None:
    pandas = pytest.importorskip("pandas")
    model, optimizer = prepare(trial)
    table = pandas.DataFrame(columns=["epoch", "rate"])
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        table.loc[len(table)] = [epoch, 0.5**epoch]
        trial.report(loss=loss, kept=float(table["rate"].sum()))


def dictionary_with_attributes(trial: Trial) -> None:
    options: Any = AttributeDict(trial.config, num_steps=0)
    model, optimizer = prepare(trial)
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        options.num_steps += 1
        trial.report(loss=loss, kept=options.num_steps)


library: Any = torch


def attributes_of_modules(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        hidden_variables.count += 1
        hidden_variables.state["best"] = min(hidden_variables.state["best"], loss)
        library.num_epochs = getattr(library, "num_epochs", 0) + 1
        best = hidden_variables.state["best"]
        trial.report(loss=loss, kept=hidden_variables.count, best=best, library=library.num_epochs)


def variable_by_globals(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        globals()["num_seen"] = globals().get("num_seen", 0) + 1
        trial.report(loss=loss, kept=globals()["num_seen"])


RESTARTED = [
    tensor_hook_added, late_hook_added, tensor_hook_removed, new_tensor_with_a_hook, class_of_an_object_changed,
    momentum_by_id, descriptor_with_state, weights_untied, method_replaced, gradients_switched_off, decimal_precision,
    environment_variable, context_variable, table_of_losses,
    variable_by_globals,  # which reaches `numbers` and `current` of this module too
]  # fmt: skip
CONTINUED = [dictionary_with_attributes, attributes_of_modules]


@pytest.fixture(autouse=True)
def _plain_process() -> Iterator[None]:
    """Leave the process of the tests as it was, whatever a commit under test forgets to put back."""
    forward, precision = Doubled.forward, decimal.getcontext().prec
    yield
    Doubled.forward, decimal.getcontext().prec = forward, precision  # type: ignore[method-assign]
    torch.set_grad_enabled(True)
    os.environ.pop("HIDDEN_STATE", None)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("function", [*RESTARTED, *CONTINUED], ids=lambda function: function.__name__)
def test_a_paused_trial_reports_the_numbers_of_one_that_was_not(function: Callable[[Trial], None], size: int) -> None:
    paused = train_with_pauses(function, CONFIGS, size=size)
    assert [len(trial.metrics) for trial in paused] == [NUM_EPOCHS] * 3
    require_same(paused, train_straight(function, CONFIGS), tolerance=0.0 if size == 1 else 1e-9)
    assert all(bool(trial.num_restarts) == (function in RESTARTED) for trial in paused)


@pytest.mark.parametrize(
    "function",
    [method_replaced, gradients_switched_off, decimal_precision, context_variable, attributes_of_modules,
     variable_by_globals],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_every_trial_finds_the_process_as_the_first_did(function: Callable[[Trial], None]) -> None:
    first, second = (run_alone(function, CONFIGS[0]) for _ in range(2))
    assert [report.metrics for report in first.reports] == [report.metrics for report in second.reports]


shared = make_net()


def test_hooks_of_the_tensors_of_a_prepared_model_end_with_the_run() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(shared)
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        next(shared.parameters()).register_hook(shrink)
        for _ in trial.epochs(2):
            trial.report(loss=step(model, optimizer).item())

    assert run_alone(train, CONFIGS[0]).history(0) == run_alone(train, CONFIGS[0]).history(0)


numbers = itertools.count()


def test_an_iterator_of_the_module_that_cannot_be_put_back_is_noted() -> None:
    def train(trial: Trial) -> None:
        for _ in trial.epochs(2):
            trial.report(loss=next(numbers))

    variables = UserGlobals(train)
    with variables.calling():
        next(numbers)
    (note,) = variables.notes
    assert "`numbers`" in note
    assert "cannot be put back" in note
