"""What the training function holds: one trial, or a group of them that train as one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from types import FrameType
from typing import Any, Protocol, TypeAlias, TypeVar, cast
from weakref import WeakMethod

import torch
from torch import nn
from torch.utils.data import DataLoader

from headwater.errors import LanesLeave, TrialError
from headwater.fuse.per_lane import PerLane, PerLaneText
from headwater.fuse.roster import heeds_lanes, is_included
from headwater.space import show_plain
from headwater.train.arguments import name_arguments
from headwater.train.best_weights import BestWeights
from headwater.train.compiling import Compiler
from headwater.train.continuation import IRREGULAR, Continuation
from headwater.train.engines import Engine, LaneState
from headwater.train.frozen import Frozen
from headwater.train.idle_biases import IdleBiases
from headwater.train.loop_frames import find_frames, is_looped_directly
from headwater.train.seeding import mix_seed, seed_everything
from headwater.train.streams import DataAccess, LoneAccess, Stream, open_stream
from headwater.train.user_globals import UserGlobals
from headwater.trials import Decision, Lane, Report
from headwater.trials.joint_numbers import split_number

Capture: TypeAlias = Callable[[int], LaneState]
"""Copies the state of a trial."""
Model = TypeVar("Model", bound=nn.Module)
Answer = TypeVar("Answer")


class Control(Protocol):
    """Who decides at a report what becomes of each lane, and who counts steps."""

    def report(self, reports: Sequence[Report], capture: Capture) -> Sequence[Decision]:
        """Take the reports of all lanes; `capture(number)` copies a trial's state before its lane goes.

        The state is not whole where the trial cannot be continued from it, such as without `trial.epochs`.
        """

    def hinder(self, obstacle: str) -> None:
        """Learn, at the first report, why the trials cannot be continued from checkpoints."""

    def expect(self, num_epochs: int) -> None:
        """Learn how many epochs the function is going to train."""

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        """Learn that the function has come to its end for the trials of these last reports; for others it may go on."""

    def step(self, num_lanes: int) -> None:
        """Learn that an optimizer step was done for this many lanes."""


class Trial:
    """One trial as the training function sees it, or several at once: the function cannot tell, and need not.

    Every call belongs inside the training function. The order of calls must not depend on chance, for saved state is
    given back in that order.
    """

    def __init__(  # noqa: PLR0913 - one for each thing that a run is made of
        self,
        lanes: Sequence[Lane],
        config: Mapping[str, Any],
        engine: Engine,
        control: Control,
        states: Sequence[LaneState] | None = None,
        device: torch.device | None = None,
        compiler: Compiler | None = None,
        access: DataAccess | None = None,
        variables: UserGlobals | None = None,
    ) -> None:
        self.config = config
        """The configuration; a value that differs between lanes is a PerLane."""
        self.seed = lanes[0].seed
        """What torch, NumPy and Python were seeded with when the function started; the same for all lanes."""
        self.device = device or torch.device("cpu")
        """Where models and batches go."""
        self.max_epochs: int | None = None
        """How many epochs a trial trains at most, whatever the function would; None where only that says."""
        self.mode = "min"
        """Whether the study's metric should be small ("min") or large ("max")."""
        self.idle_biases = IdleBiases()
        """Biases that only rounding moves, once a step was made."""
        self._attributes: dict[int, dict[str, Any]] = {}
        self._lanes = list(lanes)
        self._engine, self._control, self._states = engine, control, states
        self._epoch = self._first_epoch = self._last_report = lanes[0].start_epoch
        self._uses_epochs = self._is_in_epoch = self._has_optimizer = False
        self._compiler = compiler
        self._access = access or LoneAccess()
        self._num_epochs: int | None = None
        self._num_steps = 0
        self._steps_of_epoch: float | None = None
        """How many there were in an epoch, once there was one."""
        self._streams: list[Stream] = []
        self._reports: dict[int, Report] = {}
        self._bests = BestWeights(engine, states, len(lanes))
        self._continuation = Continuation(engine, variables)
        self._pending: tuple[int, dict[str, list[float]]] | None = None
        """The report of the present epoch, which is handed in when the epoch ends."""

    def prepare_model(self, model: Model | Callable[[], Model]) -> Model:
        """Return the model to train: the instance itself, or what a factory builds.

        An instance gives every trial the same initial weights, and is put back to them when the run ends; a factory is
        called once per trial, under the trial's own seed.
        """
        if isinstance(model, nn.Module):
            self._access.claim(model)
        prepared = self._engine.add_model(model)
        self._access.claim(prepared)
        self._bests.add(prepared)
        self.idle_biases.add(prepared)
        if self._compiler is not None:
            self._compiler.attach(prepared, _weakly(self._count_steps_left))
        return cast("Model", prepared)

    def prepare_frozen(self, model: nn.Module) -> nn.Module:
        """Return a model that is used and not trained, such as a pretrained feature extractor.

        It is put into evaluation, takes no gradients, and is computed once for all lanes; trials of a pack that give
        the same object and read the same data compute it once for each example.
        """
        model.to(self.device).eval().requires_grad_(False)
        return Frozen(model, self._access.features)

    def prepare_data_loader(self, data: Any, *args: Any, **options: Any) -> Stream:
        """Return batches of a Dataset (with a DataLoader's arguments) or of a DataLoader, on the trial's device.

        The order belongs to the study's seed: every trial reads the same batches in the same order.
        """
        index = len(self._streams)
        options = _same_for_all(name_arguments(DataLoader, None, args, options))
        seed = mix_seed(self.seed, "stream", index)
        stream = open_stream(data, seed, self.device, self._access, **options)
        self._streams.append(stream)
        return stream

    def prepare_optimizer(self, optimizer: Any, params: Any, *args: Any, **hyperparameters: Any) -> Any:
        """Return an optimizer: a class of torch.optim or its name, a model or parameters, and any hyperparameters."""
        named = name_arguments(optimizer, torch.optim, args, hyperparameters)
        built = self._engine.add_optimizer(optimizer, params, named)
        self.idle_biases.attach(built)
        if not self._has_optimizer:
            built.register_step_post_hook(_weakly(self._step))
        self._has_optimizer = True
        return built

    def prepare_scheduler(self, scheduler: Any, optimizer: Any, *args: Any, **options: Any) -> Any:
        """Return a learning-rate scheduler: a class of torch.optim.lr_scheduler or its name, and its arguments.

        A function that makes one, such as `get_linear_schedule_with_warmup`, does too.
        """
        named = name_arguments(scheduler, torch.optim.lr_scheduler, args, options)
        return self._engine.add_scheduler(scheduler, optimizer, named)

    def keep(self, **values: Any) -> None:
        """Declare objects whose state belongs into the trial's checkpoints, under names of your choice.

        Most of the state of a loop is found and saved by itself. An object of a kind that is not known can be declared
        here if it has `state_dict` and `load_state_dict`. Call it before the loop over `trial.epochs`. When a trial
        goes on after a pause, the state is loaded as the loop begins.

        Raises:
            TrialError: An object lacks these methods, a name is taken, or the loop has begun.
        """
        self._continuation.keep(values)

    def epochs(self, count: int) -> Iterator[int]:
        """Count epochs from 0, or from where the trial left off.

        Random numbers are seeded afresh for each epoch, so that a trial that pauses and goes on draws what it would
        have drawn without the pause. A trial that goes on calls the function again: its set-up runs as before, and when
        the loop begins, weights, optimizers, schedulers, data loaders and the variables of the function are given the
        states that they had.

        Raises:
            TrialError: `count` is no number of epochs, or the epochs were counted already.
        """
        if self._uses_epochs:
            raise TrialError(
                "trial.epochs was called a second time; count all epochs in one loop, and tell its parts by the number"
            )
        count = _count_of(count)
        self._uses_epochs = True
        self._num_epochs = count - self._epoch
        self._control.expect(count)
        return EpochLoop(self, count)

    def next_epoch(self, count: int, frame: FrameType, *, is_direct: bool) -> int | None:
        """Hand in the report of the epoch that has ended, and return the number of the next one; None after the last.

        Here the state of the loop is saved and put back: the rest of the epoch's code has run.
        """
        self._continuation.has_gradients = torch.is_grad_enabled()  # which inference_mode(False) changes
        if self._continuation.has_begun:
            with self._continuation.at_head(frame):
                self.settle()
            epoch = self._epoch + 1
        else:
            with torch.inference_mode(False):
                self._continuation.begin(find_frames(frame), is_direct=is_direct, trial=self, streams=self._streams)
                if self._states is not None:
                    self._continuation.restore(self._states, self._streams)
            epoch = self._first_epoch
        self._steps_of_epoch = self._num_steps / (epoch - self._first_epoch) if epoch > self._first_epoch else None
        self._epoch, self._is_in_epoch = min(epoch, count), epoch < count
        seed_everything(mix_seed(self.seed, "epoch", self._epoch))
        return epoch if self._is_in_epoch else None

    def report(self, **metrics: Any) -> None:
        """Hand in the metrics of an epoch: numbers, or tensors of one element. Call it once per epoch.

        Trials are stopped, paused and saved when the epoch ends, with the next turn of the loop over `trial.epochs`;
        without such a loop, here. When no lane is left, the function ends there.
        """
        if not metrics:
            raise TrialError("report was called without a metric; name at least one, as in trial.report(loss=loss)")
        self.settle()
        self._last_report = epoch = self._find_epoch()
        columns = {name: self._engine.numbers(value) for name, value in metrics.items()}
        self._pending = epoch, columns
        if not self._is_in_epoch or epoch > self._epoch + 1:  # there is no next turn, or there were several reports
            self.settle()

    def settle(self) -> None:
        """Hand in the report that waits for the end of its epoch, if any."""
        if self._pending is not None:
            (epoch, columns), self._pending = self._pending, None
            with torch.inference_mode(False):  # what is copied or compacted here is to train on
                self._hand_in(epoch, columns)

    def close(self) -> None:
        """Let go of the user's frames and objects."""
        self._continuation.close()

    @heeds_lanes
    def keep_best(self, model: nn.Module, value: Any, mode: str | None = None) -> None:
        """Keep the weights that a prepared model has now, if the value is the trial's best so far, in each lane.

        They are what `Result.load_best_model` and `headwater best --save` then give of the trial, instead of its last
        ones. Call it before the epoch ends, for that is where a trial may end. What counts as better is
        `mode`, by default as for the study's metric. Values that are not finite are never the best.

        Raises:
            TrialError: The model was not prepared, the value is no number, or the mode neither "min" nor "max".
        """
        with torch.inference_mode(False), torch.no_grad():
            values = enumerate(self._engine.numbers(value))
            offered = [number if is_included(place) else math.nan for place, number in values]  # NaN is never the best
            self._bests.offer(model, offered, mode or self.mode, self._find_epoch())

    def _find_epoch(self) -> int:
        """Return the number of the epoch that is reported next, or whose report waits."""
        if self._pending is not None:
            return self._pending[0]
        return max(self._epoch + (1 if self._uses_epochs else 0), self._last_report + 1)

    @property
    def number(self) -> Any:
        """Which trial of the study it is, counted from 0; one number per lane in a group of several.

        Of a study with several seeds, which replica: replica r of trial n is n * num_seeds + r.
        """
        return self._engine.per_lane([split_number(lane.number)[1] for lane in self._lanes])

    @property
    def is_last(self) -> bool:
        """Whether the epoch is the trial's last, so that there is no other to evaluate at length or to draw pictures.

        That is what `trial.epochs` or the study's limit says; no function that counts its own epochs has a last one,
        and no trial knows whether it is about to be stopped.
        """
        if self._num_epochs is None or not self._is_in_epoch:
            return False
        return self._epoch + 1 >= min(self._first_epoch + self._num_epochs, self.max_epochs or math.inf)

    @heeds_lanes
    def note(self, **attributes: Any) -> None:
        """Write something about the trial into its record: numbers, text, or lists and dictionaries of these.

        It goes with the next report, or with the end of the function; of several under one name, the last counts.
        """
        for name, value in attributes.items():
            if isinstance(value, torch.Tensor):
                own: Sequence[Any] = self._engine.numbers(value)
            elif isinstance(value, PerLane | PerLaneText):
                own = [show_plain(item) for item in value.values]
            else:
                own = [show_plain(value)] * len(self._lanes)
            for place, (lane, item) in enumerate(zip(self._lanes, own, strict=True)):
                if is_included(place):
                    self._attributes.setdefault(lane.number, {})[name] = item

    def take_attributes(self) -> dict[int, dict[str, Any]]:
        """Return what was noted of trials since this was asked last."""
        attributes, self._attributes = self._attributes, {}
        return attributes

    def take_answer(self, answer: Any, metric: str) -> None:
        """Take what a function that has reported nothing returns for the report of its last epoch.

        That is a number or a dictionary of numbers; whatever else it returns is its own business. A dictionary without
        the metric is reported too, so that the study can name the metrics that it has.
        """
        named = answer if isinstance(answer, Mapping) else {metric: answer}
        is_number = all(isinstance(value, PerLane | Real | torch.Tensor) for value in named.values())
        if self._last_report == self._first_epoch and named and is_number:
            epoch = max(self._epoch, self._first_epoch + 1)
            self._last_report = epoch
            with torch.inference_mode(False):
                self._hand_in(epoch, {str(name): self._engine.numbers(value) for name, value in named.items()})

    def finish_lanes(self, places: Sequence[int]) -> None:
        """Let lanes go for which the function has come to its end, while it goes on for others."""
        numbers = [self._lanes[place].number for place in places]
        self.settle()
        places = [place for place, lane in enumerate(self._lanes) if lane.number in numbers]
        self._finish(places, goes_on=True)
        self._keep([place for place in range(len(self._lanes)) if place not in places])

    def finish(self) -> None:
        """Say that the function has come to its end, unless that is known from its last report."""
        self.settle()
        is_known = self._uses_epochs and self._last_report >= self._first_epoch + (self._num_epochs or 0)
        if not is_known:
            with torch.inference_mode(False):
                self._finish(range(len(self._lanes)), goes_on=False)

    def _finish(self, places: Sequence[int], *, goes_on: bool) -> None:
        reports = [self._reports[number] for place in places if (number := self._lanes[place].number) in self._reports]
        self._control.finish(reports, lambda number: self._capture(number, self._last_report), goes_on=goes_on)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The trials that are still in the group."""
        return tuple(self._lanes)

    def foresee_steps(self) -> int | None:
        """Return how many steps all epochs take, by the epochs so far; before one has ended, by the first data loader.

        None where that is open.
        """
        if self._num_epochs is not None and self._steps_of_epoch:
            return round(self._num_epochs * self._steps_of_epoch)
        if self._num_epochs is None or not self._streams:
            return None
        try:
            return self._num_epochs * len(self._streams[0])
        except TypeError:  # a stream of unknown length
            return None

    def _step(self) -> None:
        self._num_steps += 1
        self._control.step(len(self._lanes))

    def _count_steps_left(self) -> int | None:
        """Return how many steps the function will still take, by the epochs so far; of a single one, by its loader."""
        if self._num_epochs is None or (self._num_epochs > 1 and self._steps_of_epoch is None):
            return None
        if self._steps_of_epoch is not None:
            return int(self._num_epochs * self._steps_of_epoch) - self._num_steps
        return len(self._streams[0]) - self._num_steps if self._streams else None

    def _hand_in(self, epoch: int, columns: Mapping[str, Sequence[float]]) -> None:
        attributes = self.take_attributes()
        reports = [
            Report(
                number=lane.number,
                epoch=epoch,
                metrics={name: column[place] for name, column in columns.items()},
                attributes=attributes.get(lane.number, {}),
            )
            for place, lane in enumerate(self._lanes)
        ]
        self._reports = {report.number: report for report in reports}
        if obstacle := self._continuation.check(counts_epochs=self._uses_epochs):
            self._control.hinder(obstacle)
        decisions = self._control.report(reports, lambda number: self._capture(number, epoch))
        self._keep([place for place, decision in enumerate(decisions) if decision is Decision.CONTINUE])

    def _keep(self, places: Sequence[int]) -> None:
        if len(places) == len(self._lanes):
            return
        self._lanes = [self._lanes[place] for place in places]
        if not places:
            raise LanesLeave
        self._engine.narrow(places)
        self._bests.narrow(places)

    def _capture(self, number: int, epoch: int) -> LaneState:
        """Copy a lane's state; the function can go on from the head of the loop, with one report and all read."""
        place = [lane.number for lane in self._lanes].index(number)
        state = self._engine.capture(place, epoch)
        state.bests = self._bests.take(place)
        self._continuation.capture(state, place, self._streams)
        if state.is_whole and epoch != self._epoch + 1:
            state.is_whole, state.obstacle = False, IRREGULAR
        return state


