"""Runs statements for one lane, on their syntax tree and with the plain values that the lane alone would have.

The grammar is closed. Statements: assignments of names and of attributes of plain instances, `if`, `pass`, `return`,
`break` at the end of the training function, and calls that only show or keep something. Expressions: constants, names,
attributes of modules and plain instances, items of plain containers, arithmetic, comparisons, f-strings, and calls of
the functions listed here or of functions of the user's own whose bodies are in the grammar too. None of these changes
anything that exists: assignments go into a table of the lane, and what is shown or kept is collected. So a lane whose
code leaves the grammar (`OutsideGrammar`) has had no effect, and the lanes can still part.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import logging
import math
import operator
import os.path
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headwater.fuse.per_lane import PerLane, PerLaneText
from headwater.fuse.rewriting import Rewrites
from headwater.fuse.roster import HEEDING, Roster
from headwater.fuse.targets import narrow
from headwater.torch_private import (
    has_optimizer_state_hooks,
    has_state_hooks,
    is_lane_tensor,
    stack_of,
    state_writer_of,
)

_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_COMPARISONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_CONVERSIONS: Mapping[int, Callable[[Any], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}
_SCALARS = frozenset({int, float, complex, bool, str, bytes, type(None)})
_TENSORS = (Tensor, nn.Parameter)
_PATHS = frozenset({Path, PosixPath, WindowsPath, PurePosixPath, PureWindowsPath})
_CONTAINERS = (dict, OrderedDict, list, tuple)
_PATH_FUNCTIONS = frozenset({os.path.join, os.path.dirname, os.path.basename})
_PURE = (
    frozenset({float, int, bool, str, abs, min, max, round, len, sum})
    | _PATH_FUNCTIONS
    | {function for function in vars(math).values() if isinstance(function, BuiltinFunctionType)}
)
"""Functions that compute with numbers and text, and do no more."""
_TENSOR_METHODS = frozenset({"item", "clone", "detach", "cpu", "numel", "mean", "sum", "float", "double"})
_COPIERS = frozenset({shutil.copyfile, shutil.copy, shutil.copy2})
_LOGGING = frozenset({"debug", "info", "warning", "error", "critical"})


class OutsideGrammar(Exception):  # noqa: N818 - a signal between these modules
    """The code of a side is not in the grammar; the text completes "one side ..."."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The value that a function returns."""

    value: Any


class End(Enum):
    """The meaning of `break` and `return` in statements."""

    NONE = "none"
    """Only some lanes would leave a loop or a function, which lanes cannot do as one."""
    LEAVE = "leave"
    """The lane is done with the training function."""
    RETURN = "return"
    """The statements are the last of a function, which returns the value."""


LEAVES = object()
"""The lane leaves the last loop of the training function."""


@dataclass(slots=True)
class Scope:
    """The variables of one call: those that existed before, and those that were assigned since."""

    names: frozenset[str]
    """The names that are local, whether they are bound or not."""
    before: Mapping[str, Any]
    space: Mapping[str, Any]
    """The globals."""
    assigned: dict[str, Any] = field(default_factory=dict)

    def find(self, name: str) -> Any:
        """Return what was bound to a name before the statements began."""
        if name in self.before:
            return self.before[name]
        if name in self.names:
            raise OutsideGrammar(f"reads `{name}` before it is assigned")
        if name in self.space:
            return self.space[name]
        return getattr(builtins, name)


@dataclass(frozen=True, slots=True)
class Effect:
    """A call that shows or keeps something."""

    function: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """What the runs of all lanes through the same statements share."""

    roster: Roster
    rewrites: Rewrites
    end: End
    states: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    """State dicts, which hold those of all lanes, with their owners and by the id of these."""

    def read_state(self, owner: Any) -> Any:
        """Return `owner.state_dict()`."""
        if id(owner) not in self.states:
            self.states[id(owner)] = owner, owner.state_dict()
        return self.states[id(owner)][1]

    def find_definition(self, function: FunctionType) -> ast.FunctionDef | None:
        """Return the syntax tree of a function of the user's; None where there is none, or a call would not run it."""
        if not self.rewrites.has(function):
            self.roster.code.functions += self.rewrites.open(function)
        if function.__code__.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR):
            return None
        return self.rewrites.find_definition(function)


