"""Calls that pass every torch-function mode by, led to the lane mode while one is on.

`Function.apply`, scripted functions, `nn.Parameter`, `Tensor.set_` and the transforms of `torch.func` go straight to
C++, where a lane tensor would lose its gradient or its lanes; a data loader asks for the type of its batch size, and a
thread starts without modes.
As long as any thread has a lane mode on, torch holds versions of them that ask first; in a thread without one they do
what they always do.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from threading import Lock, Thread
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.utils.checkpoint import CheckpointFunction, checkpoint
from torch.utils.data import BatchSampler

from headwater.errors import CannotFuseError
from headwater.fuse import custom_functions, user_threads
from headwater.fuse.apart import touches
from headwater.fuse.per_lane import PerLane
from headwater.torch_private import (
    FUNCTION_BASE,
    IS_APPLY_COMPILED,
    SCRIPTS,
    TRANSFORM_OPENERS,
    BackwardHookFunction,
    DisableTorchFunction,
    apply_plainly,
    is_applied_plainly,
    is_compiler_imported,
    is_lane_tensor,
    is_transforming,
    lanes_of,
    mark_parameter,
    stack_of,
    version_of,
    vmap_level,
    warn_of_slow_batching,
)


class Guide(custom_functions.Guide, user_threads.Guide, Protocol):
    """What a bypass needs of the lane mode."""

    def run_looped(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] = ...) -> Any:
        """Do the call once per lane."""


FindGuide: TypeAlias = Callable[[], Guide | None]


class Bypasses:
    """Counts the lane modes of the process, and keeps torch's functions replaced as long as there is one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._num_open = 0
        self._undo: list[Callable[[], None]] = []

    def open(self, find: FindGuide) -> None:
        """Lead the calls to the lane mode that `find` returns, until each `open` has had its `close`."""
        with self._lock:
            self._num_open += 1
            if self._num_open == 1:
                self._undo = _install(find)

    def close(self) -> None:
        """Give torch its own functions back, if this was the last lane mode."""
        with self._lock:
            self._num_open -= 1
            if self._num_open == 0:
                for undo in reversed(self._undo):
                    undo()


BYPASSES = Bypasses()
"""One for the process, as what it replaces is there once for the process."""


def _install(find: FindGuide) -> list[Callable[[], None]]:
    warn_of_slow_batching(False)
    homes: list[tuple[Any, str, Callable[[Any, FindGuide], Any]]] = [
        (FUNCTION_BASE, "apply", _lead_function),
        *([(BackwardCFunction, "__init__", _lead_context)] if IS_APPLY_COMPILED else []),
        (nn.Parameter, "__new__", _lead_parameter),
        (Tensor, "set_", _lead_set),
        (BatchSampler, "__init__", _lead_sampler),
        (Thread, "start", user_threads.lead_start),
        (ThreadPoolExecutor, "submit", user_threads.lead_submit),
        (_thread, "start_new_thread", user_threads.lead_new_thread),
        *((script, "__call__", _lead_script) for script in SCRIPTS),
        *((home, name, _lead_transform) for home, name in TRANSFORM_OPENERS),
    ]
    undo: list[Callable[[], None]] = [lambda: warn_of_slow_batching(True), _compile_nothing()]
    for home, name, lead in homes:
        undo.append(_restorer(home, name))
        setattr(home, name, lead(vars(home).get(name, getattr(home, name)), find))
    return undo


def _restorer(home: Any, name: str) -> Callable[[], None]:
    if name not in vars(home):
        return lambda: delattr(home, name)
    original = vars(home)[name]
    return lambda: setattr(home, name, original)


def _lead_function(original: Any, find: FindGuide) -> Any:
    """Let a function of the user's own, whose forward and backward are written for one model, compute with lanes."""

    @classmethod  # type: ignore[misc]  # stands for the class method of the same name
    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        guide = find()
        if guide is None or is_transforming():
            return apply_plainly(function, *args, **kwargs)
        if not (touches(args) or touches(kwargs.values())):
            answer = apply_plainly(function, *args, **kwargs)
            if touches([answer]):
                raise CannotFuseError(
                    f"{function.__name__} computes with lanes' tensors that it does not take as arguments"
                )
            return answer
        return _apply(guide, function, args, kwargs)

    return apply


