"""Worker processes import the user's modules again, and compute with the data and settings of the study's process."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.execute.calling import DEADLINE_S, open_caller, python_environment, run_python

STUDY = """
import headwater as hw
{imports}

def train(trial):
    for _ in trial.epochs(1):
        trial.report(loss=0.0, {expressions})

def ask(executor):
    study = hw.Study(
        train, space={{"lr": hw.grid([1.0, 2.0, 3.0, 4.0])}}, metric="loss", storage=None, lanes=1, packing=None,
        executor=executor,
    )
    return [dict(trial.history[0].metrics) for trial in study.run().trials]

if __name__ == "__main__":
{setup}
    print(repr([ask("inline"), ask(hw.ProcessExecutor(2))]))
"""


def write_script(folder: Path, expressions: Mapping[str, str], *, imports: str, setup: str = "") -> None:
    asked = ", ".join(f"{name}=float({expression})" for name, expression in expressions.items())
    lines = "\n".join(f"    {line}" for line in setup.splitlines())
    (folder / "script.py").write_text(STUDY.format(imports=imports, expressions=asked, setup=lines))


def assert_same(
    folder: Path, expressions: Mapping[str, str], *, imports: str, setup: str = ""
) -> list[dict[str, float]]:
    """Return what four trials report in the process of the study; in two workers they must report the same."""
    write_script(folder, expressions, imports=imports, setup=setup)
    here, there = ast.literal_eval(run_python("script.py", folder=folder).splitlines()[-1])
    assert there == here
    return list(here)


DRAWN = """
import functools, random
import numpy as np, torch
from torch.utils.data import TensorDataset, random_split

BASE = TensorDataset(torch.arange(100_000.0))
TRAIN, VALID = random_split(BASE, [60_000, 40_000])
ORDER, PLACES = torch.randperm(1000), np.random.permutation(1000)
FIRST, SECOND, THIRD = random.random(), random.random(), random.random()
NAMES = list({str(number) for number in range(1000)})

def read_split():
    return TRAIN[0][0] + VALID[7][0] / 1e6

def shares_base():
    return TRAIN.dataset is VALID.dataset is BASE

def read_tensor():
    return ORDER[0]

def read_by_name():
    return globals()["FIR" + "ST"]

@functools.lru_cache
def read_cached():
    return THIRD

def read_name():
    return NAMES[0]

class Data:
    first, second = random.random(), random.random()
    def read(self):
        return self.first
    @property
    def other(self):
        return Data.second

def read_defaults(first=random.random(), *, other=random.random()):
    return first + other

def hold(number):
    def decorate(function):
        def call():
            return number + function()
        return call
    return decorate

@hold(random.random())
def read_closure(number=random.random()):
    return number

def read_import():
    from drawn import PLACES
    return PLACES[0]
"""


def test_values_drawn_at_import_are_those_of_the_process_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "drawn.py").write_text(DRAWN)
    calls = ("split", "tensor", "by_name", "cached", "name", "defaults", "closure", "import")
    expressions = {
        **{call: f"drawn.read_{call}()" for call in calls if call != "import"},
        "imported": "drawn.read_import()",
        "attribute": "drawn.PLACES[1]",
        "by_getattr": "getattr(drawn, 'SEC' + 'OND')",
        "method": "drawn.Data().read()",
        "other": "drawn.Data().other",
        "is_shared": "drawn.shares_base()",
    }
    reports = assert_same(tmp_path, expressions, imports="import drawn")
    assert len({str(report) for report in reports}) == 1
    assert reports[0]["is_shared"] == 1.0


def test_an_object_that_the_script_and_a_module_share_is_one_object_in_workers(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("class Config:\n    pass\ncfg = Config()\ncfg.lr = 0.0\n")
    (tmp_path / "models.py").write_text("from config import cfg\ndef read():\n    return cfg.lr\n")
    expressions = {"seen": "(setattr(cfg, 'lr', trial.config['lr']), models.read())[1]"}
    reports = assert_same(tmp_path, expressions, imports="import models\nfrom config import cfg")
    assert [report["seen"] for report in reports] == [1.0, 2.0, 3.0, 4.0]


SETTINGS = """
torch.set_default_dtype(torch.float64)
torch.backends.cudnn.benchmark = True
torch.backends.mkldnn.deterministic = True
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.mha.set_fastpath_enabled(False)
torch.autograd.set_detect_anomaly(True)
torch.set_flush_denormal(True)
torch.set_grad_enabled(False)
np.seterr(all="raise")
sys.setrecursionlimit(2345)
warnings.simplefilter("error")
decimal.getcontext().prec = 5
"""


def test_settings_of_the_process_hold_in_workers_before_anything_is_imported(tmp_path: Path) -> None:
    tensor = "import torch\nTENSOR = torch.full((1,), 0.1)\nSMALL = TENSOR.item()\n"
    (tmp_path / "early.py").write_text(tensor)
    (tmp_path / "late.py").write_text("import torch\nBITS = torch.finfo(torch.get_default_dtype()).bits\n")
    imports = """
import decimal, sys, warnings
import numpy as np, torch, early

def raises(compute):
    try:
        compute()
    except (ArithmeticError, UserWarning):
        return True
    return False

def import_late():
    import late
    return late.BITS
