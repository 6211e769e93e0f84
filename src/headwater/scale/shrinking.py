"""Makes a model narrower: by its configuration where it has one, else by the couplings of its widths."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor, nn

from headwater.errors import CannotScaleError
from headwater.scale.answers import Answers, note_answers
from headwater.scale.attention import FactorGiver, Heads, HeadWatch, find_factors
from headwater.scale.configuring import has_configuration, rebuild
from headwater.scale.places import code_of, copy_with, floats_of, numbers_of, tensors_of
from headwater.scale.resizing import cut, resize
from headwater.scale.standing import stand_in
from headwater.scale.symbols import fake_tensors, plain_fakes, tensors_in
from headwater.scale.tracing import first_tensor, run, watch
from headwater.scale.widths import MIN_WIDTH, Couplings, choose_widths, find_couplings
from headwater.torch_private import BatchNorm, buffers_of, forward_pre_hooks_of, parameters_of

_SLOW = (nn.RNNBase, BatchNorm)


def shrink(
    model: nn.Module, scale: float, args: Sequence[Any], kwargs: Mapping[str, Any], *, min_width: int = MIN_WIDTH
) -> nn.Module:
    """Return the model at 1/scale of its width, with the leading blocks of its weights; the model is not touched.

    `args` and `kwargs` are an example of what the model is called with. What is tied to them or to the first tensor
    of the output (channels, vocabulary, classes, sequence length) keeps its size. See `choose_widths` for rounding.

    Raises:
        CannotScaleError: A coupling cannot be kept, or nothing can shrink.
    """
    return Shrinker().shrink(model, scale, args, kwargs, min_width=min_width)


Resize: TypeAlias = Callable[[nn.Module], nn.Module]
"""Makes models of one structure narrower, all in the same way; the given one is not touched."""


class Shrinker:
    """Shrinks models, and remembers the couplings of each structure it has seen in `known`."""

    def __init__(self) -> None:
        self.known: dict[Hashable, Couplings] = {}

    def shrink(
        self,
        model: nn.Module,
        scale: float,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        min_width: int = MIN_WIDTH,
    ) -> nn.Module:
        """Do as the function `shrink` does."""
        return self.plan(model, scale, args, kwargs, min_width=min_width)(model)

    def plan(
        self,
        model: nn.Module,
        scale: float,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        min_width: int = MIN_WIDTH,
    ) -> Resize:
        """Return what shrinks this model and others of its structure, after a trial on tensors without values.

        Raises:
            CannotScaleError: A coupling cannot be kept, or nothing can shrink.
        """
        if scale == 1:
            return _copy
        if scale < 1:
            raise CannotScaleError(f"cannot make a model {scale} times narrower; scale must be at least 1")
        _require_plain_weights(model)
        call, whole = _call(model, args, kwargs)
        first = ""
        if has_configuration(model):
            try:
                giver = _check(rebuild(model, scale, min_width), whole, call)
                return partial(_narrow, partial(rebuild, scale=scale, min_width=min_width), giver)
            except CannotScaleError as error:
                first = f" (by its configuration: {error})"
        try:
            sizes = choose_widths(self._find_couplings(model, call), scale, min_width)
            giver = _check(resize(model, sizes), whole, call)
        except CannotScaleError as error:
            raise CannotScaleError(f"{error}{first}") from error
        return partial(_narrow, partial(resize, sizes=sizes), giver)

    def _find_couplings(self, model: nn.Module, call: _Call) -> Couplings:
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in tensors_in((call.args, call.kwargs)))
        key = (structure_key(model), shapes)
        if key not in self.known:
            self.known[key] = find_couplings(model, call.args, call.kwargs, call.answers)
        return self.known[key]


def structure_key(model: nn.Module) -> Hashable:
    """Equal for models that differ in nothing but the values of their tensors."""
    places = {id(tensor): name for name, tensor in reversed(tensors_of(model).items())}
    return tuple(
        (
            path,
            code_of(module),
            module.training,
            tuple(numbers_of(module)),
            tuple(floats_of(module)),
            tuple((k, t.shape, t.dtype, places[id(t)]) for k, t in _own_tensors(module)),
        )
        for path, module in model.named_modules(remove_duplicate=False)
    )


def _copy(model: nn.Module) -> nn.Module:
    tensors = {id(tensor): tensor for tensor in tensors_of(model).values()}
    return copy_with(model, {key: cut(tensor, ()) for key, tensor in tensors.items()})


def _own_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    named = [*parameters_of(module).items(), *buffers_of(module).items()]
    return [(key, tensor) for key, tensor in named if tensor is not None]


def _narrow(resize: Resize, giver: FactorGiver, model: nn.Module) -> nn.Module:
    small = resize(model)
    giver.give(small)
    return small


def _require_plain_weights(model: nn.Module) -> None:
    """Refuse weights that are computed from others before each forward, in the new way and in the old one."""
    for path, module in model.named_modules():
        hooks = [type(hook).__name__ for hook in forward_pre_hooks_of(module).values()]
        if hasattr(module, "parametrizations") or {"WeightNorm", "SpectralNorm"}.intersection(hooks):
            raise CannotScaleError(
                f"`{path or type(model).__name__}` has a reparametrized weight (weight norm, spectral norm and the "
                "like), for which no rule is known; train with the plain layer, or tune without a surrogate"
            )


def _check(small: nn.Module, whole: _Answer, call: _Call) -> FactorGiver:
    """Refuse a small model that does not run, or answers in another shape than the whole one."""
    answer = _try(small, call)
    if answer.shape != whole.shape:
        raise CannotScaleError(
            f"the narrower model answers in the shape {answer.shape} instead of {whole.shape}; "
            f"tune the model itself with surrogate=None"
        )
    return FactorGiver(find_factors(whole.heads, answer.heads))


class _Call(NamedTuple):
    """How a model is called, and what it then asks of values."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    answers: Answers


def _call(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[_Call, _Answer]:
    """Call a model on tensors without values; where that fails, with what it is told when it has values."""
    call = _Call(args, kwargs, ())
    try:
        return call, _try(model, call)
    except CannotScaleError as error:
        try:
            call = call._replace(answers=note_answers(model, args, kwargs))
        except Exception:  # it does not run with values either, so that was not what it lacked
            raise error from error.__cause__
        if not call.answers:
            raise
    return call, _try(model, call)


class _Answer(NamedTuple):
    """What a model answers on tensors without values, and what it attends with meanwhile."""

    shape: tuple[int, ...]
    heads: Heads


def _try(model: nn.Module, call: _Call) -> _Answer:
    """Run a copy of the model on tensors without values."""
    tensors = {id(tensor): tensor for tensor in tensors_of(model).values()}
    with plain_fakes():
        replacements = {key: _fake_like(tensor) for key, tensor in tensors.items()}
    twin = copy_with(model, replacements)
    for module in twin.modules():
        if isinstance(module, _SLOW):
            stand_in(module)
    running: list[str] = []
    watch(twin, running)
    with plain_fakes(), HeadWatch() as seen:
        fake_args, fake_kwargs = fake_tensors((tuple(call.args), dict(call.kwargs)))
        answer = first_tensor(run(twin, fake_args, fake_kwargs, running, call.answers))
        return _Answer(tuple(answer.shape), seen.heads)


def _fake_like(tensor: Tensor) -> Tensor:
    fake = tensor.new_empty(tensor.shape)
    return nn.Parameter(fake, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else fake
