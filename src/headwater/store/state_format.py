"""The header of a saved state: whose it is, with a checksum over all of the file. Reading it runs no code.

A state is a safetensors file. Its metadata hold the study, the trial and the epoch, and all that is no tensor as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from headwater.errors import StoreError

FORMAT = "headwater lane state 3"
_LENGTH = 8
"""A safetensors file begins with the length of its header, in so many bytes."""
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What comes of reading a file that somebody has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateHeader:
    """Whose state a file holds."""

    study: str
    trial: int
    epoch: int
    tree: str
    """All that is no tensor, as JSON."""


def seal_state(header: StateHeader, tensors: bytes) -> bytes:
    """Return a safetensors file as the content of a state's file, which says whose the tensors are."""
    places, data = _split(tensors)
    places.pop("__metadata__", None)
    return join_state(header, places, [data])


def join_state(
    header: StateHeader, places: Mapping[str, Any], parts: Sequence[memoryview]
) -> bytes:  # Any: JSON values
    """Return the content of a file: the parts of its data behind a header. The data are copied once.

    Args:
        header: Whose state it is.
        places: The type, the shape and the place in the data of each tensor by name, as safetensors has them.
        parts: The data.
    """
    metadata = {
        "format": FORMAT,
        "study": header.study,
        "trial": str(header.trial),
        "epoch": str(header.epoch),
        "tree": header.tree,
    }
    metadata["checksum"] = _sum(metadata, places, parts)
    text = json.dumps({"__metadata__": metadata, **places}).encode()
    text += b" " * (-len(text) % _LENGTH)
    return b"".join([len(text).to_bytes(_LENGTH, "little"), text, *parts])


def open_state(content: bytes, study: str, trial: int) -> StateHeader:
    """Return whose state a file holds.

    Raises:
        StoreError: It is damaged, or something else than a state of this trial of this study.
    """
    with refusing_damage():
        places, data = _split(content)
        metadata = places.pop("__metadata__", {})
        if metadata.get("format") != FORMAT:
            raise StoreError(f"it is {metadata.get('format', 'a file')!r}, where this version reads {FORMAT!r}")
        if metadata.pop("checksum", None) != _sum(metadata, places, [data]):
            raise StoreError("its checksum is not that of what it holds")
        if (metadata["study"], metadata["trial"]) != (study, str(trial)):
            raise StoreError(f"it is of trial {metadata['trial']} of the study with the id {metadata['study']!r}")
        return StateHeader(study=study, trial=trial, epoch=int(metadata["epoch"]), tree=metadata["tree"])


@contextmanager
def refusing_damage(*others: type[Exception]) -> Iterator[None]:
    """Say of whatever reading a damaged file raises that it is no state."""
    try:
        yield
    except _DAMAGE + others as error:
        raise StoreError(f"it is no saved state ({type(error).__name__}: {error})") from error


def _split(content: bytes) -> tuple[dict[str, Any], memoryview]:  # Any: JSON values
    """Return the header of a safetensors file, and the data behind it."""
    start = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    if len(content) < start:
        raise ValueError(f"cut short after {len(content)} bytes")
    header = json.loads(content[_LENGTH:start])
    if not isinstance(header, dict):
        raise ValueError("without a header")
    return header, memoryview(content)[start:]


def _sum(
    metadata: Mapping[str, str], places: Mapping[str, Any], parts: Iterable[memoryview]
) -> str:  # Any: JSON values
    digest = blake2b(json.dumps([metadata, places], sort_keys=True).encode(), digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
