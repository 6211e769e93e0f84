"""Questions that ordinary training functions ask of Python, each with the values it is asked about.

Every function returns a number that each trial must have as its own, whatever group it is in.
"""

from __future__ import annotations

import copy
import enum
import io
import json
import logging
import math
import os.path
import pickle
import re
import statistics
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

RATES = [0.1, 0.2, 0.4, 0.8]
SIZES = [1, 2, 3, 12]
WORDS = ["batch", "layer", "b", "none"]
Ask = Callable[[Any], Any]


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Settings:
    norm: str | None
    size: int


@dataclass
class Holder:
    value: Any

    def __post_init__(self) -> None:
        self.is_none = self.value is None


def number_of(text: str) -> int:
    """Return a number that tells texts apart."""
    return sum(place * ord(letter) for place, letter in enumerate(text, start=1))


def match_kind(x: Any) -> int:
    match x:
        case bool():
            return 1
        case int():
            return 2
        case float():
            return 3
        case str():
            return 4
        case None:
            return 5
        case _:
            return 6


def match_truth(x: Any) -> int:
    match x > 0.3:
        case True:
            return 1
        case _:
            return 2


def try_exp(x: Any) -> Any:
    try:
        return math.exp(x * 1000)
    except OverflowError:
        return -1.0


def try_log(x: Any) -> Any:
    try:
        return math.log(x - 0.25)
    except ValueError:
        return -1.0


def try_divide(x: Any) -> Any:
    try:
        return 1 / (x - 0.2)
    except ZeroDivisionError:
        return -1.0


def try_index(x: Any) -> Any:
    try:
        return [5, 6, 7][x]
    except IndexError:
        return -1


def try_key(x: Any) -> Any:
    try:
        return {0.1: 1, 0.2: 2}[x]
    except KeyError:
        return -1


def swallow_all(x: Any) -> Any:
    found = 0
    while found < 1:
        try:
            found = {0.1: 1, 0.2: 2, 0.4: 3, 0.8: 4}[x]
        except:  # noqa: E722 - what careless code does
            continue
    return found


def try_json(x: Any) -> Any:
    try:
        return number_of(json.dumps({"x": [x]}))
    except TypeError:
        return -1


def in_a_thread(x: Any) -> Any:
    found = []
    thread = threading.Thread(target=lambda: found.append(float(x) * 2))
    thread.start()
    thread.join()
    return found[0]


def default_argument(x: Any) -> Any:
    def use(value: Any = x) -> int:
        return 1 if value is None else 2

    return use()


def keep_best(x: Any) -> Any:
    best = None
    for value in (x, 0.3, x * 2):
        if best is None or value > best:
            best = value
    return best


def log_and_go_on(x: Any) -> Any:
    logging.getLogger(__name__).info("x is %s", x)
    logging.getLogger(__name__).debug(f"x is {x:.2f}")
    print(f"x is {x}", x)  # noqa: T201 - what is asked about
    return x


def read_log_of_what_agrees(x: Any) -> Any:
    stream = io.StringIO()
    logger = logging.Logger("mine")
    logger.addHandler(logging.StreamHandler(stream))
    logger.info("%s %s", x > 0.0, [int(x)])
    return len(stream.getvalue())


