"""Every private name of torch that this package uses, so that a torch release can break one module only.

A name is private if it or a module on its path starts with an underscore: names in `torch._C` and `torch._functorch`,
attributes of tensors, modules and optimizers, keys of the state of a scheduler. The operators `torch._foreach_*` count
as public, since torch's reference documents them. `tests/test_torch_private.py` names each private name that a
release has changed, and looks for private names in all other modules.

A *lane tensor* is functorch's own batched tensor at level one: Python sees the shape of one model, memory holds
all lanes. Its memory is the *stack*, whose first dimension counts the lanes. No level is open between calls; whoever
computes with lane tensors opens one for the length of a call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import BuiltinFunctionType, FrameType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch._C import _functorch as C
from torch._functorch import eager_transforms, vmap
from torch._subclasses import fake_tensor
from torch.autograd.function import _SingleLevelFunction
from torch.autograd.graph import _engine_run_backward
from torch.nn import _reduction
from torch.nn.modules import _functions
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _python_dispatch, _pytree

# Lane tensors, and calls with them.

LEVEL = 1

is_lane_tensor = C.is_batchedtensor

memory_of = C.get_unwrapped
"""Returns the tensor that a lane tensor holds, wherever its lanes lie."""

IS_APPLY_COMPILED = not isinstance(vars(torch.autograd.Function)["apply"], classmethod)
"""Whether `Function.apply` is C++ from the start, as since torch 2.15; before, it was Python that called its base."""

FUNCTION_BASE: Any = torch.autograd.Function if IS_APPLY_COMPILED else _SingleLevelFunction
"""The class on which a replaced `apply` is called for all functions.

Before torch 2.15, an `apply` that was taken from its class earlier ends there too. Since then, see `find_taken_apply`.
"""

is_transforming = torch._C._are_functorch_transforms_active
"""Tells whether a functorch level is open: one of ours, or one of the user's own `torch.func` calls."""

is_asked = torch._C._is_torch_function_enabled
"""Tells whether torch asks modes, and classes like tensors, what a call is to do."""

warn_of_slow_batching = C._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]  # not in torch's stubs
"""Sets whether torch warns where it batches an operator by a loop; torch starts with True and cannot be asked."""


def lanes_of(stack: Tensor) -> Tensor:
    """Show the stack as a lane tensor: its first dimension disappears from sight."""
    lane_tensor: Tensor = C._add_batch_dim(stack, 0, LEVEL)
    return lane_tensor


def stack_of(lane_tensor: Tensor) -> Tensor:
    """Return the memory of a lane tensor with the lanes first; the same object as long as they were first."""
    stack: Tensor = C.get_unwrapped(lane_tensor)
    position = C.maybe_get_bdim(lane_tensor)
    return stack if position == 0 else stack.movedim(position, 0)


def settled_stack_of(lane_tensor: Tensor) -> Tensor:
    """Return the stack that the lane tensor holds from now on, so that what is hung on it stays with the tensor."""
    if C.maybe_get_bdim(lane_tensor) != 0:
        swap(lane_tensor, lanes_of(stack_of(lane_tensor)))
    stack: Tensor = C.get_unwrapped(lane_tensor)
    return stack


DisableTorchFunction = torch._C.DisableTorchFunction
"""Keeps torch from asking modes, and classes like tensors, for the length of a `with` statement."""

TRANSFORM_OPENERS: tuple[tuple[Any, str], ...] = (
    (vmap, "vmap_increment_nesting"),
    (eager_transforms, "grad_increment_nesting"),
    (eager_transforms, "jvp_increment_nesting"),
)
"""Modules and the names of their functions that open a level for the transforms of `torch.func`."""

SCRIPTS: tuple[Any, ...] = (torch._C.ScriptFunction, torch._C.ScriptMethod)
"""The classes of compiled TorchScript code, whose calls no mode sees."""

BackwardHookFunction = _functions.BackwardHookFunction
"""The function by which torch calls the backward hooks of modules."""

OPERATORS: Any = torch._C._nn
"""The module of operators that `torch.nn.functional` shows some of under their own names."""

OPERATOR_MODULE = "torch._C"
"""The `__module__` of classes that torch makes in C++."""


@contextmanager
def vmap_level(num_lanes: int) -> Iterator[None]:
    """Open one vmap level, in which torch's batching rules compute with lane tensors.

    Random numbers are the same in all lanes: exactly those that one model alone would draw.
    """
    level = C._vmap_increment_nesting(num_lanes, "same")
    try:
        if level != LEVEL:
            raise RuntimeError("vmap: lane tensors cannot be used inside another functorch transform")
        yield
    finally:
        C._vmap_decrement_nesting()


