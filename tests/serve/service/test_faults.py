"""Services, runners and stewards that are killed: nothing is lost, nothing runs twice."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest
from tests.serve.service.conftest import SLOW, STUDY, RunningService, Start, has_epochs, submit, wait_for, wait_for_end

from headwater.execute import Service
from headwater.store import open_store

pytestmark = pytest.mark.timeout(300)
"""Services and studies start as real processes, which a busy machine is slow at."""

FINITE = SLOW.replace("epochs(40000)", "epochs(60)")


def read_pid(service: RunningService, study: str) -> int:
    return int((service.folder / "studies" / study / "work" / "runner.pid").read_text())


def count_runs(service: RunningService, study: str) -> int:
    """Return how often the lease of a study was taken."""
    with open_store(service.folder / "studies" / study / "work" / "record.db", create=False) as store:
        notes = store.facts(store.study(study).id)
        return int(notes["devices"]["fence"])


def check_goes_on(service: RunningService, user: Service, study: str, pid: int) -> None:
    """See that a study trains on in the very process that it had, and that no other has ever run it."""
    user = Service(service.url, user.token)
    before = user.show(study)["progress"]["num_epochs"]
    wait_for(user, study, has_epochs(before + 20))
    assert read_pid(service, study) == pid
    assert Path(f"/proc/{pid}").exists()
    assert count_runs(service, study) == 1
    user.change(study, "stop")
    assert wait_for_end(user, study)["state"] == "stopped"


def test_a_killed_service_finds_its_studies_and_takes_none_twice(service: RunningService) -> None:
    user = service.add_user("ada")
    running = [submit(user, SLOW, options={"trials": 1}) for _ in range(2)]  # a device each
    waiting = submit(user)
    for study in running:
        wait_for(user, study, has_epochs(2))
    pids = [read_pid(service, study) for study in running]
    service.kill()
    service.start()
    for study, pid in zip(running, pids, strict=True):
        check_goes_on(service, user, study, pid)
    assert wait_for_end(Service(service.url, user.token), waiting)["state"] == "done"


def test_what_ended_while_the_service_was_away_is_seen_when_it_is_back(service: RunningService) -> None:
    user = service.add_user("ada")
    study = submit(user, SLOW.replace("epochs(40000)", "epochs(8)"), options={"trials": 1})
    wait_for(user, study, has_epochs(1))
    pid = read_pid(service, study)
    service.kill()
    _wait_until_gone(pid)
    service.start()
    ended = wait_for_end(Service(service.url, user.token), study)
    assert (ended["state"], ended["progress"]["num_epochs"]) == ("done", 8)


def test_a_study_that_was_to_pause_when_the_service_was_killed_pauses(service: RunningService) -> None:
    user = service.add_user("ada")
    study = submit(user, SLOW)
    wait_for(user, study, has_epochs(1))
    user.change(study, "pause")
    service.kill()
    service.start()
    assert wait_for_end(Service(service.url, user.token), study)["state"] == "paused"


def test_a_runner_that_is_killed_goes_on_from_its_record(service: RunningService) -> None:
    user = service.add_user("ada")
    study = submit(user, FINITE, options={"trials": 2})
    wait_for(user, study, has_epochs(3))
    os.kill(read_pid(service, study), signal.SIGKILL)
    ended = wait_for_end(user, study)
    assert (ended["state"], ended["progress"]["num_epochs"]) == ("done", 120)
    assert count_runs(service, study) == 2


def test_a_runner_that_dies_three_times_without_progress_has_failed(service: RunningService) -> None:
    user = service.add_user("ada")
    failed = wait_for_end(
        user,
        submit(
            user,
            STUDY.replace(
                "def train", "print('so it ends', flush=True)\nimport os\nos.kill(os.getpid(), 9)\n\ndef train"
            ),
        ),
    )
    assert failed["state"] == "failed"
    assert failed["reason"] == (
        "its runner has died 3 times without any progress, the last time by signal 9: "
        "so it ends\nso it ends\nso it ends"
    )


def test_a_failed_study_can_be_resumed_and_counts_its_deaths_anew(service: RunningService) -> None:
    user = service.add_user("ada")
    study = submit(user, STUDY.replace("def train", "import os\nos.kill(os.getpid(), 9)\n\ndef train"))
    wait_for_end(user, study)
    assert user.change(study, "resume")["num_deaths"] == 0
    assert wait_for_end(user, study)["num_deaths"] == 3


def test_a_steward_that_its_study_kills_is_replaced(start_service: Start) -> None:
    """The steward runs as the same system user as the study, which can kill it; that gains it nothing."""
    service = start_service("--devices", "1")
    user = service.add_user("ada")
    killing = SLOW.replace("time.sleep(0.05)", "time.sleep(0.05)\n        if epoch == 3: os.kill(os.getppid(), 9)")
    study = submit(user, killing, options={"trials": 1})
    wait_for(user, study, has_epochs(5))
    check_goes_on(service, user, study, read_pid(service, study))


FORGED = """
import json
parent = Path(f"/proc/{os.getppid()}")
is_runner = "headwater.serve.service.steward" in (parent / "cmdline").read_text()
with (parent / "fd" / "1" if is_runner else Path(os.devnull)).open("w") as steward:
    for line in [
        json.dumps({"progress": {"statuses": {"running": "many"}, "best": {"value": "[/]"}, "metric": 3}}),
        '{"progress": {"deep": ' + "[" * 900 + "]" * 900 + "}}",
        '{"progress": {"num_epochs": 1e999, "num_held": 9999, "statuses": null, "lanes": [1]}}',
        "[" * 100_000,
    ]:
        steward.write(line + "\\n")

def train"""


def test_what_a_study_says_in_the_name_of_its_steward_harms_nobody_else(start_service: Start) -> None:
    """A steward runs as the system user of its study, which can make it say anything."""
    service = start_service("--devices", "2", "--same-user")  # so that its output can be opened from outside
    mallory, ben = service.add_user("mallory"), service.add_user("ben")
    forged = submit(mallory, SLOW.replace("\ndef train", FORGED, 1))
    wait_for(mallory, forged, lambda one: one["num_deaths"] > 0)
    assert wait_for_end(ben, submit(ben))["state"] == "done"
    assert {study["user"] for study in service.admin.list_studies()} == {"mallory", "ben"}
    assert service.process is not None
    assert service.process.poll() is None


def test_a_study_whose_steward_dies_before_it_can_be_stopped_is_ended(service: RunningService) -> None:
    """Else a study could go on for ever by killing its steward."""
    user = service.add_user("ada")
    study = submit(user, SLOW)
    begin_s = wait_for(user, study, has_epochs(1))["device_seconds"]
    pid = read_pid(service, study)
    runner = os.pidfd_open(pid)
    steward = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(steward, signal.SIGSTOP)
    user.change(study, "stop")
    wait_for(user, study, lambda one: one["device_seconds"] > begin_s + 2)  # the wish has been sent by then
    os.kill(steward, signal.SIGKILL)
    assert wait_for_end(user, study)["state"] == "stopped"
    assert select.select([runner], [], [], 60)[0] == [runner], "the process goes on"
    os.close(runner)


def test_an_orderly_end_of_the_service_leaves_studies_running(service: RunningService) -> None:
    user = service.add_user("ada")
    study = submit(user, SLOW)
    wait_for(user, study, has_epochs(1))
    pid = read_pid(service, study)
    service.kill(signal.SIGTERM)
    service.start()
    check_goes_on(service, user, study, pid)


def _wait_until_gone(pid: int) -> None:
    """Wait for a process that is no child of this one."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([descriptor], [], [], 100)
    os.close(descriptor)
