"""Training functions that keep state outside of prepared objects, in all the ways that loops do."""

from __future__ import annotations

import copy
import random
from collections import Counter, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, singledispatch
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

from headwater.train import Trial

NUM_EPOCHS = 5
inputs = torch.linspace(-1, 1, 48, dtype=torch.float64).reshape(12, 4)
targets = inputs.sum(1, keepdim=True).sin()

best_acc1 = 0.0
history: list[float] = []
totals: dict[str, float] = {"sum": 0.0}
Transition = namedtuple("Transition", ["state", "reward"])
memory: deque[Any] = deque(maxlen=7)


def make_net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def prepare(trial: Trial) -> tuple[nn.Module, Any]:
    model = trial.prepare_model(make_net())
    return model, trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.5)


def step(model: Any, optimizer: Any, x: Tensor = inputs, y: Tensor = targets) -> Tensor:
    optimizer.zero_grad()
    loss: Tensor = (model(x) - y + 0.1 * torch.randn(y.shape, dtype=y.dtype)).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def best_so_far(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    best = float("inf")
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        if loss < best:
            best = loss
        trial.report(loss=loss, best=best)


def best_updated_after_the_report(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    scheduler = trial.prepare_scheduler("ExponentialLR", optimizer, gamma=0.5)
    best = 10.0
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        trial.report(loss=loss, best=best, lr=scheduler.get_last_lr()[0])
        best = min(best, loss)
        scheduler.step()


def namespaces(trial: Trial) -> None:
    args = SimpleNamespace(gain=1.0, decay=0.9, **trial.config)
    model = trial.prepare_model(make_net())
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=args.lr, momentum=0.5)
    state, last = SimpleNamespace(best=10.0), SimpleNamespace(loss=0.0)
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        state.best = min(state.best, loss) * args.gain
        args.gain *= args.decay
        trial.report(loss=loss, best=state.best, last=last.loss, gain=args.gain * args.lr)
        last = SimpleNamespace(loss=loss)


class Outer(torch.optim.Optimizer):
    """Steps by an optimizer within, on the same groups."""

    def __init__(self, params: Any, **options: Any) -> None:  # Any: of SGD
        super().__init__(params, options)
        self.inner = torch.optim.SGD(self.param_groups, **options)
        self.param_groups = self.inner.param_groups

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # Any: a closure is not used
        self.inner.step()


def optimizer_within_an_optimizer(trial: Trial) -> None:
    model = trial.prepare_model(make_net())
    optimizer = trial.prepare_optimizer(Outer, model.parameters(), lr=trial.config["lr"], momentum=0.9)
    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=step(model, optimizer))


def scheduler_on_an_optimizer_within_an_optimizer(trial: Trial) -> None:
    model = trial.prepare_model(make_net())
    optimizer = trial.prepare_optimizer(Outer, model.parameters(), lr=trial.config["lr"], momentum=0.9)
    scheduler = trial.prepare_scheduler("ExponentialLR", optimizer, gamma=0.5)
    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=step(model, optimizer))
        scheduler.step()


