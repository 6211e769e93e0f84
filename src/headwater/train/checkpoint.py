"""The state of one lane as a file: tensors as safetensors, the rest as JSON in the header. Loading runs no code.

The header also says whose state it is (study, trial, epoch), with a checksum over all of it: a state of another study,
another trial or a damaged one is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from hashlib import blake2b
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from headwater.errors import StoreError, TrialError
from headwater.train.engines import LaneState

FORMAT = "headwater lane state 3"
_LENGTH = 8
"""A safetensors file begins with the length of its header, in so many bytes."""

_DAMAGE = (SafetensorError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What comes of reading a file that somebody has changed."""


def encode_state(state: LaneState, study: str, trial: int) -> bytes:
    """Return the state of a trial of a study as the content of a file."""
    tree, tensors = _take_apart(state)
    header, data = _split(save(tensors))
    metadata = {"format": FORMAT, "study": study, "trial": str(trial), "epoch": str(state.epoch), "tree": tree}
    metadata["checksum"] = _sum(metadata, header, data)
    text = json.dumps({"__metadata__": metadata, **header}).encode()
    text += b" " * (-len(text) % _LENGTH)
    return len(text).to_bytes(_LENGTH, "little") + text + data


def decode_state(content: bytes, study: str, trial: int) -> LaneState:
    """Return the state that a file holds.

    Raises:
        StoreError: It is damaged, or something else than a state of this trial of this study.
    """
    try:
        header, data = _split(content)
        metadata = header.pop("__metadata__", {})
        if metadata.get("format") != FORMAT:
            raise StoreError(f"it is {metadata.get('format', 'a file')!r}, where this version reads {FORMAT!r}")
        if metadata.pop("checksum", None) != _sum(metadata, header, data):
            raise StoreError("its checksum is not that of what it holds")
        if (metadata["study"], metadata["trial"]) != (study, str(trial)):
            raise StoreError(f"it is of trial {metadata['trial']} of the study with the id {metadata['study']!r}")
        return LaneState(**_decode(json.loads(metadata["tree"]), load(content)))
    except _DAMAGE as error:
        raise StoreError(f"it is no saved state ({type(error).__name__}: {error})") from error


def pack_state(state: LaneState) -> bytes:
    """Return the state as bytes, for another process."""
    return encode_state(state, "", 0)


def unpack_state(content: bytes) -> LaneState:
    """Return the state that another process has packed."""
    return decode_state(content, "", 0)


def _split(content: bytes) -> tuple[dict[str, Any], memoryview]:  # Any: JSON values
    """Return the header of a safetensors file, and the data behind it."""
    start = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    if len(content) < start:
        raise ValueError(f"cut short after {len(content)} bytes")
    header = json.loads(content[_LENGTH:start])
    if not isinstance(header, dict):
        raise ValueError("without a header")
    return header, memoryview(content)[start:]


def _sum(metadata: Mapping[str, str], header: Mapping[str, Any], data: memoryview) -> str:  # Any: JSON values
    digest = blake2b(json.dumps([metadata, header], sort_keys=True).encode(), digest_size=16)
    digest.update(data)
    return digest.hexdigest()


def _take_apart(state: LaneState) -> tuple[str, dict[str, Tensor]]:
    tensors: dict[str, Tensor] = {}
    content = {field.name: getattr(state, field.name) for field in fields(state)}
    return json.dumps(_encode(content, tensors, "")), tensors


def _encode(value: Any, tensors: dict[str, Tensor], path: str) -> Any:
    """Turn a state dict into JSON, putting its tensors aside; what JSON lacks gets a tag."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        tensors[path] = value.detach().contiguous().clone()
        return {"$tensor": path}
    if isinstance(value, Mapping):
        items = [[key, _encode(item, tensors, f"{path}/{key}")] for key, item in value.items()]
        return {"$counter" if isinstance(value, Counter) else "$map": items}
    if isinstance(value, list | tuple):
        encoded = [_encode(item, tensors, f"{path}/{index}") for index, item in enumerate(value)]
        return {"$tuple": encoded} if isinstance(value, tuple) else encoded
    raise TrialError(
        f"the state at {path} holds a {type(value).__name__}, which cannot be saved without pickling code; "
        "keep numbers, strings, tensors and containers of them in optimizers and schedulers"
    )


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "$tensor":
        return tensors[content]
    if tag == "$tuple":
        return tuple(_decode(item, tensors) for item in content)
    pairs = {key: _decode(item, tensors) for key, item in content}
    return Counter(pairs) if tag == "$counter" else pairs