def call_in_level(num_lanes: int, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Do one call in a vmap level; the short way of `vmap_level`, for there are many calls."""
    C._vmap_increment_nesting(num_lanes, "same")
    try:
        return func(*args, **kwargs)
    finally:
        C._vmap_decrement_nesting()


def swap(tensor: Tensor, other: Tensor) -> None:
    """Exchange what two tensors hold, for everyone who holds them, weakly too; classes and attributes stay.

    Unlike `torch.utils.swap_tensors` it asks for no tensor without weak references: they follow the Python object,
    and an `nn.LSTM` has them of all its weights.
    """
    torch._C._swap_tensor_impl(tensor, other)


# The next three functions decide whether a plain tensor may become a lane tensor: numbers depend on their answers. The
# counts are no guess: torch and Python free memory by them. A holder that they missed would be left with freed memory,
# so that a count of one proves that there is no other holder. A count that is too high, by a temporary holder, makes
# lanes train separately. Memory that is not freed by these counts is told by `owns_memory`.


def num_uses(tensor: Tensor) -> int:
    """Count who keeps this very tensor: Python, its views, and autograd for a backward pass that is to come."""
    count: int = tensor._use_count()  # type: ignore[attr-defined]  # not in torch's stubs
    return count


_FRESH = torch.empty(1)
_NOT_HELD = sys.getrefcount(_FRESH.untyped_storage())


def num_holders(tensor: Tensor) -> int:
    """Count the tensors that share the memory of this one, itself included, and code that holds the storage object."""
    num_held = sys.getrefcount(tensor.untyped_storage()) - _NOT_HELD
    holders: int = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return holders - 1 + num_held  # torch keeps one storage object for all who ask


def owns_memory(tensor: Tensor) -> bool:
    """Tell whether the memory of a tensor is torch's alone: no array, buffer, file or other process sees it."""
    is_sent = tensor.device.type == "cpu" and tensor.is_shared()  # torch says so of all memory of accelerators
    return tensor.untyped_storage().resizable() and not is_sent


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardOptions:
    """How autograd goes back through a graph."""

    retain_graph: bool
    create_graph: bool
    accumulate: bool = True
    """Whether gradients are added to the leaves, or returned."""
    allow_unused: bool = True


def run_backward(
    roots: Sequence[Tensor], seeds: Sequence[Tensor], inputs: Sequence[Tensor], options: BackwardOptions
) -> tuple[Tensor | None, ...]:
    """Run the engine of autograd on stacks; unlike `torch.autograd.backward` it leaves the modes on for the hooks."""
    answers: tuple[Tensor | None, ...] = _engine_run_backward(
        tuple(roots),
        tuple(seeds),
        options.retain_graph,
        options.create_graph,
        tuple(inputs),
        allow_unreachable=options.allow_unused,
        accumulate_grad=options.accumulate,
    )
    return answers


def saves_elsewhere() -> bool:
    """Tell whether what autograd saves now goes to somebody's hooks: a checkpoint's, above all."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def apply_plainly(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply a `Function` where no lane mode looks at its arguments."""
    return vars(torch._C._FunctionBase)["apply"].__get__(None, function)(*args, **kwargs)


def find_taken_apply(function: Any) -> Any:
    """Return the function class whose `apply` a callable is, where that was taken from the class and is C++; else None.

    Replacing the `apply` of the class does not lead the callable anywhere else.
    """
    if type(function) is not BuiltinFunctionType or function.__name__ != "apply":
        return None
    owner = function.__self__
    return owner if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) else None


def is_applied_plainly(frame: FrameType) -> bool:
    """Tell whether the code that applies a `Function` is `apply_plainly`."""
    return frame.f_code is apply_plainly.__code__


def keeps_graph() -> bool:
    """Tell whether the backward pass that runs now is to leave its graph in place."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


class StackFunction(torch.autograd.Function):
    """A function of stacks, which need no look for lanes among its arguments."""

    apply: Any = classmethod(apply_plainly)


def active_modes() -> list[Any]:
    """Return the torch-function modes that are on in this thread, the outermost first."""
    modes: list[Any] = _get_current_function_mode_stack()
    return modes


def name_function(qualified_name: str) -> str:
    """Return the public name of a torch function, for a sentence about it."""
    return qualified_name.replace("_VariableFunctionsClass.", "torch.").replace("TensorBase.", "Tensor.")


# Tensors.


get_version: Any = Tensor._version.__get__  # type: ignore[attr-defined]  # an attribute with a getter, not a number
"""The getter of a tensor's version, as modes are asked about it."""


def version_of(tensor: Tensor) -> int:
    """Return the number of times that a tensor's memory was written in place."""
    return tensor._version


