"""The private calls of torch do what the lanes rest on; a release that changes one fails here first."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import warnings
import weakref
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C import _functorch as C
from torch.autograd.function import BackwardCFunction
from torch.optim import SGD, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction
from torch.utils.data import RandomSampler

from headwater import torch_private
from headwater.torch_private import BackwardOptions, lanes_of, stack_of

_MODULES = """
torch._C torch._C._autograd torch._C._functorch torch._C._nn torch._functorch.config torch._functorch.eager_transforms
torch._functorch.vmap torch._subclasses.fake_tensor torch.nn._reduction torch.nn.modules._functions
torch.utils._python_dispatch torch.utils._pytree torch.utils._sympy.interp torch.utils._sympy.numbers
torch.utils._sympy.value_ranges torch._dynamo torch._inductor
"""
"""Private modules that `torch_private.py` imports or names."""

_NAMES = """
torch._C._FunctionBase torch._C._are_functorch_transforms_active torch._C._is_torch_function_enabled
torch._C._storage_Use_Count torch._C._swap_tensor_impl torch._C.DisableTorchFunction torch._C.ScriptFunction
torch._C.ScriptMethod torch._C._VariableFunctionsClass torch._C._autograd._get_current_graph_task_keep_graph
torch._C._autograd._top_saved_tensors_default_hooks torch._C._functorch._add_batch_dim
torch._C._functorch._set_vmap_fallback_warning_enabled torch._C._functorch._vmap_decrement_nesting
torch._C._functorch._vmap_increment_nesting torch._C._functorch.get_unwrapped torch._C._functorch.is_batchedtensor
torch._C._functorch.maybe_get_bdim torch._amp_foreach_non_finite_check_and_unscale_ torch._amp_update_scale_
torch.mps._get_default_mps_generator
torch._functorch.config.donated_buffer torch._functorch.config.patch torch._subclasses.fake_tensor.FakeTensorMode
torch.autograd.function._SingleLevelFunction torch.autograd.graph._engine_run_backward
torch.distributed.pipelining.schedules._wait_batch_p2p torch.nn._reduction.legacy_get_string
torch.nn.functional._verify_batch_size torch.nn.modules._functions.BackwardHookFunction
torch.nn.modules.batchnorm._BatchNorm torch.nn.modules.batchnorm._NormBase torch.nn.modules.conv._ConvNd
torch.nn.modules.conv._ConvTransposeNd torch.optim.optimizer._global_optimizer_post_hooks
torch.optim.optimizer._global_optimizer_pre_hooks torch.overrides._get_current_function_mode_stack
torch.serialization._open_zipfile_writer torch.utils._python_dispatch.TorchDispatchMode torch.utils._pytree.TreeSpec
torch.utils._pytree.tree_flatten torch.utils._pytree.tree_leaves torch.utils._pytree.tree_map
torch.utils._pytree.tree_unflatten torch.utils._sympy.numbers.int_oo torch.utils._sympy.value_ranges.ValueRanges
"""
"""Private names of modules, or names of private modules."""

_OPTIMIZER = SGD([torch.zeros(1)], lr=0.1)
_ATTRIBUTES = [
    (torch.zeros(1), "_backward_hooks _base _post_accumulate_grad_hooks _use_count _version"),
    (torch.zeros(1).untyped_storage(), "_cdata"),
    (torch.storage.TypedStorage(_internal=True), "_untyped_storage"),
    (
        nn.Module(),
        "_backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl _forward_hooks _forward_pre_hooks "
        "_modules _parameters _save_to_state_dict _state_dict_hooks _state_dict_pre_hooks",
    ),
    (nn.LSTM(1, 1), "_flat_weights _flat_weights_names"),
    (
        _OPTIMIZER,
        "_optimizer_state_dict_post_hooks _optimizer_state_dict_pre_hooks _optimizer_step_post_hooks "
        "_optimizer_step_pre_hooks",
    ),
    (lr_scheduler.SequentialLR(_OPTIMIZER, [lr_scheduler.ConstantLR(_OPTIMIZER)], []), "_last_lr _schedulers"),
    (lr_scheduler.ConstantLR(_OPTIMIZER), "_step_count"),
    (RandomSampler([0]), "_num_samples"),
    (torch.ops.aten.add.Tensor, "_schema"),
]
"""Private attributes of objects."""

_TESTED_BELOW = {"_expr", "_is_param", "_opt_called", "_orig_mod", "_timeout"}
"""Attributes that no new object has."""


def _find(path: str) -> Any:
    """Import the module that a dotted path begins with, as far as that goes, and follow the attributes."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            found = getattr(found, name)
        return found
    raise AssertionError(path)


