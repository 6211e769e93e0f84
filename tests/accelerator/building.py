"""Compile the simulated accelerator, once for each release of torch and each version of its source."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from hashlib import blake2b
from pathlib import Path

FOLDER = Path(__file__).parent
PLUGIN = FOLDER / "plugin"
CACHE = "HEADWATER_SIM_CACHE"
"""Names the variable with the folder that keeps what was compiled; the user's cache folder without it."""


def can_compile() -> bool:
    """Tell whether there is what compiling takes."""
    return shutil.which(os.environ.get("CXX", "g++")) is not None and shutil.which("ninja") is not None


def build_library() -> Path:
    """Compile the extension if that has not been done, and return its path."""
    import torch  # conftest.py reads this module before it has set how torch computes

    digest = blake2b((FOLDER / "sim.cpp").read_bytes(), digest_size=6).hexdigest()
    kept = Path(os.environ.get(CACHE) or Path.home() / ".cache" / "headwater-sim")
    folder = kept / f"torch-{torch.__version__}-python-{sys.version_info.major}.{sys.version_info.minor}-{digest}"
    library = folder / "headwater_sim_library.so"
    if not library.exists():
        from torch.utils import cpp_extension

        folder.mkdir(parents=True, exist_ok=True)
        cpp_extension.load(
            "headwater_sim_library",
            [str(FOLDER / "sim.cpp")],
            extra_cflags=["-O1", "-g0", "-std=c++20"],
            build_directory=str(folder),
            is_python_module=False,
            verbose="HEADWATER_SIM_VERBOSE" in os.environ,
        )
    return library


def load_accelerator() -> None:
    """Register the device with torch, here and in processes that this one starts, where torch loads the plugin."""
    library = build_library()
    os.environ["HEADWATER_SIM_LIBRARY"] = str(library)
    root = FOLDER.parents[1]
    paths = [str(PLUGIN), str(root), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    sys.path.insert(0, str(PLUGIN))
    importlib.import_module("headwater_sim").load()


if __name__ == "__main__":
    sys.stdout.write(f"{build_library()}\n")