"""
    expressions = {
        "made_early": "early.TENSOR.element_size() + early.SMALL",
        "made_late": "import_late()",
        "dtype": "torch.zeros(1).element_size()",
        "benchmark": "torch.backends.cudnn.benchmark",
        "deterministic": "torch.backends.mkldnn.deterministic",
        "tf32": "torch.backends.cuda.matmul.allow_tf32",
        "flash": "torch.backends.cuda.flash_sdp_enabled()",
        "fastpath": "torch.backends.mha.get_fastpath_enabled()",
        "anomalies": "torch.is_anomaly_enabled()",
        "denormal": "torch.tensor(1e-310) * 1 > 0",
        "has_gradients": "torch.is_grad_enabled()",
        "numpy_raises": "raises(lambda: np.float32(1) / np.float32(0))",
        "warning_raises": "raises(lambda: warnings.warn('a warning'))",
        "limit": "sys.getrecursionlimit()",
        "digits": "decimal.getcontext().prec",
    }
    (report, *_) = assert_same(tmp_path, expressions, imports=imports, setup=SETTINGS)
    assert (report["dtype"], report["made_late"], report["numpy_raises"], report["warning_raises"]) == (8, 64, 1, 1)


PATCHES = """
original = torch.nn.Linear.forward
torch.nn.Linear.forward = lambda self, x: 2 * original(self, x)
torch.nn.ReLU.forward = double
torch.nn.functional.gelu = lambda x: 3 * x
torch.nn.Tanh = Double
plain.compute = lambda x: 5 * x
plain.Layer.forward = double
"""


def test_functions_that_the_main_block_replaces_are_replaced_in_workers(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(
        "def compute(x):\n    return x\nclass Layer:\n    def forward(self, x):\n        return x\n"
        "def read():\n    return compute(1.0) + Layer().forward(10.0)\n"
    )
    imports = """
import torch, plain
def double(self, x):
    return 2 * x
class Double:
    def __call__(self, x):
        return 2 * x
def ask_linear():
    layer = torch.nn.Linear(1, 1, bias=False)
    return (layer(torch.ones(1)) / layer.weight).item()
"""
    expressions = {
        "wrapped": "ask_linear()",
        "method": "torch.nn.ReLU()(-1.0 * torch.ones(()))",
        "function": "torch.nn.functional.gelu(torch.ones(()))",
        "kind": "torch.nn.Tanh()(1.0)",
        "own": "plain.read()",
    }
    (report, *_) = assert_same(tmp_path, expressions, imports=imports, setup=PATCHES)
    assert list(report.values()) == [0.0, 2.0, -2.0, 3.0, 2.0, 25.0]


VALUES = """
torch.nn.Linear.scale = 0.5
torch.nn.functional.scale_of_all = 3
torch.nn.Module.call_super_init = True
Tanh.name, Tanh.shift = "text", None
"""


def test_values_that_the_main_block_sets_on_a_library_are_set_in_workers(tmp_path: Path) -> None:
    imports = """
import torch
import torch.nn as nn
from torch.nn import Tanh
def read_scale(kind):
    return getattr(kind, "scale", 1.0)
"""
    expressions = {
        "of_a_class": "read_scale(nn.Linear)",
        "of_a_module": "torch.nn.functional.scale_of_all",
        "of_its_own": "nn.Module.call_super_init",
        "is_none": "getattr(Tanh, 'shift', 1) is None",
        "text": "Tanh.name == 'text'",
    }
    (report, *_) = assert_same(tmp_path, expressions, imports=imports, setup=VALUES)
    assert list(report.values()) == [0.0, 0.5, 3.0, 1.0, 1.0, 1.0]


RECORDS = """
import threading
import torch
from torch.utils.data import Dataset, random_split

LOCK, FILE = threading.Lock(), open(__file__)

class Records(Dataset):
    def __init__(self):
        self.lock = threading.Lock()
    def __len__(self):
        return 100
    def __getitem__(self, index):
        return index

{seed}
TRAIN, VALID = random_split(Records(), [60, 40])
def read():
    with LOCK:
        return TRAIN[0] + len(FILE.name)
"""


def test_data_that_cannot_be_sent_is_that_of_the_import_where_it_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "records.py").write_text(RECORDS.format(seed="torch.manual_seed(0)"))
    assert_same(tmp_path, {"first": "records.read()"}, imports="import records")


def test_a_split_that_cannot_be_sent_and_differs_ends_the_study_with_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "records.py").write_text(RECORDS.format(seed=""))
    write_script(tmp_path, {"first": "records.read()"}, imports="import records")
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=python_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 1
    assert f"TRAIN of {tmp_path / 'records.py'}, line 17, differs" in done.stderr
    assert "seed what is drawn there, build the value inside the training function" in done.stderr


def test_sets_have_the_same_order_in_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with open_caller(tmp_path) as call, open_caller(tmp_path) as call_other:
        assert call(lambda: list(map(str, {"one", "two", "three", "four"}))) == call_other(
            lambda: list(map(str, {"one", "two", "three", "four"}))
        )


def test_named_tuples_and_data_classes_of_libraries_are_no_patches_of_the_user(tmp_path: Path) -> None:
    script = "\n".join(
        [
            "import json, pytest, ray, torch",
            "from headwater.execute.reached import find_patches",
            "print(sorted(str(place.path) for place, _ in find_patches()))",
            "def dumps(value): return 'patched'",
            "json.dumps = torch.nn.Linear.extra_repr = dumps",
            "print(sorted(str(place.path) for place, _ in find_patches()))",
        ]
    )
    (tmp_path / "script.py").write_text(script)
    before, after = run_python("script.py", folder=tmp_path).splitlines()
    assert before == "[]"
    assert ast.literal_eval(after) == ["('dumps',)", "('extra_repr',)"]
