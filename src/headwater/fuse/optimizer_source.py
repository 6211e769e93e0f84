"""A check on the source of optimizers that are not in `torch.optim`.

Lanes may have one instance each of such an optimizer only where its methods are written in a closed language: they read
`self.param_groups`, `self.state` and their arguments, compute with the functions of the tables below, and write to
tensors and to `self.state` alone. Then they draw no random numbers, keep nothing in groups, attributes, class variables
or globals, and instances share nothing.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import textwrap
from types import FunctionType
from typing import Any

import torch
from torch.optim import Optimizer

from headwater.errors import CannotFuseError

_BUILTINS = frozenset({
    "abs", "all", "any", "bool", "dict", "enumerate", "float", "int", "isinstance", "len", "list", "max", "min",
    "pow", "range", "round", "str", "sum", "tuple", "zip",
})  # fmt: skip
_OPERATIONS = frozenset({
    "abs", "add", "addcdiv", "addcmul", "addmm", "addmv", "addr", "all", "amax", "amin", "any", "baddbmm", "bmm",
    "clamp", "clamp_max", "clamp_min", "clip", "clone", "copysign", "cos", "cumsum", "detach", "diag", "div",
    "divide", "dot", "double", "eq", "erf", "exp", "expand_as", "fill", "flatten", "float", "floor", "full_like",
    "ge", "gt", "isfinite", "isinf", "isnan", "le", "lerp", "log", "log1p", "logical_and", "logical_not",
    "logical_or", "lt", "masked_fill", "matmul", "max", "maximum", "mean", "min", "minimum", "mm", "mul",
    "multiply", "mv", "nan_to_num", "ne", "neg", "norm", "ones_like", "outer", "permute", "pow", "reciprocal",
    "relu", "reshape", "round", "rsqrt", "sigmoid", "sign", "sin", "softplus", "sqrt", "square", "squeeze", "std",
    "sub", "subtract", "sum", "t", "tanh", "trace", "transpose", "true_divide", "unsqueeze", "var", "vector_norm",
    "view_as_complex", "view_as_real", "where", "zero", "zeros_like",
})  # fmt: skip
"""Functions of `torch` and methods of a tensor; a name may end with `_`."""
_METHODS = _OPERATIONS | {
    "coalesce", "conj", "contiguous", "copy", "cpu", "dim", "expand", "get", "item", "items", "keys", "new_ones",
    "new_zeros", "numel", "size", "to", "tolist", "type_as", "values", "view", "view_as",
}  # fmt: skip
_FUNCTIONS = _OPERATIONS | {
    "enable_grad", "eye", "full", "no_grad", "numel", "ones", "is_complex", "is_floating_point", "is_tensor", "stack",
    "cat", "tensor", "zeros",
}  # fmt: skip
_ATTRIBUTES = frozenset({"T", "data", "device", "dtype", "grad", "is_sparse", "layout", "mT", "ndim", "shape"})
_STATEMENTS = (
    ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.If, ast.With, ast.Continue, ast.Break, ast.Return,
    ast.Raise, ast.Assert, ast.Pass, ast.withitem, ast.keyword, ast.comprehension,
)  # fmt: skip
_EXPRESSIONS = (
    ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Constant, ast.JoinedStr, ast.FormattedValue,
    ast.Tuple, ast.List, ast.Dict, ast.Slice, ast.Starred, ast.ListComp, ast.GeneratorExp, ast.Name, ast.Attribute,
    ast.Call, ast.Subscript, ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip
_OWN_NAMES = ("__init__", "step")
_WRITTEN_BY_PYTHON = frozenset(dir(type("Empty", (), {"__annotations__": {}}))) - set(dir(object)) | {
    "__doc__", "__firstlineno__", "__static_attributes__", "__type_params__",
}  # fmt: skip


def require_plain_optimizer(optimizer_class: type[Optimizer]) -> None:
    """Raise CannotFuseError where instances of a class might not train lanes as each lane's own would."""
    own_classes = [each for each in optimizer_class.__mro__ if not _is_torchs(each) and each is not object]
    if not own_classes:
        return
    base = next(each for each in optimizer_class.__mro__ if _is_torchs(each))
    for each in own_classes:
        replaced = {name for name in vars(each) if hasattr(base, name)} - _WRITTEN_BY_PYTHON - set(_OWN_NAMES)
        if replaced or type(each) is not type:
            part = ", ".join(sorted(replaced)) or "a metaclass"
            raise CannotFuseError(f"the optimizer {each.__name__} has its own {part}, which lanes cannot share")
    for name in _OWN_NAMES:
        method = inspect.unwrap(getattr(optimizer_class, name))
        if not method.__module__.startswith("torch.optim"):
            _Check(optimizer_class, method, is_start=name == "__init__").run()


