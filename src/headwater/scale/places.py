"""Where a model keeps its widths: dimensions of tensors, and integers on modules, their settings and closures."""

from __future__ import annotations

import copy
import linecache
import re
from collections.abc import Hashable, Iterator, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor, nn

from headwater.errors import CannotScaleError
from headwater.scale.equations import Kind
from headwater.scale.layers import AttributePath
from headwater.torch_private import MODULE_TABLES, parameters_of


class Part(NamedTuple):
    """A module of a model, as far as widths go."""

    path: str
    code: Hashable
    numbers: tuple[tuple[AttributePath, int], ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]


Structure: TypeAlias = tuple[Part, ...]
"""A model, as far as widths go."""

_CLOSURE = "closure of"
_NOT_WIDTHS = re.compile(
    r"stride|padding|kernel|dilation|window|shift|patch|image|img|resolution|vocab|class|label|max_|seq|context"
    r"|block_size|num_embeddings|scale_factor"
)
_COUNTS = re.compile(r"depth|layer|block|stage|step|_len|length|token|idx|index|axis|seed|repeat")
_WIDTHS = re.compile(r"dim|width|channel|feature|hidden|embed|size|unit|plane|inner|ff|mlp")
_HEADS = re.compile(r"(^|_)n?heads?$|^nh$|^h$")
_HEAD_SIZES = re.compile(r"head_?(dim|size|width|channels|features)|(dim|d|size)_(per_)?head|^d_?(k|v|kv|q|qk)$|^hd$")
_GROUPS = re.compile(r"group|cardinality")
_DEPTH = 2


def kind_of(name: str) -> Kind:
    """What an attribute's name says about it."""
    for pattern, kind in ((_HEAD_SIZES, Kind.HEAD_SIZE), (_HEADS, Kind.HEADS), (_GROUPS, Kind.GROUPS)):
        if pattern.search(name):
            return kind
    return Kind.ATTRIBUTE


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by its full name, the tied ones under each of their names."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return dict(named)


def code_of(module: nn.Module) -> Hashable:
    """What a module computes with: equal for classes that the same lines define anew each time they run."""
    kind = type(module)
    return kind.__module__, kind.__qualname__, _place_of(getattr(kind.forward, "__code__", kind.forward))


def _place_of(code: Hashable) -> Hashable:
    """Where code was written, the same for its variants; where that cannot be read, the code itself."""
    if isinstance(code, CodeType) and linecache.getline(code.co_filename, code.co_firstlineno):
        return code.co_filename, code.co_firstlineno, code.co_qualname
    return code


def structure_of(model: nn.Module) -> Structure:
    """Equal for models that differ in nothing but the values of tensors, and in real numbers such as dropout rates."""
    return tuple(
        Part(
            path,
            code_of(module),
            tuple(numbers_of(module)),
            tuple((key, tuple(tensor.shape)) for key, tensor in parameters_of(module).items() if tensor is not None),
        )
        for path, module in model.named_modules(remove_duplicate=False)
    )


def describe_change(before: Structure, after: Structure) -> str:
    """Name one thing in which two structures differ."""
    for one, other in zip(before, after, strict=False):
        for mine, others in zip((*one.numbers, *one.shapes), (*other.numbers, *other.shapes), strict=False):
            if mine != others:
                keys = mine[0] if isinstance(mine[0], tuple) else (mine[0],)
                name = ".".join(filter(None, (one.path, *map(str, keys))))
                return f"{name} was {mine[1]}, then {others[1]}"
        if one != other:
            return f"{one.path or 'the model'} was made by other code"
    return f"it had {len(before)} modules, then {len(after)}"


def numbers_of(module: nn.Module) -> Iterator[tuple[AttributePath, int]]:
    """The integers of a module that may be widths, by the way to them."""
    if not type(module).__module__.startswith("torch."):
        for name, value in vars(module).items():
            if name not in MODULE_TABLES and not isinstance(value, nn.Module | Tensor):
                yield from _numbers_in((name,), value)


