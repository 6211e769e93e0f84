"""The way of a study through a service: submitted, queued, run, followed, read."""

from __future__ import annotations

import json
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.serve.service.conftest import (
    SLOW,
    STUDY,
    RunningService,
    Start,
    ask_raw,
    bearer,
    encode,
    has_epochs,
    refusal,
    submit,
    wait_for,
    wait_for_end,
)

import headwater as hw
from headwater.execute import Service

pytestmark = pytest.mark.timeout(300)
"""Services and studies start as real processes, which a busy machine is slow at."""


def test_a_study_runs_to_its_end_and_its_trials_log_and_record_can_be_read(service: RunningService) -> None:
    user = service.add_user("ada")
    study = submit(user)
    assert study.startswith("train-")
    ended = wait_for_end(user, study)
    assert (ended["state"], ended["reason"], ended["num_devices"]) == ("done", "", 0), ended
    assert ended["progress"]["statuses"]["completed"] == 3
    assert ended["device_seconds"] > 0
    status, trials = ask_raw(service.url, "GET", f"/v1/studies/{study}/trials", headers=bearer(user.token))
    assert (status, len(json.loads(trials))) == (200, 3)
    assert "3 completed" in user.read_log(study, 0, wait=False)["text"]


def test_the_same_trials_come_out_as_without_a_service(service: RunningService, empty_place: Path) -> None:
    """The answer of a study does not depend on where it runs."""
    (empty_place / "mine.py").write_text(STUDY + "\nresult = study.run(num_trials=3)\n")
    local = _run("run", "mine.py", "--json", cwd=empty_place)
    user = service.add_user("ada")
    study = submit(user)
    wait_for_end(user, study)
    remote = _run("best", study, "--json", "--server", service.url, "--token", str(user.token), cwd=empty_place)
    assert _strip(json.loads(remote)["trials"]) == _strip(json.loads(local)["trials"])


def test_what_does_not_fit_waits_and_starts_when_there_is_room(start_service: Start) -> None:
    service = start_service("--devices", "1")
    user = service.add_user("ada")
    first = submit(user, SLOW)
    wait_for(user, first, has_epochs(1))
    second = submit(user)
    assert user.show(second)["state"] == "queued"
    user.change(first, "stop")
    assert wait_for_end(user, first)["state"] == "stopped"
    assert wait_for_end(user, second)["state"] == "done"


def test_a_study_with_a_higher_priority_goes_first(start_service: Start) -> None:
    service = start_service("--devices", "1")
    user = service.add_user("ada")
    first = submit(user, SLOW)
    wait_for(user, first, has_epochs(1))
    low, high = submit(user), submit(user)
    assert user.change(high, "priority", {"priority": 5})["priority"] == 5
    user.change(first, "stop")
    wait_for_end(user, high)
    started = {study: wait_for_end(user, study)["started"] for study in (low, high)}
    assert started[high] < started[low]


def test_a_paused_study_goes_on_where_it_was(service: RunningService) -> None:
    user = service.add_user("ada")
    study = submit(user, SLOW.replace("epochs(40000)", "epochs(60)"), options={"trials": 2})
    wait_for(user, study, has_epochs(3))
    assert user.change(study, "pause")["wish"] == "pause"
    paused = wait_for_end(user, study)
    assert (paused["state"], paused["reason"]) == ("paused", "ada has paused it")
    before = paused["progress"]["num_epochs"]
    assert user.change(study, "resume")["state"] == "queued"
    ended = wait_for_end(user, study)
    assert (ended["state"], ended["progress"]["num_epochs"]) == ("done", 120)
    assert before < 120


def test_devices_go_to_a_second_user_and_come_back(service: RunningService) -> None:
    ada, ben = service.add_user("ada"), service.add_user("ben")
    first = submit(ada, SLOW, options={"trials": 8})
    wait_for(ada, first, lambda study: study["progress"].get("num_held") == 2)
    second = submit(ben, SLOW)
    wait_for(ben, second, lambda study: study["state"] == "running" and study["num_devices"] == 1)
    assert wait_for(ada, first, lambda study: study["progress"].get("num_held") == 1)["num_devices"] == 1
    ben.change(second, "stop", {"now": True})
    assert wait_for(ada, first, lambda study: study["progress"].get("num_held") == 2)["num_devices"] == 2


def test_limits_end_a_study_and_say_so(service: RunningService) -> None:
    user = service.add_user("ada")
    by_budget = submit(user, SLOW, budget_device_s=2.0)
    by_deadline = submit(user, SLOW, deadline_s=6.0)
    assert wait_for_end(user, by_budget)["reason"] == "its budget of 2 device-seconds is used up"
    assert wait_for_end(user, by_deadline)["reason"] == "its deadline has passed"


def test_a_file_that_cannot_be_loaded_fails_with_the_end_of_its_log(service: RunningService) -> None:
    user = service.add_user("ada")
    failed = wait_for_end(user, submit(user, "import nothing_like_this\n"))
    assert failed["state"] == "failed"
    assert "nothing_like_this" in failed["reason"]


