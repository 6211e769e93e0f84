"""Studies of several users in one process: who trains with whom, what each pays, and that each is its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.serve.service.conftest import (
    SLOW,
    STUDY,
    RunningService,
    Start,
    ask_raw,
    bearer,
    has_epochs,
    submit,
    wait_for,
    wait_for_end,
)
from tests.spans import assert_no_overlap

from headwater.execute import Service
from headwater.serve.service.folders import ServiceFolder
from headwater.serve.service.running_studies import RunningStudies
from headwater.serve.service.sharing import Party, form_parties, hash_files, split_devices
from headwater.serve.service.steward import Setup
from headwater.serve.service.values import State, Submission, Wish

pytestmark = pytest.mark.timeout(300)

SHARED = """
import time

import headwater as hw

def train(trial):
    print("begins with", len(trial.lanes), "lanes", flush=True)
    for epoch in trial.epochs(EPOCHS):
        time.sleep(0.05)
        trial.report(loss=trial.config["lr"] / (epoch + 1))

study = hw.Study(train, space={"lr": hw.uniform(0.1, 1)}, metric="loss", lanes=8, save_every=1)
"""
SHORT, ENDLESS = SHARED.replace("EPOCHS", "20"), SHARED.replace("EPOCHS", "40000")


def make(study: str, share: str = "same", **more: Any) -> Submission:  # Any: fields
    fields = {"user": study, "file": "train.py", "options": {}, "state": State.QUEUED, "created": 0.0}
    return Submission(**{**fields, **more, "id": study, "share": share})


def form(studies: Sequence[Submission], crews: dict[str, int] | None = None, *, may_join: bool = True) -> list[Party]:
    return form_parties(studies, crews or {}, dict.fromkeys("abcd", 1), lambda study: may_join)


def test_studies_of_the_same_files_that_wait_begin_as_one_with_all_their_devices() -> None:
    assert form([make("a"), make("b"), make("c", ""), make("d", "other")]) == [
        Party(("a", "b"), 2),
        Party(("c",), 1),
        Party(("d",), 1),
    ]


@pytest.mark.parametrize(
    "change",
    [{"share": ""}, {"num_deaths": 1}, {"options": {"surrogate": 8}}, {"options": {"seed": 1}}],
    ids=["did not ask for it", "has died", "has a surrogate", "draws other numbers"],
)
def test_a_study_runs_by_itself(change: dict[str, Any]) -> None:
    assert form([make("a"), make("b", **change)]) == [Party(("a",), 1), Party(("b",), 1)]


def test_a_study_that_comes_later_waits_for_a_report_of_the_one_that_runs() -> None:
    assert form([make("a"), make("b")], {"a": 1}) == [Party(("a",), 0)]
    assert form([make("a", wish=Wish.YIELD), make("b")], {"a": 1}) == []
    assert form([make("a"), make("b")]) == [Party(("a", "b"), 2)]


def test_a_process_that_has_just_been_joined_is_left_alone() -> None:
    assert form([make("a"), make("b"), make("c")], {"a": 1, "b": 1}, may_join=False) == [Party(("a", "b"), 3)]


def test_nobody_yields_where_nobody_waits() -> None:
    assert form([make("a"), make("b")], {"a": 1, "b": 2}) == [Party(("a",), 1), Party(("b",), 1)]


def test_studies_found_after_a_restart_are_in_one_process_until_their_stewards_say_otherwise(tmp_path: Path) -> None:
    running = RunningStudies(ServiceFolder(tmp_path, None), lambda: 0.0)
    (first,) = running.add([make("a")], 1)
    (second,) = running.add([make("b")], 1)
    shares = {"a": 1, "b": 0}
    for runner, pid in ((first, 7), (second, 7)):
        parties = form_parties([make("a"), make("b")], running.find_crews(), shares, lambda study: True)
        assert parties == [Party(("a", "b"), 1)]
        runner.pid = pid
        running.unite(runner)
    assert len({*running.find_crews().values()}) == 1


def test_a_steward_obeys_a_message_that_arrives_together_with_its_set_up(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENDLESS)
    setup = Setup(
        study="a",
        work=str(tmp_path),
        source=str(tmp_path),
        arguments=("run", "train.py", f"--storage={tmp_path / 'record.db'}", "--name=a", "--trials=2"),
        num_devices=1,
        limits={},
    )
    command = [sys.executable, "-m", "headwater.serve.service.steward"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as steward:
        assert steward.stdin is not None
        assert steward.stdout is not None
        steward.stdin.write(f"{json.dumps(asdict(setup))}\n{json.dumps({'stop': True})}\n".encode())
        steward.stdin.flush()
        said = [json.loads(line) for line in steward.stdout]
    assert said[-1] == {"ended": 130}


def test_those_who_are_together_stay_so_when_one_leaves() -> None:
    assert form([make("a"), make("b")], {"a": 1, "b": 1}) == [Party(("a", "b"), 2)]
    assert form([make("b")], {"a": 1, "b": 1}) == [Party(("b",), 1)]


def test_a_process_has_no_more_devices_than_any_of_its_studies_may_have() -> None:
    assert form([make("a"), make("b", max_devices=1)]) == [Party(("a", "b"), 1)]


def test_each_device_is_paid_for_by_the_lanes_on_it_and_idle_ones_by_heads() -> None:
    assert split_devices([{"cpu:0": 6}, {"cpu:0": 2}], 1) == [0.75, 0.25]
    assert split_devices([{"cpu:0": 8}, {"cpu:1": 1}], 2) == [1.0, 1.0]
    assert split_devices([{"cpu:0": 3}, {"cpu:0": 1}], 3) == [1.75, 1.25]
    assert split_devices([{}, {}], 1) == [0.5, 0.5]
    assert split_devices([{"cpu:0": 1, "cpu:1": 1}, {}], 1) == [1.0, 0.0]


def test_a_hash_tells_files_apart_by_name_and_content() -> None:
    files = {"train.py": b"ab", "data.bin": b"c"}
    assert hash_files("train.py", files) == hash_files("train.py", dict(reversed(files.items())))
    others = [
        ("data.bin", files),
        ("train.py", {"train.py": b"a", "data.bin": b"bc"}),
        ("train.py", {"train.py": b"ab"}),
    ]
    assert len({hash_files(*one) for one in [("train.py", files), *others]}) == 4


def read_pid(service: RunningService, study: str) -> str:
    return (service.folder / "studies" / study / "work" / "runner.pid").read_text()


def read_trials(service: RunningService, user: Service, study: str) -> list[Any]:
    _, content = ask_raw(service.url, "GET", f"/v1/studies/{study}/trials", headers=bearer(user.token))
    return [{key: value for key, value in one.items() if key != "seconds"} for one in json.loads(content)]


def start_both(service: RunningService) -> tuple[tuple[Service, Service], tuple[str, str]]:
    """Have two users submit the same files, one after the other, and wait until both train in one process."""
    ada, ben = service.add_user("ada"), service.add_user("ben")
    first = submit(ada, ENDLESS, share_lanes=True, options={"trials": 3})
    wait_for(ada, first, has_epochs(1))
    second = submit(ben, ENDLESS, share_lanes=True, options={"trials": 1, "search": "tpe"})
    wait_for(ben, second, has_epochs(1))
    assert read_pid(service, first) == read_pid(service, second)
    return (ada, ben), (first, second)


def start_at_once(service: RunningService, source: str) -> tuple[tuple[Service, Service], tuple[str, str]]:
    """Have two users submit the same files while the devices are another's, so that they begin as one group."""
    ada, ben, cy = (service.add_user(name) for name in ("ada", "ben", "cy"))
    before = submit(cy, SLOW)
    wait_for(cy, before, has_epochs(1))
    first = submit(ada, source, share_lanes=True, options={"trials": 3})
    second = submit(ben, source, share_lanes=True, options={"trials": 1, "search": "tpe"})
    cy.change(before, "stop", {"now": True})
    return (ada, ben), (first, second)