def patience(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    best, num_bad = 10.0, 0
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        num_bad = num_bad + 1 if loss > 0.9 * best else 0
        best = min(best, loss)
        trial.report(loss=loss, bad=num_bad)


def running_average(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    average = torch.zeros((), dtype=torch.float64)
    number = 0.0
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).detach()
        average = 0.9 * average + 0.1 * loss
        number = 0.5 * number + loss.item()
        trial.report(loss=loss, average=average, number=number)


def kept_state_dict(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    first: dict[str, Tensor] | None = None
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        if epoch == 0:
            first = copy.deepcopy(model.state_dict())
        if epoch == 3:
            assert first is not None
            model.load_state_dict(first)
        trial.report(loss=loss, weight=model[0].weight.sum())  # type: ignore[index]  # a Sequential


def state_dict_that_is_an_alias(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    first: dict[str, Tensor] = {}
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        if epoch == 0:
            first = model.state_dict()
        trial.report(loss=loss, weight=first["0.weight"].sum())


def deepcopy_in_the_loop(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    saved = model
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        if epoch == 1:
            saved = copy.deepcopy(model)
        trial.report(loss=loss, saved=saved(inputs).mean())


def list_of_losses(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    losses: list[float] = []
    by_name: dict[str, list[Any]] = defaultdict(list)
    for epoch in trial.epochs(NUM_EPOCHS):
        losses.append(step(model, optimizer).item())
        by_name["loss"].append((epoch, losses[-1]))
        trial.report(loss=losses[-1], mean=sum(losses) / len(losses), count=len(by_name["loss"]))


def weights_set_after_prepare(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    pretrained = {name: torch.full_like(value, 0.1) for name, value in make_net().state_dict().items()}
    model.load_state_dict(pretrained)
    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=step(model, optimizer))


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.constant_(module.weight, 0.05)
        nn.init.zeros_(module.bias)


def weights_applied_after_prepare(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    model.apply(initialise)
    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=step(model, optimizer))


def plain_optimizer_and_scheduler(trial: Trial) -> None:
    model = trial.prepare_model(make_net())
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.config["lr"], momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        rate = optimizer.param_groups[0]["lr"]
        scheduler.step()
        trial.report(loss=loss, lr=rate)


def plain_adam(trial: Trial) -> None:
    model = trial.prepare_model(make_net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scale = trial.config["lr"]
    for _ in trial.epochs(NUM_EPOCHS):
        optimizer.zero_grad()
        loss = scale * (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        trial.report(loss=loss)


def ema_copy(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    ema = copy.deepcopy(model)
    for parameter in ema.parameters():
        parameter.requires_grad_(False)
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        with torch.no_grad():
            for kept, parameter in zip(ema.parameters(), model.parameters(), strict=True):
                kept.mul_(0.8).add_(parameter, alpha=0.2)
        trial.report(loss=loss, ema=(ema(inputs) - targets).square().mean())


def averaged_model(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.7))
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        averaged.update_parameters(model)
        trial.report(loss=loss, averaged=(averaged(inputs) - targets).square().mean())


class Meter:
    """A running mean."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: Any) -> None:
        self.total = self.total + value
        self.count += 1

    @property
    def mean(self) -> Any:
        return self.total / self.count


def metric_object(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    meter = Meter()
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        meter.update(loss)
        trial.report(loss=loss, mean=meter.mean)


@dataclass
class Progress:
    """Where a curriculum stands."""

    stage: int = 0
    sizes: list[int] = field(default_factory=lambda: [4, 8, 12])


def curriculum(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    progress = Progress()
    for epoch in trial.epochs(NUM_EPOCHS):
        size = progress.sizes[progress.stage]
        loss = step(model, optimizer, inputs[:size], targets[:size]).item()
        if epoch % 2:
            progress.stage += 1
        trial.report(loss=loss, size=size)


def nonlocal_counter(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    num_calls, total = 0, 0.0

    def train_once() -> Any:
        nonlocal num_calls, total
        num_calls += 1
        loss = step(model, optimizer).item()
        total = total + loss
        return loss

    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=train_once(), calls=num_calls, total=total)


def counter_in_a_closure(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    tick = make_counter()
    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=step(model, optimizer), ticks=tick())


def make_counter() -> Callable[[], int]:
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return count

    return tick


def global_best(trial: Trial) -> None:
    global best_acc1  # noqa: PLW0603 - as training scripts do
    model, optimizer = prepare(trial)
    for _ in trial.epochs(NUM_EPOCHS):
        accuracy = 1 - step(model, optimizer).item()
        best_acc1 = max(accuracy, best_acc1)
        trial.report(loss=1 - accuracy, best=best_acc1)


def global_list(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        history.append(loss)
        totals["sum"] = totals["sum"] + loss
        trial.report(loss=loss, mean=sum(history) / len(history), total=totals["sum"])


def replay_buffer(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    buffer: deque[Tensor] = deque(maxlen=3)
    for epoch in trial.epochs(NUM_EPOCHS):
        buffer.append(inputs[epoch : epoch + 2].clone())
        loss = step(model, optimizer, torch.cat(list(buffer)), targets[: 2 * len(buffer)])
        trial.report(loss=loss, length=len(buffer))


def global_replay_memory(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for epoch in trial.epochs(NUM_EPOCHS):
        for row in range(2):
            memory.append(Transition(inputs[epoch + row].clone(), float(epoch)))
        rewards = sum(item.reward for item in memory)
        states = torch.stack([item.state for item in memory])
        loss = step(model, optimizer, states, targets[: len(memory)])
        trial.report(loss=loss, rewards=rewards)


def aliases(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    first = [0]
    second = first
    table: dict[str, Any] = {"rows": first, "own": None}
    table["own"] = table
    moving = torch.zeros(3, dtype=torch.float64)
    watched = [moving]
    for _ in trial.epochs(NUM_EPOCHS):
        second.append(len(first))
        moving += 1
        same = first is second and table["rows"] is first and table["own"] is table and watched[0] is moving
        trial.report(loss=step(model, optimizer), length=len(first), same=float(same), moved=watched[0].sum())


def aliases_made_in_the_loop(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    first: list[float] = []
    second: list[float] = []
    for epoch in trial.epochs(NUM_EPOCHS):
        if epoch == 0:
            first = second = [0.0]
        first.append(float(epoch))
        trial.report(loss=step(model, optimizer), length=len(second), same=float(first is second))


def own_generators(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    torch_random, python_random = torch.Generator().manual_seed(3), random.Random(3)
    numpy_random = np.random.default_rng(3)
    for _ in trial.epochs(NUM_EPOCHS):
        x = torch.rand(4, 4, generator=torch_random, dtype=torch.float64)
        drawn = python_random.random() + float(numpy_random.random())
        trial.report(loss=step(model, optimizer, x, targets[:4]), drawn=drawn)


def arrays(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    counts = np.zeros(3)
    seen: Counter[str] = Counter()
    latest = np.float32(0)
    for epoch in trial.epochs(NUM_EPOCHS):
        counts[epoch % 3] += epoch
        seen["epochs"] += 1
        latest = latest + np.float32(0.1)
        trial.report(loss=step(model, optimizer), counts=float(counts.max()), seen=seen["epochs"], latest=float(latest))


def own_generator_of_epochs(trial: Trial) -> None:
    def count() -> Iterator[int]:
        turns = 0
        for epoch in trial.epochs(NUM_EPOCHS):
            turns += 1  # noqa: SIM113 - a variable of a generator
            yield epoch + turns

    model, optimizer = prepare(trial)
    total = 0
    for number in count():
        total += number
        trial.report(loss=step(model, optimizer), total=total)


def loop_in_a_method(trial: Trial) -> None:
    Trainer(trial).fit()


class Trainer:
    """A trainer with a state of its own."""

    seen = 0

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.model, self.optimizer = prepare(trial)
        self.best = 10.0
        self.losses: list[Any] = []

    def fit(self) -> None:
        for _ in self.trial.epochs(NUM_EPOCHS):
            loss = step(self.model, self.optimizer).item()
            self.losses.append(loss)
            self.best = min(self.best, loss)
            Trainer.seen += 1
            self.trial.report(loss=loss, best=self.best, count=len(self.losses), seen=Trainer.seen)


def accumulated_gradients(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        if epoch % 2:
            optimizer.step()
            optimizer.zero_grad()
        trial.report(loss=loss)


def stays_in_evaluation(trial: Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 1)).double())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        model.eval()
        trial.report(loss=loss)


def unfrozen_on_the_way(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    model[0].weight.requires_grad_(False)  # type: ignore[index]  # a Sequential
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        if epoch == 1:
            model[0].weight.requires_grad_(True)  # type: ignore[index]  # a Sequential
        trial.report(loss=loss)


class Annealed(nn.Module):
    """A model with a temperature that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1).double()
        self.temperature = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.temperature  # type: ignore[no-any-return]  # a Tensor


def attribute_of_the_model(trial: Trial) -> None:
    model = trial.prepare_model(Annealed())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        model.temperature *= 0.5
        trial.report(loss=loss, temperature=model.temperature)


def data_read_in_set_up(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    loader = trial.prepare_data_loader(TensorDataset(inputs, targets), batch_size=4, shuffle=True)
    mean = sum(float(x.mean()) for x, _ in loader)
    for _ in trial.epochs(NUM_EPOCHS):
        loss = sum(step(model, optimizer, x, y).item() for x, y in loader)
        trial.report(loss=loss, mean=mean)


def plain_loader(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=4, shuffle=True, generator=generator)
    for _ in trial.epochs(NUM_EPOCHS):
        loss = sum(step(model, optimizer, x, y).item() for x, y in loader)
        trial.report(loss=loss)


class Recurrent(nn.Module):
    """A recurrent model, which holds weak references to its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3).double()
        self.head = nn.Linear(3, 1).double()

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.lstm(x.unsqueeze(0))[0].squeeze(0))
        return answer


def recurrent(trial: Trial) -> None:
    model = trial.prepare_model(Recurrent())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    best, saved = 10.0, model
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        best = min(best, loss)
        if epoch == 1:
            saved = copy.deepcopy(model)
        trial.report(loss=loss, best=best, saved=saved(inputs).mean())


class CountingData(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """A data set that nobody but the prepared loader holds."""

    def __init__(self) -> None:
        self.num_read = 0

    def __len__(self) -> int:
        return len(inputs)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        self.num_read += 1
        return inputs[place] * (1 + 0.01 * self.num_read), targets[place]


def make_collate() -> Callable[[Any], tuple[Tensor, Tensor]]:
    num_batches = 0

    def collate(rows: Any) -> tuple[Tensor, Tensor]:
        nonlocal num_batches
        num_batches += 1
        return torch.stack([x for x, _ in rows]) / num_batches, torch.stack([y for _, y in rows])

    return collate


def state_of_a_data_set(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    loader = trial.prepare_data_loader(CountingData(), batch_size=4, collate_fn=make_collate())
    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=sum(step(model, optimizer, x, y).item() for x, y in loader))


def default_of_a_keyword(trial: Trial) -> None:
    def add(value: float, *, seen: list[float] = []) -> float:  # noqa: B006 - the state in question
        seen.append(value)
        return sum(seen)

    model, optimizer = prepare(trial)
    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=add(step(model, optimizer).item()))


def structured_array(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    log = np.zeros(NUM_EPOCHS, dtype=[("epoch", "i4"), ("square", "f8")])
    for epoch in trial.epochs(NUM_EPOCHS):
        log[epoch] = (epoch, epoch**2)
        trial.report(loss=step(model, optimizer).item(), total=float(log["square"].sum()))


def view_of_a_tensor_deep_inside(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    box = {"deep": {"counts": torch.zeros(3)}}
    row = None
    for _ in trial.epochs(NUM_EPOCHS):
        row = box["deep"]["counts"][:1] if row is None else row
        row += 1
        trial.report(loss=step(model, optimizer).item(), count=box["deep"]["counts"].sum().item())


class NormKeeping(torch.optim.SGD):
    """An optimizer with state in attributes, which its state dict leaves out."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr)
        self.num_steps = 0
        self.scales: list[float] = []

    def step(self, closure: Any = None) -> Any:
        self.num_steps += 1
        self.scales.append(1 / self.num_steps)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(self.scales[-1] / len(self.scales))
        return super().step(closure)


def attributes_of_an_optimizer(trial: Trial) -> None:
    model = trial.prepare_model(make_net())
    optimizer = trial.prepare_optimizer(NormKeeping, model, lr=trial.config["lr"])
    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=step(model, optimizer).item())


def kept_gradient(trial: Trial) -> None:
    model: Any = trial.prepare_model(make_net())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    slope = None
    for _ in trial.epochs(NUM_EPOCHS):
        optimizer.zero_grad(set_to_none=False)
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        slope = model[0].weight.grad if slope is None else slope
        optimizer.step()
        trial.report(loss=loss, slope=slope.sum().item())


def gradients_in_one_buffer(trial: Trial) -> None:
    model: Any = trial.prepare_model(make_net())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    buffer = torch.zeros(12, dtype=torch.float64)
    model[0].weight.grad = buffer.view(3, 4)
    for _ in trial.epochs(NUM_EPOCHS):
        buffer.zero_()
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        trial.report(loss=loss, slope=buffer.sum().item())


def rows_of_a_weight(trial: Trial) -> None:
    model: Any = trial.prepare_model(make_net())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    rows = model[0].weight.unbind()
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer).item()
        trial.report(loss=loss, first=rows[0].detach().sum().item())


class Cached:
    """Keeps state in its class: entries of a cache, and defaults of arguments."""

    count = 0

    @lru_cache  # noqa: B019 - the state in question
    def number(self, key: int) -> int:
        type(self).count += 1
        return self.count

    @cached_property
    def first(self) -> int:
        type(self).count += 1
        return self.count

    @torch.no_grad()
    def add(self, value: float, seen: list[float] = []) -> float:  # noqa: B006 - the state in question
        seen.append(value)
        return sum(seen)


def defaults_and_attributes_of_a_class(trial: Trial) -> None:
    class Counter(Cached):
        count = 3

    counter = Counter()
    for epoch in trial.epochs(NUM_EPOCHS):
        trial.report(loss=counter.add(epoch), first=counter.first if epoch else 0)


def cache_cleared_after_each_epoch(trial: Trial) -> None:
    numbers = list(range(20))

    @cache
    def draw(key: str) -> int:
        return numbers.pop()

    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=draw("one") + draw("one"))
        draw.cache_clear()


def single_dispatch(trial: Trial) -> None:
    seen: list[float] = []

    @singledispatch
    def total(value: Any) -> float:
        seen.append(value)
        return sum(seen)

    @total.register
    def _(value: int) -> float:
        seen.append(2 * value)
        return sum(seen)

    for epoch in trial.epochs(NUM_EPOCHS):
        trial.report(loss=total(epoch) + total(0.5))


def make_decay() -> Callable[..., float]:
    num_calls = 0

    def decay(*args: Any) -> float:  # Any: those of a hook or of a schedule
        nonlocal num_calls
        num_calls += 1
        return 1 / num_calls

    return decay


def state_of_hooks_and_schedules(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    decay = make_decay()
    model.register_forward_hook(lambda module, given, answer: answer * decay())
    decay_rate = make_decay()

    def set_rate(*args: Any) -> None:  # Any: an optimizer and the arguments of its step
        optimizer.param_groups[0]["lr"] = 0.1 * decay_rate()

    optimizer.register_step_pre_hook(set_rate)
    scheduler = trial.prepare_scheduler("LambdaLR", optimizer, lr_lambda=make_decay())
    optimizer.num_epochs = 0
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        scheduler.step()
        optimizer.num_epochs += 1
        trial.report(loss=loss, epochs=optimizer.num_epochs, lr=scheduler.get_last_lr()[0])


def gradients_outside_of_prepared_models(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    other: Any = make_net()
    other_optimizer = torch.optim.SGD(other.parameters(), lr=trial.config["lr"])
    scale, late = torch.ones(1, dtype=torch.float64, requires_grad=True), None
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        if epoch == 1:
            late = torch.ones(1, dtype=torch.float64, requires_grad=True)
        (scale * (other(inputs) - targets).square().mean() * (1 if late is None else late)).backward()
        if epoch % 2:
            other_optimizer.step()
            other_optimizer.zero_grad()
        slope = scale.grad.sum() + (0 if late is None else late.grad.sum())  # type: ignore[union-attr]  # it has one
        trial.report(loss=loss, slope=slope, weight=other[0].weight.sum())


def gradients_of_the_set_up(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    (model(inputs) - targets).square().mean().backward()
    for _ in trial.epochs(NUM_EPOCHS):
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        trial.report(loss=loss)


def attributes_of_tensors(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    count: Any = torch.zeros(3)
    count.num_epochs = 0
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        count.num_epochs += 1
        for parameter in model.parameters():
            parameter.total = getattr(parameter, "total", 0.0) + parameter.detach().sum()  # type: ignore[attr-defined]
        total = sum(parameter.total for parameter in model.parameters())  # type: ignore[attr-defined]  # as set above
        trial.report(loss=loss, epochs=count.num_epochs, total=total)


def weights_swapped_with_averages(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    averages = {name: parameter.data.clone() for name, parameter in model.named_parameters()}
    backups: dict[str, Tensor] = {}
    for _ in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        for name, parameter in model.named_parameters():
            averages[name] = 0.9 * averages[name] + 0.1 * parameter.data
            backups[name] = parameter.data
            parameter.data = averages[name]
        averaged = (model(inputs) - targets).square().mean()
        for name, parameter in model.named_parameters():
            parameter.data = backups[name]
        trial.report(loss=loss, averaged=averaged)


CONTINUED: tuple[Callable[[Trial], None], ...] = (
    best_so_far, best_updated_after_the_report, namespaces, optimizer_within_an_optimizer,
    scheduler_on_an_optimizer_within_an_optimizer, patience, running_average, kept_state_dict,
    state_dict_that_is_an_alias, deepcopy_in_the_loop, list_of_losses, weights_set_after_prepare,
    weights_applied_after_prepare, plain_optimizer_and_scheduler, plain_adam, ema_copy, averaged_model, metric_object,
    curriculum, nonlocal_counter, counter_in_a_closure, global_best, global_list, replay_buffer, global_replay_memory,
    aliases, aliases_made_in_the_loop, own_generators, arrays, own_generator_of_epochs, loop_in_a_method,
    accumulated_gradients, stays_in_evaluation, unfrozen_on_the_way, attribute_of_the_model, data_read_in_set_up,
    plain_loader, recurrent,
    state_of_a_data_set, default_of_a_keyword, structured_array, view_of_a_tensor_deep_inside,
    defaults_and_attributes_of_a_class, cache_cleared_after_each_epoch, single_dispatch,
    state_of_hooks_and_schedules, gradients_outside_of_prepared_models, gradients_of_the_set_up, attributes_of_tensors,
    weights_swapped_with_averages,
)  # fmt: skip
"""Functions that go on from a checkpoint."""


def kept_iterator(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    loader = trial.prepare_data_loader(TensorDataset(inputs, targets), batch_size=2)
    batches = iter(loader)
    for _ in trial.epochs(NUM_EPOCHS):
        x, y = next(batches)
        trial.report(loss=step(model, optimizer, x, y))


def generator_in_the_middle(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    rows = (inputs[place : place + 2] for place in range(NUM_EPOCHS))
    for _ in trial.epochs(NUM_EPOCHS):
        trial.report(loss=step(model, optimizer, next(rows), targets[:2]))


def counted_by_enumerate(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for count, _ in enumerate(trial.epochs(NUM_EPOCHS)):
        trial.report(loss=step(model, optimizer), count=count)


def in_a_comprehension(trial: Trial) -> None:
    model, optimizer = prepare(trial)

    def once(count: int) -> int:
        trial.report(loss=step(model, optimizer), count=count)
        return count

    [once(epoch) for epoch in trial.epochs(NUM_EPOCHS)]


def without_epochs(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    for _ in range(NUM_EPOCHS):
        trial.report(loss=step(model, optimizer))


def result_in_a_cache(trial: Trial) -> None:
    @lru_cache
    def seen(key: str) -> list[int]:
        return []

    seen("epochs")
    for epoch in trial.epochs(NUM_EPOCHS):
        seen("epochs").append(epoch)
        trial.report(loss=sum(seen("epochs")))


numbers = list(range(20))


@cache
def draw_number(key: int) -> int:
    return numbers.pop()


def global_cache(trial: Trial) -> None:
    for epoch in trial.epochs(NUM_EPOCHS):
        trial.report(loss=draw_number(epoch // 2))


def cached_method(trial: Trial) -> None:
    cached = Cached()
    for epoch in trial.epochs(NUM_EPOCHS):
        trial.report(loss=cached.number(epoch // 2))


def parameters_added_in_the_loop(trial: Trial) -> None:
    model: Any = trial.prepare_model(make_net())
    optimizer = trial.prepare_optimizer("SGD", model[0].parameters(), lr=trial.config["lr"])
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        if epoch == 0:
            optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.01})
        trial.report(loss=loss)


def halve(module: nn.Module, given: Any, answer: Tensor) -> Tensor:  # Any: the arguments
    return 0.5 * answer


def hook_added_in_the_loop(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    handle = model.register_forward_hook(halve)
    for epoch in trial.epochs(NUM_EPOCHS):
        if epoch == 1:
            model.register_forward_hook(halve)
        if epoch == 3:
            handle.remove()
        trial.report(loss=step(model, optimizer))


def memory_shared_in_the_loop(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    total, other = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        other += 1
        if epoch == 1:
            other.data = total
        total += loss.detach()
        trial.report(loss=loss, total=total + 2 * other)


def memory_parted_in_the_loop(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    total = torch.zeros(3, dtype=torch.float64)
    part = total[:2]
    for epoch in trial.epochs(NUM_EPOCHS):
        if epoch == 1:
            part.data = part.data.clone()
        total += 1
        trial.report(loss=step(model, optimizer), total=total.sum() + part.sum())


def weights_tied_in_the_loop(trial: Trial) -> None:
    model: Any = trial.prepare_model(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).double())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    for epoch in trial.epochs(NUM_EPOCHS):
        loss = step(model, optimizer)
        if epoch == 1:
            model[1].weight.data = model[0].weight.data
        trial.report(loss=loss)


def part_of_memory_given_in_the_loop(trial: Trial) -> None:
    model, optimizer = prepare(trial)
    total, part = torch.zeros(3, dtype=torch.float64), None
    for epoch in trial.epochs(NUM_EPOCHS):
        if epoch == 1:
            total.data = torch.arange(9, dtype=torch.float64)[4:7]
            part = total[1:]
        total += 1
        trial.report(loss=step(model, optimizer), total=total.sum() + (0 if part is None else part.sum()))


def kept_gradient_of_a_leaf(trial: Trial) -> None:
    scale, slope = torch.ones(3, dtype=torch.float64, requires_grad=True), None
    for _ in trial.epochs(NUM_EPOCHS):
        scale.sum().backward()
        slope = scale.grad if slope is None else slope
        trial.report(loss=0.0 if slope is None else slope.sum())


RESTARTED: tuple[Callable[[Trial], None], ...] = (
    kept_gradient, rows_of_a_weight, global_cache, cached_method, result_in_a_cache,
    parameters_added_in_the_loop, hook_added_in_the_loop, memory_shared_in_the_loop, memory_parted_in_the_loop,
    weights_tied_in_the_loop, part_of_memory_given_in_the_loop, kept_gradient_of_a_leaf,
    kept_iterator, generator_in_the_middle, counted_by_enumerate, in_a_comprehension, without_epochs,
)  # fmt: skip
"""Functions that cannot go on from a checkpoint, and are trained again from their beginning."""
