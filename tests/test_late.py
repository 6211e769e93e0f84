"""What is imported when."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headwater
from headwater import execute, report, store, trials
from headwater.late import load_late


@pytest.mark.parametrize("package", [headwater, execute, report, store, trials])
def test_every_name_of_a_package_is_found_in_its_module(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert names
    assert [name for name in names if getattr(package, name, None) is None] == []


def test_an_unknown_name_is_an_attribute_error_of_the_package() -> None:
    find = load_late("headwater.store", {"Folder": "folder"})
    assert find("Folder") is store.Folder
    with pytest.raises(AttributeError, match=r"module 'headwater\.store' has no attribute 'Foldr'"):
        find("Foldr")


def test_a_worker_process_imports_no_database_and_no_other_executor() -> None:
    script = "import sys, headwater.execute.worker_process, headwater.execute.serving; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "headwater.execute.serving" in loaded
    assert loaded.isdisjoint({"sqlalchemy", "torch", "headwater.conduct", "headwater.execute.ray_executor"})


def test_a_worker_without_a_surrogate_does_not_import_sympy() -> None:
    script = "import sys, headwater.train.worker; print('sympy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