def _lead_context(original: Any, find: FindGuide) -> Any:
    """Refuse lanes where C++ applies a function without us: it makes a context at the beginning of each call.

    Its arguments are not known here. A function of lanes would silently lose their gradients.
    """

    def init(context: Any) -> None:
        original(context)
        if not is_applied_plainly(sys._getframe(1)) and find() is not None and not is_transforming():
            name = type(context).__name__.removesuffix("Backward")
            raise CannotFuseError(f"{name}.apply was taken from its class before; call {name}.apply(...) instead")

    return init


def _apply(guide: Guide, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if function is CheckpointFunction:
        run, preserve, *inputs = args
        return checkpoint(run, *inputs, use_reentrant=False, preserve_rng_state=preserve)
    if function is BackwardHookFunction:
        answers = apply_plainly(function, *(stack_of(arg) if is_lane_tensor(arg) else arg for arg in args))
        return tuple(lanes_of(new) if is_lane_tensor(arg) else new for arg, new in zip(args, answers, strict=True))
    return custom_functions.apply_to_lanes(guide, function, args, kwargs)


def _lead_parameter(original: Any, find: FindGuide) -> Any:
    def new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if not isinstance(data, Tensor) or not is_lane_tensor(data):
            return original.__func__(cls, data, requires_grad)
        stack = stack_of(data)
        if getattr(data, "_claimed", False) and version_of(stack) == 0:  # all lanes alike: a tensor for a new parameter
            return original.__func__(cls, stack[0].detach().clone(), requires_grad)
        with DisableTorchFunction():
            parameter = lanes_of(stack.detach().requires_grad_(requires_grad))
        mark_parameter(parameter)
        return parameter

    return staticmethod(new)


def _lead_set(original: Any, find: FindGuide) -> Any:
    def set_(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if len(args) == 1 and touches((tensor, *args)):
            tensor.data = args[0]
            return tensor
        answer: Tensor = original(tensor, *args, **kwargs)
        return answer

    return set_


def _lead_sampler(original: Any, find: FindGuide) -> Any:
    """Make lanes part by their batch sizes, where torch would only ask whether they are a number."""

    def init(sampler: Any, inner: Any, batch_size: Any, drop_last: Any) -> None:
        original(sampler, inner, batch_size.one() if isinstance(batch_size, PerLane) else batch_size, drop_last)

    return init


def _lead_script(original: Any, find: FindGuide) -> Any:
    def call(script: Any, *args: Any, **kwargs: Any) -> Any:
        guide = find()
        if guide is None or not (touches(args) or touches(kwargs.values())):
            return original(script, *args, **kwargs)

        def run_lane(*lane_args: Any, **lane_kwargs: Any) -> Any:
            return original(script, *lane_args, **lane_kwargs)

        run_lane.__qualname__ = f"the scripted {script.name}"
        return guide.run_looped(run_lane, args, kwargs)

    return call


def _lead_transform(original: Any, find: FindGuide) -> Any:
    """Open the lanes' level below the one that the user's `torch.func` call opens, so that the two stay apart."""

    @contextmanager
    def nest(*args: Any, **kwargs: Any) -> Iterator[int]:
        guide = find()
        below: AbstractContextManager[None] | None = None
        if guide is not None and not is_transforming():
            below = vmap_level(guide.num_lanes)
        if below is None:
            with original(*args, **kwargs) as level:
                yield level
        else:
            with below, original(*args, **kwargs) as level:
                yield level

    return nest


def _compile_nothing() -> Callable[[], None]:
    """Let compiled modules run as written, for a compiler cannot see lanes; its import is left to whoever compiles."""
    original = torch.compile
    stances: list[Any] = []

    def run_as_written() -> None:
        if not stances and is_compiler_imported():
            stances.append(torch.compiler.set_stance("force_eager"))

    @wraps(original)
    def compile_and_wait(*args: Any, **kwargs: Any) -> Any:
        compiled = original(*args, **kwargs)
        run_as_written()
        return compiled

    def undo() -> None:
        torch.compile = original
        for stance in stances:
            stance.__exit__(None, None, None)

    run_as_written()
    torch.compile = compile_and_wait
    return undo