def base_of(tensor: Tensor) -> Tensor | None:
    """Return the tensor that a view shows a part of; None for a tensor that is no view."""
    return tensor._base


def mark_parameter(tensor: Any) -> None:
    """Have a tensor of any class count as a parameter."""
    tensor._is_param = True


def address_of(storage: torch.UntypedStorage) -> int:
    """Return the address of a storage in C++, which is one for all its Python objects."""
    address: int = storage._cdata
    return address


def untyped_storage_of(storage: Any) -> torch.UntypedStorage:
    """Return the memory of a typed storage, without the warning that typed storages are deprecated."""
    untyped: torch.UntypedStorage = storage._untyped_storage
    return untyped


Hooks: TypeAlias = Mapping[int, Callable[..., Any]]


def gradient_hooks_of(tensor: Tensor) -> Hooks:
    """Return the hooks that were registered by `register_hook`, by their ids."""
    return tensor._backward_hooks or {}


def accumulation_hooks_of(tensor: Tensor) -> Hooks:
    """Return the hooks that were registered by `register_post_accumulate_grad_hook`, by their ids."""
    return tensor._post_accumulate_grad_hooks or {}


def hook_tables_of(tensor: Any) -> tuple[Any, Any]:
    """Return the tables of both kinds of hooks themselves, where hooks can be put back; None before the first hook."""
    return tensor._backward_hooks, tensor._post_accumulate_grad_hooks


def default_mps_generator(module: Any) -> torch.Generator:
    """Return the generator that calls on MPS draw from where they name none; `module` is torch's module of MPS."""
    generator: torch.Generator = module._get_default_mps_generator()
    return generator


def move_hooks(tensor: Tensor, heir: Tensor) -> None:
    """Take the hooks of a tensor away and give them to its heir, by the handles of which they can still be removed."""
    heir._backward_hooks, tensor._backward_hooks = tensor._backward_hooks, None
    heir._post_accumulate_grad_hooks = tensor._post_accumulate_grad_hooks
    tensor._post_accumulate_grad_hooks = None  # type: ignore[assignment]  # None is what a tensor starts with


check_and_unscale: Any = torch._amp_foreach_non_finite_check_and_unscale_
update_scale: Any = torch._amp_update_scale_
"""The two operators of `torch.amp.GradScaler`."""


# Modules.


ConvNd = nn.modules.conv._ConvNd
ConvTransposeNd = nn.modules.conv._ConvTransposeNd
NormBase = nn.modules.batchnorm._NormBase
BatchNorm = nn.modules.batchnorm._BatchNorm
"""The bases of torch's layers for any number of dimensions."""

MODULE_TABLES = frozenset({"_parameters", "_buffers", "_modules"})
"""The attributes in which a module keeps what was registered with it."""

COMPILED_CALL = "_compiled_call_impl"
"""The attribute of a module that is called in place of its `forward` and hooks, if it is not None."""

COMPILED_CHILD = "_orig_mod"
"""The name under which the module that `torch.compile` returns holds the one that was compiled."""


