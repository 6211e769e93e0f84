"""Writes an `if` so that the lanes of a group may go different ways.

`if test: a = x` becomes

    b = tools.branch(test)
    if tools.is_split(b):
        b = tools.take_by_lane(b, plan, tools.read_locals())
        if "a" in b: a = b.pop("a")
    elif b: a = x

The plan holds the source of the `if`, which `fuse/interpreting.py` runs for each lane. An `if` at the top of a function
that has a `return` in it is planned together with the statements that follow, up to the end of the function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

_KNOWN = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Pass, ast.If, ast.With, ast.Break, ast.Return, ast.Continue,
)  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Ask(Protocol):
    """Writes a call of a tool."""

    def __call__(self, node: ast.AST, name: str, *args: ast.expr) -> ast.Call:
        """Return the call, where the node stands."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An `if` that lanes may answer differently."""

    source: str
    end: str
    """The meaning of `break` and `return` in it: a value of `End`."""
    names: tuple[str, ...]
    """The variables that it assigns."""
    temporary: tuple[str, ...]
    """Those that are used nowhere else."""
    owned: tuple[str, ...]
    """Those whose values no other variable of the function can hold."""
    tail: tuple[tuple[str, str], ...]
    """The models and state dicts of the `load_state_dict` calls that follow the last loop of the function."""

    @property
    def constant(self) -> Any:
        """The part that is needed at run time."""
        return self.source, self.end, self.temporary, self.owned


def plan_branches(function: ast.FunctionDef, shared: frozenset[str]) -> dict[ast.If, Plan]:
    """Plan each `if` of a function that only has statements of known kinds; `shared` are variables of other scopes."""
    exits, tail = _find_exits(function)
    plans = {}
    for node in own_nodes(function):
        if isinstance(node, ast.If):
            plan = _plan(node, function, exits, tail)
            if plan is not None and not shared & {*plan.names}:
                plans[node] = plan
    return plans


def _plan(
    node: ast.If, function: ast.FunctionDef, exits: set[ast.stmt], tail: Sequence[tuple[str, str]]
) -> Plan | None:
    ends = [each for each in ast.walk(node) if isinstance(each, ast.Break | ast.Return)]
    block: Sequence[ast.stmt] = [node]
    end = "none"
    if ends and all(each in exits for each in ends):
        end = "leave"
    elif any(isinstance(each, ast.Return) for each in ends) and node in function.body and not _has_functions(function):
        end, block = "return", function.body[function.body.index(node) :]
    if not all(isinstance(each, _KNOWN) for each in ast.walk(ast.Module([*block], [])) if isinstance(each, ast.stmt)):
        return None
    try:
        source = "\n".join(map(ast.unparse, block))
    except ValueError:  # an f-string that has no other spelling
        return None
    names = [*dict.fromkeys(_stored(block))]
    temporary = names if end == "return" else [name for name in names if _is_temporary(name, node, function)]
    owned = [name for name in names if _is_owned(name, function)]
    return Plan(source, end, tuple(names), tuple(temporary), tuple(owned), tuple(tail))


def write_if(node: ast.If, plan: Plan, variable: str, ask: Ask) -> list[ast.stmt]:
    """Write an `if` whose parts were visited already."""

    def answer(context: ast.expr_context | None = None) -> ast.expr:
        return ast.Name(variable, context or ast.Load())

    call = ask(node, "take_by_lane", answer(), ast.Constant(plan.constant), ask(node, "read_locals"))
    taken: list[ast.stmt] = [ast.Assign([answer(ast.Store())], call)]
    if plan.end == "return":
        taken = [ast.Return(ast.Subscript(call, ast.Constant("return"), ast.Load()))]
    for name in plan.names if plan.end != "return" else ():
        test = ast.Compare(ast.Constant(name), [ast.In()], [answer()])
        value = ast.Call(ast.Attribute(answer(), "pop", ast.Load()), [ast.Constant(name)], [])
        taken.append(ast.If(test, [ast.Assign([ast.Name(name, ast.Store())], value)], []))
    if plan.end == "leave":
        tail: Any = plan.tail  # Any: the stubs know no tuples of constants
        taken.append(ast.Expr(ask(node, "settle", ast.Constant(tail), ask(node, "read_locals"))))
    first = ast.Assign([answer(ast.Store())], ask(node, "branch", node.test))
    second = ast.If(ask(node, "is_split", answer()), taken, [ast.If(answer(), node.body, node.orelse)])
    for each in (first, second):
        ast.copy_location(each, node)
        ast.fix_missing_locations(each)
    return [first, second]


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without the functions and classes within."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield each
            yield from own_nodes(each)


def _has_functions(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, (*_FUNCTIONS, ast.Lambda)) for node in ast.walk(function) if node is not function)


def _stored(statements: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Store)
                and node.id not in _comprehended(statement)
            ):
                yield node.id