def test_two_users_train_in_one_group_and_have_the_trials_that_they_have_alone(start_service: Start) -> None:
    service = start_service("--devices", "1")
    (ada, ben), (first, second) = start_at_once(service, SHORT)
    alone = submit(ada, SHORT, options={"trials": 3}), submit(ben, SHORT, options={"trials": 1, "search": "tpe"})
    for user, shared, other in zip((ada, ben), (first, second), alone, strict=True):
        assert [wait_for_end(user, study)["state"] for study in (shared, other)] == ["done", "done"]
        assert read_trials(service, user, shared) == read_trials(service, user, other)
        assert "begins with 4 lanes" in user.read_log(shared, 0, wait=False)["text"]
        assert_no_overlap(service.folder / "studies" / shared / "work" / "record.db")
    logs = ada.read_log(first, 0, wait=False)["text"], ben.read_log(second, 0, wait=False)["text"]
    assert "3 completed" in logs[0]
    assert "3 completed" not in logs[1]
    assert "1 completed" in logs[1]


def test_it_is_asked_for_by_an_option_and_from_python(service: RunningService, empty_place: Path) -> None:
    user = service.add_user("ada")
    run = f"study.executor = hw.Service({service.url!r}, {user.token!r}, share_lanes=True)\nstudy.run(2)\n"
    (empty_place / "train.py").write_text(STUDY + "\nif __name__ == '__main__':\n    " + run.replace("\n", "\n    "))
    submit_it = ["-m", "headwater", "submit", "train.py", "--trials", "2", "--share-lanes", "--server", service.url]
    for command in (["train.py"], [*submit_it, "--token", str(user.token)]):
        done = subprocess.run([sys.executable, *command], cwd=empty_place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert [study["share_lanes"] for study in user.list_studies()] == [True, True]


def test_device_seconds_are_split_by_lanes(start_service: Start) -> None:
    service = start_service("--devices", "1")
    users, studies = start_at_once(service, ENDLESS)
    pairs = list(zip(users, studies, strict=True))
    for (user, study), num_lanes in zip(pairs, (3, 1), strict=True):
        wait_for(user, study, lambda one, lanes=num_lanes: one["progress"].get("lanes") == {"cpu:0": lanes})  # type: ignore[misc] # a default
    begin = [user.show(study)["device_seconds"] for user, study in pairs]
    wait_for(*pairs[0], lambda one: one["device_seconds"] > begin[0] + 6)
    spent = [user.show(study)["device_seconds"] - before for (user, study), before in zip(pairs, begin, strict=True)]
    assert spent[0] / spent[1] == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize("now", [False, True])
def test_who_stops_a_study_leaves_the_other_training(start_service: Start, now: bool) -> None:
    service = start_service("--devices", "1")
    (ada, ben), (first, second) = start_both(service)
    ada.change(first, "stop", {"now": now})
    assert wait_for_end(ada, first)["state"] == "stopped"
    process = read_pid(service, second)
    seen = ben.show(second)["progress"]["num_epochs"]
    after = wait_for(ben, second, has_epochs(seen + 20))
    assert (after["state"], read_pid(service, second)) == ("running", process)
    length = len(ada.read_log(first, 0, wait=False)["text"])
    ben.change(second, "stop")
    wait_for_end(ben, second)
    assert len(ada.read_log(first, 0, wait=False)["text"]) == length


def test_a_budget_ends_one_and_the_others_go_on(start_service: Start) -> None:
    service = start_service("--devices", "1")
    ada, ben = service.add_user("ada"), service.add_user("ben")
    first = submit(ada, ENDLESS, share_lanes=True)
    wait_for(ada, first, has_epochs(1))
    second = submit(ben, ENDLESS, share_lanes=True, budget_device_s=2.0)
    ended = wait_for_end(ben, second)
    assert (ended["state"], ended["reason"]) == ("stopped", "its budget of 2 device-seconds is used up")
    seen = ada.show(first)["progress"]["num_epochs"]
    assert wait_for(ada, first, has_epochs(seen + 20))["state"] == "running"
    assert read_pid(service, first) == read_pid(service, second)


def test_a_paused_study_comes_back_into_a_common_process(start_service: Start) -> None:
    service = start_service("--devices", "1")
    (ada, ben), (first, second) = start_both(service)
    ben.change(second, "pause")
    before = wait_for_end(ben, second)["progress"]["num_epochs"]
    assert ada.show(first)["state"] == "running"
    ben.change(second, "resume")
    wait_for(ben, second, has_epochs(before + 1))
    assert read_pid(service, first) == read_pid(service, second)


def test_what_cannot_train_with_others_runs_by_itself(start_service: Start) -> None:
    service = start_service("--devices", "2")
    source = SHORT.replace("save_every=1", "callbacks=[hw.Callback()]")
    ada, ben = service.add_user("ada"), service.add_user("ben")
    studies = [(user, submit(user, source, share_lanes=True)) for user in (ada, ben)]
    assert [wait_for_end(user, study)["state"] for user, study in studies] == ["done", "done"]


def test_the_process_that_dies_is_followed_by_one_for_each(start_service: Start) -> None:
    service = start_service("--devices", "2")
    (ada, ben), (first, second) = start_both(service)
    os.kill(int(read_pid(service, first)), 9)
    for user, study in ((ada, first), (ben, second)):
        wait_for(user, study, lambda one: one["state"] == "running" and one["num_deaths"] == 1)
    assert read_pid(service, first) != read_pid(service, second)


def test_a_service_that_is_killed_finds_both_in_their_process(start_service: Start) -> None:
    service = start_service("--devices", "1")
    (ada, ben), (first, second) = start_both(service)
    process = read_pid(service, first)
    service.kill()
    service.start()
    ada, ben = Service(service.url, ada.token), Service(service.url, ben.token)
    seen = ben.show(second)["progress"]["num_epochs"]
    wait_for(ben, second, has_epochs(seen + 20))
    assert read_pid(service, first) == read_pid(service, second) == process
    ada.change(first, "stop")
    assert wait_for_end(ada, first)["state"] == "stopped"
    assert wait_for(ben, second, has_epochs(seen + 40))["state"] == "running"


def test_common_files_belong_to_a_system_user_of_their_own_and_go_with_the_last_study(start_service: Start) -> None:
    service = start_service("--devices", "1")
    (ada, ben), (first, second) = start_both(service)
    folders = [service.folder / "studies" / study / "work" for study in (first, second)]
    (common,) = (service.folder / "shares").iterdir()
    owners = {folder.stat().st_uid for folder in (*folders, common / "work")}
    assert len(owners) == 1
    own = submit(ada)
    if os.geteuid() == 0 and "--same-user" not in service.options:
        assert (service.folder / "studies" / own / "work").stat().st_uid not in owners
    for user, study in ((ada, first), (ben, second)):
        user.change(study, "stop")
        wait_for_end(user, study)
        assert common.exists()
        user.remove(study)
    assert not common.exists()