def parameters_of(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """Return the table of a module's own parameters; None stands for one that is switched off, such as a bias."""
    return module._parameters


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """Return the table of a module's own buffers."""
    return module._buffers


def children_of(module: nn.Module) -> dict[str, nn.Module | None]:
    """Return a module's children by their names, with duplicates and None; that of a script is no dictionary."""
    return dict(module._modules.items())


def call_module(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Call a module's `forward` with its hooks, but without what stands in for its calls."""
    return module._call_impl(*args, **kwargs)


def stand_in_of(module: nn.Module) -> Any:
    """Return what is called in place of a module; None if nothing is."""
    return module._compiled_call_impl


def set_stand_in(module: nn.Module, stand_in: Callable[..., Any]) -> None:
    """Have something else called in place of a module."""
    module._compiled_call_impl = stand_in


def remove_stand_in(module: nn.Module) -> None:
    """Have calls of a module go to its `forward` and hooks again."""
    del module._compiled_call_impl


def forward_pre_hooks_of(module: nn.Module) -> Hooks:
    """Return the hooks that run before a module's `forward`, by their ids."""
    return module._forward_pre_hooks


def has_call_hooks(module: nn.Module) -> bool:
    """Tell whether hooks run when a module is called, or when autograd goes back through it."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def has_state_hooks(module: nn.Module) -> bool:
    """Tell whether hooks run when the state of a module is asked for."""
    return bool(module._state_dict_hooks or module._state_dict_pre_hooks)


def state_writer_of(kind: type[nn.Module]) -> Any:
    """Return the method by which a class of modules adds its own tensors to a state dictionary."""
    return kind._save_to_state_dict


def refresh_weights(module: nn.RNNBase) -> None:
    """Have a recurrent layer compute with the weights that are registered with it now."""
    module._flat_weights = [getattr(module, name) for name in module._flat_weights_names]


def verify_batch_size(size: Sequence[int]) -> None:
    """Raise torch's own error for a batch of one where BatchNorm needs more."""
    torch.nn.functional._verify_batch_size(size)  # type: ignore[attr-defined]  # not in torch's stubs


reduction_of = _reduction.legacy_get_string
"""Returns the reduction that the old arguments `size_average` and `reduce` of a loss mean."""


# Optimizers and schedulers.


OPTIMIZER_CALLED = "_opt_called"
"""The attribute of an optimizer by which schedulers notice a step, to warn where they step first."""
LAST_RATES = "_last_lr"
STEP_COUNT = "_step_count"
INNER_SCHEDULERS = "_schedulers"
"""Keys of the state of a scheduler."""


def step_hooks_of(optimizer: Any) -> list[Callable[..., Any]]:
    """Return the hooks on the steps of one optimizer."""
    return [*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()]


def has_step_hooks(optimizer: Any) -> bool:
    """Tell whether hooks run at the steps of an optimizer, its own or those of all optimizers."""
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or _global_optimizer_pre_hooks
        or _global_optimizer_post_hooks
    )


def has_optimizer_state_hooks(optimizer: object) -> bool:
    """Tell whether hooks run when the state of an optimizer is asked for; any object may be asked about."""
    attributes = vars(optimizer)
    names = ("_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks")
    return any(attributes.get(name) for name in names)


def mark_stepped(optimizer: Any, has_stepped: bool) -> None:
    """Tell schedulers whether an optimizer has stepped, of which they warn if it has not."""
    optimizer._opt_called = has_stepped


# Trees of values, and what is seen below autograd.


TreeSpec: TypeAlias = _pytree.TreeSpec
tree_flatten = _pytree.tree_flatten
tree_leaves = _pytree.tree_leaves
tree_map = _pytree.tree_map
tree_unflatten = _pytree.tree_unflatten

TorchDispatchMode = _python_dispatch.TorchDispatchMode
FakeTensorMode = fake_tensor.FakeTensorMode

TRACE_LOGGERS = (
    "torch._subclasses.fake_tensor",
    "torch.fx.experimental.sym_node",
    "torch.fx.experimental.symbolic_shapes",
    "torch.utils._sympy.interp",
)
"""The loggers that report on a trace with symbolic sizes."""


def schema_of(operator: Any) -> Any:
    """Return the schema of an operator: its name and its arguments."""
    return operator._schema


def expression_of(sym_node: Any) -> Any:
    """Return the symbolic expression of a size, as it is written before it is simplified."""
    return sym_node._expr


def range_of_sizes() -> Any:
    """Return the range of all sizes: from zero to infinity."""
    from torch.utils._sympy.numbers import int_oo  # slow to import, and only traces need it
    from torch.utils._sympy.value_ranges import ValueRanges

    return ValueRanges(0, int_oo)


# The compiler.


COMPILER_FOLDERS = ("_inductor", "_dynamo", "_functorch")
"""Folders of torch whose code compiles."""


def is_compiler_imported() -> bool:
    """Tell whether anything was or may be compiled."""
    return "torch._dynamo" in sys.modules


def keep_compiled_buffers() -> AbstractContextManager[Any]:
    """Keep compiled code from reusing saved tensors, which would forbid `backward(retain_graph=True)`."""
    import torch._functorch.config  # not imported with torch

    patch: AbstractContextManager[Any] = torch._functorch.config.patch(donated_buffer=False)
    return patch


# Files, data and processes.


def has_own_length(sampler: Any) -> bool:
    """Tell whether a `RandomSampler` draws a number of examples that was given to it."""
    return sampler._num_samples is not None


def exchange_zipfile_writer(opener: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Replace the function by which `torch.save` opens files; return the one before."""
    home: Any = torch.serialization  # Any: a function of it is replaced
    before: Callable[[Any], Any] = home._open_zipfile_writer
    home._open_zipfile_writer = opener
    return before


def exchange_pipeline_wait(wait: Callable[[list[Any]], None]) -> Callable[[list[Any]], None]:
    """Replace the function by which pipeline schedules wait for messages; return the one before."""
    from torch.distributed.pipelining import schedules  # not imported with torch

    home: Any = schedules  # Any: a function of it is replaced
    before: Callable[[list[Any]], None] = home._wait_batch_p2p
    home._wait_batch_p2p = wait
    return before


def set_nccl_timeout(options: Any, timeout: timedelta) -> None:
    """Set how long the calls of an NCCL process group wait for other ranks."""
    options._timeout = timeout