def test_files_that_a_study_needs_go_along(service: RunningService) -> None:
    user = service.add_user("ada")
    source = STUDY.replace("import headwater as hw", "import headwater as hw\nfrom parts.scales import SCALE")
    files = [{"path": "parts/__init__.py", "text": ""}, {"path": "parts/scales.py", "text": "SCALE = 2"}]
    assert wait_for_end(user, submit(user, source, files=files))["state"] == "done"


def test_a_submission_that_is_sent_twice_is_done_once(service: RunningService) -> None:
    user = service.add_user("ada")
    body = encode({"file": "train.py", "files": [{"path": "train.py", "text": STUDY}], "options": {"trials": 1}})
    headers = {**bearer(user.token), "Idempotency-Key": "one"}
    answers = [ask_raw(service.url, "POST", "/v1/studies", body, headers) for _ in range(3)]
    assert [status for status, _ in answers] == [201, 200, 200]
    assert len({json.loads(content)["id"] for _, content in answers}) == 1
    assert len(user.list_studies()) == 1
    assert len(list((service.folder / "studies").iterdir())) == 1
    other = body.replace(b'"trials": 1', b'"trials": 2')
    status, content = ask_raw(service.url, "POST", "/v1/studies", other, headers)
    assert status == 409
    assert b"was sent with another study" in content


def test_a_key_is_one_users_own(service: RunningService) -> None:
    body = encode({"file": "train.py", "files": [{"path": "train.py", "text": STUDY}], "options": {"trials": 1}})
    for name in ("ada", "ben"):
        user = service.add_user(name)
        headers = {**bearer(user.token), "Idempotency-Key": "one"}
        assert ask_raw(service.url, "POST", "/v1/studies", body, headers)[0] == 201
        assert len(user.list_studies()) == 1


def test_events_come_in_order_and_go_on_after_the_last_one_that_was_seen(service: RunningService) -> None:
    user = service.add_user("ada")
    study = submit(user)
    wait_for_end(user, study)
    seen = _read_events(service, user, study, {}, until="done")
    assert seen[0][:2] == ("state", "queued")
    places = [place for _, _, place in seen]
    assert places == sorted(set(places))
    later = _read_events(service, user, study, {"Last-Event-ID": str(places[0])}, until="done")
    assert [place for _, _, place in later] == places[1:]


def test_python_runs_a_study_in_a_service_and_gets_its_result(service: RunningService, empty_place: Path) -> None:
    user = service.add_user("ada")
    script = f"""
import torch
from torch import nn
import headwater as hw

def train(trial):
    model = trial.prepare_model(nn.Linear(4, 2))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(2):
        loss = model(torch.ones(3, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trial.report(loss=loss)

study = hw.Study(train, space={{"lr": hw.uniform(0.1, 1)}}, metric="loss", lanes=1, storage=None,
                 executor=hw.Service({service.url!r}, {user.token!r}))
result = study.run(num_trials=3, watcher=hw.Silence())
print(len(result.trials), result.best.status.value, type(result.load_best_model()).__name__, result.was_interrupted)
"""
    (empty_place / "script.py").write_text(script)
    told = subprocess.run([sys.executable, "script.py"], cwd=empty_place, capture_output=True, text=True, check=False)
    assert told.stdout.split() == ["3", "completed", "Linear", "False"], told.stderr
    assert [path.name for path in empty_place.iterdir() if path.suffix == ".db"] == []


def test_a_function_without_a_file_is_refused() -> None:
    scope: dict[str, object] = {}
    exec("def train(trial):\n    trial.report(loss=1)", scope)  # noqa: S102 - what is typed at a prompt
    study = hw.Study(
        scope["train"],  # type: ignore[arg-type] # a function
        space={"lr": hw.uniform(0, 1)},
        metric="loss",
        executor="http://127.0.0.1:1",
        storage=None,
    )
    with pytest.raises(hw.errors.StudyError, match="is in no file that could be sent"):
        study.run(num_trials=1)


def test_what_has_ended_can_be_removed_and_what_runs_cannot(service: RunningService) -> None:
    user = service.add_user("ada")
    study = submit(user, SLOW)
    wait_for(user, study, has_epochs(1))
    assert refusal(lambda: user.remove(study)) == (409, f"study {study} is running; stop it before it is removed")
    user.change(study, "stop", {"now": True})
    assert wait_for_end(user, study)["state"] == "stopped"
    assert user.remove(study) == {"removed": study}
    assert user.list_studies() == []
    assert list((service.folder / "studies").iterdir()) == []


def _run(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headwater", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _strip(trials: list[dict[str, object]]) -> list[dict[str, object]]:
    """Leave out how long it took."""
    return [{key: value for key, value in trial.items() if key != "seconds"} for trial in trials]


def _read_events(
    service: RunningService, user: Service, study: str, headers: dict[str, str], until: str
) -> list[tuple[str, str, int]]:
    parts = urlsplit(service.url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    connection.request("GET", f"/v1/studies/{study}/events", headers={**bearer(user.token), **headers})
    response = connection.getresponse()
    seen: list[tuple[str, str, int]] = []
    event: dict[str, str] = {}
    while not seen or seen[-1][1] != until:
        line = response.readline().decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif "data" in event:
            seen.append((event["event"], json.loads(event["data"])["state"], int(event["id"])))
            event = {}
    connection.close()
    return seen
