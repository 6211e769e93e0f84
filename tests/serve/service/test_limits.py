"""The limits of submitted studies, tried by real processes: memory, files, processes and time."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.serve.service.conftest import PYTHON, STUDY, Start, submit, wait_for, wait_for_end

from headwater.serve.service.folders import StudyFolder
from headwater.serve.service.isolation import Limits
from headwater.serve.service.runners import StudyRunner
from headwater.serve.service.values import State, Submission

pytestmark = pytest.mark.timeout(300)
"""Studies start as real processes, which a busy machine is slow at."""

MIB = 2**20

GREEDY = """
import json
import os
import resource
import subprocess
import sys


def attempt(what):
    try:
        return repr(what())
    except BaseException as error:
        return type(error).__name__


def fill():
    with open("large", "wb") as file:
        for _ in range(64):
            file.write(bytes(2**20))
    return "written"


def open_many():
    return len([open("/dev/null") for _ in range(2000)])


found = {
    "file": attempt(fill),
    "size": os.path.getsize("large"),
    "many files": attempt(open_many),
    "memory": attempt(lambda: len(bytearray(5 * 2**30))),
    "memory of a child": subprocess.run([sys.executable, "-S", "-c", "bytearray(5 * 2**30)"], stderr=-3).returncode,
    "core": resource.getrlimit(resource.RLIMIT_CORE)[1],
    "raised": attempt(lambda: resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))),
}
print("FOUND" + json.dumps(found), flush=True)
sys.exit(2)
"""


def run_alone(folder: StudyFolder, source: str, limits: Limits) -> dict[str, Any]:
    """Run a file as the service does, and return what it says that it found."""
    folder.create({"train.py": source.encode()})
    submission = Submission(
        id="greedy", user="ada", file="train.py", options={"trials": 1}, state=State.QUEUED, created=0.0
    )
    runner = StudyRunner(submission, folder, 1)
    asyncio.run(runner.run(limits, lambda runner: None, may_start=True))
    log = folder.log.read_text()
    line = next((line for line in log.splitlines() if line.startswith("FOUND")), None)
    assert line is not None, log
    found: dict[str, Any] = json.loads(line.removeprefix("FOUND"))
    return found


def test_no_process_of_a_study_takes_more_than_it_may(open_folder: Path) -> None:
    limits = Limits(memory_bytes=4 * 2**30, file_bytes=8 * MIB, num_files=256)
    found = run_alone(StudyFolder(path=open_folder / "greedy", uid=None), GREEDY, limits)
    assert (found["file"], found["size"] <= 8 * MIB) == ("OSError", True)
    assert found["many files"] == "OSError"
    assert found["memory"] == "MemoryError"
    assert found["memory of a child"] == 1
    assert found["core"] == 0
    if os.geteuid() != 0:  # root may raise what it was given, which is why studies do not run as root
        assert found["raised"] == "ValueError"


FORKS = """
import json
import os
import sys
import time

children = []
try:
    for _ in range(200):
        child = os.fork()
        if child == 0:
            time.sleep(100)
            os._exit(0)
        children.append(child)
    told = "all"
except OSError as error:
    told = type(error).__name__
for child in children:
    os.kill(child, 9)
print("FOUND" + json.dumps({"told": told, "number": len(children)}), flush=True)
sys.exit(2)
"""


@pytest.mark.skipif(PYTHON is None, reason="needs root, and a Python that other users can start")
def test_a_user_cannot_start_processes_without_end(start_service: Start, open_folder: Path) -> None:
    service = start_service("--devices", "1", "--processes", "40")
    user = service.add_user("ada")
    study = submit(user, FORKS)
    wait_for_end(user, study)
    line = next(one for one in user.read_log(study, 0, wait=False)["text"].splitlines() if one.startswith("FOUND"))
    found = json.loads(line.removeprefix("FOUND"))
    assert found["told"] == "BlockingIOError"
    assert found["number"] < 40


def test_a_study_that_never_reports_is_killed_after_its_deadline_and_a_grace(start_service: Start) -> None:
    service = start_service("--devices", "1", "--grace", "1s")
    user = service.add_user("ada")
    endless = STUDY.replace("for epoch", "open('begun', 'w').close()\n    while True: pass\n    for epoch")
    study = submit(user, endless, deadline_s=20.0)
    ended = wait_for_end(user, study)
    assert (ended["state"], ended["reason"]) == ("stopped", "its deadline has passed")
    runner = int((service.folder / "studies" / study / "work" / "runner.pid").read_text())
    assert not Path(f"/proc/{runner}").exists()


def test_a_deadline_that_the_service_sets_holds_for_every_study(start_service: Start) -> None:
    service = start_service("--devices", "1", "--longest", "8s", "--grace", "1s")
    user = service.add_user("ada")
    study = submit(user, STUDY.replace("epochs(3)", "epochs(10**9)"), deadline_s=1e6)
    assert wait_for(user, study, lambda one: one["state"] == "stopped")["reason"] == "its deadline has passed"
