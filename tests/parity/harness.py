"""The law: a lane's numbers are those of the same trial trained alone, by plain PyTorch that knows nothing of lanes.

`train_lanes` trains settings as lanes of one group, through the same door as a study. `train_plain` trains one of them
with nothing but torch: a module, a `DataLoader`, an optimizer of `torch.optim`. Both hand them to the same loop, for
that the loop need not change is the first promise.

Why the comparison is fair: the plain run takes from Headwater only the *seeds* that it documents (numbers that one
could write down here): torch is seeded with the study's seed when training starts and afresh before each epoch, and
the n-th pass over the data is shuffled by a seed of its own. What is drawn from these seeds, and all that is computed,
is torch's own doing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tests.parity.tasks import Recipe, Settings, Task
from torch import Generator, Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from headwater.devices import choose_default
from headwater.fuse.strategies import Strategies
from headwater.train import Trial
from headwater.train.engines import LaneState
from headwater.train.running import TrainingSetup, run_group
from headwater.train.seeding import mix_seed
from headwater.trials import Decision, Ending, Lane, Outcome, Report, TrialGroup

SEED = 11
NUM_EPOCHS = 2
BATCH_SIZE = 8
NUM_TRAIN = 36
"""Five batches an epoch, the last of them a half one."""
NUM_VALID = 16
DEVICE = choose_default()
"""Where both train: the CPU, or the accelerator that the run of the tests has."""
FLOOR = 1e-2
"""Tensors smaller than this count as if they were so large: some are zero but for rounding, such as key biases."""


@dataclass(slots=True, kw_only=True)
class Trained:
    """What came out of training: everything that a lane and a plain run must agree on."""

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]
    metrics: list[Mapping[str, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One training problem: a task, how to optimize, and in which precision."""

    task: Task
    recipe: Recipe
    dtype: torch.dtype
    from_factory: bool = False
    """Whether each lane starts from weights of its own."""

    def settings(self, num_lanes: int) -> list[dict[str, Any]]:
        """Return the hyperparameters of the first lanes."""
        return self.recipe.lanes(self.task, self.dtype)[:num_lanes]


def open_setup(case: Case, *ways: str) -> TrainingSetup:
    """Return what trains the case; calls that can be done in these ways are, others in the fastest."""
    strategies = Strategies(preset=ways)
    return TrainingSetup(training_function(case), device=DEVICE, strategies=strategies, always_fuse=True)


def train_lanes(case: Case, settings: Sequence[Settings], setup: TrainingSetup | None = None) -> dict[int, Trained]:
    """Train all lanes as one group, and take each of them out at its last report."""
    collector = Collector()
    lanes = tuple(Lane(number=number, config=dict(item), seed=SEED) for number, item in enumerate(settings))
    require_done(run_group(setup or open_setup(case), TrialGroup(lanes=lanes), collector))
    return collector.trained


def training_function(case: Case) -> Callable[[Trial], None]:
    """Return the case as a user would write it."""
    task, recipe = case.task, case.recipe
    train_set, valid_set = _draw_data(case)

    def train(trial: Trial) -> None:
        def build() -> nn.Module:
            return task.build_model(trial.config, case.dtype)

        model = trial.prepare_model(build if case.from_factory else build())
        loader = trial.prepare_data_loader(train_set, batch_size=BATCH_SIZE, shuffle=True)
        options = recipe.options(trial.config)
        # a name or a truth may differ by lane only where it goes straight into a place that takes it so
        if "optimizer" in trial.config:
            optimizer = trial.prepare_optimizer(trial.config["optimizer"], model, **options)
        elif "nesterov" in trial.config:
            kind = recipe.optimizer(trial.config)
            optimizer = trial.prepare_optimizer(kind, model, nesterov=trial.config["nesterov"], **options)
        else:
            optimizer = trial.prepare_optimizer(recipe.optimizer(trial.config), model, **options)
        for _ in trial.epochs(NUM_EPOCHS):
            loss = train_epoch(task, model, loader, optimizer, trial.config)
            trial.report(train_loss=loss, **evaluate(task, model, valid_set))

    return train