ABOUT_NUMBERS: Mapping[str, Ask] = {
    "isinstance": lambda x: 1 if isinstance(x, float) else 2,
    "isinstance-of-text": lambda x: 1 if isinstance(f"{x}", str) else 2,
    "type": lambda x: 1 if type(x) is float else 2,
    "type-in": lambda x: 1 if type(x) in (int, float) else 2,
    "class": lambda x: 1 if x.__class__ is float else 2,
    "match": match_kind,
    "match-truth": match_truth,
    "callable": lambda x: int(callable(x)),
    "is-none": lambda x: int(x is None),
    "is-true": lambda x: int((x > 0.3) is True),
    "is-not-false": lambda x: int((x > 0.3) is not False),
    "chained-is": lambda x: int(x is not None is not False),
    "f-string-key": lambda x: {"w0.1": 1, "w0.2": 2}.get(f"w{x}", 3),
    "f-string-format": lambda x: number_of(f"{x:.3f} {x!r:>9} {x:{6}.{2}}"),
    "str": lambda x: number_of(str(x)),
    "str-length": lambda x: len(str(x * 3)),
    "repr-of-list": lambda x: number_of(repr([x, 1])),
    "percent": lambda x: {"w0.1": 1}.get("w%s" % x, 2),  # noqa: UP031 - what is asked about
    "percent-tuple": lambda x: number_of("%d and %.2f" % (1, x)),  # noqa: UP031
    "format": lambda x: number_of("{:.2f} {}".format(x, x)),  # noqa: UP032
    "format-function": lambda x: number_of(format(x, ".2e")),
    "join": lambda x: number_of(",".join([f"{x}", "a"])),
    "text-in": lambda x: int("2" in f"{x}"),
    "text-compared": lambda x: int(f"{x}" < "0.3"),
    "text-added": lambda x: number_of("a" + str(x) + "b" * 2),
    "text-method": lambda x: number_of(str(x).replace("0", "7")),
    "re": lambda x: 1 if re.match(r"0\.[12]$", f"{x}") else 2,
    "path": lambda x: number_of(os.path.join("runs", f"{x}")),  # noqa: PTH118
    "json": lambda x: number_of(json.dumps({"x": x})),
    "json-caught": try_json,
    "hash": lambda x: hash(x) % 1000,
    "set": lambda x: len({x, 0.1, 0.2}),
    "sorted": lambda x: sorted([x, 0.3, 0.15])[1],
    "sort": lambda x: sorted([0.3, x], reverse=True)[0],
    "in-list": lambda x: int(x in [0.1, 0.4]),
    "or": lambda x: (x - 0.1) or 7.0,
    "conditional": lambda x: 1 if x > 0.3 else 2,
    "bool": lambda x: bool(x - 0.1) + 1,
    "copy": lambda x: copy.deepcopy([x])[0] + copy.copy(x),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "read-log-of-what-agrees": read_log_of_what_agrees,
    "id": lambda x: 1 if id(x > 0.0) == id(True) else 2,
    "pickle-of-what-agrees": lambda x: float(sum(pickle.dumps([int(x), {"a": (int(x),)}]))),
    "numpy": lambda x: float(np.array([x, 1.0]).std()),
    "numpy-mean": lambda x: np.mean([x, 1.0]),
    "numpy-kind": lambda x: 1 if np.asarray(x).dtype == np.float64 else 2,
    "numpy-number": lambda x: np.float64(x) * 2,
    "range": lambda x: len(range(int(x * 10))),
    "slice": lambda x: len([1, 2, 3, 4, 5, 6, 7][: int(x * 10)]),
    "round": lambda x: round(x / 3, 2),
    "divmod": lambda x: divmod(x, 0.3)[1],
    "max-of-a-generator": lambda x: max(value * x for value in (1, 2)),
    "min-with-a-key": lambda x: min([x, 0.3], key=lambda value: -value),
    "sum": lambda x: sum([x, x, 1]),
    "statistics": lambda x: statistics.median([x, 0.3, 0.15]),
    "signed-zero": lambda x: math.copysign(1, (x - 0.8) * 0.0),
    "item": lambda x: float((torch.tensor(x) * 2).item()),
    "exp": try_exp,
    "log": try_log,
    "divide": try_divide,
    "key": try_key,
    "swallowed": swallow_all,
    "thread": in_a_thread,
    "partial": lambda x: partial(pow, x)(2),
    "keep-best": keep_best,
    "log-and-go-on": log_and_go_on,
    "getattr": lambda x: 1 if hasattr(x, "is_integer") else 2,
    "number-method": lambda x: (x * 10).is_integer() + 1,
}

ABOUT_SIZES: Mapping[str, Ask] = {
    "match": match_kind,
    "type": lambda x: 1 if type(x) is int else 2,
    "shift": lambda x: (1 << x) + (x >> 1) + (x ^ 5) + ~x,
    "bits": lambda x: x.bit_length(),
    "index": try_index,
    "repeat": lambda x: len("ab" * x),
    "hex": lambda x: number_of(hex(x)),
    "key": lambda x: {f"layer{x}": 1}.get("layer2", 9),
    "isqrt": math.isqrt,
    "is": lambda x: int(x is True),
}

