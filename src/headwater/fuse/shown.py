"""Functions of the user's own that use a text for nothing but showing it, such as a progress bar with the loss.

Such a function is called once, with the text of all lanes. A closed grammar decides that on the syntax tree: the text,
and all that depends on the text, goes into local names, into text and lists made there, and to the screen.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable
from functools import cache
from types import FunctionType, NoneType
from typing import Any

PLAIN = frozenset({int, float, bool, str, NoneType})
_CALLS = frozenset({len, print, range, str})
_TEXT_METHODS = frozenset({"center", "format", "join", "ljust", "rjust"})
_EXPRESSIONS = (
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.Compare, ast.cmpop,
    ast.IfExp, ast.Call, ast.Attribute, ast.Name, ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.List,
    ast.expr_context,
)  # fmt: skip
"""The parts of an expression that computes with the text; none of them raises for some texts only."""


@cache
def shows_only(function: FunctionType, names: frozenset[str]) -> bool:
    """Tell whether a function uses the texts that it gets under these names for nothing but showing them."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        return False
    if not isinstance(tree, ast.FunctionDef) or tree.decorator_list or function.__closure__:
        return False
    check = _Check(function, tree, names)
    num_found = 0
    while num_found < len(check.tainted):  # a name may be found to depend on the text after it was used
        num_found = len(check.tainted)
        if not check.allows(tree.body, is_tainted=False):
            return False
    return True


class _Check:
    """Follows the names that depend on a text through the statements of a function."""

    def __init__(self, function: FunctionType, tree: ast.FunctionDef, names: Iterable[str]) -> None:
        code = function.__code__
        self._globals = function.__globals__
        self._locals = {*code.co_varnames[code.co_argcount + code.co_kwonlyargcount :]}
        assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        others = {
            each.id for node in assigned if not isinstance(node.value, ast.List) for each in _names_in(node.targets)
        }
        self._lists = {each.id for node in assigned for each in _names_in(node.targets)} - others
        """Names that hold nothing but lists which the function has made."""
        self.tainted = {*names}

    def allows(self, statements: Iterable[ast.stmt], *, is_tainted: bool) -> bool:
        """Tell whether statements only show; where the text decides whether they run, `is_tainted` is set."""
        return all(self._allows_one(statement, is_tainted) for statement in statements)

    def _allows_one(self, statement: ast.stmt, is_tainted: bool) -> bool:
        if not is_tainted and not self._depends(statement):
            return True  # the same for every lane
        match statement:
            case ast.Expr(value):
                return self._is_known(value)
            case ast.If(test=value, body=body, orelse=rest):
                return self._is_known(value) and self.allows(
                    [*body, *rest], is_tainted=is_tainted or self._depends(value)
                )
            case ast.For(target=target, iter=value, body=body, orelse=[]):
                is_tainted = is_tainted or self._depends(value)
                is_known = not self._depends(value) or self._is_known(value)
                return is_known and self._assigns(target, is_tainted) and self.allows(body, is_tainted=is_tainted)
            case ast.Assign(targets=[target], value=value) | ast.AugAssign(target=target, op=ast.Add(), value=value):
                return self._is_known(value) and self._assigns(target, is_tainted or self._depends(value))
        return isinstance(statement, ast.Pass)

    def _assigns(self, target: ast.expr, is_tainted: bool) -> bool:
        is_local = isinstance(target, ast.Name) and target.id in self._locals
        if is_local and is_tainted:
            self.tainted |= {each.id for each in _names_in([target])}
        return is_local

    def _depends(self, node: ast.AST) -> bool:
        return any(each.id in self.tainted and isinstance(each.ctx, ast.Load) for each in _names_in([node]))

    def _is_known(self, node: ast.expr) -> bool:
        """Tell whether an expression is one of the grammar; an expression without the text must be, too."""
        callees = {id(part) for each in ast.walk(node) if isinstance(each, ast.Call) for part in ast.walk(each.func)}
        return all(
            isinstance(each, _EXPRESSIONS)
            and (not isinstance(each, ast.Call) or self._may_call(each))
            and (id(each) in callees or not isinstance(each, ast.Attribute))
            and (id(each) in callees or not isinstance(each, ast.Name) or self._is_plain(each))
            for each in ast.walk(node)
        )

    def _is_plain(self, name: ast.Name) -> bool:
        return name.id not in self._globals or type(self._globals[name.id]) in PLAIN

    def _may_call(self, call: ast.Call) -> bool:
        function = call.func
        if call.keywords:
            return False
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Constant):
            return function.attr in _TEXT_METHODS
        if isinstance(function, ast.Attribute) and function.attr == "append":
            names = {each.id for each in _names_in([function.value])}
            self.tainted |= names
            return isinstance(function.value, ast.Name) and names <= self._lists & self._locals
        found = self._find(function)
        owner = getattr(found, "__self__", None)
        if owner is not None and (owner is sys.stdout or owner is sys.stderr):
            return found.__name__ in ("flush", "write")
        return any(found is each for each in _CALLS)

    def _find(self, node: ast.expr) -> Any:
        """Return the function that a name or a dotted name stands for in the function's module."""
        if isinstance(node, ast.Attribute):
            return getattr(self._find(node.value), node.attr, None)
        if not isinstance(node, ast.Name) or node.id in self._locals:
            return None
        builtins: Any = self._globals["__builtins__"]
        space = builtins if isinstance(builtins, dict) else vars(builtins)
        return self._globals.get(node.id, space.get(node.id))


def _names_in(nodes: Iterable[ast.AST]) -> Iterable[ast.Name]:
    return (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name))