def train_plain(case: Case, settings: Settings, number: int = 0) -> Trained:
    """Train one trial with plain PyTorch."""
    train_set, valid_set = _draw_data(case)
    torch.manual_seed(mix_seed(SEED, "trial", number) if case.from_factory else SEED)
    model = case.task.build_model(settings, case.dtype).to(DEVICE)
    kind = case.recipe.optimizer(settings)
    kind = getattr(torch.optim, kind) if isinstance(kind, str) else kind
    truths = {"nesterov": settings["nesterov"]} if "nesterov" in settings else {}
    optimizer = kind(model.parameters(), **case.recipe.options(settings), **truths)
    metrics: list[Mapping[str, float]] = []
    for epoch in range(NUM_EPOCHS):
        torch.manual_seed(mix_seed(SEED, "epoch", epoch))
        order = Generator().manual_seed(mix_seed(mix_seed(SEED, "stream", 0), "pass", epoch))
        loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, generator=order)
        batches = [[item.to(DEVICE) for item in batch] for batch in loader]
        loss = train_epoch(case.task, model, batches, optimizer, settings)
        metrics.append({"train_loss": loss, **evaluate(case.task, model, valid_set)})
    return Trained(weights=model.state_dict(), optimizer=optimizer.state_dict(), metrics=metrics)


def train_epoch(task: Task, model: nn.Module, loader: Any, optimizer: Any, settings: Settings) -> Any:
    """Go through the data once, and return the mean loss."""
    model.train()
    total: Any = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = task.loss(model, x, y, settings)
        loss.backward()
        if task.max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), task.max_norm)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def evaluate(task: Task, model: nn.Module, data: TensorDataset) -> dict[str, Any]:
    """Return how the model does on other data."""
    model.eval()
    x, y = (item.to(DEVICE) for item in data.tensors)
    with torch.no_grad():
        logits = task.logits(model, x)
        correct = (logits.argmax(-1) == y).sum().item()
        confidence = logits.double().softmax(-1).amax(-1).mean()
    return {"accuracy": correct / y.numel(), "confidence": confidence}


class Collector:
    """A control that lets every lane go on, and copies what it has learnt."""

    def __init__(self) -> None:
        self.trained: dict[int, Trained] = {}

    def report(self, reports: Sequence[Report], capture: Callable[[int], LaneState | None]) -> list[Decision]:
        for report in reports:
            state = capture(report.number)
            assert state is not None
            before = self.trained[report.number].metrics if report.number in self.trained else []
            self.trained[report.number] = Trained(
                weights=state.models[0], optimizer=state.optimizers[0], metrics=[*before, report.metrics]
            )
        return [Decision.CONTINUE] * len(reports)

    def hinder(self, obstacle: str) -> None:
        pass

    def expect(self, num_epochs: int) -> None:
        pass

    def finish(self, reports: Any, capture: Any, *, goes_on: bool) -> None:
        pass

    def step(self, num_lanes: int) -> None:
        pass


def require_done(ending: Ending) -> None:
    """Fail with what the training function had to say."""
    assert ending.outcome is Outcome.DONE, f"{ending.outcome}: {ending.question} {ending.error}"


def require_parity(lane: Trained, plain: Trained, tolerance: float) -> None:
    """Fail where a lane deviates from its plain run by more than the tolerance."""
    deviations = deviations_of(lane, plain)
    worst = sorted(deviations.items(), key=lambda item: -item[1])[:5]
    assert worst[0][1] <= tolerance, f"deviates from plain PyTorch at {worst}"


def deviations_of(lane: Trained, plain: Trained) -> dict[str, float]:
    """Return how far a lane is from its plain run, by the name of each tensor and metric."""
    deviations = {name: deviation_of(lane.weights[name], tensor) for name, tensor in plain.weights.items()}
    assert lane.weights.keys() == plain.weights.keys()
    for epoch, (ours, theirs) in enumerate(zip(lane.metrics, plain.metrics, strict=True), start=1):
        assert ours.keys() == theirs.keys()
        deviations |= {f"{name} of epoch {epoch}": deviation_of(ours[name], theirs[name]) for name in theirs}
    assert lane.optimizer["state"].keys() == plain.optimizer["state"].keys()
    for place, kept in plain.optimizer["state"].items():
        own = lane.optimizer["state"][place]
        deviations |= {f"{name} of parameter {place}": deviation_of(own[name], kept[name]) for name in kept}
    return deviations


def deviation_of(ours: Tensor | float | None, theirs: Tensor | float | None) -> float:
    """Return the largest difference, relative to the largest value; infinite where one is NaN and the other is not."""
    if ours is None or theirs is None:
        return 0.0 if ours is theirs else torch.inf
    a, b = (torch.as_tensor(item, dtype=torch.float64).detach().cpu() for item in (ours, theirs))
    assert a.shape == b.shape
    same = (a == b) | (a.isnan() & b.isnan())
    gap = (a - b).abs().where(~same, 0).nan_to_num(nan=torch.inf)
    return float(gap.max() / max(float(b.abs().max()), FLOOR))


def _draw_data(case: Case) -> tuple[TensorDataset, TensorDataset]:
    return case.task.data(NUM_TRAIN, case.dtype, seed=1), case.task.data(NUM_VALID, case.dtype, seed=2)
