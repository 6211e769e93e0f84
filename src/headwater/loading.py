"""From a user's file to the study in it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from headwater.errors import HeadwaterError, StudyError
from headwater.execute.script_modules import ScriptLoader
from headwater.settings import read_whole
from headwater.study import Study

_EXAMPLE = 'study = hw.Study(train, space={...}, metric="accuracy", mode="max")'


@dataclass(frozen=True, slots=True)
class Loaded:
    """A study, and how many trials its file asks for."""

    study: Study
    num_trials: int | None


def load_study_file(path: Path, variable: str | None = None) -> Loaded:
    """Load a file as Python loads a script, but for its `if __name__ == "__main__"` part, and find the study in it.

    A call of `run` in the file is not made: loading ends there, and that study with its number of trials is the answer.

    Raises:
        StudyError: There is no such file, it cannot be loaded, or it does not say which study is meant.
    """
    _check_file(path)
    module, call = _load_module(path)
    # A study that the file itself runs is the one it is about.
    study = call.study if call is not None and variable is None else _find_study(module, path, variable)
    num_trials = call.num_trials if call is not None else getattr(module, "NUM_TRIALS", None)
    return Loaded(study, None if num_trials is None else read_whole(f"NUM_TRIALS in {path}", num_trials))


class _RunCalled(BaseException):
    """The file calls `run` itself; a BaseException, so that no `except Exception` of the file swallows it."""

    def __init__(self, study: Study, num_trials: int | None) -> None:
        self.study = study
        self.num_trials = num_trials


def _check_file(path: Path) -> None:
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise StudyError(
            f"{str(path)[:60]!r} cannot be opened ({type(error).__name__}: {error!s:.60}); give a Python file"
        ) from None
    if path.is_dir():
        files = sorted(file.name for file in path.glob("*.py"))[:5]
        hint = f", such as {path / files[0]}" if files else ""
        raise StudyError(f"{path} is a directory; give the Python file that defines the study{hint}")
    if not path.is_file():
        near = sorted(str(file) for file in path.parent.glob("*.py"))[:5]
        hint = f"; {path.parent.absolute()} has {', '.join(near)}" if near else ""
        raise StudyError(f"there is no file {path}; give the Python file that defines the study{hint}")


def _load_module(path: Path) -> tuple[ModuleType, _RunCalled | None]:
    name = _choose_name(path)
    spec = spec_from_file_location(name, path.absolute(), loader=ScriptLoader(name, str(path.absolute())))
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.absolute().parent))
    sys.argv = [str(path)]
    with _telling_failure(path), _holding_runs():
        try:
            assert spec.loader is not None
            spec.loader.exec_module(module)
        except _RunCalled as call:
            return module, call
    return module, None


def _choose_name(path: Path) -> str:
    """Name the module after its file, as if it were imported; unless that name is taken."""
    is_taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    return f"headwater_file_{path.stem}" if is_taken or not path.stem.isidentifier() else path.stem


@contextmanager
def _holding_runs() -> Iterator[None]:
    """Have `Study.run` say that it was called, instead of running."""

    def hold(study: Study, num_trials: int | None = None, **_: Any) -> None:  # Any: what else run takes
        raise _RunCalled(study, num_trials)

    original = Study.run
    Study.run = hold  # type: ignore[method-assign, assignment] # only while a user's file is loaded
    try:
        yield
    finally:
        Study.run = original  # type: ignore[method-assign] # as above


@contextmanager
def _telling_failure(path: Path) -> Iterator[None]:
    """Turn whatever the user's code raises into one message."""
    try:
        yield
    except HeadwaterError as error:
        where = _cut_to_file(error.__traceback__, path)
        line = f", line {where.tb_lineno}" if where is not None else ""
        raise StudyError(f"{path}{line}: {error}") from error
    except SystemExit as error:
        raise StudyError(
            f"{path} could not be loaded: it ended Python with {error.code!r}; put what is only for running it as a "
            f'script, such as parsing arguments, under `if __name__ == "__main__":`'
        ) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a file may raise anything while it is loaded
        cut = _cut_to_file(error.__traceback__, path)
        lines = traceback.format_exception(type(error), error.with_traceback(cut), cut)
        raise StudyError(f"{path} could not be loaded\n\n{''.join(lines).rstrip()}") from error


def _cut_to_file(trace: TracebackType | None, path: Path) -> TracebackType | None:
    """Drop the frames above the user's file: they are ours and Python's."""
    while trace is not None and trace.tb_frame.f_code.co_filename != str(path.absolute()):
        trace = trace.tb_next
    return trace


def _find_study(module: ModuleType, path: Path, variable: str | None) -> Study:
    studies = {name: value for name, value in vars(module).items() if isinstance(value, Study)}
    if variable is not None:
        if not hasattr(module, variable):
            known = f"it has {_show_names(studies)}" if studies else "it has no study"
            raise StudyError(f"{path} has no variable {variable!r}; {known}")
        return _as_study(getattr(module, variable), path, variable)
    different = {id(study): study for study in studies.values()}
    if len(different) > 1:
        raise StudyError(
            f"{path} has {len(different)} studies, {_show_names(studies)}; say which with --study {next(iter(studies))}"
        )
    if different:
        return next(iter(different.values()))
    if callable(getattr(module, "study", None)):
        return _as_study(module.study, path, "study")
    raise StudyError(
        f"{path} has no study; define one at the top level, as in `{_EXAMPLE}`, or a function study() that returns one"
    )


def _as_study(value: object, path: Path, variable: str) -> Study:
    """Take a study as it is, and call a function for it."""
    found: object = value
    if not isinstance(value, Study) and callable(value):
        with _telling_failure(path):
            found = value()
    if isinstance(found, Study):
        return found
    what = f"{variable}() in {path} returned" if found is not value else f"{variable} in {path} is"
    raise StudyError(f"{what} {found!r}; it must be a headwater.Study")


def _show_names(studies: dict[str, Study]) -> str:
    return ", ".join(studies)