def floats_of(module: nn.Module) -> Iterator[tuple[str, float]]:
    """The fractions that a module of the user keeps."""
    if not type(module).__module__.startswith("torch."):
        for name, value in vars(module).items():
            if type(value) is float:
                yield name, value


def copy_with(model: nn.Module, replacements: Mapping[int, Any]) -> nn.Module:
    """Deep-copy a model, with these objects (by id) in the place of some, which are never copied."""
    try:
        return copy.deepcopy(model, dict(replacements))
    except (TypeError, RuntimeError, AttributeError) as error:
        raise CannotScaleError(
            f"{type(model).__name__} cannot be copied ({error}); make it copyable by copy.deepcopy, "
            f"or tune the model itself with surrogate=None"
        ) from error


def put(model: nn.Module, path: str, attribute: AttributePath, value: int) -> None:
    """Set the number at the end of a way that `numbers_of` gave."""
    _put(model.get_submodule(path), attribute, value)


def _numbers_in(path: AttributePath, value: Any) -> Iterator[tuple[AttributePath, int]]:
    if type(value) is int:
        if value >= 2 and _may_be_width(str(_last_name(path)), value):
            yield path, value
    elif len(path) <= _DEPTH:
        for key, item in _items(value):
            yield from _numbers_in((*path, key), item)


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    """What is inside a value, by the key that reaches it."""
    if isinstance(value, tuple | list):
        yield from enumerate(value)
    elif isinstance(value, dict):
        yield from ((key, item) for key, item in value.items() if isinstance(key, str))
    elif isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        yield from ((f"{_CLOSURE} {name}", cell.cell_contents) for name, cell in cells if _is_filled(cell))
    elif _holds_settings(value):
        yield from vars(value).items()


def _is_filled(cell: CellType) -> bool:
    return cell != CellType()


def _holds_settings(value: Any) -> bool:
    home = type(value).__module__
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, type | nn.Module | Tensor)
        and not (
            home.startswith(("torch.", "builtins", "collections", "functools", "numpy", "logging")) or callable(value)
        )
    )


def _last_name(path: AttributePath) -> str:
    return next(str(key).removeprefix(f"{_CLOSURE} ") for key in reversed(path) if isinstance(key, str))


def _may_be_width(name: str, value: int) -> bool:
    if _NOT_WIDTHS.search(name) or (_COUNTS.search(name) and not _WIDTHS.search(name)):
        return False
    return value > 4 or name not in {"dim", "dims", "ndim"}


def _put(owner: Any, path: AttributePath, value: Any) -> Any:
    """Set a value inside an owner and return the owner, or what must stand in its place."""
    key, *rest = path
    if rest:
        value = _put(_get(owner, key), tuple(rest), value)
    if isinstance(owner, tuple):
        items = [value if place == key else item for place, item in enumerate(owner)]
        return type(owner)(*items) if hasattr(owner, "_fields") else type(owner)(items)
    if isinstance(owner, list | dict):
        owner[key] = value  # type: ignore[index]  # the key comes from this very container
    elif isinstance(owner, FunctionType):
        return _with_cell(owner, str(key).removeprefix(f"{_CLOSURE} "), value)
    else:
        vars(owner)[str(key)] = value
    return owner


def _get(owner: Any, key: str | int) -> Any:
    if isinstance(owner, tuple | list | dict):
        return owner[key]  # type: ignore[index]  # the key comes from this very container
    return vars(owner)[str(key)]


def _with_cell(function: FunctionType, name: str, value: Any) -> FunctionType:
    """The same function with another value for one variable of its closure."""
    pairs = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    cells = tuple(CellType(value) if free == name else cell for free, cell in pairs)
    changed = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    changed.__kwdefaults__ = function.__kwdefaults__
    vars(changed).update(vars(function))
    return changed