def _comprehended(statement: ast.stmt) -> set[str]:
    """Return the variables of comprehensions, which are no variables of the function."""
    loops = [node for node in ast.walk(statement) if isinstance(node, ast.comprehension)]
    return {node.id for loop in loops for node in ast.walk(loop.target) if isinstance(node, ast.Name)}


def _count(name: str, node: ast.AST) -> int:
    return sum(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _is_temporary(name: str, node: ast.If, function: ast.FunctionDef) -> bool:
    """Tell whether a variable is used on one side of an `if` alone, and assigned there before it is read."""
    total = _count(name, function)
    sides = (node.body, node.orelse)
    return not _is_parameter(name, function) and any(
        sum(_count(name, each) for each in side) == total and _is_assigned_first(name, side) for side in sides
    )


def _is_assigned_first(name: str, statements: Sequence[ast.stmt]) -> bool:
    using = [statement for statement in statements if _count(name, statement)]
    match using:
        case [ast.Assign(targets=[ast.Name(id=target)], value=value), *_] if target == name:
            return _count(name, value) == 0
        case [ast.With(items=[ast.withitem(context_expr=opened, optional_vars=ast.Name(id=target))])] if target == name:
            return _count(name, opened) == 0
        case [ast.If(test=test, body=body, orelse=orelse)] if _count(name, test) == 0:
            sides = [side for side in (body, orelse) if any(_count(name, each) for each in side)]
            return len(sides) == 1 and _is_assigned_first(name, sides[0])
        case _:
            return False


def _is_owned(name: str, function: ast.FunctionDef) -> bool:
    """Tell whether all uses of a variable leave its dictionary to it alone, and as it is.

    It is assigned new dictionaries and constants. It is read by `load_state_dict`, `torch.save` and `is`, and by items.
    """
    num_known = 0
    for node in own_nodes(function):
        match node:
            case ast.Assign(targets=[target], value=value):
                num_known += sum(_is_new(new) for each, new in _pairs(target, value) if each == name)
            case ast.Call(func=called, args=[ast.Name(id=given), *_]) if given == name:
                num_known += _is_reader(called)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=read), attr="items" | "keys" | "values")):
                num_known += read == name
            case ast.Subscript(value=ast.Name(id=read), ctx=ast.Load()):
                num_known += read == name
            case ast.Compare(left=ast.Name(id=left), ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant()]):
                num_known += left == name
            case _:
                pass
    return num_known == _count(name, function) and not _is_parameter(name, function)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the variables that an assignment binds, each with its expression."""
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for pair in zip(targets, values, strict=True):
                yield from _pairs(*pair)
        case _:
            pass


def _is_reader(called: ast.expr) -> bool:
    """Tell whether a function reads a dictionary and keeps nothing of it."""
    match called:
        case ast.Attribute(attr="load_state_dict") | ast.Attribute(value=ast.Name(id="torch"), attr="save"):
            return True
        case _:
            return False


def _is_parameter(name: str, function: ast.FunctionDef) -> bool:
    return any(arg.arg == name for arg in ast.walk(function.args) if isinstance(arg, ast.arg))


def _is_new(value: ast.expr) -> bool:
    match value:
        case ast.Constant() | ast.DictComp():
            return True
        case ast.Call(func=ast.Attribute(attr="deepcopy") | ast.Name(id="deepcopy")):
            return True
        case _:
            return False


def _find_exits(function: ast.FunctionDef) -> tuple[set[ast.stmt], list[tuple[str, str]]]:
    """Return the statements that leave the last loop of a function, and the state dicts that are loaded after it.

    There are none where more follows than printing and loading.
    """
    body, tail = [*function.body], list[tuple[str, str]]()
    while body and (_is_idle(body[-1]) or _loaded_by(body[-1])):
        tail = [*_loaded_by(body.pop()), *tail]
    if not body or not isinstance(body[-1], ast.For | ast.While) or body[-1].orelse:
        return set(), []
    return {leaving for statement in body[-1].body for leaving in _exits_of(statement)}, tail


def _loaded_by(statement: ast.stmt) -> list[tuple[str, str]]:
    """Return the model and the state dict of `model.load_state_dict(state)`."""
    match statement:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id=model), attr="load_state_dict"),
                args=[ast.Name(id=state)],
                keywords=[],
            )
        ):
            return [(model, state)]
        case _:
            return []


def _exits_of(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements that leave, where no other follows."""
    if isinstance(statement, ast.If):
        for side in (statement.body, statement.orelse):
            yield from _exits_of(side[-1]) if side else ()
    elif isinstance(statement, ast.Break) or (isinstance(statement, ast.Return) and statement.value is None):
        yield statement


def _is_idle(statement: ast.stmt) -> bool:
    """Tell whether a statement at the end of a function does no more than print."""
    match statement:
        case ast.Return(value=None):
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=args, keywords=[])):
            return not any(
                isinstance(each, ast.Call | ast.Await | ast.NamedExpr) for arg in args for each in ast.walk(arg)
            )
        case _:
            return False
