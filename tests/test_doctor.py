"""The doctor finds what is wrong and names the cure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.doctor import Level, check_bfloat16, examine, is_within
from headwater.store import open_store
from headwater.train.machine import check_lanes


@pytest.mark.parametrize(
    ("installed", "requirement", "answer"),
    [
        ("2.13.0+cpu", "torch<2.14,>=2.13", True),
        ("2.14.0", "torch<2.14,>=2.13", False),
        ("2.12.1", "torch<2.14,>=2.13", False),
        ("2.14.0a0+git", "torch<2.14,>=2.13", False),
        ("13.0", "rich>=13", True),
    ],
)
def test_versions_are_compared_with_what_is_asked_for(installed: str, requirement: str, answer: bool) -> None:
    assert is_within(installed, requirement) is answer


def test_all_that_matters_is_looked_at(tmp_path: Path) -> None:
    names = [check.name for check in examine(str(tmp_path / "study.db"))]
    for name in ("python", "headwater", "torch", "optuna", "sqlalchemy", "lanes", "devices", "threads", "memory"):
        assert name in names


def test_lanes_compute_what_models_alone_do() -> None:
    check_lanes()


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
def test_a_storage_that_can_be_written_is_left_as_it_was(tmp_path: Path, form: str) -> None:
    check = list(examine(form.format(tmp_path / "study.db")))[-1]
    assert check.level is Level.OK
    assert list(tmp_path.iterdir()) == []


def test_an_existing_record_is_kept(tmp_path: Path) -> None:
    with open_store(tmp_path / "study.db"):
        pass
    check = list(examine(str(tmp_path / "study.db")))[-1]
    assert check.level is Level.OK
    assert (tmp_path / "study.db").exists()


def test_a_storage_that_cannot_be_written_fails_with_its_cure(tmp_path: Path) -> None:
    check = list(examine(str(tmp_path / "nowhere" / "study.db")))[-1]
    assert check.level is Level.FAIL
    assert "no directory" in check.text
    assert "--storage" in check.cure


FORBIDDEN = "import os, signal; os.environ.get({name!r}) or os.kill(os.getpid(), signal.SIGILL)"


def test_bfloat16_is_looked_at(tmp_path: Path) -> None:
    (check,) = [check for check in examine(str(tmp_path / "study.db")) if check.name == "bfloat16"]
    assert check.level is Level.OK  # the tests run with a setting under which it computes


def test_bfloat16_that_ends_the_process_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    check = check_bfloat16(FORBIDDEN.format(name="ONEDNN_MAX_CPU_ISA"))
    assert check.level is Level.WARN
    assert "SIGILL" in check.text
    assert check.cure == "export ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"


def test_bfloat16_that_no_setting_makes_work_is_named_as_such() -> None:
    assert check_bfloat16(FORBIDDEN.format(name="NO_SUCH_VARIABLE")).cure == "train in float32"


def test_tests_limit_the_instruction_set_where_bfloat16_would_end_them(tmp_path: Path) -> None:
    """Run a session of pytest whose probe dies, and look at the variable in its processes and in their children."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import headwater.doctor\nprobe = {FORBIDDEN.format(name='ONEDNN_MAX_CPU_ISA')!r}\n"
        "headwater.doctor.check_bfloat16.__defaults__ = (probe,)\n"
    )
    inner = tmp_path / "test_inner.py"
    inner.write_text(
        "import os, subprocess, sys\n"
        "def test_variable():\n"
        "    assert os.environ['ONEDNN_MAX_CPU_ISA'] == 'AVX512_CORE_BF16'\n"
        "    program = 'import os; os.environ[\"ONEDNN_MAX_CPU_ISA\"]'\n"
        "    assert subprocess.run([sys.executable, '-c', program]).returncode == 0\n"
    )
    kept = {
        name: value for name, value in os.environ.items() if name not in ("ONEDNN_MAX_CPU_ISA", "PYTEST_XDIST_WORKER")
    }
    path = os.pathsep.join([str(tmp_path), kept.get("PYTHONPATH", "")])
    conftest = Path(__file__).parent / "conftest.py"
    for workers in ("0", "1"):
        command = [sys.executable, "-m", "pytest", str(inner), "-q", "-n", workers, "-p", "no:cacheprovider"]
        command += [
            "--rootdir",
            str(tmp_path),
            "-c",
            os.devnull,
            "--import-mode=importlib",
            "--confcutdir",
            str(tmp_path),
        ]
        (tmp_path / "conftest.py").write_text(conftest.read_text())
        ended = subprocess.run(
            command, env={**kept, "PYTHONPATH": path}, capture_output=True, text=True, timeout=100, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
