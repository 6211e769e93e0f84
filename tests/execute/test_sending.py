"""Whatever users write as a training function arrives in a process that has never run their script."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.execute.calling import ROOT, open_caller, run_python

from headwater.execute.sending import send_value

FACTOR = 3

PRELUDE = "from pathlib import Path\nfrom tests.execute.calling import open_caller\n"
CALL = "with open_caller(Path('.')) as call:\n    print(call({}))\n"

SCRIPT = """
import os.path, sys
print("the script runs")
count = 0

class Counter:
    step = 2
    def __init__(self, start):
        self.start = start
    def __call__(self):
        add(self.step)
        return self.start + count

def add(step):
    global count
    count += step

counter = Counter(5)
def answer():
    add(1)
    main = sys.modules["__main__"]
    return counter(), count, main.count, main.Counter is Counter, os.path.basename(__file__), __name__, sys.argv[1:]
"""
ANSWER = "(8, 3, 3, True, 'script.py', '__main__', ['one', 'two'])"


def call_by_reference() -> int:
    return FACTOR


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)


def run_script(text: str, folder: Path, *arguments: str) -> str:
    (folder / "script.py").write_text(PRELUDE + text)
    return run_python("script.py", *arguments, folder=folder)


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    assert run_script(SCRIPT + CALL.format("answer"), tmp_path, "one", "two") == f"the script runs\n{ANSWER}\n"


@pytest.mark.parametrize("way", ["stdin", "command line"])
def test_code_need_not_be_in_a_file(way: str, tmp_path: Path) -> None:
    text = PRELUDE + SCRIPT.replace("os.path.basename(__file__)", "'script.py'") + CALL.format("answer")
    arguments = ("-", "one", "two") if way == "stdin" else ("-c", text, "one", "two")
    found = run_python(*arguments, folder=tmp_path, text=text if way == "stdin" else "")
    assert found == f"the script runs\n{ANSWER}\n"


def test_everything_callable_can_be_sent(tmp_path: Path) -> None:
    text = """
import dataclasses, enum, typing
from functools import lru_cache, partial

class Kind(enum.Enum):
    SMALL = "small"

@dataclasses.dataclass
class Settings:
    kind: Kind = Kind.SMALL
    sizes: list = dataclasses.field(default_factory=lambda: [1, 2])

@dataclasses.dataclass
class More(Settings):
    name: str = "more"
    def show(self, *, times=2):
        return dataclasses.asdict(self), self.kind is Kind.SMALL, self.kind is Kind("small"), times
    @classmethod
    def make(cls):
        return cls(name=cls.__name__).show()

def close_over():
    total = 0
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)
    def add(amount):
        nonlocal total
        total += amount
    def read():
        add(factorial(4))
        return total
    return read

def keyword(a, b=1, *, c=2):
    return a, b, c

Size = typing.NewType("Size", int)

@lru_cache(maxsize=3)
def find(size: Size = 4):
    return size, find.cache_parameters()["maxsize"], find.cache_info().hits, typing.get_type_hints(find)["size"] is Size

find()
find()
with open_caller(Path('.')) as call:
    print(call(find))
    print(call(lambda: [part() for part in (close_over(), partial(keyword, 5, c=7), More(name="x").show, More.make)]))
    print(call(close_over()), call(partial(keyword, 5, c=7)), call(More.make))