@pytest.mark.parametrize("path", [*_MODULES.split(), *_NAMES.split()])
def test_torch_has_the_private_name(path: str) -> None:
    assert _find(path) is not None


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        pytest.param(owner, name, id=f"{type(owner).__name__}.{name}")
        for owner, names in _ATTRIBUTES
        for name in names.split()
    ],
)
def test_torch_has_the_private_attribute(owner: Any, name: str) -> None:
    assert hasattr(owner, name)


_SOURCE = Path(torch_private.__file__).parent
_PRIVATE = re.compile(r"_[A-Za-z]\w*")
_OF_OTHERS = {
    *("_args_from_interpreter_flags", "_exit", "_getframe", "_run_exitfuncs"),  # Python
    *("_asdict", "_replace"),  # named tuples
    *("_claimed", "_dataset"),  # ours, on objects of other classes
}


def _private_parts(path: str) -> list[str]:
    return [part for part in path.split(".") if _PRIVATE.fullmatch(part)]


def _list_imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the lines and the private names of what is imported from torch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            paths = [f"{start}{alias.name}" for alias in node.names]
            yield from (
                (node.lineno, name) for path in paths if path.startswith("torch.") for name in _private_parts(path)
            )


def _list_attributes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the lines and the names of private attributes, but of those of `self` that are set here too."""
    own = set(_list_definitions(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not _PRIVATE.fullmatch(node.attr):
            continue
        if ast.unparse(node.value) not in ("self", "cls") or node.attr not in own:
            yield node.lineno, node.attr


def _list_texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((node.lineno, name) for name in _private_parts(node.value))


def _list_definitions(tree: ast.AST) -> Iterator[str]:
    """Yield the names of functions, classes, variables and attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def _names_of_torch() -> set[str]:
    tree = ast.parse(Path(torch_private.__file__).read_text())
    return {name for names in (_list_imports, _list_attributes, _list_texts) for _, name in names(tree)}


def test_each_private_name_in_the_module_is_tested_here() -> None:
    paths = [*_MODULES.split(), *_NAMES.split(), *(name for _, names in _ATTRIBUTES for name in names.split())]
    tested = {name for path in paths for name in _private_parts(path)}
    assert _names_of_torch() - tested == _TESTED_BELOW


def test_no_other_module_uses_a_private_name_of_torch() -> None:
    """A private attribute that no module of ours defines is taken for one of torch."""
    trees = {path: ast.parse(path.read_text()) for path in _SOURCE.rglob("*.py") if path.name != "torch_private.py"}
    names_of_torch = _names_of_torch()
    ours = {name for tree in trees.values() for name in _list_definitions(tree)} - names_of_torch | _OF_OTHERS
    found = []
    for path, tree in trees.items():
        uses = [
            *_list_imports(tree),
            *((line, name) for line, name in _list_attributes(tree) if name not in ours),
            *((line, name) for line, name in _list_texts(tree) if name in names_of_torch),
        ]
        found += [f"{path.name}:{line} {name}" for line, name in uses if not name.startswith("_foreach_")]
    assert found == []


