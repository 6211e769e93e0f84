"""What submitted code cannot reach: other users' files, the service's own, and more memory than it may have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.serve.service.conftest import (
    PYTHON,
    SLOW,
    STUDY,
    Start,
    ask_raw,
    bearer,
    has_epochs,
    submit,
    wait_for,
    wait_for_end,
)

from headwater.serve.service.folders import StudyFolder
from headwater.serve.service.isolation import make_environment

pytestmark = pytest.mark.timeout(300)
"""Services and studies start as real processes, which a busy machine is slow at."""

SECRET = "the-service-has-this-in-its-environment"
needs_root = pytest.mark.skipif(PYTHON is None, reason="needs root, and a Python that other users can start")

SPY = """
import json
import os
from pathlib import Path

import headwater as hw


def look(what):
    try:
        return str(what())
    except OSError as error:
        return type(error).__name__


home = Path(os.environ["HOME"])
parent = os.getppid()
service = int(Path("service_pid").read_text())
found = {
    "uid": os.getuid(),
    "groups": os.getgroups(),
    "environment": dict(os.environ),
    "others": look(lambda: list((home.parent.parent / Path("other").read_text() / "work").iterdir())),
    "their source": look(lambda: (home.parent.parent / Path("other").read_text() / "work/source/train.py").read_text()),
    "their log": look(lambda: (home.parent.parent / Path("other").read_text() / "log").read_text()),
    "own log": look(lambda: (home.parent / "log").read_text()),
    "studies": look(lambda: os.listdir(home.parent.parent)),
    "storage": look(lambda: Path("storage").read_text() and Path(Path("storage").read_text()).read_bytes()),
    "service's environment": look(lambda: Path(f"/proc/{service}/environ").read_bytes()),
    "service's memory": look(lambda: open(f"/proc/{service}/mem", "rb").read(1)),
    "kill the service": look(lambda: os.kill(service, 9)),
    "become root": look(lambda: os.setuid(0)),
    "write elsewhere": look(lambda: (home.parent / "planted").write_text("x")),
}
print("FOUND" + json.dumps(found), flush=True)


def train(trial):
    trial.report(loss=1.0)

study = hw.Study(train, space={"lr": hw.uniform(0.1, 1)}, metric="loss", lanes=1)
"""


@needs_root
def test_a_submission_reads_neither_other_users_files_nor_the_services(start_service: Start) -> None:
    service = start_service("--devices", "2", SERVICE_SECRET=SECRET)
    assert service.process is not None
    ada, ben = service.add_user("ada"), service.add_user("ben")
    other = submit(ada, SLOW)
    wait_for(ada, other, has_epochs(1))
    files = [
        {"path": "other", "text": other},
        {"path": "storage", "text": service.storage},
        {"path": "service_pid", "text": str(service.process.pid)},
    ]
    study = submit(ben, SPY, files=files, options={"trials": 1})
    assert wait_for_end(ben, study)["state"] == "done"
    log = ben.read_log(study, 0, wait=False)["text"]
    found = json.loads(next(line for line in log.splitlines() if line.startswith("FOUND")).removeprefix("FOUND"))
    refused = ["others", "their source", "their log", "own log", "studies", "storage", "service's environment"]
    refused += ["service's memory", "kill the service", "become root", "write elsewhere"]
    assert {name: found[name] for name in refused} == dict.fromkeys(refused, "PermissionError")
    assert found["uid"] >= 60_000
    assert found["groups"] in ([], [found["uid"]])
    assert SECRET not in log
    assert set(found["environment"]) == {
        *("HOME", "LANG", "LOGNAME", "OMP_NUM_THREADS", "PATH", "PYTHONNOUSERSITE", "PYTHONPATH", "TMPDIR"),
        "XDG_CACHE_HOME",
        *(name for name in found["environment"] if name in ("LC_CTYPE", "KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK")),
    }
    assert service.process.poll() is None


LINK = """
import os
from pathlib import Path
import headwater as hw

home = Path(os.environ["HOME"])
record, target = home / "record.db", Path("target").read_text()

def train(trial):
    trial.report(loss=1.0)

study = hw.Study(train, space={"lr": hw.uniform(0.1, 1)}, metric="loss", lanes=1)
record.symlink_to(target)
os._exit(0)
"""


@needs_root
def test_a_record_that_is_a_link_to_another_users_gives_nothing_away(start_service: Start) -> None:
    service = start_service("--devices", "2")
    ada, ben = service.add_user("ada"), service.add_user("ben")
    secret = submit(ada)
    wait_for_end(ada, secret)
    target = service.folder / "studies" / secret / "work" / "record.db"
    study = submit(ben, LINK, files=[{"path": "target", "text": str(target)}])
    ended = wait_for_end(ben, study)
    assert ended["progress"] == {}
    for what in ("trials", "archive"):
        status, told = ask_raw(service.url, "GET", f"/v1/studies/{study}/{what}", None, bearer(ben.token))
        assert (status, b"cannot be read" in told) == (409, True), told


def test_a_submission_cannot_take_more_memory_than_it_may(start_service: Start) -> None:
    service = start_service("--devices", "1", "--memory", "8")
    user = service.add_user("ada")
    greedy = STUDY.replace("def train", "block = bytearray(9 * 2**30)\n\ndef train")
    failed = wait_for_end(user, submit(user, greedy))
    assert failed["state"] == "failed"
    assert "MemoryError" in failed["reason"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_new_folder_is_its_users_only_when_everything_in_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Path] = []
    monkeypatch.setattr(os, "chown", lambda path, *_, **__: given.append(Path(path)))
    folder = StudyFolder(path=tmp_path / "study", uid=12345)
    folder.create({"package/module.py": b"", "train.py": b""})
    assert given[-1] == folder.work
    assert all(given.index(path.parent) > given.index(path) for path in given[:-1])


def test_python_runs_no_file_of_the_studys_home(tmp_path: Path) -> None:
    environment = make_environment(StudyFolder(path=tmp_path, uid=None))
    base = sys._base_executable  # type: ignore[attr-defined]  # an environment of its own has no user's folder anyway
    command = [base, "-c", "import site; print(site.ENABLE_USER_SITE)"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