"""
    shown = "({'kind': <Kind.SMALL: 'small'>, 'sizes': [1, 2], 'name': '%s'}, True, True, 2)"
    first = f"[24, (5, 1, 7), {shown % 'x'}, {shown % 'More'}]"
    assert run_script(text, tmp_path) == f"(4, 3, 0, True)\n{first}\n24 (5, 1, 7) {shown % 'More'}\n"


def test_what_can_be_imported_goes_by_name(importable: None, tmp_path: Path) -> None:
    assert len(send_value(call_by_reference, tmp_path)) < len(send_value(lambda: FACTOR, tmp_path))
    with open_caller(tmp_path) as call:
        assert call(call_by_reference) == 3


def test_a_closure_finds_the_globals_of_its_module(importable: None, tmp_path: Path) -> None:
    amount = 4

    def change() -> tuple[int, int]:
        global FACTOR  # noqa: PLW0603 # what is tested
        FACTOR = amount
        return FACTOR, call_by_reference()

    with open_caller(tmp_path) as call:
        assert call(change) == (4, 4)
    assert call_by_reference() == 3


def test_a_file_that_was_loaded_for_its_study_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text(
        "import headwater as hw\n"
        "print('the file is loaded')\n"
        "OFFSET = 2\n"
        "def train(trial):\n"
        "    return OFFSET, __name__, type(trial).__name__\n"
        "study = hw.Study(train, space={'lr': 0.1}, metric='loss', mode='min')\n"
        "study.run(num_trials=3)\n"
    )
    text = (
        "from functools import partial\n"
        "from headwater.loading import load_study_file\n"
        "loaded = load_study_file(Path('training.py'))\n"
        "with open_caller(Path('.')) as call:\n"
        "    print(call(partial(loaded.study.train, None)))\n"
    )
    assert run_script(text, tmp_path) == "the file is loaded\n(2, 'training', 'NoneType')\n"


def test_a_module_that_imports_the_file_of_the_study_does_not_run_it(tmp_path: Path) -> None:
    (tmp_path / "callbacks.py").write_text("import training\ndef call_back():\n    return training.OFFSET\n")
    (tmp_path / "training.py").write_text(
        "import callbacks\n"
        "print('the file is loaded')\n"
        "OFFSET = 2\n"
        "def answer():\n"
        "    return OFFSET, callbacks.call_back()\n"
        "study = None\n"
    )
    text = (
        "from headwater.loading import _load_module\n"
        "module, _ = _load_module(Path('training.py'))\n"
        "both = [module.callbacks.call_back, module.answer]\n"
        "with open_caller(Path('.')) as call:\n"
        "    print(call(lambda: [part() for part in both]))\n"
    )
    assert run_script(text, tmp_path) == "the file is loaded\n[2, (2, 2)]\n"


def test_a_module_that_cannot_be_imported_is_sent_as_far_as_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "tools.py").write_text(
        "import threading\nLOCK = threading.Lock()\nSIZE = 7\ndef double():\n    return 2 * SIZE\n"
    )
    text = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("tools", "parts/tools.py")
tools = importlib.util.module_from_spec(spec)
sys.modules["tools"] = tools
spec.loader.exec_module(tools)
def answer():
    import tools as again
    return tools.double(), tools.SIZE, again is tools
"""
    assert run_script(text + CALL.format("answer"), tmp_path) == "(14, 7, True)\n"


CELLS = """
import linecache
def run_cell(number, text, space):
    name = f"<cell {number}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    exec(compile(text, name, "exec"), space)

run_cell(1, '''
def decide(value):
    return 1.0 if value is None else value
''', %s)
run_cell(2, '''
def answer():
    import linecache
    from headwater.fuse.roster import Roster
    from headwater.fuse.tools import answering
    from headwater.fuse.users_code import find_functions
    found = sorted(function.__name__ for function in find_functions(answer))
    before = decide.__code__
    with answering(answer, Roster([{}, {}])):
        is_rewritten = decide.__code__ is not before
    return found, is_rewritten, linecache.getline("<cell 1>", 3).strip()
''', %s)
"""


@pytest.mark.parametrize(("space", "function"), [("globals()", "answer"), ("space", "space['answer']")])
def test_code_that_has_its_source_in_memory_alone_can_be_rewritten(space: str, function: str, tmp_path: Path) -> None:
    text = f"space = {{}}\n{CELLS % (space, space)}{CALL.format(function)}"
    found = ast.literal_eval(run_script(text, tmp_path))
    assert found == (["answer", "decide"], True, "return 1.0 if value is None else value")


def test_the_source_is_the_one_that_the_code_was_compiled_from(tmp_path: Path) -> None:
    text = """
import inspect
def answer():
    import inspect
    return inspect.getsource(answer).splitlines()[0]
assert inspect.getsource(answer)
Path(__file__).write_text("nothing is here any more")
"""
    assert run_script(text + CALL.format("answer"), tmp_path) == "def answer():\n"


LANES = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from tests.train.lab import run
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
X = torch.randn(2000, 5)
DATA = TensorDataset(X, X.sum(1, keepdim=True))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
    def forward(self, x):
        return self.layers(x)

def penalty_of(config):
    return 0.0 if config["penalty"] is None else 2 * float(config["penalty"])