def test_the_hooks_of_a_tensor_move_to_its_heir_with_their_handles() -> None:
    tensor, heir = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    seen: list[str] = []
    handle = tensor.register_hook(lambda grad: seen.append("gradient"))
    tensor.register_post_accumulate_grad_hook(lambda tensor: seen.append("accumulated"))
    torch_private.move_hooks(tensor, heir)
    assert not torch_private.gradient_hooks_of(tensor)
    assert not torch_private.accumulation_hooks_of(tensor)
    assert len(torch_private.gradient_hooks_of(heir)) == len(torch_private.accumulation_hooks_of(heir)) == 1
    tensor.register_post_accumulate_grad_hook(lambda tensor: seen.append("new"))
    tensor.sum().backward()
    assert seen == ["new"]
    handle.remove()
    assert not torch_private.gradient_hooks_of(heir)


def test_versions_and_bases_of_tensors_are_told() -> None:
    tensor = torch.zeros(4)
    view = tensor[:2]
    view.add_(1)
    assert torch_private.version_of(tensor) == torch_private.get_version(tensor) == 1
    assert torch_private.base_of(view) is tensor
    assert torch_private.base_of(tensor) is None
    assert torch_private.address_of(view.untyped_storage()) == torch_private.address_of(tensor.untyped_storage())
    typed = torch.storage.TypedStorage(wrap_storage=tensor.untyped_storage(), dtype=torch.float32, _internal=True)
    assert torch_private.untyped_storage_of(typed).data_ptr() == tensor.data_ptr()


def test_a_stand_in_is_called_in_place_of_a_module() -> None:
    module = nn.Linear(2, 2)
    x = torch.ones(1, 2)
    plain = module(x)
    torch_private.set_stand_in(module, lambda x: 2 * torch_private.call_module(module, x))
    assert torch_private.stand_in_of(module) is vars(module)[torch_private.COMPILED_CALL]
    assert torch.equal(module(x), 2 * plain)
    torch_private.remove_stand_in(module)
    assert torch.equal(module(x), plain)


def test_hooks_of_modules_are_noticed() -> None:
    module = nn.Linear(2, 2)
    assert not torch_private.has_call_hooks(module)
    assert not torch_private.has_state_hooks(module)
    for register in (
        module.register_forward_hook,
        module.register_forward_pre_hook,
        module.register_full_backward_hook,
        module.register_full_backward_pre_hook,
    ):
        handle = register(lambda *_: None)
        assert torch_private.has_call_hooks(module)
        handle.remove()
        assert not torch_private.has_call_hooks(module)
    module.register_state_dict_pre_hook(lambda *_: None)
    assert torch_private.has_state_hooks(module)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
def test_the_tables_of_a_module_hold_what_is_registered() -> None:
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False))
    assert list(torch_private.parameters_of(module[1])) == ["weight", "bias"]
    assert list(torch_private.buffers_of(module[0])) == ["running_mean", "running_var", "num_batches_tracked"]
    assert list(torch_private.children_of(module)) == ["0", "1"]
    assert vars(module).keys() >= torch_private.MODULE_TABLES
    compiled: Any = torch.compile(module)
    assert torch_private.children_of(compiled) == {torch_private.COMPILED_CHILD: module}
    assert torch_private.is_compiler_imported()


def test_hooks_of_optimizers_are_noticed() -> None:
    optimizer = SGD([torch.zeros(1)], lr=0.1)
    assert not torch_private.has_step_hooks(optimizer)
    assert not torch_private.has_optimizer_state_hooks(optimizer)
    handles = [optimizer.register_step_pre_hook(lambda *_: None), optimizer.register_step_post_hook(lambda *_: None)]
    assert torch_private.has_step_hooks(optimizer)
    assert len(torch_private.step_hooks_of(optimizer)) == 2
    for handle in handles:
        handle.remove()
    assert not torch_private.has_step_hooks(optimizer)
    handle = register_optimizer_step_post_hook(lambda *_: None)
    assert torch_private.has_step_hooks(optimizer)
    assert torch_private.step_hooks_of(optimizer) == []
    handle.remove()
    optimizer.register_state_dict_pre_hook(lambda *_: None)
    assert torch_private.has_optimizer_state_hooks(optimizer)


