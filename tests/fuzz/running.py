"""Running a program in three ways: in plain PyTorch, as a study of single trials, and as a study with lanes."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from tests.fuzz.plain import PlainTrial, train_plain
from tests.fuzz.programs import Program, write_program

import headwater as hw
from headwater.report import Silence
from headwater.search.listed import ListedSearch
from headwater.search.problem import Problem
from headwater.trials import Decision, Report

SEED = 5
MAX_SECONDS = 60
"""Of computing; of waiting, ten times as much, for others may compute on this machine too."""


class Hangs(BaseException):
    """A program did not end in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of one trial."""

    status: str
    error: str
    """The class of what it raised."""
    history: tuple[tuple[int, Mapping[str, float]], ...]
    note: str = ""
    """What it raised, in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """What became of the trials of a program in each way, and how many groups the lanes came to."""

    plain: tuple[Ended, ...]
    alone: tuple[Ended, ...]
    lanes: tuple[Ended, ...]
    num_apart: int


def run_program(program: Program, folder: Path) -> Ways:
    """Run a program in all ways.

    Raises:
        Hangs: It computed longer than `MAX_SECONDS`, or did not come to its end.
    """
    files = _write_files(program, folder)
    with _limited(MAX_SECONDS), _quiet():
        plain = _with_module(files, lambda module: _run_plain(module, program))
        alone = _with_module(files, lambda module: _run_study(module, program, 1))
        lanes = _with_module(files, lambda module: _run_study(module, program, len(program.configs)))
    notes = sum(bool(trial.notes) for trial in lanes.trials) if lanes is not None else 0
    return Ways(plain=plain, alone=_read(alone, program), lanes=_read(lanes, program), num_apart=notes)


def act_on_program(program: Program, folder: Path, act: Callable[[ModuleType], Any]) -> Any:
    """Do something with a program as a module, and keep what it prints to oneself."""
    with _limited(MAX_SECONDS), _quiet():
        return _with_module(_write_files(program, folder), act)


def _write_files(program: Program, folder: Path) -> dict[str, Path]:
    texts = write_program(program)
    other = f"other_{program.seed}_{program.index}"
    files = {name: folder / f"{other if name == 'other' else f'program_{program.index}'}.py" for name in texts}
    for name, text in texts.items():
        files[name].write_text(text.replace("@other", other))
    return files


def _with_module(files: Mapping[str, Path], act: Callable[[ModuleType], Any]) -> Any:
    """Load the program anew, as a real module, and forget it afterwards."""
    before, folder = set(sys.modules), str(files["main"].parent)
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location(files["main"].stem, files["main"])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return act(module)
    finally:
        sys.path.remove(folder)
        for path in files.values():
            if path.stem not in before:
                sys.modules.pop(path.stem, None)


def _run_plain(module: ModuleType, program: Program) -> tuple[Ended, ...]:
    ended = []
    for number, config in enumerate(module.CONFIGS):
        trial = PlainTrial(config, number, SEED, 1 if number in program.leavers else None)
        error = train_plain(module.train, trial)
        status = "failed" if error else "stopped" if trial.has_left else "completed"
        note = "".join(traceback.format_exception(error)) if error else ""
        name = type(error).__name__ if error else ""
        ended.append(Ended(status=status, error=name, history=tuple(trial.history), note=note))
    return tuple(ended)


def _run_study(module: ModuleType, program: Program, num_lanes: int) -> hw.Result:
    study = hw.Study(
        module.train,
        space=_space_of(module.CONFIGS),
        metric="loss",
        search=lambda problem: Leaving(module.CONFIGS, problem, program.leavers),
        storage=None,
        lanes=num_lanes,
        packing=None,
        seed=SEED,
        save_every=None,
        device="cpu",
    )
    return study.run(len(module.CONFIGS), watcher=Silence())


def _space_of(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the smallest space that has these configurations."""
    space: dict[str, Any] = {}
    for key in configs[0]:
        values = [config[key] for config in configs]
        if key == "part":
            space[key] = _space_of(values)
            continue
        different: list[Any] = []
        for value in values:
            if not any(type(value) is type(other) and value == other for other in different):
                different.append(value)
        space[key] = hw.choice(different)
    return space


class Leaving:
    """Tries the configurations of a list, and ends some of the trials after their first epoch."""

    def __init__(self, configs: Sequence[Mapping[str, Any]], problem: Problem, leavers: frozenset[int]) -> None:
        self._listed = ListedSearch(configs, problem)
        self._leavers = leavers
        self.propose, self.finish = self._listed.propose, self._listed.finish

    def observe(self, report: Report) -> Decision:
        """Tell those who leave."""
        return Decision.STOP if report.number in self._leavers else Decision.CONTINUE


def _read(result: hw.Result, program: Program) -> tuple[Ended, ...]:
    ended = []
    for trial in result.trials:
        history = tuple((report.epoch, report.metrics) for report in trial.history)
        note = trial.error or ""
        ended.append(Ended(status=str(trial.status), error=_raised(note), history=history, note=note))
    return tuple(ended)


def _raised(text: str) -> str:
    """Read the class of an exception off its traceback."""
    if not text:
        return ""
    lines = text.rstrip("\n").split("\n")
    last = max((place for place, line in enumerate(lines) if line.startswith('  File "')), default=-1)
    line = next((line for line in lines[last + 1 :] if not line.startswith(" ")), lines[-1])
    return line.split(":")[0].split(".")[-1]


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Interrupt what takes too long; again every second, for a program may catch it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    end, cpu_end = time.monotonic() + 10 * seconds, time.process_time() + seconds

    def cut(number: int, frame: FrameType | None) -> None:
        if time.monotonic() >= end or time.process_time() >= cpu_end:
            raise Hangs

    before = signal.signal(signal.SIGALRM, cut)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, 1.0), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Compute in double precision, and keep prints, warnings and what threads raise to the program."""
    dtype, hook = torch.get_default_dtype(), threading.excepthook
    torch.set_default_dtype(torch.float64)
    threading.excepthook = lambda _: None
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        threading.excepthook = hook
        torch.set_default_dtype(dtype)
