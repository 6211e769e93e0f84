"""The state of one lane on disk: tensors as safetensors, the rest as JSON in the header. Loading runs no code."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save, save_file
from torch import Tensor

from headwater.errors import StoreError
from headwater.train.engines import LaneState

FORMAT = "headwater lane state 2"


def save_state(state: LaneState, path: Path) -> None:
    """Write the state in one piece: whoever reads the path finds the old state or the new one, never a part."""
    tree, tensors = _take_apart(state)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.part")
    try:
        save_file(tensors, draft, metadata={"format": FORMAT, "tree": tree})
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def load_state(path: Path) -> LaneState:
    """Read a state back.

    Raises:
        StoreError: The file is missing, cut short, or something else than a saved state.
    """
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise StoreError(f"{path} is not a saved state of this version ({FORMAT!r}); it cannot be resumed from")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (OSError, SafetensorError) as error:
        raise StoreError(f"the saved state {path} cannot be read: {error}; the trial must start again") from error
    return LaneState(**_decode(json.loads(metadata["tree"]), tensors))


def pack_state(state: LaneState) -> bytes:
    """Return the state as bytes, for another process."""
    tree, tensors = _take_apart(state)
    head = tree.encode()
    return len(head).to_bytes(8, "little") + head + save(tensors)


def unpack_state(content: bytes) -> LaneState:
    """Return the state that another process has packed."""
    start = 8 + int.from_bytes(content[:8], "little")
    return LaneState(**_decode(json.loads(content[8:start]), load(content[start:])))


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
    raise StoreError(
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
