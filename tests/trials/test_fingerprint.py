"""A function is told from one that has changed, wherever it has, and known again in another process."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from headwater.trials import fingerprint as module_under_test
from headwater.trials.fingerprint import fingerprint

SOURCE = """
import math
import enum
from dataclasses import dataclass
from functools import lru_cache

WIDTH = 64
TABLE = {"a": [1, 2], "b": (3.0, None)}

class Kind(enum.Enum):
    SMALL = 1

@dataclass
class Settings:
    depth: int = 2

    def double(self):
        return 2 * self.depth

SETTINGS = Settings()

def helper(x):
    return deeper(x) + 1

def deeper(x):
    return x * WIDTH

@lru_cache
def cached(x):
    return x - 1

def train(trial, rate=0.1, *, name="n"):
    '''Train.'''
    total = helper(cached(trial)) + TABLE["a"][0] + SETTINGS.double() + math.floor(rate)
    return [item for item in range(3) if (lambda: total + 7)()], Kind.SMALL
"""


def load(source: str = SOURCE, name: str = "users_code", file: str = "/home/user/users_code.py") -> ModuleType:
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    exec(compile(source, file, "exec"), vars(module))  # noqa: S102 # a module of the test's own
    return module


def mark(source: str = SOURCE) -> str | None:
    return fingerprint(load(source).train)


def test_the_same_code_is_the_same() -> None:
    assert mark() is not None
    assert mark() == mark()


def test_where_it_stands_and_what_else_is_there_do_not_matter() -> None:
    assert mark("\n\n\nOTHER = 3\n" + SOURCE) == mark()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total + 7", "total + 8"),
        ("rate=0.1", "rate=0.2"),
        ('name="n"', 'name="m"'),
        ("WIDTH = 64", "WIDTH = 65"),
        ("x * WIDTH", "x + WIDTH"),
        ("deeper(x) + 1", "deeper(x) + 2"),
        ("x - 1", "x - 2"),
        ("[1, 2]", "[1, 3]"),
        ("(3.0, None)", "(3.0, True)"),
        ("depth: int = 2", "depth: int = 3"),
        ("2 * self.depth", "3 * self.depth"),
        ("SMALL = 1", "SMALL = 2"),
        ("math.floor", "math.ceil"),
        ("total = helper(", "total = deeper("),
    ],
)
def test_a_change_anywhere_in_reach_makes_it_another(old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    assert mark(SOURCE.replace(old, new)) != mark()


def test_modules_of_the_user_are_looked_into() -> None:
    marks = []
    for size in (1, 2):
        load(f"def size():\n    return {size}\n", "users_other", "/home/user/users_other.py")
        marks.append(mark("import users_other\n\ndef train(trial):\n    return users_other.size()\n"))
    assert marks[0] != marks[1]


def close_over(value: Any) -> Callable[[], Any]:
    def train() -> Any:
        return value

    return train


def test_what_a_closure_or_a_partial_holds_matters() -> None:
    assert fingerprint(close_over(1)) == fingerprint(close_over(1))
    assert fingerprint(close_over(1)) != fingerprint(close_over(2))
    assert fingerprint(partial(close_over, 1)) != fingerprint(partial(close_over, 2))
    assert fingerprint(partial(close_over, value=1)) == fingerprint(partial(close_over, value=1))


def test_data_counts_by_shape_and_type() -> None:
    import torch

    first, second = torch.zeros(3, 2), torch.ones(3, 2)
    assert fingerprint(close_over(first)) == fingerprint(close_over(second))
    assert fingerprint(close_over(first)) != fingerprint(close_over(torch.zeros(3, 3)))
    assert fingerprint(close_over(first)) != fingerprint(close_over(first.double()))


def test_a_model_from_outside_counts_by_its_layers() -> None:
    from torch import nn

    assert fingerprint(close_over(nn.Linear(3, 4))) == fingerprint(close_over(nn.Linear(3, 4)))
    assert fingerprint(close_over(nn.Linear(3, 4))) != fingerprint(close_over(nn.Linear(3, 5)))


def test_objects_that_refer_to_themselves_come_to_an_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert fingerprint(close_over(loop)) is not None


def test_what_cannot_be_told_is_like_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_under_test, "MOST_PARTS", 50)
    assert fingerprint([[number] for number in range(100)]) is None


def test_an_object_that_raises_when_it_is_looked_at_is_like_nothing() -> None:
    class Secret:
        @property
        def shape(self) -> int:
            raise RuntimeError("none of your business")

    assert fingerprint(close_over(Secret())) is None


def test_another_process_finds_the_same_whether_it_compiles_or_not(tmp_path: Path) -> None:
    (tmp_path / "users_file.py").write_text(SOURCE + "\nCHOICES = frozenset({'x', 'y', 'z'})\n")
    ask = "import users_file as u, headwater.trials.fingerprint as f; print(f.fingerprint(u.train, u.CHOICES))"
    marks = [
        subprocess.run(
            [sys.executable, "-c", ask],
            cwd=tmp_path,
            env={"PYTHONPATH": ":".join([str(tmp_path), *sys.path]), "PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in (1, 2, 3)
    ]
    assert len(set(marks)) == 1
    assert len(marks[0].strip()) == 64


def test_a_cache_is_looked_through() -> None:
    caches = [lru_cache(close_over(value)) for value in (1, 2)]
    assert fingerprint(caches[0]) != fingerprint(caches[1])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.zeros(3), torch.ones(3)),
        (torch.zeros(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16)),
        (np.zeros(3), np.ones(3)),
        (np.array([None, "a"]), np.array([None, "b"])),
        ([0] * 5000, [0] * 4999 + [1]),
        (Subset(TensorDataset(torch.zeros(3)), [0]), Subset(TensorDataset(torch.zeros(3)), [1])),
    ],
)
def test_with_contents_data_of_the_same_shape_is_told_apart(one: object, other: object) -> None:
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one, with_contents=True) == fingerprint(copy.deepcopy(one), with_contents=True)
    assert fingerprint(one, with_contents=True) != fingerprint(other, with_contents=True)


def test_pickling_an_object_does_not_change_its_fingerprint() -> None:
    class Plain:
        pass

    before = fingerprint(Plain())
    cloudpickle.dumps(Plain())
    assert fingerprint(Plain()) == before