ABOUT_THINGS: Mapping[str, tuple[list[Any], Ask]] = {
    "none": ([None, "batch"], lambda x: 1 if x is None else 2),
    "none-or-number": ([None, 0.5, 1.5], lambda x: 0.0 if x is None else x * 2),
    "none-is-not": ([None, 3], lambda x: 1 if x is not None else 2),
    "truth": ([True, False], lambda x: 1 if x is True else 2),
    "class": ([nn.ReLU, nn.GELU], lambda x: 1 if x is nn.ReLU else 2),
    "subclass": ([nn.ReLU, nn.GELU], lambda x: int(issubclass(x, nn.ReLU))),
    "callable": ([torch.relu, "relu"], lambda x: int(callable(x))),
    "function": ([math.sqrt, math.exp], lambda x: x(2.0)),
    "int-or-float": ([1, 1.5, 2], match_kind),
    "bool-or-int": ([True, 1, 0], match_kind),
    "kinds": ([None, 1, 1.5, "a", True], match_kind),
    "type": ([1, 1.5, "a"], lambda x: number_of(type(x).__name__)),
    "word-is": (["ReLU", "GELU"], lambda x: 1 if x == "ReLU" else 2),
    "word-in": (WORDS, lambda x: int(x in ("batch", "b"))),
    "word-key": (WORDS, lambda x: {"batch": 1, "layer": 2}.get(x, 3)),
    "word-re": (WORDS, lambda x: 1 if re.match("b.*h", x) else 2),
    "word-join": (WORDS, lambda x: number_of("/".join([x, "a"]))),
    "word-path": (WORDS, lambda x: number_of(os.path.join("a", x))),  # noqa: PTH118
    "word-json": (WORDS, lambda x: number_of(json.dumps(x))),
    "word-compared": (WORDS, lambda x: int(x < "c")),
    "word-starts": (WORDS, lambda x: int("batch norm".startswith(x))),
    "word-part": (WORDS, lambda x: int(x in "a batch")),
    "word-match": (WORDS, match_kind),
    "word-set": (WORDS, lambda x: len({x, "batch"})),
    "word-f-string": (WORDS, lambda x: number_of(f"{x:>8}")),
    "word-default": (["", "a"], lambda x: number_of(x or "default")),
    "tuple": ([(1, 2), (3,)], sum),
    "list": ([[1, 2], [3, 4]], lambda x: x[0] + len(x)),
    "enum": ([Colour.RED, Colour.BLUE], lambda x: 1 if x is Colour.RED else 2),
    "dataclass": ([Settings(None, 1), Settings("a", 2)], lambda x: x.size if x.norm is None else -x.size),
    "held": ([None, "a"], lambda x: 1 if Holder(x).is_none else 2),
    "default-argument": ([None, 1], default_argument),
}

ABOUT_CONFIGURATIONS: Mapping[str, Ask] = {
    "dict": lambda config: number_of(repr(sorted(dict(config).items(), key=str))),
    "items": lambda config: sum(number_of(f"{key}={value}") for key, value in config.items()),
    "values": lambda config: len({str(value) for value in config.values()}),
    "unpacked": lambda config: number_of(repr(dict(**config)["word"])),
    "get": lambda config: 1 if config.get("maybe") is None else 2,
    "get-default": lambda config: number_of(str(config.get("nothing", config["rate"]))),
    "equal": lambda config: int(config == {"rate": 0.1, "word": "batch", "maybe": None}),
    "merged": lambda config: number_of(str((config | {"a": 1})["word"])),
    "copied": lambda config: number_of(config.copy()["word"]),
    "text": lambda config: number_of(f"{config}"),
    "json": lambda config: number_of(json.dumps(dict(config))),
    "in": lambda config: int("word" in config),
    "held": lambda config: 1 if Holder(config["maybe"]).is_none else 2,
}
