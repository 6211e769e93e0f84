"""Train trials with a pause after every epoch, in groups that change from one epoch to the next.

Checkpoints pass through the format of the files, as they do in a study. Usage:

    paused = train_with_pauses(train, [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}], size=3)
    straight = train_straight(train, [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}])
    require_same(paused, straight, tolerance=1e-9)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.train.lab import SEED

from headwater.train import Trial
from headwater.train.checkpoint import decode_state, encode_state
from headwater.train.engines import LaneState
from headwater.train.running import TrainingSetup, run_group
from headwater.train.trial import Capture
from headwater.trials import Decision, Ending, Lane, Outcome, Report, TrialGroup

STUDY = "pausing"


@dataclass(slots=True)
class PausedTrial:
    """One trial: its configuration, its reports, and its last checkpoint as the content of a file."""

    number: int
    config: Mapping[str, Any]
    metrics: list[dict[str, float]] = field(default_factory=list)
    checkpoint: bytes | None = None
    """None before the first epoch, and where the state of an epoch cannot be continued."""
    is_done: bool = False
    error: str = ""
    num_restarts: int = 0
    """How often the trial was trained again from its beginning."""
    obstacle: str = ""
    """Why the trial cannot be continued."""

    @property
    def epoch(self) -> int:
        """Return the epoch that the trial goes on from."""
        return len(self.metrics) if self.checkpoint is not None else 0

    def open(self) -> tuple[Lane, LaneState | None]:
        """Return the trial as a lane, with its checkpoint."""
        lane = Lane(number=self.number, config=dict(self.config), seed=SEED, start_epoch=self.epoch)
        return lane, None if self.checkpoint is None else decode_state(self.checkpoint, STUDY, self.number)


class PausingControl:
    """A control that writes down what is new, and makes every lane leave at its first new report."""

    def __init__(self, trials: Mapping[int, PausedTrial], *, pauses: bool = True) -> None:
        self._trials = trials
        self._pauses = pauses

    def report(self, reports: Sequence[Report], capture: Capture) -> list[Decision]:
        return [self._take(report, self._trials[report.number], capture) for report in reports]

    def _take(self, report: Report, trial: PausedTrial, capture: Capture) -> Decision:
        if report.epoch <= len(trial.metrics):  # it was trained again from its beginning
            require_close(trial.metrics[report.epoch - 1], report.metrics, 1e-9)
            return Decision.CONTINUE
        trial.metrics.append(dict(report.metrics))
        if not self._pauses:
            return Decision.CONTINUE
        state = capture(report.number)
        trial.checkpoint = encode_state(state, STUDY, report.number) if state.is_whole else None
        trial.num_restarts += not state.is_whole
        return Decision.STOP

    def expect(self, num_epochs: int) -> None:
        pass

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        for report in reports if goes_on else ():
            self._trials[report.number].is_done = True

    def step(self, num_lanes: int) -> None:
        pass

    def hinder(self, obstacle: str) -> None:
        for trial in self._trials.values():
            trial.obstacle = obstacle


def train_with_pauses(
    function: Callable[[Trial], Any],
    configs: Sequence[Mapping[str, Any]],
    *,
    size: int = 1,
    always_fuse: bool = False,
) -> list[PausedTrial]:
    """Train every trial to its end, with a pause after each epoch, in groups of up to `size` lanes.

    The groups are cut anew for every epoch. Lanes that cannot be one train one by one from then on.
    """
    trials = [PausedTrial(number, config) for number, config in enumerate(configs)]
    setup, apart, turn = TrainingSetup(function, always_fuse=always_fuse), set[int](), 0
    while waiting := [trial for trial in trials if not trial.is_done]:
        turn += 1
        assert turn < 1000, "the trials come to no end"
        for group in _cut(waiting, size, turn, apart):
            ending = _train(setup, group, PausingControl({trial.number: trial for trial in trials}))
            _conclude(ending, group, apart)
    return trials


def train_straight(function: Callable[[Trial], Any], configs: Sequence[Mapping[str, Any]]) -> list[PausedTrial]:
    """Train every trial by itself, in plain PyTorch, without a pause."""
    trials = [PausedTrial(number, config) for number, config in enumerate(configs)]
    for trial in trials:
        ending = _train(TrainingSetup(function), [trial], PausingControl({trial.number: trial}, pauses=False))
        _conclude(ending, [trial], set())
    return trials


def require_same(ours: Sequence[PausedTrial], theirs: Sequence[PausedTrial], tolerance: float = 0.0) -> None:
    """Fail where two runs differ in what any trial reported or raised."""
    for one, other in zip(ours, theirs, strict=True):
        assert bool(one.error) == bool(other.error), f"trial {one.number}: {one.error or other.error}"
        assert len(one.metrics) == len(other.metrics), f"trial {one.number}: {one.metrics} and {other.metrics}"
        for mine, other_metrics in zip(one.metrics, other.metrics, strict=True):
            require_close(mine, other_metrics, tolerance)


def require_close(ours: Mapping[str, float], theirs: Mapping[str, float], tolerance: float) -> None:
    """Fail where metrics differ by more than a tolerance, relative to their size."""
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        is_same = math.isclose(ours[name], value, rel_tol=tolerance, abs_tol=tolerance)
        assert is_same or (math.isnan(ours[name]) and math.isnan(value)), f"{name}: {ours} and {theirs}"


def _cut(waiting: Sequence[PausedTrial], size: int, turn: int, apart: set[int]) -> list[list[PausedTrial]]:
    """Cut trials that stand at one epoch into groups whose members and order change from turn to turn."""
    groups = [[trial] for trial in waiting if trial.number in apart]
    for epoch in sorted({trial.epoch for trial in waiting}):
        alike = [trial for trial in waiting if trial.epoch == epoch and trial.number not in apart]
        shift = turn % max(len(alike), 1)
        alike = alike[shift:] + alike[:shift]
        most = size if turn % 3 else max(size - 1, 1)
        groups += [alike[first : first + most] for first in range(0, len(alike), most)]
    return groups


def _train(setup: TrainingSetup, group: Sequence[PausedTrial], control: PausingControl) -> Ending:
    opened = [trial.open() for trial in group]
    states = [state for _, state in opened if state is not None]
    return run_group(setup, TrialGroup(lanes=tuple(lane for lane, _ in opened)), control, states or None)


def _conclude(ending: Ending, group: Sequence[PausedTrial], apart: set[int]) -> None:
    left = {lane.number for lane in ending.lanes}
    for trial in group:
        if ending.outcome is Outcome.DONE:
            trial.is_done = trial.is_done or trial.number in left
        elif len(group) == 1:
            trial.is_done, trial.error = True, ending.error or ending.outcome.name
        elif trial.number in left:
            apart.add(trial.number)
