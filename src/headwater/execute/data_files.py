"""Large tensors and arrays on their way to other processes: in one file, which every receiver maps.

A *block* is a piece of memory that tensors and arrays are views of; it is written once, and its views share it in the
receiver too. Files are mapped copy on write: receivers share the pages that nobody writes to, and nobody sees what
another writes. The same blocks are never written twice into one folder: a file is named by what is in it.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from pickle import PicklingError
from typing import Any, Protocol

import numpy as np

LARGE_BYTES = 64 * 1024
"""What is smaller than this is sent with the value."""
_ALIGNMENT_BYTES = 64


class Sent(Protocol):
    """What stands for an object in a message."""

    def open(self, data: DataReader) -> object:
        """Return the object, in the receiver."""


@dataclass(frozen=True, slots=True)
class SentStorage:
    """The memory of tensors."""

    number: int
    num_bytes: int
    place: int | bytes
    """Where it begins in the file, or, of a small one, all there is."""
    torch: Any  # Any: the module, which the receiver imports because it is sent

    def open(self, data: DataReader) -> object:
        """Return the storage; the same one for all tensors that share it."""
        if self.number not in data.storages:
            data.storages[self.number] = self._make(data)
        return data.storages[self.number]

    def _make(self, data: DataReader) -> object:
        if isinstance(self.place, int):
            view = data.view(self.place, self.num_bytes)
            return self.torch.frombuffer(view, dtype=self.torch.uint8).untyped_storage()
        if not self.place:
            return self.torch.UntypedStorage(0)
        # A copy of its own, which can be resized as the original could.
        return self.torch.frombuffer(bytearray(self.place), dtype=self.torch.uint8).untyped_storage().clone()


@dataclass(frozen=True, slots=True, kw_only=True)
class SentArray:
    """A view of a large piece of memory, or of a file that the sender has mapped itself."""

    start: int
    """Where that memory begins in the file."""
    num_bytes: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]  # Any: whatever the array holds
    is_writeable: bool
    file: tuple[str, str] | None
    """The name and the mode of the file that the sender has mapped."""

    def open(self, data: DataReader) -> object:
        """Return the array."""
        buffer: Any = data.view(self.start, self.num_bytes) if self.file is None else self._map_file(*self.file)
        array: np.ndarray[Any, Any] = np.ndarray(self.shape, self.dtype, buffer, self.offset, self.strides)
        array.flags.writeable = self.is_writeable and array.flags.writeable
        return array

    def _map_file(self, name: str, mode: str) -> np.memmap[Any, Any]:
        again: Any = "r+" if mode == "w+" else mode
        return np.memmap(name, np.uint8, again, self.start, (self.num_bytes,))


@dataclass(frozen=True, slots=True)
class _Block:
    number: int
    place: int | bytes
    address: int
    num_bytes: int
    owner: object
    """Kept, so that the memory is nobody else's until it is written."""


class DataWriter:
    """Finds the blocks of one message, and writes the large ones."""

    def __init__(self) -> None:
        self._torch = sys.modules.get("torch")
        self._blocks: dict[tuple[int, int], _Block] = {}
        self._file_bytes = 0

    def place(self, value: object) -> Sent | None:
        """Return what stands for a value in the message; None if it is to be pickled as it is."""
        if isinstance(value, np.ndarray):
            return self._place_array(value)
        if self._torch is not None and isinstance(value, self._torch.UntypedStorage):
            return self._place_storage(value)
        return None

    def write(self, folder: Path) -> str | None:
        """Write the large blocks, if they are not there yet; return the name of the file, None if there are none."""
        blocks = [block for block in self._blocks.values() if isinstance(block.place, int)]
        if not blocks:
            return None
        path = folder.absolute() / f"data-{_compute_name(blocks)}.bin"
        if not path.exists():
            _write_blocks(path, blocks)
        return str(path)

    def _place_storage(self, storage: Any) -> SentStorage:
        if storage.device.type != "cpu":
            raise PicklingError(f"a tensor on {storage.device} stays in this process; tensors on the CPU can be sent")
        block = self._find_block(storage.data_ptr(), storage.nbytes(), storage)
        return SentStorage(block.number, block.num_bytes, block.place, self._torch)

    def _place_array(self, array: np.ndarray[Any, Any]) -> SentArray | None:
        root = _find_root(array)
        low, high = np.lib.array_utils.byte_bounds(root)
        if type(array) not in (np.ndarray, np.memmap) or array.dtype.hasobject or high - low < LARGE_BYTES:
            return None
        is_file = isinstance(root, np.memmap) and root.filename is not None
        place: Any = root.offset if is_file else self._find_block(low, high - low, root).place
        return SentArray(
            start=place,
            num_bytes=high - low,
            offset=array.__array_interface__["data"][0] - low,
            shape=array.shape,
            strides=array.strides,
            dtype=array.dtype,
            is_writeable=array.flags.writeable,
            file=(str(root.filename), root.mode) if is_file else None,
        )

    def _find_block(self, address: int, num_bytes: int, owner: object) -> _Block:
        key = address, num_bytes
        if key not in self._blocks:
            place: int | bytes = self._file_bytes
            if num_bytes < LARGE_BYTES:
                place = ctypes.string_at(address, num_bytes) if num_bytes else b""
            else:
                self._file_bytes += -(-num_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
            self._blocks[key] = _Block(len(self._blocks), place, address, num_bytes, owner)
        return self._blocks[key]


class DataReader:
    """The memory of one message in the receiver."""

    def __init__(self, file: str | None) -> None:
        self.storages: dict[int, object] = {}
        self._pages = memoryview(b"")
        if file is not None:
            with Path(file).open("rb") as opened:
                self._pages = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY))

    def view(self, start: int, num_bytes: int) -> memoryview:
        """Return a part of the file, which may be written to."""
        return self._pages[start : start + num_bytes]


def _find_root(array: np.ndarray[Any, Any]) -> Any:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _compute_name(blocks: list[_Block]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for block in blocks:
        digest.update(f"{block.place!r} {block.num_bytes} ".encode())
        digest.update(_open_memory(block))
    return digest.hexdigest()


def _write_blocks(path: Path, blocks: list[_Block]) -> None:
    handle, unfinished = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for block in blocks:
                assert isinstance(block.place, int)
                file.seek(block.place)
                file.write(_open_memory(block))
        Path(unfinished).replace(path)
    finally:
        Path(unfinished).unlink(missing_ok=True)


def _open_memory(block: _Block) -> memoryview:
    return memoryview((ctypes.c_ubyte * block.num_bytes).from_address(block.address)).cast("B")