class LaneRun:
    """One lane's way through statements."""

    def __init__(self, setting: Setting, place: int, scope: Scope) -> None:
        self.scope = scope
        self.attributes: dict[tuple[int, str], tuple[Any, Any]] = {}
        """Assigned attributes: the owner and the value, by the owner's id and the name."""
        self.effects: list[Effect] = []
        self.sources: dict[int, tuple[Tensor, Tensor]] = {}
        """Tensors that share memory with one which existed before, and that one, by the id of the former."""
        self._setting = setting
        self._place = place
        self._scopes = [scope]

    def read(self, value: Any) -> Any:
        """Return an existing value as the lane alone would have it; objects that lanes share stay as they are."""
        kind = type(value)
        if kind in (PerLane, PerLaneText):
            return value.values[self._place]
        if kind in _TENSORS:
            return self._read_tensor(value)
        return tuple(map(self.read, value)) if kind is tuple else value

    def _read_tensor(self, tensor: Tensor) -> Tensor:
        if not is_lane_tensor(tensor):
            self.sources[id(tensor)] = tensor, tensor
            return tensor
        if self._setting.roster.has_narrowed:
            narrow(tensor, self._setting.roster)
        own = stack_of(tensor)[self._place]
        self.sources[id(own)] = own, tensor
        return own

    def run(self, statements: Sequence[ast.stmt]) -> Any:
        """Run statements; return None at their end, `LEAVES`, or an Answer."""
        for statement in statements:
            signal = self._dispatch("run", statement)
            if signal is not None:
                return signal
        return None

    def _dispatch(self, verb: str, node: ast.AST) -> Any:
        method = getattr(self, f"_{verb}_{type(node).__name__.lower()}", None)
        if method is None:
            raise OutsideGrammar("does more than assign")
        return method(node)

    def evaluate(self, node: ast.AST) -> Any:
        """Return the value of an expression."""
        return self._dispatch("evaluate", node)

    # Statements

    def _run_pass(self, node: ast.Pass) -> None:
        pass

    def _run_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._call(node.value, is_statement=True)
        elif not isinstance(node.value, ast.Constant):
            raise OutsideGrammar("does more than assign")

    def _run_if(self, node: ast.If) -> Any:
        return self.run(node.body if self._is_true(self.evaluate(node.test)) else node.orelse)

    def _run_assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self._assign(target, value)

    def _run_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self.evaluate(node.value))

    def _run_augassign(self, node: ast.AugAssign) -> None:
        operation = _BINARY.get(type(node.op))
        old = copy.copy(node.target)
        old.ctx = ast.Load()
        value = self.evaluate(old)
        if operation is None or isinstance(value, Tensor) or not _is_value(value):
            raise OutsideGrammar(f"changes a {type(value).__name__} in place")
        self._assign(node.target, operation(value, self._operand(node.value)))

    def _run_return(self, node: ast.Return) -> Any:
        if len(self._scopes) > 1 or self._setting.end is End.RETURN:
            return Answer(None if node.value is None else self.evaluate(node.value))
        return self._leave()

    def _run_break(self, node: ast.Break) -> Any:
        return self._leave()

    def _run_continue(self, node: ast.Continue) -> Any:
        raise OutsideGrammar("leaves a loop or a function")

    def _leave(self) -> Any:
        if len(self._scopes) > 1 or self._setting.end is not End.LEAVE:
            raise OutsideGrammar("leaves a loop or a function")
        return LEAVES

    def _run_with(self, node: ast.With) -> None:
        """Run `with open(path, "wb") as file: torch.save(value, file)`: the same as `torch.save(value, path)`."""
        match node:
            case ast.With(
                items=[
                    ast.withitem(
                        context_expr=ast.Call(func=ast.Name() as opener, args=[path, ast.Constant(value="wb")]),
                        optional_vars=ast.Name(id=name),
                    )
                ],
                body=[ast.Expr(value=ast.Call(func=saver, args=[value, ast.Name(id=target)], keywords=[]))],
            ) if target == name and self.evaluate(opener) is open and self.evaluate(saver) is torch.save:
                kept = self.evaluate(value)
                _require_savable(kept)
                self.effects.append(Effect(torch.save, [kept, self._text(self.evaluate(path))], {}))
                self.scope.assigned[name] = object()  # a closed file, which only a variable of no further use may hold
            case _:
                raise OutsideGrammar("does more than assign")

    def _assign(self, target: ast.AST, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.scope.assigned[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.evaluate(target.value)
            _require_plain_attribute(owner, target.attr)
            self.attributes[id(owner), target.attr] = owner, value
        elif isinstance(target, ast.Tuple) and type(value) is tuple and len(value) == len(target.elts):
            for each, item in zip(target.elts, value, strict=True):
                self._assign(each, item)
        else:
            raise OutsideGrammar("does more than assign")

    # Expressions

    def _evaluate_constant(self, node: ast.Constant) -> Any:
        return node.value

    def _evaluate_name(self, node: ast.Name) -> Any:
        if node.id in self.scope.assigned:
            return self.scope.assigned[node.id]
        return self.read(self.scope.find(node.id))

    def _evaluate_attribute(self, node: ast.Attribute) -> Any:
        owner = self.evaluate(node.value)
        if isinstance(owner, ModuleType) and node.attr in vars(owner):
            return self.read(vars(owner)[node.attr])
        if (id(owner), node.attr) in self.attributes:
            return self.attributes[id(owner), node.attr][1]
        if _is_plain(owner) and node.attr not in vars(owner):
            value = inspect.getattr_static(type(owner), node.attr, owner)
            if type(value) in _SCALARS:
                return value
        _require_plain_attribute(owner, node.attr)
        return self.read(vars(owner)[node.attr])

    def _evaluate_subscript(self, node: ast.Subscript) -> Any:
        owner, key = self.evaluate(node.value), self.evaluate(node.slice)
        if type(owner) not in _CONTAINERS or type(key) not in _SCALARS:
            raise OutsideGrammar(f"reads an item of a {type(owner).__name__}")
        return self.read(owner[key])

    def _evaluate_tuple(self, node: ast.Tuple) -> Any:
        return tuple(map(self.evaluate, node.elts))

    def _evaluate_dict(self, node: ast.Dict) -> Any:
        keys = [self._key(key) for key in node.keys]
        return dict(zip(keys, map(self.evaluate, node.values), strict=True))

    def _key(self, node: ast.AST | None) -> Any:
        key = None if node is None else self.evaluate(node)
        if node is None or type(key) not in _SCALARS:
            raise OutsideGrammar("makes a dictionary")
        return key

    def _evaluate_dictcomp(self, node: ast.DictComp) -> Any:
        (loop, *others) = node.generators
        if others or loop.ifs or loop.is_async or not _is_names(loop.target):
            raise OutsideGrammar("makes a dictionary")
        outer = self.scope
        self.scope = Scope(outer.names, outer.before, outer.space, dict(outer.assigned))
        try:
            made = {}
            for item in self._items(loop.iter):
                self._assign(loop.target, item)
                made[self._key(node.key)] = self.evaluate(node.value)
            return made
        finally:
            self.scope = outer

    def _items(self, node: ast.expr) -> Iterator[Any]:
        """Yield the items of a container, or of its `items()`, `keys()` or `values()`."""
        view = "" if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) else node.func.attr
        if view in ("items", "keys", "values") and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = self.evaluate(node.func.value)
            if type(owner) not in (dict, OrderedDict) or node.args or node.keywords:
                raise OutsideGrammar(f"calls {view}")
            yield from map(self.read, getattr(owner, view)())
            return
        owner = self.evaluate(node)
        if type(owner) not in _CONTAINERS:
            raise OutsideGrammar(f"goes through a {type(owner).__name__}")
        yield from map(self.read, owner)

    def _evaluate_binop(self, node: ast.BinOp) -> Any:
        operation = _BINARY.get(type(node.op))
        left = self._operand(node.left)
        if operation is None:
            raise OutsideGrammar("does more than assign")
        if operation is operator.mod and type(left) is str:
            return left % self._plain_text(self.evaluate(node.right))
        return operation(left, self._operand(node.right))

    def _evaluate_unaryop(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return not self._is_true(self.evaluate(node.operand))
        if not isinstance(node.op, ast.USub):
            raise OutsideGrammar("does more than assign")
        return -self._operand(node.operand)

    def _evaluate_boolop(self, node: ast.BoolOp) -> Any:
        ends = isinstance(node.op, ast.Or)
        value: Any = None
        for each in node.values:
            value = self.evaluate(each)
            if self._is_true(value) is ends:
                break
        return value

    def _evaluate_ifexp(self, node: ast.IfExp) -> Any:
        return self.evaluate(node.body if self._is_true(self.evaluate(node.test)) else node.orelse)

    def _evaluate_compare(self, node: ast.Compare) -> Any:
        left, answer = self.evaluate(node.left), None
        for kind, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(right_node)
            answer = self._compare(kind, left, right)
            if len(node.ops) > 1 and not self._is_true(answer):
                break
            left = right
        return answer

    def _compare(self, kind: ast.cmpop, left: Any, right: Any) -> Any:
        if isinstance(kind, ast.Is | ast.IsNot):
            if not any(each is None or type(each) is bool for each in (left, right)):
                raise OutsideGrammar("asks which object a value is")
            return (left is right) is isinstance(kind, ast.Is)
        if isinstance(kind, ast.In | ast.NotIn):
            if type(right) not in _CONTAINERS or not all(type(each) in _SCALARS for each in (left, *right)):
                raise OutsideGrammar(f"looks into a {type(right).__name__}")
            return (left in right) is isinstance(kind, ast.In)
        if not _is_value(left) or not _is_value(right):
            raise OutsideGrammar(f"compares a {type(left).__name__}")
        return _COMPARISONS[type(kind)](left, right)

    def _evaluate_joinedstr(self, node: ast.JoinedStr) -> str:
        return "".join(self.evaluate(part) for part in node.values)

    def _evaluate_formattedvalue(self, node: ast.FormattedValue) -> str:
        value = self._text(self.evaluate(node.value))
        if node.conversion != -1:
            value = _CONVERSIONS[node.conversion](self._plain_text(value))
        return format(value, "" if node.format_spec is None else self.evaluate(node.format_spec))

    def _evaluate_call(self, node: ast.Call) -> Any:
        return self._call(node, is_statement=False)

    def _operand(self, node: ast.expr) -> Any:
        value = self.evaluate(node)
        if not _is_value(value) or value is None:
            raise OutsideGrammar(f"computes with a {type(value).__name__}")
        return value

    def _is_true(self, value: Any) -> bool:
        if not _is_value(value) and type(value) not in _CONTAINERS:
            raise OutsideGrammar(f"asks whether a {type(value).__name__} is true")
        return bool(value)

    def _text(self, value: Any) -> Any:
        """Return a value that is written as text, or the values in a tuple."""
        if type(value) is tuple:
            return tuple(map(self._text, value))
        if not _is_value(value) or (isinstance(value, Tensor) and value.dim() > 0):
            raise OutsideGrammar(f"writes a {type(value).__name__} as text")
        return value

    def _plain_text(self, value: Any) -> Any:
        """Return a value whose text shows no graph, which looks different for a lane alone."""
        for each in value if type(value) is tuple else (value,):
            if isinstance(each, Tensor) and each.requires_grad:
                raise OutsideGrammar("writes a tensor that requires gradients as text")
        return self._text(value)

    # Calls

    def _call(self, node: ast.Call, *, is_statement: bool) -> Any:
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(each.arg is None for each in node.keywords):
            raise OutsideGrammar("unpacks arguments")
        if isinstance(node.func, ast.Attribute):
            return self._call_method(node, node.func, is_statement)
        if not isinstance(node.func, ast.Name):
            raise OutsideGrammar("calls the result of an expression")
        return self._call_function(self.evaluate(node.func), node, is_statement)

    def _call_method(self, node: ast.Call, func: ast.Attribute, is_statement: bool) -> Any:
        owner, name = self.evaluate(func.value), func.attr
        if isinstance(owner, ModuleType):
            return self._call_function(vars(owner).get(name), node, is_statement)
        if type(owner) in _TENSORS and name in _TENSOR_METHODS and not node.args and not node.keywords:
            return self._call_tensor(owner, name)
        if type(owner) is str and name == "format":
            args, kwargs = self._arguments(node)
            return owner.format(*map(self._text, args), **{key: self._text(value) for key, value in kwargs.items()})
        if name == "state_dict" and gives_state(owner) and not node.args and not node.keywords:
            return self._setting.read_state(owner)
        if is_statement and isinstance(owner, logging.Logger) and name in _LOGGING:
            return self._note_effect(getattr(owner, name), node)
        method = inspect.getattr_static(type(owner), name, None)
        if not isinstance(method, FunctionType) or not _is_plain(owner) or name in vars(owner):
            raise OutsideGrammar(f"calls {name}")
        if is_statement and _is_in(method, HEEDING):
            return self._note_method(MethodType(method, owner), node)
        return self._call_users(method, node, owner)

    def _call_tensor(self, tensor: Tensor, name: str) -> Any:
        answer = getattr(tensor, name)()
        if name == "detach" and id(tensor) in self.sources:
            self.sources[id(answer)] = answer, self.sources[id(tensor)][1]
        return answer

    def _call_function(self, function: Any, node: ast.Call, is_statement: bool) -> Any:
        name = getattr(function, "__name__", "a function")
        if function is copy.deepcopy and len(node.args) == 1 and not node.keywords:
            return self.copy(self.evaluate(node.args[0]))
        if _is_in(function, _PURE):
            return self._compute(function, node)
        if is_statement and (_is_in(function, {print, torch.save} | _COPIERS) or _is_logging(function)):
            return self._note_effect(function, node)
        if isinstance(function, FunctionType):
            return self._call_users(function, node)
        call = inspect.getattr_static(type(function), "__call__", None)
        if _is_plain(function) and isinstance(call, FunctionType):
            return self._call_users(call, node, function)
        raise OutsideGrammar(f"calls {name}")

    def _arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        named = {str(each.arg): self.evaluate(each.value) for each in node.keywords}
        return [*map(self.evaluate, node.args)], named

    def _compute(self, function: Any, node: ast.Call) -> Any:
        args, kwargs = self._arguments(node)
        if kwargs or (function is str and any(isinstance(arg, Tensor) for arg in args)):
            raise OutsideGrammar(f"calls {function.__name__}")
        if len(args) == 1 and function in (min, max, sum, len) and type(args[0]) in _CONTAINERS:
            args = [[*map(self.read, args[0])]]
        elif not all(map(_is_value, args)):
            raise OutsideGrammar(f"calls {function.__name__}")
        if type(args[0]) is list and function is not len and not all(map(_is_value, args[0])):
            raise OutsideGrammar(f"calls {function.__name__}")
        return function(*args)

    def copy(self, value: Any) -> Any:
        """Return a deep copy of a value as the lane alone would have it."""
        if isinstance(value, Tensor):
            if value.requires_grad or type(value) not in _TENSORS:
                raise OutsideGrammar("copies a tensor that requires gradients")
            return value.clone()
        if type(value) in (dict, OrderedDict):
            made = type(value)((key, self.copy(self.read(item))) for key, item in value.items())
            if type(value) is OrderedDict:
                vars(made).update(copy.deepcopy(vars(value)))  # the metadata of a state dict
            return made
        if type(value) is tuple:
            return tuple(map(self.copy, value))
        if not _is_value(value):
            raise OutsideGrammar(f"copies a {type(value).__name__}")
        return value

    def _note_effect(self, function: Any, node: ast.Call) -> None:
        args, kwargs = self._arguments(node)
        if function is not torch.save:
            args, kwargs = [*map(self._text, args)], {key: self._text(value) for key, value in kwargs.items()}
        elif len(args) != 2 or kwargs:
            raise OutsideGrammar("calls save")
        else:
            self._text(args[1])
            _require_savable(args[0])
        self.effects.append(Effect(function, args, kwargs))

    def _note_method(self, method: MethodType, node: ast.Call) -> None:
        """Note the call of a method that keeps numbers and text; its first argument may be a model."""
        args, kwargs = self._arguments(node)
        is_of_model = bool(args) and isinstance(args[0], nn.Module)
        for value in (*args[is_of_model:], *kwargs.values()):
            if not _is_value(value):
                raise OutsideGrammar(f"gives a {type(value).__name__} to {method.__name__}")
        self.effects.append(Effect(method, args, kwargs))

    def _call_users(self, function: FunctionType, node: ast.Call, *owner: Any) -> Any:
        """Run a function of the user's own."""
        definition = self._setting.find_definition(function)
        hidden = {name for scope in self._scopes for name in scope.assigned}
        if definition is None or hidden & {*function.__code__.co_freevars}:
            raise OutsideGrammar(f"calls {function.__name__}")
        args, kwargs = self._arguments(node)
        bound = inspect.signature(function).bind(*owner, *args, **kwargs)
        if not bound.arguments.keys() <= {*_named(function)}:
            raise OutsideGrammar(f"calls {function.__name__}")
        given = {**bound.arguments}
        bound.apply_defaults()
        defaults = {name: self.read(value) for name, value in bound.arguments.items() if name not in given}
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        code = function.__code__
        names = frozenset((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
        outer = self.scope
        before = {name: cell.cell_contents for name, cell in cells}
        self.scope = Scope(names, before, function.__globals__, {**defaults, **given})
        self._scopes.append(self.scope)
        try:
            signal = self.run(definition.body)
        finally:
            self.scope = outer
            self._scopes.pop()
        return signal.value if isinstance(signal, Answer) else None


def _named(function: FunctionType) -> Sequence[str]:
    """Return the parameters of a function, without `*args` and `**kwargs`."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _is_value(value: Any) -> bool:
    """Tell whether a value is a number, text, None, a path or a tensor: operators on these change nothing."""
    kind = type(value)
    return kind in _SCALARS or kind in _TENSORS or kind in _PATHS or isinstance(value, np.number | np.bool_)


def _is_names(target: ast.expr) -> bool:
    items = target.elts if isinstance(target, ast.Tuple) else [target]
    return all(isinstance(item, ast.Name) for item in items)


def _is_in(function: Any, functions: Any) -> bool:
    return any(function is each for each in functions)


def _is_logging(function: Any) -> bool:
    return any(function is getattr(logging, name) for name in _LOGGING)


def _is_plain(owner: Any) -> bool:
    """Tell whether reading and writing an attribute of an instance reaches its `__dict__` and runs no code."""
    kind = type(owner)
    if isinstance(owner, type | nn.Module | Tensor | ModuleType | FunctionType | MethodType):
        return False
    slots = [(getattr(kind, name), getattr(object, name)) for name in ("__getattribute__", "__setattr__")]
    is_usual = all(own is usual for own, usual in slots)
    has_fallback = any("__getattr__" in vars(base) for base in kind.__mro__)
    return is_usual and not has_fallback and type(getattr(owner, "__dict__", None)) is dict


def _require_plain_attribute(owner: Any, name: str) -> None:
    is_mangled = name.startswith("__") and not name.endswith("__")
    if not _is_plain(owner) or is_mangled or name not in vars(owner):
        raise OutsideGrammar(f"uses the attribute `{name}` of a {type(owner).__name__}")
    if hasattr(type(inspect.getattr_static(type(owner), name, None)), "__set__"):
        raise OutsideGrammar(f"uses the property `{name}` of a {type(owner).__name__}")


def _require_savable(value: Any) -> None:
    """Refuse what runs code of the user's when it is pickled."""
    if type(value) in _CONTAINERS:
        for item in value.values() if isinstance(value, dict) else value:
            _require_savable(item)
    elif not _is_value(value) and type(value) not in (PerLane, PerLaneText) and not isinstance(value, nn.Module):
        raise OutsideGrammar(f"saves a {type(value).__name__}")


def gives_state(owner: Any) -> bool:
    """Tell whether `state_dict()` is the one of torch or of this package, and runs no code of the user's."""
    if isinstance(owner, nn.Module):
        return all(map(_has_plain_state, owner.modules()))
    method = getattr(type(owner), "state_dict", None)
    module = getattr(method, "__module__", None) or ""
    return isinstance(method, FunctionType) and _is_ours(module) and not has_optimizer_state_hooks(owner)


def _has_plain_state(module: nn.Module) -> bool:
    kind, base = type(module), nn.Module
    is_plain = _is_ours(kind.state_dict.__module__) and _is_ours(state_writer_of(kind).__module__)
    return is_plain and kind.get_extra_state is base.get_extra_state and not has_state_hooks(module)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("torch", "headwater")
