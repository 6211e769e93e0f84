"""The syntax tree of a user's file, in which what no class can answer for many lanes is asked of tools.

| the source | asks |
|---|---|
| `f(x)` | `tools.of(f)(x)`: a function that knows lanes, or one that stands in for `f` |
| `a is b` | `tools.same_thing(a, b)` |
| `a += x`, `a[i] += x` | `a += tools.operand(x, a)`, `a[i] += tools.operand(x, a)` |
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

from headwater.fuse.branch_syntax import Plan, own_nodes, plan_branches, write_if

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
        self._num_functions = 0
        """How many functions are around."""
        self._plans: dict[ast.If, Plan] = {}
        """Each `if` that lanes may answer differently."""
        self._num_branches = 0

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

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        names: list[ast.expr] = []
        owner = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        while isinstance(owner, ast.Attribute):
            names.insert(0, ast.copy_location(ast.Constant(owner.attr), owner))
            owner = owner.value
        if isinstance(owner, ast.Name):
            read = ast.copy_location(ast.Name(owner.id, ast.Load()), owner)
            node.value = self._ask(node.value, "operand", node.value, read, *names)
        return node

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
        self.generic_visit(node)
        if node not in self._plans:
            return node
        self._num_branches += 1
        return write_if(node, self._plans[node], f".branch{self._num_branches}", self._ask)

    def visit_Import(self, node: ast.Import) -> Any:
        return self._reach(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        return self._reach(node)

    def _reach(self, node: ast.Import | ast.ImportFrom) -> Any:
        """Let what a function imports ask too."""
        names = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        if not self._num_functions or "*" in names:
            return node
        values = [ast.copy_location(ast.Name(name, ast.Load()), node) for name in names]
        return [node, ast.copy_location(ast.Expr(self._ask(node, "reach", *values)), node)]

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node  # an annotation may be kept as text

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
            node.target = self.visit(node.target)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._visit_function(node)

    def _visit_function(self, node: Any) -> ast.AST:
        returns, node.returns = node.returns, None
        if _can_branch(node):
            self._plans |= plan_branches(node, frozenset(_names_of_other_scopes(node)))
        self._num_functions += 1
        self.generic_visit(node)
        self._num_functions -= 1
        node.returns = returns
        return node  # type: ignore[no-any-return]  # a function, of either kind

    def _ask(self, node: ast.AST, name: str, *args: ast.expr) -> ast.Call:
        """Return a call of a tool, where the node stands."""
        tool = ast.copy_location(
            ast.Attribute(ast.copy_location(ast.Constant(self._tools), node), name, ast.Load()), node
        )
        return ast.copy_location(ast.Call(tool, [*args], []), node)


def _names_of_other_scopes(function: ast.AST) -> Iterator[str]:
    for node in own_nodes(function):
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