def test_schedulers_keep_their_state_under_the_names_that_we_know() -> None:
    optimizer = SGD([torch.zeros(1)], lr=0.1)
    inner: list[Any] = [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ConstantLR(optimizer)]
    state = lr_scheduler.SequentialLR(optimizer, inner, [1]).state_dict()
    assert state[torch_private.LAST_RATES] == [optimizer.param_groups[0]["lr"]]
    assert [each[torch_private.STEP_COUNT] for each in state[torch_private.INNER_SCHEDULERS]] == [1, 1]


@pytest.mark.parametrize("has_stepped", [True, False])
def test_schedulers_warn_unless_the_optimizer_is_marked(has_stepped: bool) -> None:
    optimizer = SGD([torch.zeros(1)], lr=0.1)
    scheduler = lr_scheduler.ConstantLR(optimizer)
    torch_private.mark_stepped(optimizer, has_stepped)
    assert hasattr(optimizer, torch_private.OPTIMIZER_CALLED)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scheduler.step()
    assert any("optimizer.step" in str(warning.message) for warning in caught) != has_stepped


def test_a_size_that_is_traced_has_an_expression() -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    plain = torch.zeros(7, 3)
    with torch_private.FakeTensorMode(shape_env=ShapeEnv()) as mode:
        size: Any = mode.from_tensor(plain, static_shapes=False).shape[0]
        assert str(torch_private.expression_of((size * 2).node)).startswith("2*")
    assert torch_private.range_of_sizes().lower == 0


def test_the_compiler_reuses_no_buffers_within() -> None:
    config = _find("torch._functorch.config")
    before = config.donated_buffer
    with torch_private.keep_compiled_buffers():
        assert not config.donated_buffer
    assert config.donated_buffer == before


def test_files_that_torch_writes_are_opened_by_the_function_given(tmp_path: Path) -> None:
    names: list[Any] = []

    def open_file(name: Any) -> Any:
        names.append(name)
        return before(name)

    before = torch_private.exchange_zipfile_writer(open_file)
    try:
        torch.save(torch.ones(2), tmp_path / "tensor.pt")
    finally:
        assert torch_private.exchange_zipfile_writer(before) is open_file
    assert names == [str(tmp_path / "tensor.pt")]


def test_a_sampler_tells_whether_its_length_was_given() -> None:
    assert not torch_private.has_own_length(RandomSampler([0, 1]))
    assert torch_private.has_own_length(RandomSampler([0, 1], replacement=True, num_samples=4))


def test_a_recurrent_layer_computes_with_refreshed_weights() -> None:
    layer = nn.GRU(2, 2)
    vars(layer)["_parameters"]["weight_ih_l0"] = nn.Parameter(torch.zeros(6, 2))
    torch_private.refresh_weights(layer)
    assert torch.equal(layer(torch.ones(1, 1, 2))[0], layer(torch.zeros(1, 1, 2))[0])


def test_a_batch_of_one_is_refused_in_the_words_of_torch() -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        torch_private.verify_batch_size((1, 3))


def test_the_old_arguments_of_losses_mean_a_reduction() -> None:
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert torch_private.reduction_of(False, None) == "sum"


@pytest.mark.skipif(not dist.is_nccl_available(), reason="this build of torch has no NCCL")
def test_the_timeout_of_nccl_can_be_set() -> None:
    options = dist.ProcessGroupNCCL.Options()
    torch_private.set_nccl_timeout(options, timedelta(seconds=7))
    assert options._timeout == timedelta(seconds=7)


def test_names_of_torch_functions_are_made_public() -> None:
    assert torch_private.name_function(torch.add.__qualname__) == "torch.add"
    assert torch_private.name_function(Tensor.add.__qualname__) == "Tensor.add"
    assert type(Tensor.add).__module__ == "builtins"


def test_a_stack_shows_the_shape_of_one_lane_and_comes_back_as_itself() -> None:
    stack = torch.arange(12.0).view(3, 4).requires_grad_()
    lane_tensor = C._add_batch_dim(stack, 0, 1)
    assert lane_tensor.shape == (4,)
    assert C.is_batchedtensor(lane_tensor)
    assert not C.is_batchedtensor(stack)
    assert C.get_unwrapped(lane_tensor) is stack
    assert C.maybe_get_bdim(lane_tensor) == 0


