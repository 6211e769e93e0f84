"""What cannot be sent to another process is named, with the way to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType

import pytest
import torch

from headwater.errors import StudyError
from headwater.execute.sending import send_value

LOCK = threading.Lock()


class Holder:
    def __init__(self, held: object) -> None:
        self.parts = {"held": [1, held]}

    def train(self) -> object:
        return self.parts


def use_global() -> object:
    return LOCK


def move_to_script(function: Callable[[], object]) -> FunctionType:
    """Return a function as a script would hold it: no process can import it again."""
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, {**function.__globals__, "__name__": "script"})


def count_up() -> Iterator[int]:
    yield 1


def enclose(held: object) -> Callable[[], object]:
    return lambda: held


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            move_to_script(use_global),
            "use_global cannot be sent to another process: global 'LOCK', is of type lock (cannot pickle",
        ),
        (enclose(count_up()), "variable 'held' of the enclosing function, is of type generator (cannot pickle"),
        (Holder(LOCK).train, "its object, attribute 'parts', item 'held', item 1, is of type lock"),
        (enclose(torch.zeros(2, device="meta").untyped_storage()), "tensor on meta stays in this process"),
        (partial(repr, Holder(LOCK)), "argument 1, attribute 'parts', item 'held', item 1, is of type lock"),
    ],
)
def test_what_cannot_be_sent_is_named(function: Callable[[], object], words: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as caught:
        send_value(function, tmp_path)
    assert words in str(caught.value)
    assert "make it inside the function that uses it, or use executor='inline'" in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", ["r", "w", "rb"])
def test_an_open_file_cannot_be_sent(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    with path.open(mode) as file, pytest.raises(StudyError, match="'held' of the enclosing function, is of type"):
        send_value(enclose(file), tmp_path)
