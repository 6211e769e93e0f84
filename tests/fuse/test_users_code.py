"""Wherever the user's functions are kept, they are found and ask for every lane."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import LanesPart
from headwater.fuse.per_lane import PerLane
from headwater.fuse.roster import Roster
from headwater.fuse.tools import answering
from headwater.fuse.users_code import MAX_VISITED, find_functions, is_library
from headwater.trials import Recipe
from headwater.trials.recipes import Key

ROSTER = Roster([{"x": 2.5}, {"x": 4.0}])
VALUE: Any = PerLane([2.5, 4.0], ROSTER, Recipe("x", Key(("x",))))
ASKS = "def asks(value):\n    return type(value) is float\n"
PLACES = r"""
## a table
TABLE = {'asks': asks}
del asks
def ask(value):
    return TABLE['asks'](value)
## a list of tables
TABLES = [({'asks': asks},)]
del asks
def ask(value):
    return TABLES[0][0]['asks'](value)
## a key
KEYS = {asks: 1}
del asks
def ask(value):
    return next(iter(KEYS))(value)
## a lambda of several in a line
one, two = (lambda v: v), (lambda v: type(v) is float)
def ask(value):
    return two(value)
## a default
def ask(value, asks=asks):
    return asks(value)
del asks
## an object that wraps it
class Holder:
    def __init__(self, function=None):
        self.function = function
    def __call__(self, value):
        return self.function(value)
ask = Holder(asks)
del asks
## an attribute
class Holder:
    def __init__(self, function=None):
        self.function = function
    def __call__(self, value):
        return self.function(value)
held = Holder()
held.extra = asks
del asks
def ask(value):
    return held.extra(value)
## a slot
class Holder:
    def __init__(self, function=None):
        self.function = function
    def __call__(self, value):
        return self.function(value)
class Small(Holder):
    __slots__ = ('extra',)
held = Small()
held.extra = asks
del asks
def ask(value):
    return held.extra(value)
## a cached property
import functools
class Kept:
    answer = functools.cached_property(lambda self: type(self.value) is float)
def ask(value):
    kept = Kept()
    kept.value = value
    return kept.answer
## a cache
import functools
HELD = {}
@functools.lru_cache
def answer():
    return type(HELD['value']) is float
def ask(value):
    HELD['value'] = value
    answer.cache_clear()
    return answer()
## a class in a class
class Outer:
    class Inner:
        asks = staticmethod(asks)
del asks
def ask(value):
    return Outer.Inner.asks(value)
## singledispatch
import functools
@functools.singledispatch
def ask(value):
    return False
@ask.register
def _(value: float):
    return type(value) is float
@ask.register
def _(value: str):
    return False
## map
ASKS = [asks]
del asks
def ask(value):
    return [*map(ASKS[0], [value])][0]
## an import of a function
def ask(value):
    from beside import holds
    return holds.asks(value)
## an import by name
import importlib
def ask(value):
    return importlib.import_module('beside').holds.asks(value)
## a package
import around.inner
def ask(value):
    return around.inner.asks(value)
## a module of classes alone
import beside
def ask(value):
    return beside.holds.asks(value)
## eval
def ask(value):
    return eval(' type(value) is float')
## exec
def ask(value):
    found = {'value': value}
    exec('def asks(v):\n    return type(v) is float\nanswer = asks(value)', found)
    return found['answer']
## a name that Python has too
def eval(value):
    return type(value) is float
def ask(value):
    return eval(value)
"""
"""Programs whose `ask` comes to a function of the user's that is kept somewhere."""
PROGRAMS = dict(part.split("\n", 1) for part in PLACES.split("## ")[1:])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "around").mkdir()
    (tmp_path / "around" / "__init__.py").touch()
    (tmp_path / "around" / "inner.py").write_text(ASKS)
    (tmp_path / "beside.py").write_text(f"class holds:\n    @staticmethod\n    {ASKS.replace('return', '    return')}")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("place", PROGRAMS)
def test_a_function_asks_for_every_lane_wherever_it_is_kept(place: str, folder: Path) -> None:
    (folder / "program.py").write_text(f"{ASKS}\n{PROGRAMS[place]}\n")
    module = importlib.import_module("program")
    before = {each.__name__: each.__code__ for each in find_functions(module.ask)}

    with answering(module.ask, ROSTER):
        answer = module.ask(VALUE)

    assert answer is True
    assert {each.__name__: each.__code__ for each in find_functions(module.ask) if each.__name__ in before} == before


def test_a_function_without_source_gets_nothing_that_differs_by_lane(folder: Path) -> None:
    (folder / "program.py").write_text(f"exec({ASKS!r})\ndef ask(value):\n    return asks(value)\n")
    module = importlib.import_module("program")
    with answering(module.ask, ROSTER), pytest.raises(LanesPart, match="needs one value of `x`"):
        module.ask(VALUE)


def test_what_a_library_wraps_takes_numbers_that_differ_by_lane(folder: Path) -> None:
    text = "import contextlib, torch\n@contextlib.contextmanager\ndef given(value):\n    yield value\n"
    text += "@torch.no_grad()\ndef doubled(value):\n    return value * 2\n"
    text += "def ask(value):\n    with given(value) as found:\n        return doubled(found)\n"
    (folder / "program.py").write_text(text)
    module = importlib.import_module("program")
    with answering(module.ask, ROSTER):
        assert module.ask(VALUE).values == (5.0, 8.0)


def test_packages_of_another_environment_are_libraries() -> None:
    assert is_library("/opt/other/lib/python3.11/site-packages/numpy/core.py")
    assert is_library("/usr/lib/python3/dist-packages/yaml.py")
    assert not is_library("/home/me/project/train.py")


def test_data_does_not_keep_functions_from_being_found(folder: Path) -> None:
    text = f"{ASKS}\nDATA = [[(place,)] for place in range({2 * MAX_VISITED})]\nLAST = [asks]\n"
    (folder / "program.py").write_text(f"{text}def ask(value):\n    return asks(value)\n")
    module = importlib.import_module("program")
    assert {each.__name__ for each in find_functions(module.ask)} == {"ask", "asks"}
