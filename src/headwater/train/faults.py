"""Whose fault it is: only what the training function raises is a trial's result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import walk_tb

import torch

from headwater.errors import RanksLostError, RunFault, TrialError
from headwater.fuse.shortage import is_out_of_memory
from headwater.fuse.users_code import is_library
from headwater.train.engines import LaneState
from headwater.train.trial import Capture, Control
from headwater.trials import Decision, Report

_WORKER_GONE = re.compile(r"DataLoader worker \(pid.*\) (is killed by signal|exited unexpectedly)")
"""How torch says that a process which loads data is gone; there is no class for it."""

_MIXED_DEVICES = re.compile(
    r"Expected all tensors to be on the same device|Expected a '\w+' device type for generator"
    r"|Input type \(.*\) and weight type \(.*\) should be the same|on the same device as the indexed tensor"
)
"""How torch says that a call got tensors, or a generator, of another device."""


class GuardedControl:
    """Passes everything on and counts the steps.

    What goes wrong there leaves the function as a RunFault, which no `except Exception` in it takes for its own.
    """

    def __init__(self, control: Control, gate: Callable[[], None] = lambda: None) -> None:
        self.num_lane_steps = 0
        self._control = control
        self._gate = gate
        self._fault: Exception | None = None
        self._own: Exception | None = None
        """What copying a state raised: the trial's own optimizers and schedulers are asked for it."""

    def report(self, reports: Sequence[Report], capture: Capture) -> Sequence[Decision]:
        """Hand reports in."""

        def capture_own(number: int) -> LaneState:
            try:
                return capture(number)
            except Exception as cause:
                self._own = cause
                raise

        with self._guarding():
            return self._control.report(reports, capture_own)

    def hinder(self, obstacle: str) -> None:
        """Say that the trials cannot be continued."""
        with self._guarding():
            self._control.hinder(obstacle)

    def expect(self, num_epochs: int) -> None:
        """Say how many epochs there will be."""
        with self._guarding():
            self._control.expect(num_epochs)

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        """Say that trials have come to their end."""
        with self._guarding():
            self._control.finish(reports, capture, goes_on=goes_on)

    def step(self, num_lanes: int) -> None:
        """Say that a step was done."""
        self.num_lane_steps += num_lanes
        with self._guarding():
            self._gate()
            self._control.step(num_lanes)

    @contextmanager
    def raising_fault(self) -> Iterator[None]:
        """Raise what went wrong as what it is, now that the function has ended, in whatever way."""
        try:
            with suppress(RunFault):
                yield
            if self._fault is not None:
                raise self._fault
        finally:
            self._fault = self._own = None  # their tracebacks hold this object, and the frames of the function

    @contextmanager
    def _guarding(self) -> Iterator[None]:
        if self._fault is not None:  # the function has caught it
            raise RunFault
        try:
            yield
        except (TrialError, RanksLostError):  # a rank is lost where the function of another has raised
            raise
        except Exception as cause:
            if cause is self._own or is_out_of_memory(cause):  # what it trains leaves too little to save it with
                raise
            self._fault = cause
            raise RunFault from cause


def explain_devices(cause: BaseException, device: torch.device) -> str:
    """Return what to do about tensors on two devices, with the user's line; "" for any other exception."""
    if not isinstance(cause, RuntimeError) or _MIXED_DEVICES.search(str(cause)) is None:
        return ""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(cause.__traceback__)]
    own = [f"{Path(name).name}:{line}" for name, line in frames if not is_library(name)]
    return (
        f"{own[-1] if own else 'the function'} mixes devices: prepared models and batches are on {device}; move other "
        "tensors there with .to(trial.device), or make them with device=trial.device"
    )


def explain_loss(cause: BaseException | None) -> str:
    """Say which process was lost, if an exception comes of that; "" if not."""
    while cause is not None:
        if isinstance(cause, RuntimeError) and _WORKER_GONE.search(str(cause)):
            return f"a process that loads its data was lost: {cause}"
        if isinstance(cause, RanksLostError):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    return ""
