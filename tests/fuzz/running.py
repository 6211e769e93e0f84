"""Running a program in several ways: in plain PyTorch, as studies of single trials and of lanes, with and without pauses.

Every way but the first is a study. In the ways with pauses a search pauses each trial after each epoch and continues the
trial in a group with other trials; `moved` does that on two worker processes.
"""

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
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import torch
from tests.fuzz.pausing import PausingSearch
from tests.fuzz.plain import PlainTrial, seed_all, train_plain
from tests.fuzz.programs import Program, write_program

import headwater as hw
from headwater.errors import AllTrialsFailedError, StudyError
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
class Way:
    """A way to run a program as a study."""

    name: str
    is_exact: bool
    """Whether the numbers must be those of plain PyTorch to the last bit."""
    has_lanes: bool = True
    has_pauses: bool = False
    executor: str = "inline"
    is_measured: bool = False
    """Whether the study measures how many lanes pay, and may pack groups."""


ALONE = Way(name="lanes=1", is_exact=True, has_lanes=False)
LANES = Way(name="lanes", is_exact=False)
PAUSED_ALONE = Way(name="paused, lanes=1", is_exact=True, has_lanes=False, has_pauses=True)
PAUSED = Way(name="paused, lanes", is_exact=False, has_pauses=True)
MOVED = Way(name="moved", is_exact=False, has_pauses=True, executor="processes")
MEASURED = Way(name="measured", is_exact=False, is_measured=True)
WAYS = (ALONE, LANES, PAUSED_ALONE, PAUSED)
MOVED_EVERY = 23
"""Programs between two that also run on worker processes, whose start takes seconds."""
MEASURED_EVERY = 11
"""Programs between two that also run with measured group sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The trials of a program as one study has left them."""

    trials: tuple[Ended, ...] = ()
    notes: frozenset[str] = frozenset()
    """The notes of the trials."""
    refusal: str = ""
    """The message of the StudyError that has ended the study, if one has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The trials of a program in plain PyTorch, and in each way to run it as a study."""

    plain: tuple[Ended, ...]
    runs: Mapping[Way, Run]


def choose_ways(program: Program, *, has_pauses: bool = True) -> tuple[Way, ...]:
    """Return the ways in which a program is run."""
    measured = (MEASURED,) if program.has_process_state or program.index % MEASURED_EVERY == 0 else ()
    moved = (MOVED,) if program.has_process_state or program.index % MOVED_EVERY == 0 else ()
    return tuple(way for way in (*WAYS, *measured, *moved) if has_pauses or not way.has_pauses)


def run_program(program: Program, folder: Path, ways: Sequence[Way] = WAYS) -> Ways:
    """Run a program in these ways.

    Raises:
        Hangs: The program computed longer than `MAX_SECONDS`, or did not come to its end.
    """
    files = _write_files(program, folder)
    with _limited(MAX_SECONDS), _quiet():
        plain = _with_module(files, partial(_run_plain, program=program))
        runs = {way: _with_module(files, partial(_run_study, program=program, way=way)) for way in ways}
    if program.is_seeded_by_study and ALONE in runs:
        plain = runs[ALONE].trials
    return Ways(plain=plain, runs=runs)


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
        seed_all(SEED)
        spec.loader.exec_module(module)
        getattr(module, "set_up", lambda: None)()
        return act(module)
    finally:
        sys.path.remove(folder)
        torch.autograd.set_detect_anomaly(False)
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


def _run_study(module: ModuleType, program: Program, way: Way) -> Run:
    study = hw.Study(
        module.train,
        space=_space_of(module.CONFIGS),
        metric="loss",
        search=lambda problem: _open_search(module.CONFIGS, problem, program.leavers, way),
        storage=None,
        executor=way.executor,
        devices=None if way.executor == "inline" else 2,
        allocation="fifo",
        lanes="auto" if way.is_measured else len(module.CONFIGS) if way.has_lanes else 1,
        packing="cost" if way.is_measured else None,
        seed=SEED,
        save_every=None,
        device="cpu",
    )
    try:
        result = study.run(len(module.CONFIGS), watcher=Silence())
    except AllTrialsFailedError as error:
        result = error.result
    except StudyError as error:
        return Run(refusal=str(error))
    notes = frozenset(note for trial in result.trials for note in trial.notes)
    return Run(trials=_read(result), notes=notes)


def _open_search(
    configs: Sequence[Mapping[str, Any]], problem: Problem, leavers: frozenset[int], way: Way
) -> Leaving | PausingSearch:
    return PausingSearch(configs, leavers) if way.has_pauses else Leaving(configs, problem, leavers)


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


def _read(result: hw.Result) -> tuple[Ended, ...]:
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
    dtype, hook, has_mkldnn = torch.get_default_dtype(), threading.excepthook, torch.backends.mkldnn.enabled
    torch.set_default_dtype(torch.float64)
    threading.excepthook = lambda _: None
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), np.errstate():
            warnings.simplefilter("ignore")
            yield
    finally:
        threading.excepthook = hook
        torch.backends.mkldnn.enabled = has_mkldnn
        torch.set_default_dtype(dtype)
