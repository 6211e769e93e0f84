"""Compiling a model that trains alone, where the steps it has left save more time than compiling takes.

A model's calls are routed through `Module._compiled_call_impl`, which torch keeps for a compiled call: hooks act as
ever, names of parameters stay, and copies and pickles of the model leave it behind.
"""

from __future__ import annotations

import math
import random
import time
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from headwater import devices
from headwater.fuse.strategies import read_clock
from headwater.torch_private import (
    COMPILED_CALL,
    COMPILED_CHILD,
    buffers_of,
    call_module,
    children_of,
    is_transforming,
    keep_compiled_buffers,
    remove_stand_in,
    set_stand_in,
    stand_in_of,
    tree_flatten,
    tree_leaves,
)

NUM_LAPS = 5
"""So many steps are timed before it is decided, and then of each way, in turns."""

MIN_SHARE = 0.03
"""A compiled step that saves less than this share of the plain one is within the noise: it is not worth its risks."""

MAX_KINDS = 32
"""A model called with more kinds of arguments than this, none of them often, has no shape to compile for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What compiling a model costs, and the share of a step's time that it then saves."""

    seconds_to_compile: float
    share_saved: float


PRIOR = Gain(seconds_to_compile=40.0, share_saved=0.1)
"""For models that are not known yet: at worst, a tenth of the time that was left is lost.

On one CPU thread, a perceptron of 4 x 1024 takes 11 s to compile and saves 0.05, a small ResNet 27 s and 0.25, and a
Transformer of 4 layers 57 s and loses 0.13. Hydro (OSDI 2023) tells of 0.1 for a ResNet-18 on a GPU.
"""


def pays(steps_left: int, seconds_per_step: float, seconds_to_compile: float, share_saved: float) -> bool:
    """Tell whether the steps that are left save more time than compiling takes."""
    return steps_left * seconds_per_step * share_saved > seconds_to_compile


def stay_silent(note: str) -> None:
    """Tell nobody."""


class Compiler:
    """Compiles models where that pays; remembers what it cost and gained here, by the models' structure.

    Steps are timed by `clock`, compiling by `wall_clock`, as other processes do most of that work. One-line notes of
    what was done go to `tell`.
    """

    def __init__(
        self,
        *,
        prior: Gain = PRIOR,
        tell: Callable[[str], None] = stay_silent,
        clock: Callable[[], float] = read_clock,
        wall_clock: Callable[[], float] = time.perf_counter,
        compile_call: Callable[..., Any] = torch.compile,
    ) -> None:
        self.gains: dict[Hashable, Gain] = {}
        self.prior = prior
        self.tell = tell
        self.clock = clock
        self.wall_clock = wall_clock
        self.compile_call = compile_call

    def attach(self, model: nn.Module, steps_left: Callable[[], int | None]) -> None:
        """Watch the training calls of a model, and compile it once it is known to pay.

        Only calls in training mode, with gradients, and of the kind seen most (shapes, types, values) are ever
        compiled; all others, such as an epoch's last batch or evaluation, run plainly. `steps_left` may answer None as
        long as nobody knows. Where a model is compiled already, or rounding must not depend on time
        (`torch.use_deterministic_algorithms`), nothing is done; nor where a step calls the model more than once before
        its backward pass, or differentiates gradients. On the one step at which a model is compiled, hooks on its
        modules and parameters act more than once.
        """
        is_compiled = stand_in_of(model) is not None or COMPILED_CHILD in children_of(model)
        if is_compiled or isinstance(model, torch.jit.ScriptModule) or torch.are_deterministic_algorithms_enabled():
            return
        set_stand_in(model, _Rider(model, steps_left, self))

    def detach(self, model: nn.Module) -> None:
        """Leave a model as it was before it was attached."""
        if isinstance(vars(model).get(COMPILED_CALL), _Rider):
            remove_stand_in(model)


Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
Phase: TypeAlias = Callable[[nn.Module, Hashable, Arguments], Any]