def test_the_wrapper_itself_never_asks_for_a_gradient() -> None:
    assert not lanes_of(torch.ones(3, 4, requires_grad=True)).requires_grad


def test_lanes_that_are_not_first_in_memory_come_first_in_the_stack() -> None:
    lane_tensor = C._add_batch_dim(torch.arange(12.0).view(4, 3), 1, 1)
    assert stack_of(lane_tensor).shape == (3, 4)
    settled = torch_private.settled_stack_of(lane_tensor)
    assert torch_private.memory_of(lane_tensor) is settled
    assert torch.equal(settled, torch.arange(12.0).view(4, 3).t())


def test_a_level_opens_at_one_and_closes_again() -> None:
    assert C._vmap_increment_nesting(3, "same") == torch_private.LEVEL
    try:
        assert torch_private.is_transforming()
        total = (lanes_of(torch.ones(3, 4)) * 2).sum()
    finally:
        C._vmap_decrement_nesting()
    assert not torch_private.is_transforming()
    assert torch.equal(stack_of(total), torch.full((3,), 8.0))


def test_a_call_in_a_level_closes_it_when_it_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        torch_private.call_in_level(3, lambda: 1 / 0, (), {})
    assert not torch_private.is_transforming()
    answer = torch_private.call_in_level(3, torch.sum, (lanes_of(torch.ones(3, 4)),), {"dim": 0})
    assert torch.equal(stack_of(answer), torch.full((3,), 4.0))


def test_the_lanes_level_refuses_to_open_above_another() -> None:
    def inner(x: Tensor) -> Tensor:
        with torch_private.vmap_level(2):
            return x

    with pytest.raises(RuntimeError, match="another functorch transform"):
        torch.vmap(inner)(torch.ones(2))


def test_random_numbers_in_a_level_are_those_of_one_lane() -> None:
    torch.manual_seed(0)
    alone = torch.rand(4)
    torch.manual_seed(0)
    with torch_private.vmap_level(3):
        drawn = torch.rand_like(lanes_of(torch.ones(3, 4)))
    drawn = stack_of(drawn)[0] if torch_private.is_lane_tensor(drawn) else drawn
    assert torch.equal(drawn, alone)


def test_lane_tensors_outside_a_level_fail_loudly() -> None:
    with pytest.raises(RuntimeError, match="vmap"):
        lanes_of(torch.ones(3, 4)).sum()


def test_swapping_gives_every_holder_the_new_tensor() -> None:
    plain = torch.ones(4)
    holder = [plain]
    torch_private.swap(plain, lanes_of(torch.zeros(3, 4)))
    assert torch_private.is_lane_tensor(holder[0])


def test_swapping_keeps_class_attributes_and_weak_references() -> None:
    parameter: Any = nn.Parameter(torch.zeros(4))
    parameter.is_special = True
    weak: Any = weakref.ref(parameter)
    before = lanes_of(torch.zeros(3, 4))
    torch_private.swap(parameter, before)
    assert type(weak()) is nn.Parameter
    assert weak().is_special
    assert len(stack_of(weak())) == 3
    torch_private.swap(parameter, before)
    assert not torch_private.is_lane_tensor(parameter)


def test_a_tensor_marked_as_parameter_is_one() -> None:
    lane_tensor: Any = lanes_of(torch.zeros(3, 4))
    lane_tensor._is_param = True
    module = nn.Module()
    module.weight = lane_tensor
    assert [id(parameter) for parameter in module.parameters()] == [id(lane_tensor)]


def test_the_holders_of_memory_are_counted() -> None:
    tensor = torch.zeros(4, 4)
    assert torch_private.num_holders(tensor) == 1
    row, alias = tensor[0], tensor.detach()
    assert [torch_private.num_holders(holder) for holder in (tensor, row, alias)] == [3, 3, 3]
    assert row._base is tensor
    assert not torch.from_numpy(tensor.numpy()).untyped_storage().resizable()


