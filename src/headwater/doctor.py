"""Checks whether Headwater can work here, and says what to do where it cannot."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from shutil import which
from types import MappingProxyType

from headwater.errors import HeadwaterError
from headwater.report.numbers import show_bytes
from headwater.report.reading import show_storage
from headwater.store import open_store

LITTLE_BYTES = 1 << 30
ISA_VARIABLE, SAFE_ISA = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"
"""The variable that limits the instructions of oneDNN, and the newest instruction set without AMX."""
PROBE_TIMEOUT_S = 120
BFLOAT16_PROBE = """
import torch
from torch import nn
torch.set_num_threads(1)
for layer, shape in ((nn.Linear(64, 64), (64, 64)), (nn.Conv2d(16, 16, 3), (4, 16, 16, 16))):
    layer.bfloat16()(torch.randn(shape).bfloat16()).sum().backward()
torch.mm(*torch.randn(2, 64, 64).bfloat16())
"""
"""Training steps in bfloat16, for a process of its own: an illegal instruction ends the process."""


class Level(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    level: Level
    name: str
    text: str
    cure: str = ""
    """What to do about it; empty where all is well."""


def examine(storage: str) -> Iterator[Check]:
    """Look at one thing after the other, and yield what came of it."""
    yield _check_python()
    yield Check(Level.OK, "headwater", version("headwater"))
    for requirement in requires("headwater") or []:
        if ";" not in requirement:
            yield _check_package(requirement)
    for check in (_check_lanes, _check_devices, _check_executor, _check_threads, _check_memory):
        yield _attempt(check)
    yield check_bfloat16()
    yield _check_storage(storage)


def _check_python() -> Check:
    return Check(Level.OK, "python", f"{platform.python_version()} ({sys.executable})")


def _check_package(requirement: str) -> Check:
    """Compare the installed version with what this release of Headwater asks for."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    name = found[0]
    cure = f"pip install '{requirement}'"
    try:
        installed = version(name)
    except PackageNotFoundError:
        return Check(Level.FAIL, name, "not installed", cure)
    if is_within(installed, requirement):
        return Check(Level.OK, name, installed)
    return Check(Level.WARN, name, f"{installed} is not what Headwater is tested with ({requirement})", cure)


def is_within(installed: str, requirement: str) -> bool:
    """Whether a version lies in the range of a requirement such as `torch<2.14,>=2.13`."""
    here = _parse(installed)
    bounds = re.findall(r"(<|>=)\s*([\d.]+)", requirement)
    return all((here < _parse(bound)) == (sign == "<") for sign, bound in bounds)


def _parse(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+a-z]", text)[0]))


def _attempt(check: Callable[[], Check]) -> Check:
    """Run a check that needs torch; one that breaks tells as much as one that finds something."""
    try:
        return check()
    except (HeadwaterError, ImportError, AttributeError, TypeError, RuntimeError, OSError) as error:
        name = check.__name__.removeprefix("_check_")
        return Check(Level.FAIL, name, f"{type(error).__name__}: {error}", f"pip install '{_find_torch()}'")


def _find_torch() -> str:
    return next((item for item in requires("headwater") or [] if item.startswith("torch")), "torch")


def _check_lanes() -> Check:
    from headwater.train.machine import check_lanes

    check_lanes()
    return Check(Level.OK, "lanes", "train to the same numbers as separate models")


def _check_devices() -> Check:
    from headwater.train.machine import list_devices

    return Check(Level.OK, "devices", ", ".join(list_devices()))


def _check_executor() -> Check:
    """Say what a study would train on, if nobody says otherwise, and whether a cluster could be used."""
    from headwater.execute import build_executor
    from headwater.train.running import choose_device

    devices = build_executor("auto", choose_device("auto").type).list_devices()
    names = ", ".join(device.name for device in devices)
    alone = "this process" if len(devices) == 1 else f"this process at first, then a worker for each of {names}"
    try:
        ray = f"ray {version('ray')} is there"
    except PackageNotFoundError:
        ray = "for clusters: pip install 'headwater[ray]'"
    slurm = "jobs of Slurm can be submitted" if which("sbatch") else "no Slurm"
    return Check(Level.OK, "executor", f"auto: {alone}; {ray}; {slurm}")


def _check_threads() -> Check:
    from headwater.execute import count_cores
    from headwater.train.machine import count_threads

    num_cores, num_threads = count_cores(), count_threads()
    text = f"{num_cores} cores, and torch computes with {num_threads} threads"
    if num_threads > num_cores:
        return Check(Level.WARN, "threads", text, f"export OMP_NUM_THREADS={num_cores}")
    return Check(Level.OK, "threads", text)


def _check_memory() -> Check:
    from headwater.train.machine import free_bytes

    free = free_bytes()
    if free is None:
        return Check(Level.OK, "memory", "this system does not tell how much is free")
    if free < LITTLE_BYTES:
        return Check(Level.WARN, "memory", f"only {show_bytes(free)} free", "close other programs, or lower lanes=")
    return Check(Level.OK, "memory", f"{show_bytes(free)} free")


def check_bfloat16(program: str = BFLOAT16_PROBE) -> Check:
    """Compute in bfloat16 in a process of its own, and find the setting under which that works.

    Some virtual machines announce AMX instructions and forbid them. There the first bfloat16 layer ends the process.
    """
    if not _dies_of_instruction(program):
        return Check(Level.OK, "bfloat16", "computes on this processor")
    text = "layers in bfloat16 end the process on this machine (illegal instruction, SIGILL)"
    if _dies_of_instruction(program, {ISA_VARIABLE: SAFE_ISA}):
        return Check(Level.WARN, "bfloat16", text, "train in float32")
    text += ": the processor announces AMX, which cannot be used here"
    return Check(Level.WARN, "bfloat16", text, f"export {ISA_VARIABLE}={SAFE_ISA}")


def _dies_of_instruction(program: str, settings: Mapping[str, str] = MappingProxyType({})) -> bool:
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **settings},
        capture_output=True,
        timeout=PROBE_TIMEOUT_S,
        check=False,
    )
    return ended.returncode == -signal.SIGILL


def _check_storage(storage: str) -> Check:
    """Open the record for writing as a study does, without leaving a file behind."""
    path = Path(storage.removeprefix("sqlite:///")).expanduser().absolute()
    is_new_file = "://" not in storage.removeprefix("sqlite:///") and not path.exists() and path.parent.is_dir()
    try:
        if is_new_file:
            with tempfile.TemporaryDirectory(dir=path.parent) as directory, open_store(Path(directory) / path.name):
                return Check(Level.OK, "storage", f"{path} can be written")
        with open_store(storage):
            return Check(Level.OK, "storage", f"{show_storage(storage)} can be written")
    except OSError as error:
        return Check(Level.FAIL, "storage", f"{path} cannot be written: {error.strerror}", _choose_storage())
    except HeadwaterError as error:
        return Check(Level.FAIL, "storage", str(error), _choose_storage())


def _choose_storage() -> str:
    return "headwater doctor --storage PATH, and the same --storage for the other commands"
