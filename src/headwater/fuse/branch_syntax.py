"""How an `if` and what assigns are written so that the lanes of a group may go different ways.

| the source | becomes |
|---|---|
| `if test: body` | `b = tools.branch(test)`, the body if some lanes want it, and a choice of what it assigned |
| `a.b = x` | `a.b = tools.masked(a, "b", x)` |
| `a[i] = x` | `tools.set_item(x, a, i)` |
| `a += x`, `a.b += x` | `a = tools.augment("iadd", a, x)`, `tools.attribute(a, "b").value += x` |
| `for x in y` | `for x in tools.each(y)` |
| `break`, `return` in an `if` | `tools.require_whole(b)` first |
| `a[i:j] = x` | `a[i:j] = tools.require_own(a, x)` |
| `raise`, `del` | `tools.require_joint()`, `tools.require_all()` first |
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

_ENDS = (ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Delete)
_ASSIGNS = (ast.Assign, ast.AugAssign, ast.AnnAssign)
_SIMPLE = (*_ASSIGNS, *_ENDS, ast.Expr, ast.Pass, ast.Assert)
_ELSEWHERE = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)
_OPERATIONS = {
    ast.Add: "iadd", ast.Sub: "isub", ast.Mult: "imul", ast.Div: "itruediv", ast.FloorDiv: "ifloordiv",
    ast.Mod: "imod", ast.Pow: "ipow", ast.BitAnd: "iand", ast.BitOr: "ior", ast.BitXor: "ixor",
    ast.LShift: "ilshift", ast.RShift: "irshift", ast.MatMult: "imatmul",
}  # fmt: skip


class Ask(Protocol):
    """Writes a call of a tool."""

    def __call__(self, node: ast.AST, name: str, *args: ast.expr) -> ast.Call:
        """Return the call, where the node stands."""


def names_assigned(statements: Sequence[ast.stmt]) -> list[str] | None:
    """Return the variables that statements assign; None where they do what no choice by lane can follow."""
    names: dict[str, None] = {}
    for statement in _flat(statements):
        if statement is None or any(isinstance(node, _ELSEWHERE) for node in ast.walk(statement)):
            return None
        names.update(dict.fromkeys(_targets(statement)))
    return [*names]


def _flat(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt | None]:
    """Yield all statements, also those within; None in the place of one that is not known."""
    for statement in statements:
        if isinstance(statement, _SIMPLE):
            yield statement
        elif isinstance(statement, ast.If | ast.For | ast.While):
            yield statement
            yield from _flat((*statement.body, *statement.orelse))
        elif isinstance(statement, ast.With) and all(_is_call(item.context_expr) for item in statement.items):
            yield statement
            yield from _flat(statement.body)
        else:
            yield None


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call)


def _targets(statement: ast.stmt) -> Iterator[str]:
    found: list[Any] = []
    if isinstance(statement, ast.Assign):
        found += statement.targets
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign | ast.For):
        found.append(statement.target)
    elif isinstance(statement, ast.With):
        found += [item.optional_vars for item in statement.items if item.optional_vars is not None]
    for target in found:
        yield from (
            node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )


def write_if(node: ast.If, names: Sequence[Sequence[str]], variable: str, ask: Ask) -> list[ast.stmt]:
    """Write an `if` whose parts were visited already; both its sides assign variables."""
    answer = ast.copy_location(ast.Name(variable, ast.Load()), node)
    store = ast.copy_location(ast.Name(variable, ast.Store()), node)
    statements: list[ast.stmt] = [ast.Assign([store], ask(node, "branch", node.test))]
    sides = [("begin", node.body, answer), ("turn", node.orelse, ast.UnaryOp(ast.Not(), answer))]
    for side, (tool, body, plain) in enumerate(sides):
        if body:
            enters = ast.BoolOp(
                ast.And(), [ask(node, "is_split", answer), ask(node, tool, answer, ask(node, "read_locals"))]
            )
            test = ast.BoolOp(ast.Or(), [enters, plain])
            statements.append(ast.If(test, [*body, _end(node, names, side, answer, ask)], []))
    return [ast.copy_location(statement, node) for statement in statements]


def _end(node: ast.If, both: Sequence[Sequence[str]], side: int, answer: ast.expr, ask: Ask) -> ast.stmt:
    """Write the choice at the end of one side."""
    names = both[side]
    lists = [_listed(names), _listed(both[1] if side == 0 else [])]
    call = ask(node, "select", answer, ask(node, "read_locals"), *lists, ast.Constant(side))
    chosen: ast.stmt = ast.Expr(call)
    if names:
        chosen = ast.Assign([ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())], call)
    return ast.copy_location(ast.If(ask(node, "is_split", answer), [chosen], []), node)


def _listed(names: Sequence[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


def write_assign(node: ast.Assign, shared: frozenset[str], ask: Ask) -> ast.stmt:
    """Write an assignment whose parts were visited already; `shared` are the variables of other scopes."""
    if len(node.targets) == 1:
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and _can_mask(target):
            owner = copy.deepcopy(target.value)
            node.value = ask(node, "masked", owner, ast.Constant(target.attr), node.value)
            return node
        if isinstance(target, ast.Subscript) and not _has_slices(target.slice):
            return ast.copy_location(ast.Expr(ask(node, "set_item", node.value, target.value, target.slice)), node)
        if isinstance(target, ast.Subscript) and _is_simple(target.value):
            node.value = ask(node, "require_own", copy.deepcopy(target.value), node.value)
            return node
    if not all(_is_local(target, shared) for target in node.targets):
        node.value = ask(node, "require_all", node.value)
    return node


def write_augmented(node: ast.AugAssign, shared: frozenset[str], ask: Ask) -> ast.stmt:
    """Write `a += x` and its like, whose parts were visited already."""
    target = node.target
    if isinstance(target, ast.Name):
        loaded = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        value = ask(node, "augment", ast.Constant(_OPERATIONS[type(node.op)]), loaded, node.value)
        if target.id in shared:
            value = ask(node, "require_all", value)
        return ast.copy_location(ast.Assign([target], value), node)
    if isinstance(target, ast.Attribute) and not _is_mangled(target.attr):
        place = ask(node, "attribute", target.value, ast.Constant(target.attr))
    elif isinstance(target, ast.Subscript) and not _has_slices(target.slice):
        place = ask(node, "element", target.value, target.slice)
    elif isinstance(target, ast.Subscript) and _is_simple(target.value):
        node.value = ask(node, "require_own", copy.deepcopy(target.value), node.value)
        return node
    else:
        node.value = ask(node, "require_all", node.value)
        return node
    node.target = ast.copy_location(ast.Attribute(place, "value", ast.Store()), node)
    return node


def find_exits(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[ast.AST]:
    """Return where a function leaves its last loop with nothing more to do, and each `if` of the loop around that."""
    body = [*function.body]
    while body and _is_idle(body[-1]):
        body.pop()
    if not body or not isinstance(body[-1], ast.For | ast.While) or body[-1].orelse:
        return set()
    found = set[ast.AST]()
    for statement in body[-1].body:
        exits = {*_exits_of(statement)}
        found |= {*exits, statement} if exits else exits
    return found


def _exits_of(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield what leaves in a statement, where nothing comes after it."""
    if isinstance(statement, ast.If):
        for side in (statement.body, statement.orelse):
            yield from _exits_of(side[-1]) if side else ()
    elif isinstance(statement, ast.Break) or (isinstance(statement, ast.Return) and statement.value is None):
        yield statement


def _is_idle(statement: ast.stmt) -> bool:
    """Tell whether a statement at the end of a function changes nothing that lasts."""
    if isinstance(statement, ast.Return):
        return statement.value is None
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    called = statement.value.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    return name in ("print", "load_state_dict", "close")


def is_elsewhere(target: ast.expr | None, shared: frozenset[str]) -> bool:
    """Tell whether a `for` or a `with` assigns more than variables of its function."""
    return target is not None and not _is_local(target, shared)


def _can_mask(target: ast.Attribute) -> bool:
    """Tell whether what holds an attribute can be written twice."""
    return _is_simple(target.value) and not _is_mangled(target.attr)


def _is_simple(owner: ast.expr) -> bool:
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return isinstance(owner, ast.Name)


def _is_mangled(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def _has_slices(key: ast.expr) -> bool:
    return any(isinstance(node, ast.Slice | ast.Starred) for node in ast.walk(key))


def _is_local(target: ast.expr, shared: frozenset[str]) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(_is_local(item, shared) for item in target.elts)
    if isinstance(target, ast.Starred):
        return _is_local(target.value, shared)
    return isinstance(target, ast.Name) and target.id not in shared
