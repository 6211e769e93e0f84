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
from safetensors.torch import load
from torch import Tensor

from headwater.errors import TrialError
from headwater.store.state_format import StateHeader, join_state, open_state, refusing_damage
from headwater.torch_private import DisableTorchFunction
from headwater.train.engines import LaneState

_TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2: "F8_E5M2", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}  # fmt: skip
"""The names of safetensors for the types of torch."""


def encode_state(state: LaneState, study: str, trial: int) -> bytes:
    """Return the state of a trial of a study as the content of a file.

    Tensors are copied once, into the result: `safetensors.torch.save` copies them more often, and where memory runs out
    in it, the process ends.

    Raises:
        MemoryError: There is not enough memory for that.
    """
    with DisableTorchFunction():  # copies of states are no lanes
        tree, tensors = _take_apart(state)
        header = StateHeader(study=study, trial=trial, epoch=state.epoch, tree=tree)
        try:
            return join_state(header, _place(tensors), [_read_bytes(tensor) for tensor in tensors.values()])
        except MemoryError as error:
            raise MemoryError("there is not enough memory to save its state") from error


def _place(tensors: Mapping[str, Tensor]) -> dict[str, Any]:  # Any: JSON values
    """Return where the data of tensors go in a file, in their order."""
    places, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        places[name] = {"dtype": _TYPES[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [begin, end]}
    return places


def _read_bytes(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the CPU."""
    row = tensor.as_strided((tensor.numel(),), (1,))  # of one element, any stride is contiguous
    return row.view(torch.uint8).numpy().data


def decode_state(content: bytes, study: str, trial: int) -> LaneState:
    """Return the state that a file holds.

    Raises:
        StoreError: It is damaged, or something else than a state of this trial of this study.
        MemoryError: There is not enough memory for it.
    """
    header = open_state(content, study, trial)
    with refusing_damage(SafetensorError):
        return LaneState(**_decode(json.loads(header.tree), _load(content)))


def _load(content: bytes) -> dict[str, Tensor]:
    try:
        return load(content)
    except BaseException as panic:
        if type(panic).__name__ == "PanicException":  # what safetensors, being Rust, does without memory
            raise MemoryError("there is not enough memory to load a state") from panic
        raise


def _take_apart(state: LaneState) -> tuple[str, dict[str, Tensor]]:
    tensors: dict[str, Tensor] = {}
    content = {field.name: getattr(state, field.name) for field in fields(state)}
    tree = json.dumps(_encode(content, tensors, ""))
    aligned = sorted(tensors, key=lambda name: -tensors[name].element_size())  # readers may map the file into memory
    return tree, {name: tensors[name] for name in aligned}


def _encode(value: Any, tensors: dict[str, Tensor], path: str) -> Any:
    """Turn a state dict into JSON, putting its tensors aside; what JSON lacks gets a tag."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.bool_ | np.integer | np.floating):  # np.float64 alone is a float
        return value.item()
    while isinstance(value, Tensor) and path in tensors:  # a key may hold the character that joins keys
        path += "'"
    if isinstance(value, Tensor) and value.is_complex():  # not all of which safetensors knows
        tensors[path] = torch.view_as_real(_lay_out(value))
        return {"$complex": path}
    if isinstance(value, Tensor) and value.layout is torch.strided and value.dtype in _TYPES:
        tensors[path] = _lay_out(value)
        return {"$tensor": path}
    if isinstance(value, Mapping):
        items = [[key, _encode(item, tensors, f"{path}/{key}")] for key, item in value.items()]
        return {"$counter" if isinstance(value, Counter) else "$map": items}
    if isinstance(value, list | tuple):
        encoded = [_encode(item, tensors, f"{path}/{index}") for index, item in enumerate(value)]
        return {"$tuple": encoded} if isinstance(value, tuple) else encoded
    kind = f"{value.layout} tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
    raise TrialError(
        f"the state at {path} holds a {kind}, which cannot be saved without pickling code; "
        "keep numbers, strings, tensors and containers of them in optimizers and schedulers"
    )


def _lay_out(tensor: Tensor) -> Tensor:
    """Return a tensor as its numbers lie in a file; without a copy where they lie in memory so."""
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


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
