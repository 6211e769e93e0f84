"""The state of one lane as a file: tensors as safetensors, the rest as JSON in the header. Loading runs no code.

The header also says whose state it is (study, trial, epoch), with a checksum over all of it: a state of another study,
another trial or a damaged one is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from headwater.errors import TrialError
from headwater.store.state_format import StateHeader, open_state, refusing_damage, seal_state
from headwater.train.engines import LaneState


def encode_state(state: LaneState, study: str, trial: int) -> bytes:
    """Return the state of a trial of a study as the content of a file."""
    tree, tensors = _take_apart(state)
    content = _serialize(tensors)
    tensors.clear()  # there may not be memory for another copy
    return seal_state(StateHeader(study=study, trial=trial, epoch=state.epoch, tree=tree), content)


def _serialize(tensors: dict[str, Tensor]) -> bytes:
    try:
        return save(tensors)
    except BaseException as panic:
        if type(panic).__name__ == "PanicException":  # what safetensors, being Rust, does without memory
            raise MemoryError("there is not enough memory to save its state") from panic
        raise


def decode_state(content: bytes, study: str, trial: int) -> LaneState:
    """Return the state that a file holds.

    Raises:
        StoreError: It is damaged, or something else than a state of this trial of this study.
    """
    header = open_state(content, study, trial)
    with refusing_damage(SafetensorError):
        return LaneState(**_decode(json.loads(header.tree), load(content)))


def _take_apart(state: LaneState) -> tuple[str, dict[str, Tensor]]:
    tensors: dict[str, Tensor] = {}
    content = {field.name: getattr(state, field.name) for field in fields(state)}
    return json.dumps(_encode(content, tensors, "")), tensors


def _encode(value: Any, tensors: dict[str, Tensor], path: str) -> Any:
    """Turn a state dict into JSON, putting its tensors aside; what JSON lacks gets a tag."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.bool_ | np.integer | np.floating):  # np.float64 alone is a float
        return value.item()
    while isinstance(value, Tensor) and path in tensors:  # a key may hold the character that joins keys
        path += "'"
    if isinstance(value, Tensor) and value.is_complex():  # not all of which safetensors knows
        tensors[path] = torch.view_as_real(value.detach().resolve_conj().contiguous()).clone()
        return {"$complex": path}
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
    if tag == "$complex":
        return torch.view_as_complex(tensors[content])
    if tag == "$tuple":
        return tuple(_decode(item, tensors) for item in content)
    pairs = {key: _decode(item, tensors) for key, item in content}
    return Counter(pairs) if tag == "$counter" else pairs