class EpochLoop(Iterator[int]):
    """The epochs of a trial, as its function loops over them."""

    def __init__(self, trial: Trial, count: int) -> None:
        self._trial = trial
        self._count = count
        self._is_direct = False

    def __iter__(self) -> EpochLoop:
        self._is_direct = is_looped_directly(sys._getframe(1))
        return self

    def __next__(self) -> int:
        epoch = self._trial.next_epoch(self._count, sys._getframe(1), is_direct=self._is_direct)
        if epoch is None:
            raise StopIteration
        return epoch


def _weakly(method: Callable[[], Answer]) -> Callable[..., Answer | None]:
    """Return what calls a method but does not keep its object: no trial outlives its run in what it has prepared."""
    kept = WeakMethod(method)

    def call(*_: Any) -> Answer | None:
        found = kept()
        return None if found is None else found()

    return call


def _count_of(count: Any) -> int:
    """Read a number of epochs, which may differ by lane: then the lanes part."""
    one = count.one() if isinstance(count, PerLane) else count
    is_number = isinstance(one, Real) and not isinstance(one, bool)
    if not is_number or float(one) != max(round(float(one)), 0):
        raise TrialError(f"trial.epochs got {one!r}; give it how many epochs to train, a whole number")
    return int(one)


def _same_for_all(options: Mapping[str, Any]) -> dict[str, Any]:
    """Make the lanes part where an option differs between them: they read one stream."""
    return {name: value.one() if isinstance(value, PerLane | PerLaneText) else value for name, value in options.items()}