def _is_torchs(each: type) -> bool:
    return each.__module__.startswith("torch.optim") and issubclass(each, Optimizer)


class _Check:
    """Reads one function, and those of the user's that it calls."""

    def __init__(
        self, owner: type[Optimizer], function: FunctionType, *, is_start: bool = False, seen: set[Any] | None = None
    ) -> None:
        self._owner = owner
        self._function = function
        self._is_start = is_start
        self._seen = {function} if seen is None else seen
        self._locals: dict[str, list[ast.expr | None]] = {}
        """The local variables, and the expressions that are assigned to each; None stands for any other value."""
        self._self = ""

    def run(self) -> None:
        """Raise CannotFuseError at the first part that is not in the closed language."""
        tree = self._parse()
        arguments = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs, tree.args.vararg, tree.args.kwarg]
        names = [argument.arg for argument in arguments if argument is not None]
        is_method = isinstance(inspect.getattr_static(self._owner, self._function.__name__, None), FunctionType)
        self._self = names[0] if is_method and names else ""
        self._locals = {name: [None] for name in names}
        for decorator in tree.decorator_list:
            self._require_gradient_switch(decorator)
        self._note_assignments(tree)
        for statement in tree.body:
            self._visit(statement)

    def _parse(self) -> ast.FunctionDef:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(self._function))).body[0]
        except (OSError, TypeError, SyntaxError):
            tree = None
        if not isinstance(tree, ast.FunctionDef):
            raise self._refusal(None, "has no source that can be read")
        return tree

    def _refusal(self, node: ast.AST | None, reason: str) -> CannotFuseError:
        line = self._function.__code__.co_firstlineno + getattr(node, "lineno", 1) - 1
        place = f"{self._function.__code__.co_filename.rpartition('/')[2]}:{line}"
        return CannotFuseError(
            f"{self._function.__qualname__} {reason} ({place}), so that the lanes of this optimizer train separately"
        )

    def _note_assignments(self, tree: ast.FunctionDef) -> None:
        """Find the local variables; a name that is bound in any other way than by `name = value` may hold anything."""
        simple: dict[ast.Name, ast.expr] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                simple |= {target: node.value for target in node.targets if isinstance(target, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self._locals.setdefault(node.id, []).append(simple.get(node))

    def _visit(self, node: ast.AST) -> None:
        if not isinstance(node, _STATEMENTS + _EXPRESSIONS):
            raise self._refusal(node, f"contains `{_text(node)}`")
        check = getattr(self, f"_visit_{type(node).__name__.lower()}", None)
        if check is not None:
            check(node)
            return
        for child in ast.iter_child_nodes(node):
            self._visit(child)

    def _visit_annassign(self, node: ast.AnnAssign) -> None:
        self._visit(node.target)
        if node.value is not None:
            self._visit(node.value)

    def _visit_with(self, node: ast.With) -> None:
        for item in node.items:
            self._require_gradient_switch(item.context_expr)
        for statement in node.body:
            self._visit(statement)

    def _visit_name(self, node: ast.Name) -> None:
        if node.id in self._locals:
            return
        value = self._find_global(node)
        if not (_is_one_of(value, torch, math, torch.Tensor) or _is_error(value) or self._is_builtin(node)):
            raise self._refusal(node, f"reads the global variable `{node.id}`")

    def _visit_attribute(self, node: ast.Attribute) -> None:
        if self._is_self(node.value):
            is_read, is_torchs = isinstance(node.ctx, ast.Load), node.attr in ("param_groups", "state")
            if not (is_torchs if is_read else self._is_start and not hasattr(Optimizer, node.attr) and not is_torchs):
                raise self._refusal(node, f"{'reads' if is_read else 'writes'} the attribute `{node.attr}`")
            return
        value = self._find_global(node)
        if isinstance(value, torch.dtype | torch.memory_format | torch.layout | float):
            return
        if node.attr not in _ATTRIBUTES or (isinstance(node.ctx, ast.Store) and node.attr != "data"):
            raise self._refusal(node, f"uses `{_text(node)}`")
        self._visit(node.value)

    def _visit_subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load) and not self._is_state(node.value):
            raise self._refusal(node, f"writes `{_text(node)}`, which is no state of a parameter")
        self._visit(node.value)
        self._visit(node.slice)

    def _visit_call(self, node: ast.Call) -> None:
        for argument in (*node.args, *node.keywords):
            self._visit(argument)
        if isinstance(node.func, ast.Name):
            self._call_name(node.func)
        elif isinstance(node.func, ast.Attribute):
            self._call_attribute(node.func)
        else:
            raise self._refusal(node, f"calls `{_text(node.func)}`")

    def _call_name(self, node: ast.Name) -> None:
        if node.id == "closure" and node.id in self._locals:  # lanes with a closure are refused when it is given
            return
        value = None if node.id in self._locals else self._find_global(node)
        if type(value) is FunctionType:
            self._follow(value)
        elif node.id in self._locals or not (self._is_builtin(node) or _is_error(value)):
            raise self._refusal(node, f"calls `{node.id}`")

    def _call_attribute(self, node: ast.Attribute) -> None:
        if self._is_self(node.value):
            method = inspect.getattr_static(self._owner, node.attr, None)
            if type(method) is not FunctionType or method.__module__.startswith("torch."):
                raise self._refusal(node, f"calls `{_text(node)}`")
            self._follow(method)
            return
        home = self._find_global(node.value)
        if home is math:
            return
        if _is_one_of(home, torch, torch.linalg):
            if node.attr.removeprefix("_foreach_").rstrip("_") not in _FUNCTIONS:
                raise self._refusal(node, f"calls `{_text(node)}`")
        elif not (self._is_start and _calls_super(node)):
            self._call_method(node)

    def _call_method(self, node: ast.Attribute) -> None:
        is_list = node.attr == "append" and isinstance(node.value, ast.Name) and self._is_list(node.value.id)
        if node.attr.rstrip("_") not in _METHODS and not is_list:
            raise self._refusal(node, f"calls `{_text(node)}`")
        self._visit(node.value)

    def _follow(self, function: Any) -> None:
        """Check a function of the user's that is called."""
        plain = inspect.unwrap(function)
        if plain not in self._seen:
            self._seen.add(plain)
            _Check(self._owner, plain, seen=self._seen).run()

    def _require_gradient_switch(self, node: ast.expr) -> None:
        called = node.func if isinstance(node, ast.Call) and not node.args and not node.keywords else node
        if not _is_one_of(self._find_global(called), torch.no_grad, torch.enable_grad):
            raise self._refusal(node, f"uses `{_text(node)}`")

    def _find_global(self, node: ast.AST) -> Any:
        """Return the value of a global name, or of an attribute of a module of torch; None for anything else."""
        if isinstance(node, ast.Name):
            is_elsewhere = node.id in self._locals or node.id in self._function.__code__.co_freevars
            return None if is_elsewhere else self._function.__globals__.get(node.id, getattr(builtins, node.id, None))
        home = self._find_global(node.value) if isinstance(node, ast.Attribute) else None
        return getattr(home, node.attr, None) if _is_one_of(home, torch, torch.linalg, math) else None  # type: ignore[attr-defined]

    def _is_builtin(self, node: ast.Name) -> bool:
        return node.id in _BUILTINS and self._find_global(node) is getattr(builtins, node.id, None)

    def _is_self(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and bool(self._self) and node.id == self._self

    def _is_state(self, node: ast.AST) -> bool:
        """Tell whether an expression is the state that the optimizer keeps of one parameter."""
        if isinstance(node, ast.Name):
            values = self._locals.get(node.id, [])
            return bool(values) and all(isinstance(each, ast.Subscript) and self._is_state(each) for each in values)
        is_item = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute)
        return is_item and node.value.attr == "state" and self._is_self(node.value.value)  # type: ignore[attr-defined]

    def _is_list(self, name: str) -> bool:
        values = self._locals.get(name, [])
        return bool(values) and all(isinstance(each, ast.List) for each in values)


def _is_one_of(value: Any, *others: Any) -> bool:
    return any(value is other for other in others)


def _calls_super(node: ast.Attribute) -> bool:
    is_call = isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
    return is_call and node.value.func.id == "super" and node.attr == "__init__"  # type: ignore[attr-defined]


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _text(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0]
