"""The frames of the user's code around the loop over `trial.epochs`, and the variables in them that are still needed.

The head of the loop is the instruction that asks for the next epoch. Every frame from there out to the training
function stands at the same instruction whenever the head is reached, so that its variables can be read at one head and
put back at another, in another call of the function.
"""

from __future__ import annotations

import ctypes
import dis
import sys
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from headwater.fuse.users_code import is_library

_DISPLAYS = frozenset({"tqdm", "rich", "fastprogress", "alive_progress"})
"""Libraries whose generators stand around a loop and only show how far it is."""
_WRAPPERS = frozenset({"torch", "contextlib", "functools", "headwater"})
"""Packages whose decorators call the user's functions."""
_CALLERS = frozenset({"headwater.train.running", "headwater.train.looking", "headwater.train.keeping"})
"""Modules that call the training function."""
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_READS_ALL = frozenset({"locals", "vars", "dir", "eval", "exec", "breakpoint"})
"""Global functions that may read any variable."""
_ENDS = ("RETURN_", "RAISE_VARARGS", "RERAISE")
_JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE")


@dataclass(frozen=True, slots=True)
class LoopFrames:
    """The user's frames at the head of the loop, the innermost first."""

    frames: tuple[FrameType, ...]
    heads: tuple[int, ...]
    """The instruction at which each frame stands."""
    obstacle: str
    """Why they cannot be continued; empty if they can."""

    def find_change(self, now: LoopFrames) -> str:
        """Say why these frames, at a later head, are not those of the first; nothing if they are."""
        if now.obstacle:
            return now.obstacle
        if self.frames != now.frames or self.heads != now.heads:
            return "the next epoch is asked for at another place of the code than the first one"
        return ""

    def describe(self) -> list[str]:
        """Return the names of the functions, to compare with those of another call."""
        return [frame.f_code.co_qualname for frame in self.frames]

    def read(self) -> dict[tuple[int, str], Any]:
        """Return the variables that are still needed, by the place of their frame and their name."""
        found: dict[tuple[int, str], Any] = {}
        for place, (frame, head) in enumerate(zip(self.frames, self.heads, strict=True)):
            variables = frame.f_locals
            found |= {(place, name): variables[name] for name in sorted(_live_after(frame.f_code, head) & {*variables})}
        return found

    def write(self, values: dict[tuple[int, str], Any]) -> None:
        """Give variables their values, cells of closures among them."""
        for place, frame in enumerate(self.frames):
            own = {name: value for (index, name), value in values.items() if index == place}
            if own:
                frame.f_locals.update(own)
                if sys.version_info < (3, 13):  # later, f_locals writes through
                    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))

    def locate(self, place: int, name: str) -> str:
        """Return a variable with the file and the line of its loop."""
        frame = self.frames[place]
        line = _line_of(frame.f_code, name) or frame.f_lineno
        return f"`{name}` ({Path(frame.f_code.co_filename).name}:{line})"


def find_frames(frame: FrameType | None) -> LoopFrames:
    """Return the user's frames from one that asks for an epoch out to the training function."""
    found: list[FrameType] = []
    obstacle = ""
    while frame is not None and frame.f_globals.get("__name__") not in _CALLERS:
        code = frame.f_code
        if is_library(code.co_filename):
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if package not in (_WRAPPERS if found else _DISPLAYS | _WRAPPERS):
                obstacle = obstacle or f"{package} calls the code that loops over trial.epochs"
        else:
            found.append(frame)
            if code.co_name in _COMPREHENSIONS:
                obstacle = obstacle or f"trial.epochs is iterated by a comprehension ({_place_of(frame)})"
        frame = frame.f_back
    if frame is None or not found:
        obstacle = "trial.epochs is not iterated by the training function's own code"
    return LoopFrames(tuple(found), tuple(_instruction_at(each).offset for each in found), obstacle)


def is_looped_directly(frame: FrameType) -> bool:
    """Tell whether the frame that asks for an iterator is a `for` statement, not `enumerate` or `zip`.

    Iterators of Python's own keep a position that nobody can set.
    """
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("headwater."):
        frame = frame.f_back  # the tools of lanes
    if is_library(frame.f_code.co_filename):
        return True  # judged by its package
    return _instruction_at(frame).opname in ("GET_ITER", "GET_YIELD_FROM_ITER")


