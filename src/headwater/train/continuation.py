"""How a trial goes on after a pause: its function is called again, and gets its state back when its loop begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from headwater.errors import TrialError
from headwater.torch_private import DisableTorchFunction
from headwater.train.engines import Engine, LaneState
from headwater.train.loop_frames import LoopFrames, find_frames
from headwater.train.loop_state import LoopState
from headwater.train.streams import Stream
from headwater.train.traceless import WRITES
from headwater.train.user_globals import UserGlobals

INDIRECT = (
    "trial.epochs is iterated by enumerate, zip or an iterator of Python's own; loop over trial.epochs(...) itself"
)
UNCOUNTED = "the training function does not count its epochs by trial.epochs"
IRREGULAR = "the training function reports more than once in an epoch, or after its last one"
ITERATING = "an iterator of a prepared data loader is kept from one epoch to the next"


class Continuation:
    """The state of a trial's loop over its epochs, saved at its heads and put back at its beginning."""

    def __init__(self, engine: Engine, variables: UserGlobals | None) -> None:
        self.obstacle = ""
        """Why the trial cannot be continued, as far as that is known."""
        self.has_gradients = True
        """Whether torch records gradients at the present head of the loop."""
        self._engine = engine
        self._variables = variables
        self._kept: dict[str, Any] = {}
        self._process: dict[str, Any] = {}
        """The settings of the process when the loop began."""
        self._has_same_process: bool | None = None
        """Whether the process has these settings at the present head of the loop; None until that is asked."""
        self._loop: LoopState | None = None
        self._frame: FrameType | None = None
        """The frame that asks for the next epoch, while it stands at the head of the loop."""
        self._frames: LoopFrames | None = None
        self._is_checked = False

    @property
    def has_begun(self) -> bool:
        """Whether the loop has begun."""
        return self._loop is not None

    def keep(self, values: Mapping[str, Any]) -> None:
        """Save the state dicts of objects too."""
        for name, value in values.items():
            if not (callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))):
                raise TrialError(
                    f"trial.keep got {name}={type(value).__name__}, which lacks state_dict or load_state_dict; give it "
                    "these two methods, or keep it in an object that has them"
                )
            if name in self._kept or self.has_begun:
                when = "a second time" if name in self._kept else "after the loop over trial.epochs had begun"
                raise TrialError(f"trial.keep got {name} {when}; declare it once, before the loop")
            self._kept[name] = value

    def begin(self, frames: LoopFrames, *, is_direct: bool, trial: Any, streams: Sequence[Stream]) -> None:
        """Take a snapshot of the loop, which the set-up of the function has come to.

        Args:
            frames: The user's frames.
            is_direct: Whether a `for` statement asks for the epochs.
            trial: The trial that the function holds.
            streams: The prepared data loaders.
        """
        models, parts = self._engine.list_prepared()
        kept = [trial, *streams, *parts, *self._kept.values()]
        loaders = [stream.loader for stream in streams]
        variables = self._variables or UserGlobals(type(self))
        self._process = self._read_process()
        self._loop = LoopState.begin(frames, variables, self._engine.lane_values, models, loaders, kept)
        self.obstacle = frames.obstacle or ("" if is_direct else INDIRECT)
        if self._engine.is_scaled:
            self._loop.require_prepared("the width of a surrogate")

    def restore(self, states: Sequence[LaneState], streams: Sequence[Stream]) -> None:
        """Put the states of all lanes into models, optimizers, schedulers, data loaders and variables."""
        assert self._loop is not None
        is_inherited = any(state.is_inherited for state in states)
        if is_inherited:
            self._loop.require_prepared("population based training")
        self._engine.load(states)
        for stream, num_passes in zip(streams, states[0].num_passes, strict=False):
            stream.num_passes = num_passes
        for name, value in self._kept.items():
            if all(name in state.kept for state in states):
                value.load_state_dict(self._loop.join([state.kept[name] for state in states]))
        self._loop.restore([state.loop for state in states], is_inherited=is_inherited)

    @contextmanager
    def at_head(self, frame: FrameType) -> Iterator[None]:
        """Let the state of the loop be captured for a while: this frame asks for the next epoch."""
        self._frame, self._has_same_process = frame, None
        try:
            yield
        finally:
            self._frame = self._frames = None

    @property
    def _head(self) -> LoopFrames | None:
        """The user's frames while they stand at the head of the loop."""
        if self._frames is None and self._frame is not None:
            self._frames = find_frames(self._frame)
        return self._frames

    def check(self, *, counts_epochs: bool) -> str:
        """Return why the trial cannot be continued, once, as soon as that can be known; nothing otherwise."""
        if self._is_checked or (counts_epochs and self._frame is None):
            return ""
        self._is_checked = True
        if not counts_epochs:
            self.obstacle = UNCOUNTED
        elif self._loop is not None and self._head is not None:
            self.obstacle = self.obstacle or self._find_outside() or self._loop.find_obstacle(self._head)
        return self.obstacle

    def _find_outside(self) -> str:
        """Say what the function has changed outside of its variables, which no checkpoint holds."""
        return self._find_file() or self._find_setting()

    def _find_setting(self) -> str:
        if not self.has_begun or self._has_same_process:
            return ""
        changed = [name for name, value in self._read_process().items() if value != self._process.get(name)]
        self._has_same_process = not changed
        if not changed:
            return ""
        return (
            f"the training function changes a setting of the process in its loop ({changed[0]}), and settings are no "
            "part of a checkpoint; change it for a while by a with statement, or before the loop"
        )

    def _read_process(self) -> dict[str, Any]:
        read = {} if self._variables is None else self._variables.read_process()
        return read | {"has_gradients": self.has_gradients}

    def _find_file(self) -> str:
        """Say which file the function has written and may read again: after a pause it may be another trial's."""
        writes = WRITES.get()
        if writes is None or not writes.first or self._variables is None or not self._variables.reader:
            return ""
        return (
            f"the training function {writes.first} and may read files by `{self._variables.reader}`, and files are no "
            "part of a checkpoint; keep such values in variables, or write by trial.keep_best"
        )

    def capture(self, state: LaneState, place: int, streams: Sequence[Stream]) -> None:
        """Add the state of a lane's loop to a checkpoint, or why the trial cannot be continued from it."""
        state.num_passes = [stream.num_passes for stream in streams]
        state.obstacle = self.obstacle = self.obstacle or self._find_outside()
        if not self.obstacle and (self._loop is None or self._head is None):
            state.obstacle = IRREGULAR
        elif not self.obstacle and any(stream.num_open for stream in streams):
            state.obstacle = ITERATING
        elif not self.obstacle and self._loop is not None and self._head is not None:
            with DisableTorchFunction():
                state.kept = {name: self._loop.pick(value.state_dict(), place) for name, value in self._kept.items()}
            state.loop, state.obstacle = self._loop.capture(self._head, place)
        state.is_whole = not state.obstacle

    def close(self) -> None:
        """Let go of the user's frames and objects."""
        self._loop = self._frame = self._frames = None
        self._kept.clear()
