"""The syntax tree of a user's file, in which what no class can answer for many lanes is asked of tools.

| the source | asks |
|---|---|
| `f(x)` | `tools.of(f)(x)`: a function that knows lanes, or one that stands in for `f` |
| `a is b` | `tools.same_thing(a, b)` |
| `f"{x}"`, `text % x` | `tools.text(...)`, `tools.remainder(text, x)` |
| `match x` | `tools.subject(x)`: `case True` is an `is` |
| `except ...:` | `tools.go_on()` first, which raises where the lanes have to part |
| `trial.prepare_optimizer(config["kind"])` | `tools.taking(trial.prepare_optimizer)(tools.lanes(config)["kind"])` |
| `config["kind"] == "a"` | `tools.lanes(config)["kind"] == "a"` |
| `kind = config["kind"]` | `kind = tools.lanes(config)["kind"]`, and `tools.own(kind)` wherever else it is used |
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Container, Iterator
from typing import Any, TypeGuard

from headwater.fuse.branch_syntax import (
    find_exits,
    is_elsewhere,
    names_assigned,
    write_assign,
    write_augmented,
    write_if,
)

TAKERS = frozenset({"prepare_optimizer", "prepare_scheduler"})
"""Methods of a trial that take whatever differs by lane."""
_LOOK_AT_THEIR_CALLER = frozenset({"super", "locals", "globals", "vars", "dir", "eval", "exec", "breakpoint"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def rewrite(tree: ast.Module, tools: str) -> ast.Module:
    """Put the questions of a module to the tools, which stand in its code as the constant of this name."""
    rewriter = _Rewriter(tools)
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            rewriter.mark_locals(node)
        elif _takes_lanes(node):
            rewriter.mark_arguments(node)
        elif isinstance(node, ast.Compare):
            rewriter.mark_comparison(node)
    rewriter.visit(tree)
    return ast.fix_missing_locations(tree)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, tools: str) -> None:
        self._tools = tools
        self._kept: set[ast.AST] = set()
        """Reads of a configuration whose values go nowhere but where they are taken by lane."""
        self._given: set[ast.AST] = set()
        """What stands in such a place."""
        self._locals: set[ast.AST] = set()
        """Uses of variables that hold such a value."""
        self._shared: list[frozenset[str]] = []
        """Variables of other scopes that the functions around assign."""
        self._can_branch = [False]
        """Whether an `if` of the functions around may go both ways."""
        self._exits: set[ast.AST] = set()
        """Where functions leave their last loop with nothing more to do, and each `if` around that."""
        self._num_branches = 0
        self._branches: list[list[str]] = []
        """The answers to the conditions around, in each of the functions around."""

    def mark_arguments(self, call: ast.Call) -> None:
        """Note what is given to a method that takes whatever differs by lane."""
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            self._given.update(_parts(argument))

    def mark_comparison(self, node: ast.Compare) -> None:
        """Note what is only compared with constants: that can be answered for each lane."""
        right = node.comparators[0]
        others = right.elts if isinstance(right, ast.Tuple | ast.List) else [right]
        is_simple = len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn)
        if is_simple and all(isinstance(other, ast.Constant) for other in others):
            self._given.add(node.left)

    def mark_locals(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Note the variables that are bound once, to a value of something like a configuration."""
        if any(
            isinstance(node, ast.Name) and node.id in _LOOK_AT_THEIR_CALLER - {"super"} for node in ast.walk(function)
        ):
            return
        reads = dict(_reads_assigned(function))
        bindings = Counter(_bound_in(function)) if reads else Counter[str]()
        kept = {name: value for name, value in reads.items() if bindings[name] == 1}
        self._kept.update(kept.values())
        self._locals.update(each for each in (ast.walk(function) if kept else ()) if _loads(each, kept))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        takes = _takes_lanes(node)
        unpacked = [keyword for keyword in node.keywords if keyword.arg is None] if takes else []
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "super":
            return node
        if name in ("eval", "exec") and node.args and not isinstance(node.args[0], ast.Starred):
            node.args[0] = self._ask(node.args[0], "source", copy.copy(node.func), node.args[0])
        for keyword in unpacked:
            keyword.value = self._ask(keyword.value, "lanes", keyword.value)
        if node in self._kept | self._given and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            node.func.value = self._ask(node.func.value, "lanes", node.func.value)
        node.func = self._ask(node.func, "taking" if takes else "of", node.func)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        if node in self._kept | self._given:
            node.value = self._ask(node.value, "lanes", node.value)
        return node if _is_fixed(node.slice) else self._ask(node, "item", node.value, node.slice)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._ask(node, "own", node) if node in self._locals and node not in self._given else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if not any(isinstance(operation, ast.Is | ast.IsNot) for operation in node.ops):
            return node
        operands = [node.left, *node.comparators]
        if any(isinstance(operand, ast.Constant) and operand.value is None for operand in operands):
            return node  # no stand-in stands for None
        if len(node.ops) == 1:
            return self._ask_whether_same(node, node.ops[0], *operands)
        if any(not isinstance(operand, ast.Name | ast.Constant | ast.Attribute) for operand in operands[1:-1]):
            return node
        pairs = zip(node.ops, operands, operands[1:], strict=False)
        steps = [
            self._ask_whether_same(node, operation, left, right)
            if isinstance(operation, ast.Is | ast.IsNot)
            else ast.copy_location(ast.Compare(left, [operation], [right]), node)
            for operation, left, right in pairs
        ]
        return ast.copy_location(ast.BoolOp(ast.And(), steps), node)

    def _ask_whether_same(self, node: ast.AST, operation: ast.cmpop, left: ast.expr, right: ast.expr) -> ast.expr:
        name = "same_thing" if isinstance(operation, ast.Is) else "other_thing"
        return self._ask(node, name, left, right)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        pieces = [self._piece(part) for part in node.values]
        return self._ask(node, "text", *pieces)

    def _piece(self, part: ast.expr) -> ast.expr:
        if not isinstance(part, ast.FormattedValue):
            return part
        value = self.visit(part.value)
        spec = self.visit(part.format_spec) if part.format_spec is not None else ast.Constant("")
        return ast.copy_location(ast.Tuple([value, ast.Constant(part.conversion), spec], ast.Load()), part)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        is_number = isinstance(node.right, ast.Constant) and not isinstance(node.right.value, str)
        if not isinstance(node.op, ast.Mod) or is_number:
            return node
        return self._ask(node, "remainder", node.left, node.right)

    def visit_Match(self, node: ast.Match) -> ast.AST:
        self.generic_visit(node)
        node.subject = self._ask(node.subject, "subject", node.subject)
        return node

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:
        return node  # a pattern takes no calls

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        first = ast.Expr(self._ask(node.body[0], "go_on"))
        node.body.insert(0, ast.copy_location(first, node.body[0]))
        return node

    def visit_If(self, node: ast.If) -> Any:
        names = [names_assigned(side) if self._can_branch[-1] else None for side in (node.body, node.orelse)]
        sides = [each for each in names if each is not None and not self._shared[-1] & {*each}]
        settled = [ast.copy_location(ast.Expr(self._ask(node, "settle")), node)] if node in self._exits else []
        if len(sides) < 2:
            return [self.generic_visit(node), *settled]
        self._num_branches += 1
        variable = f".branch{self._num_branches}"
        self._branches[-1].append(variable)
        self.generic_visit(node)
        self._branches[-1].pop()
        return [*write_if(node, sides, variable, self._ask), *settled]

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        return write_assign(node, self._shared[-1], self._ask) if self._shared else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        return write_augmented(node, self._shared[-1], self._ask) if self._shared else node

    def visit_Import(self, node: ast.Import) -> Any:
        return self._reach(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        return self._reach(node)

    def _reach(self, node: ast.Import | ast.ImportFrom) -> Any:
        """Let what a function imports ask too."""
        names = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        if not self._shared or "*" in names:
            return node
        values = [ast.copy_location(ast.Name(name, ast.Load()), node) for name in names]
        return [node, ast.copy_location(ast.Expr(self._ask(node, "reach", *values)), node)]

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.iter = self._ask(node.iter, "each", self._place(node.target, node.iter))
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        for item in node.items:
            item.context_expr = self._place(item.optional_vars, item.context_expr)
        return node

    def _place(self, target: ast.expr | None, value: ast.expr) -> ast.expr:
        """Return a value that goes to a target, which only a branch of all lanes may have outside of its function."""
        is_free = not self._shared or not is_elsewhere(target, self._shared[-1])
        return value if is_free else self._ask(value, "require_all", value)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        if not node.is_async:
            node.iter = self._ask(node.iter, "each", node.iter)
        return node

    def visit_Return(self, node: ast.Return) -> Any:
        return self._leave(node)

    def visit_Break(self, node: ast.Break) -> Any:
        return self._leave(node)

    def visit_Continue(self, node: ast.Continue) -> Any:
        return self._leave(node)

    def _leave(self, node: ast.stmt) -> Any:
        """Let no lane alone go where another does not."""
        self.generic_visit(node)
        if not self._branches or not self._branches[-1]:
            return node
        answers = [ast.copy_location(ast.Name(name, ast.Load()), node) for name in self._branches[-1]]
        if node in self._exits:
            return ast.copy_location(ast.If(self._ask(node, "may_leave", *answers), [node], []), node)
        return [ast.copy_location(ast.Expr(self._ask(node, "require_whole", *answers)), node), node]

    def visit_Raise(self, node: ast.Raise) -> Any:
        return self._require(node, "require_joint")

    def visit_Delete(self, node: ast.Delete) -> Any:
        return self._require(node, "require_all")

    def _require(self, node: ast.stmt, tool: str) -> Any:
        self.generic_visit(node)
        return [ast.copy_location(ast.Expr(self._ask(node, tool)), node), node]

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node  # an annotation may be kept as text

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return node
        node.value = self.visit(node.value)
        if isinstance(node.target, ast.Name) or not self._shared:
            return node
        target = self.visit(node.target)
        return write_assign(ast.copy_location(ast.Assign([target], node.value), node), self._shared[-1], self._ask)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._visit_function(node)

    def _visit_function(self, node: Any) -> ast.AST:
        returns, node.returns = node.returns, None
        self._shared.append(frozenset(_names_of_other_scopes(node)))
        self._can_branch.append(_can_branch(node))
        self._branches.append([])
        self._exits |= find_exits(node)
        self.generic_visit(node)
        self._shared.pop()
        self._can_branch.pop()
        self._branches.pop()
        node.returns = returns
        return node  # type: ignore[no-any-return]  # a function, of either kind

    def _ask(self, node: ast.AST, name: str, *args: ast.expr) -> ast.Call:
        """Return a call of a tool, where the node stands."""
        tool = ast.copy_location(
            ast.Attribute(ast.copy_location(ast.Constant(self._tools), node), name, ast.Load()), node
        )
        return ast.copy_location(ast.Call(tool, [*args], []), node)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield what a function is made of, without the functions and classes within."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield node
            yield from _own_nodes(node)


def _names_of_other_scopes(function: ast.AST) -> Iterator[str]:
    for node in _own_nodes(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names


def _can_branch(function: ast.AST) -> bool:
    """Tell whether a function is an ordinary one, that nobody looks into from within."""
    if isinstance(function, ast.AsyncFunctionDef):
        return False
    looks = _LOOK_AT_THEIR_CALLER - {"super"}
    return not any(
        isinstance(node, ast.Yield | ast.YieldFrom) or (isinstance(node, ast.Name) and node.id in looks)
        for node in ast.walk(function)
    )


def _is_fixed(key: ast.expr) -> bool:
    """Tell whether a key is a constant or has slices in it, which no call takes."""
    if isinstance(key, ast.Tuple):
        return any(isinstance(part, ast.Starred | ast.Slice) for part in key.elts) or all(map(_is_fixed, key.elts))
    return isinstance(key, ast.Slice | ast.Constant) or (isinstance(key, ast.UnaryOp) and _is_fixed(key.operand))


def _takes_lanes(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKERS


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield an argument, or what it is made of if it is written as a list, tuple or dictionary."""
    if isinstance(node, ast.Tuple | ast.List):
        yield from (part for item in node.elts for part in _parts(item))
    elif isinstance(node, ast.Dict):
        yield from (part for item in node.values for part in _parts(item))
    else:
        yield node


def _reads(node: ast.expr) -> bool:
    """Tell whether an expression may read a configuration."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "get"
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)


def _reads_assigned(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the variables that are assigned what a configuration may hold."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _reads(node.value):
            target = node.targets[0]
            if isinstance(target, ast.Name):
                yield target.id, node.value


def _loads(node: ast.AST, names: Container[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load)


def _bound_in(function: ast.AST) -> Iterator[str]:
    """Yield every name as often as something in the function binds it."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        for field in ("name", "arg", "rest", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str) and not isinstance(node, ast.keyword):
                yield value
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from (name for name in node.names for _ in range(2))