def train(trial):
    model = trial.prepare_model(Net())
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    loader = trial.prepare_data_loader(DATA, batch_size=100, shuffle=True)
    for epoch in trial.epochs(2):
        for x, y in loader:
            optimizer.zero_grad()
            penalty = penalty_of(trial.config) * sum(p.abs().sum() for p in model.parameters())
            loss = (model(x) - y).pow(2).mean() + penalty
            loss.backward()
            optimizer.step()
        trial.report(loss=loss.item())

def go(*penalties):
    torch.set_default_dtype(torch.float64)
    done = run(train, [{"lr": 0.01 * (1 + n), "penalty": penalty} for n, penalty in enumerate(penalties)])
    return done.outcome.name, done.label, [done.notes.history(n) for n in range(3)]

together, parted = lambda: go(0.1, 0.2, 0.3), lambda: go(0.1, None, 0.3)
here = together(), parted()
with open_caller(Path(".")) as call:
    print(repr((here, (call(together), call(parted)))))
"""


def test_lanes_train_alike_in_a_function_that_was_sent(tmp_path: Path) -> None:
    here, there = ast.literal_eval(run_script(LANES, tmp_path))
    assert here[0][0] == "DONE"
    assert here[1][0] == "PARTED"
    assert there == here
    assert len({tuple(losses) for losses in here[0][2]}) == 3


def test_workers_share_the_data_and_write_to_none_but_their_own(tmp_path: Path) -> None:
    text = """
import mmap, re
import numpy as np, torch
from torch.utils.data import TensorDataset
tensor, array = torch.zeros(1_000_000), np.zeros(1_000_000)
part, other, back = tensor[10:], TensorDataset(tensor, torch.from_numpy(array)), array[::-2]

def count_written():
    return sum(int(re.search(r"Anonymous: +(\\d+)", entry)[1]) * 1024 for entry in read_entries())

def read_entries():
    entries = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    return [entry for entry in entries if "/data-" in entry]

def read():
    return tensor.sum().item(), array.sum(), count_written(), len(read_entries()), read_entries()[0].split()[1]

def write():
    part[500_000], back[0] = 1, 2
    seen = tensor[500_010].item(), other.tensors[0][500_010].item(), array[-1], other.tensors[1][-1].item()
    return [float(value) for value in seen], count_written() == 2 * mmap.PAGESIZE

def both():
    return read(), write()

with open_caller(Path(".")) as call, open_caller(Path(".")) as call_other:
    print(call(both))
    print(call_other(both))
print(tensor.sum().item(), array.sum(), [file.stat().st_size for file in Path(".").glob("data-*")])
"""
    shown = "((0.0, np.float64(0.0), 0, 1, 'rw-p'), ([1.0, 1.0, 2.0, 2.0], True))"
    assert run_script(text, tmp_path) == f"{shown}\n{shown}\n0.0 0.0 [12000000]\n"


def test_small_tensors_stay_what_they_were(importable: None, tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 2)
    tied, empty, grown = layer.weight, torch.zeros(0), torch.zeros(2)

    def answer() -> Any:
        with torch.no_grad():
            tied[0, 0] = 7
        grown.resize_(100)
        same = tied is layer.weight
        return layer.weight[0, 0].item(), same, type(tied).__name__, tied.requires_grad, empty.numel(), len(grown)

    with open_caller(tmp_path) as call:
        assert call(answer) == (7.0, True, "Parameter", True, 0, 100)
    assert not list(tmp_path.iterdir())


def test_arrays_of_a_file_stay_in_that_file(importable: None, tmp_path: Path) -> None:
    np.arange(50_000, dtype=np.int32).tofile(tmp_path / "tokens")
    tokens = np.memmap(tmp_path / "tokens", dtype=np.int32, mode="r", offset=400)
    part = tokens[1000::2]

    def answer() -> Any:
        return int(tokens[0]), int(part[1]), len(part), part.flags.writeable

    with open_caller(tmp_path) as call:
        assert call(answer) == (100, 1102, 24_450, False)
    assert [path.name for path in tmp_path.iterdir()] == ["tokens"]


def test_data_that_is_sent_again_is_not_written_again(tmp_path: Path) -> None:
    data = torch.arange(100_000)
    first = send_value([data, data[5:]], tmp_path)
    assert send_value([data, data[5:]], tmp_path) == first
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [800_000]
    data[0] = 1
    assert send_value([data, data[5:]], tmp_path) != first
    assert len(list(tmp_path.iterdir())) == 2
