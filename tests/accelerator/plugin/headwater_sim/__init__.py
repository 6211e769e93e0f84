"""The simulated accelerator "sim", a backend that torch loads by itself where this folder is on the path."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch.utils import backend_registration

LIBRARY = "HEADWATER_SIM_LIBRARY"
"""Names the variable with the path of the compiled extension."""
VISIBLE = "SIM_VISIBLE_DEVICES"
"""Names the variable that lists the devices this process may use; both without it."""
LIMIT = "HEADWATER_SIM_BYTES"
"""Names the variable with the bytes of memory that each device has."""

NUM_DEVICES = 2
DEFAULT_BYTES = 4 << 30

_library: Any = None  # the compiled extension


def load() -> None:
    """Register the device with torch, once in a process; without the compiled extension, do nothing."""
    global _library  # noqa: PLW0603
    path = os.environ.get(LIBRARY)
    if _library is not None or not path:
        return
    spec = importlib.util.spec_from_file_location("headwater_sim_library", path)
    assert spec is not None
    assert spec.loader is not None
    _library = importlib.util.module_from_spec(spec)
    sys.modules["headwater_sim_library"] = _library  # pybind's types are looked up there
    backend_registration.rename_privateuse1_backend("sim")
    spec.loader.exec_module(_library)
    visible = os.environ.get(VISIBLE)
    num_devices = NUM_DEVICES if visible is None else len([place for place in visible.split(",") if place.strip()])
    _library.start(num_devices, int(os.environ.get(LIMIT, DEFAULT_BYTES)))
    torch._register_device_module("sim", _make_module(num_devices))
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)


def read_counters() -> dict[str, int]:
    """Return how often something has happened on the devices since the process began."""
    return dict(_library.read_counters())


def set_limit(num_bytes: int, index: int = 0) -> None:
    """Give a device so much memory."""
    _library.set_limit(index, num_bytes)


def get_limit(index: int = 0) -> int:
    """Return how much memory a device has."""
    return int(_library.get_limit(index))


@contextmanager
def waiting_forbidden() -> Iterator[None]:
    """Raise where the host would wait for the device: at a scalar that it reads, and at a copy that blocks."""
    _library.forbid_waiting(True)
    try:
        yield
    finally:
        _library.forbid_waiting(False)


def _index(device: Any = None) -> int:  # Any: torch takes a device, its name, its index or none
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return int(_library.current_device()) if index is None else index


def _make_module(num_devices: int) -> ModuleType:
    """Return what is known as `torch.sim`: the calls that torch makes of the module of any accelerator."""
    module = ModuleType("torch.sim")
    generators = tuple(_library.default_generator(index) for index in range(num_devices))

    def manual_seed(seed: int) -> None:
        generators[_index()].manual_seed(seed)

    def manual_seed_all(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)

    def set_rng_state(state: torch.Tensor, device: Any = None) -> None:  # Any: as `_index`
        generators[_index(device)].set_state(state)

    vars(module).update(
        is_available=lambda: num_devices > 0,
        is_initialized=lambda: any(map(_library.is_used, range(num_devices))),
        device_count=lambda: num_devices,
        current_device=_library.current_device,
        set_device=lambda device: _library.set_device(_index(device)),
        synchronize=lambda device=None: _library.synchronize(_index(device)),
        get_device_name=lambda device=None: "Simulated accelerator",
        default_generators=generators,
        device=lambda device: torch.accelerator.device_index(_index(device)),
        manual_seed=manual_seed,
        manual_seed_all=manual_seed_all,
        get_rng_state=lambda device=None: generators[_index(device)].get_state(),
        set_rng_state=set_rng_state,
        _is_in_bad_fork=lambda: False,
        _lazy_init=lambda: None,
        get_amp_supported_dtype=lambda: [torch.float16, torch.bfloat16],
    )
    return module