def test_the_modes_of_a_thread_are_listed_outermost_first() -> None:
    class Mode(TorchFunctionMode):
        pass

    with Mode() as outer, Mode() as inner:
        assert torch_private.active_modes() == [outer, inner]
    assert torch_private.active_modes() == []


def test_slow_batching_warns_unless_told_not_to() -> None:
    def batch_slowly() -> None:
        with torch_private.vmap_level(3):
            torch.histc(lanes_of(torch.rand(3, 4)), 4, 0, 1)

    torch_private.warn_of_slow_batching(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            batch_slowly()
    finally:
        torch_private.warn_of_slow_batching(True)


def test_the_engine_runs_with_the_modes_left_on() -> None:
    seen: list[list[Any]] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    leaf = torch.ones(3, requires_grad=True)
    root = (leaf * 2).sum()
    root.register_hook(lambda grad: seen.append(torch_private.active_modes()))
    with Mode() as mode:
        torch_private.run_backward([root], [torch.ones(())], [], BackwardOptions(retain_graph=True, create_graph=False))
        options = BackwardOptions(retain_graph=False, create_graph=False, accumulate=False)
        (returned,) = torch_private.run_backward([root], [torch.ones(())], [leaf], options)
    assert seen == [[mode], [mode]]
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, torch.full((3,), 2.0))
    assert returned is not None
    assert torch.equal(returned, leaf.grad)


def test_hooks_that_save_tensors_elsewhere_are_noticed() -> None:
    assert not torch_private.saves_elsewhere()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        assert torch_private.saves_elsewhere()
    assert not torch_private.saves_elsewhere()


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_backward_pass_tells_whether_it_keeps_its_graph(is_kept: bool) -> None:
    told: list[bool] = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda _: told.append(torch_private.keeps_graph()))
    x.sum().backward(retain_graph=is_kept)
    assert told == [is_kept]


def test_a_function_of_stacks_is_applied_by_torch_itself() -> None:
    class Double(torch_private.StackFunction):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad * 2

    x = torch.ones(3, requires_grad=True)
    Double.apply(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((3,), 2.0))


@pytest.mark.parametrize(
    ("home", "name"),
    [
        (nn.Parameter, "__new__"),
        *((script, "__call__") for script in torch_private.SCRIPTS),
        *torch_private.TRANSFORM_OPENERS,
    ],
)
def test_what_the_bypasses_replace_is_where_they_look_for_it(home: Any, name: str) -> None:
    assert name in vars(home)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2


def test_a_replaced_apply_is_called_for_every_function(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Double.apply
    monkeypatch.setattr(torch_private.FUNCTION_BASE, "apply", classmethod(lambda function, *args: (function, *args)))
    apply = getattr(torch_private.find_taken_apply(taken), "apply", taken)
    assert Double.apply(3) == apply(3) == (Double, 3)  # type: ignore[no-untyped-call]


def test_an_apply_in_cpp_begins_with_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes' bypasses notice by it that a function is applied which they cannot replace."""
    if not torch_private.IS_APPLY_COMPILED:
        pytest.skip("torch before 2.15 applies functions by Python code")
    made: list[tuple[str, bool, bool]] = []

    def init(context: Any) -> None:
        is_plain = torch_private.is_applied_plainly(sys._getframe(1))
        made.append((type(context).__name__, is_plain, torch.is_grad_enabled()))

    taken: Any = Double.apply
    monkeypatch.setattr(BackwardCFunction, "__init__", init)
    taken(torch.ones(2))
    torch_private.apply_plainly(Double, torch.ones(2))
    assert made == [("DoubleBackward", False, True), ("DoubleBackward", True, True)]


def test_the_functions_that_bypasses_know_by_name_exist() -> None:
    assert issubclass(CheckpointFunction, torch.autograd.Function)
    x = torch.ones(2, requires_grad=True) * 1
    (hooked,) = torch_private.BackwardHookFunction.apply(x)
    assert hooked.grad_fn.name() == "BackwardHookFunctionBackward"
    assert torch.compiler.set_stance is not None
