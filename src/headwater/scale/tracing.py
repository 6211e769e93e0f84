"""Traces one forward of a model with symbols for sizes, and solves what it requires of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from headwater.errors import CannotScaleError
from headwater.scale.answers import Answers, TellAgain
from headwater.scale.equations import Equation, Kind, Solver, solve
from headwater.scale.layers import AttributePath, Declaration, Shape, declare
from headwater.scale.layouts import Layout
from headwater.scale.places import copy_with, floats_of, kind_of, numbers_of, put
from headwater.scale.polynomials import Polynomial, constant
from headwater.scale.standing import stand_in
from headwater.scale.symbols import Symbols, fake_tensors, tensors_in
from headwater.torch_private import buffers_of, parameters_of

_RARE_BATCH = 3
_LARGEST_KERNEL = 31
_NOT_OF_WIDTHS = ("drop", "eps", "prob", "momentum", "rate", "slope", "alpha", "ratio", "gamma", "beta")


@dataclass(slots=True)
class Trace:
    """What a trace found: sizes as polynomials in variables, some of which the solver has replaced."""

    solver: Solver
    tensors: dict[str, Shape] = field(default_factory=dict)
    attributes: dict[tuple[str, AttributePath], Polynomial] = field(default_factory=dict)
    layouts: list[tuple[Polynomial, Layout]] = field(default_factory=list)
    floats: list[tuple[str, str, float]] = field(default_factory=list)


@dataclass(slots=True)
class _Draft:
    """The sizes of a model as variables, before anything has run."""

    symbols: Symbols
    by_tensor: dict[int, tuple[Tensor, Shape]] = field(default_factory=dict)
    tensors: dict[str, Shape] = field(default_factory=dict)
    attributes: dict[tuple[str, AttributePath], Polynomial] = field(default_factory=dict)


def trace(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], answers: Answers = ()) -> Trace:
    """Run a copy of the model with symbols for sizes and return what it requires of them.

    The number of examples is first replaced by a rare one, lest it be mistaken for a width of the same size; where
    the model does not take that, and where it does not take symbols for its integers, they are left as they are. What
    the model asks of values is answered by `answers`.

    Raises:
        CannotScaleError: The model runs in neither way.
    """
    tensors = tensors_in((args, kwargs))
    alike = len({tensor.shape[:1] for tensor in tensors}) == 1 and all(tensor.dim() > 1 for tensor in tensors)
    ways = [(_RARE_BATCH, True)] * alike + [(None, True), (None, False)]
    errors: list[CannotScaleError] = []
    for batch, with_numbers in ways:
        try:
            return _trace_once(model, (args, kwargs), batch, with_numbers, answers)
        except CannotScaleError as error:
            errors.append(error)
    raise errors[-1]


def _trace_once(
    model: nn.Module,
    call: tuple[Sequence[Any], Mapping[str, Any]],
    batch: int | None,
    with_numbers: bool,
    answers: Answers,
) -> Trace:
    draft = _draft(model, with_numbers)
    symbols = draft.symbols
    twin = _twin(model, draft)
    with symbols.tracing():
        fake_args, fake_kwargs = fake_tensors((tuple(call[0]), dict(call[1])), batch)
        result = run(twin, fake_args, fake_kwargs, symbols.modules, answers)
        for size in first_tensor(result).shape:
            symbols.pin(symbols.polynomial(size), "it is a size of the output")
    solver = solve(symbols.equations, symbols.values, symbols.kinds)
    for polynomial, why in symbols.pins:
        solver.pin(polynomial, why)
    return Trace(solver, draft.tensors, draft.attributes, symbols.layouts, _floats(model))


def first_tensor(output: Any) -> Tensor:
    """The tensor that is the model's answer: its `logits` if it has any, else the first that is more than one number.

    Raises:
        CannotScaleError: The output holds no tensor.
    """
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    tensors = [logits] if isinstance(logits, Tensor) else tensors_in(output)
    if not tensors and isinstance(output, Mapping):
        tensors = tensors_in(list(output.values()))
    if not tensors:
        raise CannotScaleError(
            f"the model returns no tensor but {type(output).__name__}; return a tensor, or tune with surrogate=None"
        )
    return next((tensor for tensor in tensors if tensor.dim()), tensors[0])


def _draft(model: nn.Module, with_numbers: bool) -> _Draft:
    """Give every dimension and integer that may be a width a variable."""
    draft = _Draft(Symbols())
    for path, module in model.named_modules():
        declaration = declare(module, path or type(module).__name__, draft.symbols) or Declaration({}, {})
        draft.symbols.layouts.extend(declaration.layouts.items())
        _draft_tensors(draft, path, module, declaration)
        for attribute, size in declaration.attributes.items():
            draft.attributes[path, attribute] = size
        for attribute, value in numbers_of(module) if with_numbers else ():
            if (path, attribute) not in draft.attributes and not _is_declared(declaration, attribute):
                name = f"{path}.{'.'.join(map(str, attribute))}".removeprefix(".")
                kind = kind_of(str(attribute[-1]))
                draft.attributes[path, attribute] = draft.symbols.new(name, value, kind)
    _name_all(draft, model)
    return draft


def _is_declared(declaration: Declaration, attribute: AttributePath) -> bool:
    return any(attribute[0] == known[0] for known in declaration.attributes)


def _draft_tensors(draft: _Draft, path: str, module: nn.Module, declaration: Declaration) -> None:
    homes = ((parameters_of(module), Kind.DIMENSION), (buffers_of(module), Kind.ATTRIBUTE))
    for home, kind in homes:
        for key, tensor in home.items():
            if tensor is None:
                continue
            name = f"{path}.{key}".removeprefix(".")
            if is_lazy(tensor):
                raise CannotScaleError(f"{name} has no shape yet; run the lazy model once before it is prepared")
            shape = declaration.shapes.get(key)
            if shape is None or tuple(size.at(draft.symbols.values) for size in shape) != tuple(tensor.shape):
                shape = _unknown_shape(draft.symbols, name, tensor, kind)
            _, first = draft.by_tensor.setdefault(id(tensor), (tensor, shape))
            for one, other in zip(first, shape, strict=True):
                if one != other:
                    draft.symbols.equations.append(Equation(one - other, f"the tied {name}"))


def _unknown_shape(symbols: Symbols, name: str, tensor: Tensor, kind: Kind) -> Shape:
    """A variable for each dimension, save those that look like a kernel's sides."""
    return tuple(
        constant(size)
        if tensor.dim() >= 4 and place >= 2 and size <= _LARGEST_KERNEL
        else symbols.new(f"{name}[{place}]", size, kind)
        for place, size in enumerate(tensor.shape)
    )