def _instruction_at(frame: FrameType) -> dis.Instruction:
    """Return the instruction at which a frame stands; a call of Python code stands at the caches behind it."""
    instructions = _instructions(frame.f_code)
    return instructions[bisect_right(instructions, frame.f_lasti, key=lambda each: each.offset) - 1]


def _place_of(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _line_of(code: CodeType, name: str) -> int | None:
    """Return the last line that writes a variable."""
    line, found = code.co_firstlineno, None
    for each in _instructions(code):
        line = each.starts_line if type(each.starts_line) is int else getattr(each, "line_number", None) or line
        if each.opname.startswith("STORE_") and each.argval == name:
            found = line
    return found


@lru_cache(maxsize=256)
def _instructions(code: CodeType) -> tuple[dis.Instruction, ...]:
    return tuple(dis.get_instructions(code))


@lru_cache(maxsize=256)
def _live_after(code: CodeType, head: int) -> frozenset[str]:
    """Return the variables that may be read after an instruction before they are written.

    Variables that closures share count as read at any time.
    """
    names = frozenset(code.co_varnames)
    shared = frozenset((*code.co_cellvars, *code.co_freevars))
    instructions = _instructions(code)
    if any(_reads_all(each) or _is_strange(each) for each in instructions):
        return names | shared
    index = [each.offset for each in instructions].index(head)
    live = _solve(code, instructions)
    return frozenset().union(*(live[next_place] for next_place in _successors(instructions)[index])) | shared


def _reads_all(instruction: dis.Instruction) -> bool:
    return instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and instruction.argval in _READS_ALL


def _is_strange(instruction: dis.Instruction) -> bool:
    """Tell whether an instruction uses variables in a way that is not known here."""
    name = instruction.opname
    return "_FAST" in name and not name.startswith(("LOAD_FAST", "STORE_FAST", "DELETE_FAST"))


def _solve(code: CodeType, instructions: tuple[dis.Instruction, ...]) -> list[frozenset[str]]:
    """Return for each instruction the variables that are live before it: a backward data-flow analysis."""
    successors = _successors(instructions)
    handlers = _handlers(code, instructions)
    effects = [_effect(each) for each in instructions]
    live: list[frozenset[str]] = [frozenset()] * len(instructions)
    changed = True
    while changed:
        changed = False
        for place in range(len(instructions) - 1, -1, -1):
            reads, writes = effects[place]
            after = frozenset().union(*(live[each] for each in successors[place]))
            caught = frozenset().union(*(live[each] for each in handlers[place]))
            before = reads | (after - writes) | caught
            if before != live[place]:
                live[place], changed = before, True
    return live


def _effect(instruction: dis.Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """Return the variables that an instruction reads, and those that it writes without having read them."""
    name, value = instruction.opname, instruction.argval
    if "_FAST" not in name:
        return frozenset(), frozenset()
    variables = value if isinstance(value, tuple) else (value,)
    if name == "STORE_FAST_LOAD_FAST":
        return frozenset(variables[1:]) - {variables[0]}, frozenset(variables[:1])
    if name.startswith("STORE_FAST"):
        return frozenset(), frozenset(variables)
    if name.startswith(("DELETE_FAST", "LOAD_FAST")):
        return frozenset(variables), frozenset()
    return frozenset(), frozenset()


@lru_cache(maxsize=256)
def _successors(instructions: tuple[dis.Instruction, ...]) -> list[list[int]]:
    """Return for each instruction the places of those that may follow it."""
    places = {each.offset: place for place, each in enumerate(instructions)}
    found: list[list[int]] = []
    for place, each in enumerate(instructions):
        following: list[int] = []
        if not each.opname.startswith(_ENDS) and not each.opname.startswith(_JUMPS) and place + 1 < len(instructions):
            following.append(place + 1)
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            following.append(places[each.argval])
        found.append(following)
    return found


def _handlers(code: CodeType, instructions: tuple[dis.Instruction, ...]) -> list[list[int]]:
    """Return for each instruction the places of the handlers that an exception in it may go to."""
    places = {each.offset: place for place, each in enumerate(instructions)}
    found: list[list[int]] = [[] for _ in instructions]
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]  # not in the stubs
        for place, each in enumerate(instructions):
            if entry.start <= each.offset <= entry.end:
                found[place].append(places[entry.target])
    return found
