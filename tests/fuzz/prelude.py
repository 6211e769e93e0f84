"""What every program begins with: imports, data, and functions that constructs call."""

PRELUDE = """\
import ast, bisect, collections, contextlib, copy, csv, dataclasses, datetime, decimal, difflib, enum, fnmatch
import fractions, functools, hashlib, heapq, inspect, io, itertools, json, logging, math, numbers, operator, os
import pathlib, pickle, pprint, random, re, reprlib, statistics, string, struct, sys, textwrap, threading, types
import warnings
from concurrent.futures import ThreadPoolExecutor
from math import exp as plain_exp

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset
"""

DATA = """
draw = torch.Generator().manual_seed(3)
INPUTS = torch.randn(8, 4, generator=draw, dtype=torch.float64)
TARGETS = torch.randn(8, 1, generator=draw, dtype=torch.float64)
DATA = TensorDataset(INPUTS, TARGETS)
"""

DEFINITIONS = {
    "double": "def double(x):\n    return 2 * x",
    "Mode": """
class Mode(enum.Enum):
    FAST = 2
    SLOW = 6

    def rate(self):
        return 0.3 if self is Mode.FAST else 0.6
""",
    "weigh": """
def weigh(text):
    text = re.sub("0x[0-9a-f]+", "", text)  # where an object lies differs whenever the program is loaded
    return sum(place * ord(letter) for place, letter in enumerate(text, 1)) % 97 / 97
""",
    "is_none": "def is_none(value):\n    return value is None",
    "classify": """
@functools.singledispatch
def classify(value):
    return 0.6

@classify.register
def _(value: int):
    return 0.2

@classify.register
def _(value: float):
    return 0.4

@classify.register
def _(value: str):
    return 0.5
""",
    "printed": """
def printed(value):
    stream = io.StringIO()
    print("value", value, file=stream)
    return stream.getvalue()
""",
    "written": """
def written(value):
    stream = io.StringIO()
    stream.write("value %s" % (value,))
    return stream.getvalue()
""",
    "logged": """
def logged(value):
    stream = io.StringIO()
    logger = logging.Logger("program")
    logger.addHandler(logging.StreamHandler(stream))
    logger.info("value %s", value)
    return stream.getvalue()
""",
    "as_csv": """
def as_csv(value):
    stream = io.StringIO()
    csv.writer(stream).writerow([value, 1])
    return stream.getvalue()
""",
    "Pair": 'Pair = collections.namedtuple("Pair", "first second")',
    "Setting": "@dataclasses.dataclass\nclass Setting:\n    value: object",
    "cached": """
@functools.lru_cache
def cached(value, first):
    return 0.3 if value == first else 0.6
""",
    "add_up": "def add_up(first, *rest):\n    return first + 2 * sum(rest)",
    "Unlucky": "class Unlucky(Exception):\n    pass",
    "require_small": """
def require_small(value):
    if not value < 1.2:
        raise Unlucky(value)
    return 0.3
""",
    "count_up": """
COUNT = 0

def count_up(value):
    global COUNT
    COUNT = 0
    for _ in range(4):
        if COUNT * 0.4 < value:
            COUNT += 1
    return COUNT / 10
""",
    "counter": """
def counter(value):
    count = 0

    def add():
        nonlocal count
        count += 1 if value > 0.9 else 2

    add()
    add()
    return count / 10
""",
    "SEEN": "SEEN = []",
    "descend": "def descend(value):\n    return 0.1 if value < 0.4 else 0.2 + descend(value - 0.5)",
    "portions": """
def portions(value):
    while value > 0.2:
        yield 0.1
        value = value / 2
""",
    "first_above": """
def first_above(value):
    for limit in (0.2, 0.6, 1.2):
        if limit > value:
            return limit / 2
    return 0.7
""",
    "combine": "def combine(x, y=1.0, **rest):\n    return x * y",
    "in_thread": """
def in_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]
""",
    "in_pool": """
def in_pool(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
""",
    "warned": """
def warned(value):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if value > 0.9:
            warnings.warn("large")
    return 0.2 + 0.3 * len(caught)
""",
    "Holder": """
class Holder:
    def __init__(self, value):
        self.value = value

    @property
    def shown(self):
        return self.value
""",
    "with_attribute": """
def with_attribute(value):
    holder = types.SimpleNamespace()
    setattr(holder, "value", value)
    return holder
""",
    "Wrapper": """
class Wrapper:
    def __init__(self, function):
        self.function = function

    def __call__(self, value):
        return self.function(value)
""",
    "same": "def same(value):\n    return value",
}
"""By the name by which code calls it; a program has those that it uses."""