def _name_all(draft: _Draft, model: nn.Module) -> None:
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    for name, tensor in named:
        draft.tensors[name] = draft.by_tensor[id(tensor)][1]


def _twin(model: nn.Module, draft: _Draft) -> nn.Module:
    """A copy of the model on fake tensors with symbols for sizes, which notes which of its modules runs."""
    symbols = draft.symbols
    replacements: dict[int, Any] = {}
    with symbols.tracing():
        for key, (tensor, shape) in draft.by_tensor.items():
            fake = torch.empty([symbols.size(size) for size in shape], dtype=tensor.dtype, device=tensor.device)
            is_parameter = isinstance(tensor, nn.Parameter)
            replacements[key] = nn.Parameter(fake, requires_grad=tensor.requires_grad) if is_parameter else fake
    twin = copy_with(model, replacements)
    for (path, attribute), size in draft.attributes.items():
        put(twin, path, attribute, symbols.size(size))
    for module in twin.modules():
        stand_in(module)
        if isinstance(module, nn.TransformerEncoder | nn.TransformerEncoderLayer):
            module.training = True  # else, without gradients, it takes a short cut that knows no symbols
    watch(twin, symbols.modules)
    return twin


def watch(twin: nn.Module, running: list[str]) -> None:
    """Have a copy of a model note on a list which of its modules runs, the innermost last."""
    for path, module in twin.named_modules():
        name = path or type(twin).__name__
        module.register_forward_pre_hook(lambda _module, _args, name=name: running.append(name))
        module.register_forward_hook(lambda _module, _args, _result: _drop_last(running))


def run(
    twin: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], running: Sequence[str], answers: Answers = ()
) -> Any:
    """Run a watched copy of a model on fake tensors, with answers to what it asks of values.

    Raises:
        CannotScaleError: The model fails; the message names the module that did.
    """
    try:
        with TellAgain(answers):
            return twin(*args, **kwargs)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise CannotScaleError(
            f"{running[-1] if running else type(twin).__name__} does not run on tensors without values "
            f"({type(error).__name__}: {lines[0][:200]}); give Headwater a model that does, or tune the model itself "
            f"with surrogate=None"
        ) from error


def _drop_last(names: list[str]) -> None:
    names.pop()


def _floats(model: nn.Module) -> list[tuple[str, str, float]]:
    return [
        (path, name, value)
        for path, module in model.named_modules()
        for name, value in floats_of(module)
        if not any(word in name for word in _NOT_OF_WIDTHS) and name != "p"
    ]
