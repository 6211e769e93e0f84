"""What the tests of training share: a control that writes everything down, and a short way to run a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from tests.train.recipes import require_round_trip
from torch import nn

from headwater.train import Trial
from headwater.train.engines import LaneState
from headwater.train.running import TrainingSetup, run_group
from headwater.train.trial import Capture
from headwater.trials import Decision, Ending, Lane, Outcome, Report, TrialGroup

SEED = 5

Decide: TypeAlias = Callable[[Report], Decision]


def go_on(report: Report) -> Decision:
    return Decision.CONTINUE


class Notebook:
    """A control that does as it is told, and keeps all it sees."""

    def __init__(self, decide: Decide = go_on) -> None:
        self.reports: list[Report] = []
        self.states: dict[int, LaneState] = {}
        """What each lane had learnt at its last report."""
        self.num_epochs: list[int] = []
        self.num_lanes_by_step: list[int] = []
        self.done: list[int] = []
        """Trials that were done before the others of their group."""
        self.obstacles: list[str] = []
        self._decide = decide

    def report(self, reports: Sequence[Report], capture: Capture) -> list[Decision]:
        self.reports += reports
        captured = {report.number: capture(report.number) for report in reports}
        self.states |= {number: state for number, state in captured.items() if state.is_whole}
        return [self._decide(report) for report in reports]

    def hinder(self, obstacle: str) -> None:
        self.obstacles.append(obstacle)

    def expect(self, num_epochs: int) -> None:
        self.num_epochs.append(num_epochs)

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        self.done += [report.number for report in reports] if goes_on else []

    def step(self, num_lanes: int) -> None:
        self.num_lanes_by_step.append(num_lanes)

    def history(self, number: int, metric: str = "loss") -> list[float]:
        return [report.metrics[metric] for report in self.reports if report.number == number]

    def epochs(self, number: int) -> list[int]:
        return [report.epoch for report in self.reports if report.number == number]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run."""

    ending: Ending
    notes: Notebook

    @property
    def outcome(self) -> Outcome:
        return self.ending.outcome

    @property
    def label(self) -> str | None:
        """By what the lanes part."""
        question = self.ending.question
        return question.recipe.label if question is not None and question.recipe is not None else None

    @property
    def reason(self) -> str:
        return self.ending.question.reason if self.ending.question else ""

    def answers(self) -> list[Any]:
        """Return what the lanes part by, as each lane has it."""
        question = self.ending.question
        assert question is not None
        assert question.recipe is not None
        return [question.recipe.evaluate(lane.config) for lane in self.ending.lanes]


def open_lanes(configs: Mapping[int, Mapping[str, Any]], start_epoch: int = 0) -> tuple[Lane, ...]:
    return tuple(
        Lane(number=number, config=dict(config), seed=SEED, start_epoch=start_epoch)
        for number, config in configs.items()
    )


def run(
    function: Callable[[Trial], Any],
    configs: Mapping[int, Mapping[str, Any]] | Sequence[Mapping[str, Any]],
    decide: Decide = go_on,
    states: Sequence[LaneState] | None = None,
    always_fuse: bool = True,
    checks: bool = True,
) -> Run:
    """Run the function once for these configurations, and from these states if there are any.

    What parts them has to be data, too.
    """
    numbered = configs if isinstance(configs, Mapping) else dict(enumerate(configs))
    notes = Notebook(decide)
    lanes = open_lanes(numbered, states[0].epoch if states else 0)
    setup = TrainingSetup(function, always_fuse=always_fuse)
    ending = run_group(setup, TrialGroup(lanes=lanes), notes, states)
    if checks and ending.question is not None and ending.question.recipe is not None:
        require_round_trip(ending.question.recipe, [*numbered.values()])
    return Run(ending, notes)


def run_done(*args: Any, **kwargs: Any) -> Notebook:
    """Run a function that comes to its end, and return what was noted."""
    done = run(*args, **kwargs)
    assert done.outcome is Outcome.DONE, f"{done.outcome} {done.reason} {done.ending.error}"
    return done.notes


def run_alone(function: Callable[[Trial], Any], config: Mapping[str, Any], number: int = 0) -> Notebook:
    """Run one trial by itself, in plain PyTorch."""
    return run_done(function, {number: config}, always_fuse=False)


def require_equal_states(ours: LaneState, theirs: LaneState, tolerance: float = 1e-12) -> None:
    """Fail where two states differ by more than the tolerance, in weights, optimizers, schedules or anything else."""
    _require_close(_plain(ours), _plain(theirs), tolerance, "state")


def _plain(state: LaneState) -> dict[str, Any]:
    return {
        "epoch": state.epoch,
        "models": state.models,
        "optimizers": state.optimizers,
        "schedulers": state.schedulers,
        "num_passes": state.num_passes,
        "bests": state.bests,
    }


def _require_close(ours: Any, theirs: Any, tolerance: float, where: str) -> None:
    if isinstance(theirs, Mapping):
        assert set(ours) == set(theirs), where
        for key in theirs:
            _require_close(ours[key], theirs[key], tolerance, f"{where}.{key}")
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), where
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            _require_close(one, other, tolerance, f"{where}[{index}]")
    elif isinstance(theirs, torch.Tensor | float):
        pair = (torch.as_tensor(item, dtype=torch.float64).cpu() for item in (ours, theirs))
        torch.testing.assert_close(*pair, rtol=tolerance, atol=tolerance, msg=f"{where}: {ours} and {theirs}")
    else:
        assert ours == theirs, where


def lanes_of(count: int, **fixed: Any) -> tuple[Lane, ...]:
    return open_lanes({number: {"lr": 0.01 * (number + 1), **fixed} for number in range(count)})


class Tiny:
    """A training function that is all overhead, so that lanes pay; it counts its steps."""

    def __init__(self) -> None:
        self.num_steps = 0

    def __call__(self, trial: Trial) -> None:
        layers = [layer for _ in range(4) for layer in (nn.Linear(4, 4), nn.ReLU())]
        model = trial.prepare_model(nn.Sequential(*layers))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        x = torch.ones(2, 4)
        for _ in trial.epochs(1000):
            for _ in range(20):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
                self.num_steps += 1
            trial.report(loss=1.0)
