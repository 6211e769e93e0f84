"""Makes a model narrower by its configuration, as models of the Hugging Face kind have one.

Nothing is imported for this: any model will do that has a `config` with `to_dict` and is built from it alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import CannotScaleError
from headwater.scale.places import tensors_of
from headwater.scale.resizing import cut
from headwater.torch_private import buffers_of, parameters_of

_HEADS = (
    "num_attention_heads",
    "n_head",
    "num_heads",
    "n_heads",
    "encoder_attention_heads",
    "decoder_attention_heads",
)
_KEY_VALUE_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
_MAIN_WIDTHS = ("hidden_size", "n_embd", "d_model", "embed_dim", "dim", "hidden_sizes")
_WIDTHS = (
    *_MAIN_WIDTHS,
    "intermediate_size",
    "n_inner",
    "d_ff",
    "ffn_dim",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "hidden_dim",
    "embedding_size",
    "word_embed_proj_dim",
    "moe_intermediate_size",
    "decoder_hidden_size",
)
_HEAD_SIZES = ("d_kv", "head_dim", "attention_head_size")
_MULTIPLIERS = ("depth_multiplier", "width_multiplier", "width_coefficient")
_FUSED = ("c_attn", "qkv", "query_key_value", "in_proj_weight", "in_proj_bias")


def has_configuration(model: nn.Module) -> bool:
    """Whether a model carries a configuration that says how wide it is."""
    return callable(getattr(getattr(model, "config", None), "to_dict", None))


def rescale(config: Any, scale: float, min_width: int) -> Any:
    """Return a copy of a configuration with every width divided; what it holds of other configurations likewise.

    The number of heads is divided and their size kept; with fewer heads than `scale` one is left, and its size is
    divided by the rest. Other widths are rounded to the nearest and not below `min_width`.

    Raises:
        CannotScaleError: The configuration names no width.
    """
    small = copy.deepcopy(config)
    changed = _rescale(small, scale, min_width)
    for inner in vars(small).values():
        if callable(getattr(inner, "to_dict", None)):
            changed = _rescale(inner, scale, min_width) or changed
    if not changed:
        raise CannotScaleError(f"{type(config).__name__} has none of the widths {', '.join(_MAIN_WIDTHS)}")
    return small


def rebuild(model: nn.Module, scale: float, min_width: int) -> nn.Module:
    """Build the model anew from its rescaled configuration, with the leading blocks of its weights.

    Raises:
        CannotScaleError: The model cannot be built from its configuration, or has other tensors than that says.
    """
    config = rescale(model.config, scale, min_width)
    small = _build(type(model), config, "meta")
    if _needs_values(small, model):
        small = _build(type(model), config, "cpu")
    _fill(small, model)
    for whole, part in zip(model.modules(), small.modules(), strict=True):
        part.training = whole.training
    return small


def _rescale(config: Any, scale: float, min_width: int) -> bool:
    """Change a configuration in place; say whether it names any width."""
    before = {key: value for key, value in vars(config).items() if value is not None}
    changes: dict[str, Any] = {key: before[key] / scale for key in _MULTIPLIERS if key in before}
    changes |= {key: _narrow(before[key], scale, min_width) for key in _WIDTHS if key in before}
    changes |= _rescale_heads(before, scale, min_width)
    vars(config).update(changes)
    return bool(changes)


def _rescale_heads(before: dict[str, Any], scale: float, min_width: int) -> dict[str, Any]:
    """New numbers of heads, and the widths that are multiples of them."""
    changes: dict[str, Any] = {}
    width_key = next((key for key in _MAIN_WIDTHS if key in before), None)
    for key in (key for key in _HEADS if key in before):
        if "d_kv" in before or width_key is None:
            changes[key] = _divide_alike(before[key], scale)
            continue
        heads, widths = before[key], before[width_key]
        first = (
            [heads[0], widths[0] if isinstance(widths, Sequence) else widths]
            if isinstance(heads, Sequence)
            else [heads, widths]
        )
        head_size = before.get("head_dim", first[1] // first[0])
        fewer, smaller = _divide_heads(first[0], head_size, scale, min_width)
        changes[key] = _in_proportion(heads, fewer, first[0])
        if head_size * first[0] == first[1]:
            changes |= _widths_of(before, width_key, fewer * smaller)
        changes |= {name: smaller for name in _HEAD_SIZES if before.get(name) == head_size}
        for name in (name for name in _KEY_VALUE_HEADS if name in before):
            changes[name] = _largest_divisor(fewer, before[name] * fewer // heads)
    return changes


def _widths_of(before: dict[str, Any], key: str, width: int) -> dict[str, Any]:
    """The main width, and those that are the same by design; the later ones of a list stay in proportion."""
    value = before[key]
    first = value[0] if isinstance(value, Sequence) else value
    same = {name: width for name in _WIDTHS if before.get(name) == value and isinstance(value, int)}
    return {**same, key: _in_proportion(value, width, first)}


def _in_proportion(value: Any, new: int, old: int) -> Any:
    if isinstance(value, Sequence):
        return type(value)([max(1, round(item * new / old)) for item in value])  # type: ignore[call-arg]  # a list or tuple
    return new


def _divide_heads(heads: int, size: int, scale: float, min_width: int) -> tuple[int, int]:
    """The heads that are left, and the size of each."""
    if heads >= scale:
        return max(1, round(heads / scale)), size
    smaller = _narrow(size, scale / heads, min_width)
    return 1, smaller + smaller % 2 if size % 2 == 0 else smaller


def _divide_alike(heads: Any, scale: float) -> Any:
    if isinstance(heads, Sequence):
        return type(heads)([_divide_alike(item, scale) for item in heads])  # type: ignore[call-arg]  # a list or tuple
    return max(1, round(heads / scale))


def _narrow(width: Any, scale: float, min_width: int) -> Any:
    if isinstance(width, Sequence):
        return type(width)([_narrow(item, scale, min_width) for item in width])  # type: ignore[call-arg]  # a list or tuple
    return max(round(width / scale), min(width, min_width))


def _largest_divisor(number: int, limit: int) -> int:
    return next((size for size in range(max(1, limit), 0, -1) if number % size == 0), 1)


def _build(kind: type[nn.Module], config: Any, device: str) -> nn.Module:
    try:
        with torch.random.fork_rng(devices=[]), torch.device(device):
            return kind(config)
    except Exception as error:
        raise CannotScaleError(
            f"{kind.__name__} cannot be built from its configuration at a smaller width "
            f"({type(error).__name__}: {error})"
        ) from error


def _needs_values(small: nn.Module, model: nn.Module) -> bool:
    """Whether tensors that are no parameters must be computed anew at the smaller size."""
    buffers = dict(model.named_buffers())
    if any(name not in buffers or b.shape != buffers[name].shape for name, b in small.named_buffers()):
        return True
    return any(isinstance(value, Tensor) and value.is_meta for m in small.modules() for value in vars(m).values())


def _fill(small: nn.Module, model: nn.Module) -> None:
    """Put the leading blocks of the model's tensors into the small one; those that are tied stay tied."""
    sources = tensors_of(model)
    places = dict(_places(small))
    if sources.keys() != places.keys():
        odd = sorted(sources.keys() ^ places.keys())
        raise CannotScaleError(
            f"{type(model).__name__} differs from what its configuration says at {', '.join(odd[:3])}"
        )
    made: dict[int, Tensor] = {}
    for name, (home, key) in places.items():
        source, target = sources[name], home[key]
        if target.dim() != source.dim() or any(n > o for n, o in zip(target.shape, source.shape, strict=True)):
            raise CannotScaleError(f"{name} of the smaller model has the shape {tuple(target.shape)}")
        if id(source) not in made:
            made[id(source)] = _block(name, source, target)
        home[key] = made[id(source)]


def _places(model: nn.Module) -> Iterator[tuple[str, tuple[dict[str, Any], str]]]:
    for path, module in model.named_modules(remove_duplicate=False):
        homes: tuple[dict[str, Any], ...] = (parameters_of(module), buffers_of(module))
        for home in homes:
            for key, tensor in home.items():
                if tensor is not None:
                    yield f"{path}.{key}".removeprefix("."), (home, key)


def _block(name: str, source: Tensor, target: Tensor) -> Tensor:
    if not isinstance(source, nn.Parameter) and source.shape != target.shape:
        return target.to(source.device)
    entries = [_entries(name, old, new, source.shape) for old, new in zip(source.shape, target.shape, strict=True)]
    return cut(source, entries)


def _entries(name: str, old: int, new: int, shape: Sequence[int]) -> Tensor:
    """The leading places of a dimension, of each third where query, key and value are fused."""
    parts = 3 if any(word in name for word in _FUSED) and old != new and old % 3 == 0 and new % 3 == 0 else 1
    if parts == 3 and len(shape) > 1 and old == min(shape):
        parts = 1
    starts = torch.arange(parts)[:, None] * (old // parts)
    return (starts + torch.arange(new // parts)).flatten()