class _Rider:
    """Runs the calls of one model: watches at first, then races the compiled against the plain way, then goes on."""

    def __init__(self, model: nn.Module, steps_left: Callable[[], int | None], compiler: Compiler) -> None:
        self._model = weakref.ref(model)
        self._steps_left = steps_left
        self._compiler = compiler
        self._phase: Phase = self._watch
        self._counts: Counter[Hashable] = Counter()
        self._laps: dict[Hashable, deque[float]] = {}
        self._start: float | None = None
        self._running: Hashable = None
        self._is_compiled = False
        self._awaits_backward = False
        self._is_unfit = False
        self._kind: Hashable = None
        self._compiled: Callable[..., Any] = call_module
        self._seconds_to_compile = 0.0

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become None in copies: what is done here is for one model."""
        return type(None), ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = self._model()
        assert model is not None  # it is the one that calls
        if torch.compiler.is_compiling() or not _learns(model):
            return call_module(model, *args, **kwargs)
        return self._phase(model, _kind_of(args, kwargs), (args, kwargs))

    def _watch(self, model: nn.Module, kind: Hashable, arguments: Arguments) -> Any:
        """Time plain steps until something can be decided."""
        self._counts[kind] += 1
        self._is_unfit = self._is_unfit or self._awaits_backward or len(self._counts) > MAX_KINDS
        if len(self._laps.get(kind, ())) < NUM_LAPS:
            self._pass_by(kind)
        else:
            self._start = None
        if self._is_unfit:
            return self._leave(model, arguments)
        if len(self._laps.get(kind, ())) == NUM_LAPS and self._counts.most_common(1)[0][0] == kind:
            steps_left = self._steps_left()
            if steps_left is not None:
                return self._decide(model, kind, arguments, steps_left)
        result = call_module(model, *arguments[0], **arguments[1])
        self._awaits_backward = True
        for tensor in _tensors(result):
            if tensor.grad_fn is not None:
                tensor.register_hook(self._look)
        return result

    def _look(self, gradient: Tensor) -> None:
        """Notice a backward pass.

        Compiled calls cannot have gradients that are themselves differentiated. Nor can one backward pass go through
        both a plain and a compiled call, as what the latter does to buffers would be held against the former.
        """
        self._awaits_backward = False
        self._is_unfit = self._is_unfit or torch.is_grad_enabled()

    def _pass_by(self, running: Hashable) -> None:
        """Note the time of the step that ends, and start the next one."""
        now = self._compiler.clock()
        if self._start is not None:
            self._laps.setdefault(self._running, deque(maxlen=NUM_LAPS)).append(now - self._start)
        self._start, self._running = now, running

    def _decide(self, model: nn.Module, kind: Hashable, arguments: Arguments, steps_left: int) -> Any:
        gain = self._compiler.gains.get(_structure_of(model, kind), self._compiler.prior)
        steps = int(steps_left * self._counts[kind] / self._counts.total())
        if not pays(steps, median(self._laps[kind]), gain.seconds_to_compile, gain.share_saved):
            return self._leave(model, arguments)
        self._kind = kind
        self._laps.clear()
        self._start = None
        return self._compile(model, arguments)

    def _compile(self, model: nn.Module, arguments: Arguments) -> Any:
        """Compile, and make this step plainly all the same: it shows whether both ways agree."""
        start = self._compiler.wall_clock()
        error, rehearsed = "", _Values((), ())
        try:
            self._compiled = self._compiler.compile_call(
                _own_call(), fullgraph=True, dynamic=False, options={"fallback_random": True}
            )
            rehearsed = _rehearse(self._compiled, model, arguments)
        except Exception as cause:  # the trial's own code and a compiler: whatever they raise, the trial goes on
            error = f"could not be compiled ({_first_line(cause)})"
        self._seconds_to_compile = self._compiler.wall_clock() - start
        result = call_module(model, *arguments[0], **arguments[1])
        try:
            error = error or _difference(rehearsed, _values_of(model, result))
        except Exception as cause:  # likewise
            error = f"could not be checked ({_first_line(cause)})"
        self._conclude(model, error) if error else self._begin_race()
        return result

    def _begin_race(self) -> None:
        self._compiled = torch.compiler.set_stance("eager_on_recompile")(self._compiled)
        self._phase = self._race

    def _race(self, model: nn.Module, kind: Hashable, arguments: Arguments) -> Any:
        """Go both ways in turns, as others may use the machine in between."""
        args, kwargs = arguments
        if kind != self._kind:
            self._start = None
            return call_module(model, *args, **kwargs)
        self._is_compiled = not self._is_compiled
        self._pass_by(self._is_compiled)
        if [len(self._laps.get(is_compiled, ())) for is_compiled in (False, True)] == [NUM_LAPS, NUM_LAPS]:
            self._finish(model)
        return (self._compiled if self._is_compiled else call_module)(model, *args, **kwargs)

    def _finish(self, model: nn.Module) -> None:
        plain, compiled = (min(self._laps[is_compiled]) for is_compiled in (False, True))
        share = 1 - compiled / plain
        times = f"{1000 * compiled:.3g} ms a step instead of {1000 * plain:.3g} ms"
        if share < MIN_SHARE:
            return self._conclude(model, f"took {times} when compiled")
        self._phase = self._run
        self._remember(model, share)
        self._compiler.tell(f"{type(model).__name__} was compiled in {self._seconds_to_compile:.1f} s: {times}")
        return None

    def _run(self, model: nn.Module, kind: Hashable, arguments: Arguments) -> Any:
        """Go the compiled way wherever it leads."""
        return (self._compiled if kind == self._kind else call_module)(model, *arguments[0], **arguments[1])

    def _conclude(self, model: nn.Module, reason: str) -> None:
        """Go the plain way for good, as will other models of this structure."""
        self._remember(model, 0.0)
        self._compiler.tell(f"{type(model).__name__} {reason}: it trains as written")
        self._compiler.detach(model)

    def _remember(self, model: nn.Module, share: float) -> None:
        gain = Gain(seconds_to_compile=self._seconds_to_compile, share_saved=share)
        self._compiler.gains[_structure_of(model, self._kind)] = gain

    def _leave(self, model: nn.Module, arguments: Arguments) -> Any:
        self._compiler.detach(model)
        return call_module(model, *arguments[0], **arguments[1])


def _own_call() -> Callable[..., Any]:
    """Return a copy of `call_module`, for torch keeps what it compiles with the code; it goes with the model."""
    return FunctionType(call_module.__code__.replace(), call_module.__globals__, "call_module")


def _learns(model: nn.Module) -> bool:
    """Tell whether a call made now is one of training; functional transforms are left to themselves."""
    return model.training and torch.is_grad_enabled() and not is_transforming()


def _kind_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable:
    """Return what compiled code depends on in the arguments of a call."""
    if not kwargs and all(isinstance(item, Tensor) for item in args):
        return tuple(map(_leaf_kind, args))  # the same as below, in a tenth of the time
    leaves, spec = tree_flatten((tuple(args), dict(kwargs)))
    return str(spec), tuple(map(_leaf_kind, leaves))


def _leaf_kind(leaf: Any) -> Hashable:
    if isinstance(leaf, Tensor):
        return leaf.shape, leaf.dtype, leaf.device, leaf.requires_grad
    return leaf if isinstance(leaf, int | float | str | None) else str(type(leaf))


def _structure_of(model: nn.Module, kind: Hashable) -> Hashable:
    tensors = ((name, item.shape, item.dtype) for name, item in model.state_dict(keep_vars=True).items())
    return str(model), tuple(tensors), kind


@dataclass(frozen=True, slots=True)
class _Values:
    """What a call gives: its outputs, and gradients of the parameters."""

    outputs: Sequence[Tensor]
    gradients: Sequence[Tensor]


def _rehearse(call: Callable[..., Any], model: nn.Module, arguments: Arguments) -> _Values:
    """Make a step without an effect; gradients are taken too, as torch compiles a backward pass at its first use."""
    with _kept(model, arguments), warnings.catch_warnings(), keep_compiled_buffers():
        warnings.simplefilter("ignore")
        return _values_of(model, call(model, *arguments[0], **arguments[1]))


def _values_of(model: nn.Module, result: Any) -> _Values:
    """Return outputs and gradients of a call; what was called can still be differentiated, and nothing is accumulated.

    The loss is one that no normalization makes constant.
    """
    outputs = [item for item in _tensors(result) if item.is_floating_point()]
    ends = [item for item in outputs if item.grad_fn is not None]
    params = [param for param in model.parameters() if param.requires_grad]
    tangents = [torch.arange(item.numel(), device=item.device).cos().to(item.dtype).view(item.shape) for item in ends]
    gradients = torch.autograd.grad(ends, params, tangents, retain_graph=True, materialize_grads=True)
    return _Values([item.detach().clone() for item in outputs], gradients)


def _difference(one: _Values, other: _Values) -> str:
    """Say by how much two ways differ; nothing where they do by rounding alone.

    Outputs agree in half of the digits that their numbers have. Gradients do in a quarter, as each unit that rounding
    switches on or off adds a jump: those of a small ResNet are off by 1e-3 in single precision, compiled or not.
    """
    precision = max((_precision(item) for item in other.outputs), default=0.0)
    for name, tolerance, some, others in (
        ("outputs", precision**0.5, one.outputs, other.outputs),
        ("gradients", precision**0.25, one.gradients, other.gradients),
    ):
        error = _norm([left - right for left, right in zip(some, others, strict=True)])
        size = _norm(others)
        if not error <= tolerance * size:
            return f"gave other {name} when compiled (off by {error:.1e} of {size:.1e})"
    return ""


def _precision(tensor: Tensor) -> float:
    kind = tensor.device.type
    dtypes = [tensor.dtype, *([torch.get_autocast_dtype(kind)] if torch.is_autocast_enabled(kind) else [])]
    return max(torch.finfo(dtype).eps for dtype in dtypes)


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.hypot(*(float(item.float().norm()) for item in tensors))


@contextmanager
def _kept(model: nn.Module, arguments: Arguments) -> Iterator[None]:
    """Undo what is done to a model's buffers and attributes, to the arguments and to the random numbers."""
    attributes = [(module, dict(vars(module)), dict(buffers_of(module))) for module in model.modules()]
    saved = [(item, item.detach().clone()) for item in (*model.buffers(), *_tensors(arguments))]
    numpy_state, python_state = np.random.get_state(), random.getstate()
    torch_state, device_states = torch.get_rng_state(), devices.read_generators()
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        devices.restore_generators(device_states)
        np.random.set_state(numpy_state)
        random.setstate(python_state)
        for module, variables, buffers in attributes:
            vars(module).clear()
            vars(module).update(variables)
            buffers_of(module).update(buffers)
        for tensor, value in saved:
            if not torch.equal(tensor, value):
                tensor.data.copy_(value)  # graphs that hold the tensor are to see no change


def _tensors(tree: Any) -> list[Tensor]:
    return [item for item in tree_leaves(tree) if isinstance(item, Tensor)]


def _first_line(cause: Exception) -> str:
    return f"{type(cause).__name__}: {cause}".splitlines()[0]
