"""Who and what is kept out: strangers, other users, paths that lead elsewhere, bodies that are too much or no sense."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.serve.service.conftest import (
    SLOW,
    STUDY,
    RunningService,
    Start,
    ask_raw,
    bearer,
    encode,
    refusal,
    submit,
)

from headwater.errors import StoreError, StudyError
from headwater.execute import Service
from headwater.serve.service.openapi import PLACES, Place
from headwater.serve.service.rates import MOST_UPLOADS
from headwater.serve.service.requests import parse_json, read_submission
from headwater.serve.service.store import ServiceStore
from headwater.serve.service.values import Role, User

pytestmark = pytest.mark.timeout(300)
"""Services and studies start as real processes, which a busy machine is slow at."""


@pytest.fixture(scope="module")
def module_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """One service for all requests that change nothing."""
    folder = tmp_path_factory.mktemp("service")
    service = RunningService(str(folder / "service.db"), folder / "studies", ("--devices", "1", "--same-user"))
    service.start()
    yield service
    service.kill()
    service.end_all()


@pytest.fixture
def shared(module_service: RunningService) -> RunningService:
    return module_service


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.method} {place.path}")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer hw_wrong"},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {'x' * 5000}"},
        {"Cookie": "token=hw_wrong"},
    ],
    ids=["none", "wrong", "basic", "empty", "long", "cookie"],
)
def test_every_place_wants_a_token_that_is_known(shared: RunningService, place: Place, headers: dict[str, str]) -> None:
    path = place.path.replace("{id}", "some-study")
    status, content = ask_raw(shared.url, place.method, path, b"{}", headers)
    assert status == 401
    assert "wants a token" in json.loads(content)["error"]


def test_a_token_in_the_query_or_revoked_is_none(shared: RunningService) -> None:
    user = shared.add_user("once")
    assert ask_raw(shared.url, "GET", f"/v1/studies?token={user.token}")[0] == 401
    assert ask_raw(shared.url, "GET", "/v1/studies", headers=bearer(user.token))[0] == 200
    with ServiceStore.open(shared.storage) as store:
        assert store.revoke_tokens("once") == 1
    assert ask_raw(shared.url, "GET", "/v1/studies", headers=bearer(user.token))[0] == 401


def test_no_token_is_kept(shared: RunningService) -> None:
    user = shared.add_user("kept")
    kept = b"".join(path.read_bytes() for path in Path(shared.storage).parent.glob("service.db*") if path.is_file())
    assert str(user.token).encode() not in kept
    assert shared.admin_token.encode() not in kept


def test_another_users_study_is_not_there(service: RunningService) -> None:
    ada, ben = service.add_user("ada"), service.add_user("ben")
    study = submit(ada, SLOW)
    missing = f"there is no study {study!r}; `headwater queue` lists those there are"
    for place in PLACES:
        if "{id}" in place.path:
            path = place.path.replace("{id}", study)
            status, content = ask_raw(service.url, place.method, path, b"{}", bearer(ben.token))
            assert (status, json.loads(content)["error"]) == (404, missing), place
    assert ben.list_studies() == []
    assert ben.ask("GET", "/v1/devices")["studies"] == {}
    assert ada.show(study)["state"] in ("queued", "running")
    assert [one["id"] for one in service.admin.list_studies()] == [study]


def test_a_viewer_sees_everything_and_changes_nothing(service: RunningService) -> None:
    ada, viewer = service.add_user("ada"), service.add_user("vera", Role.VIEWER)
    study = submit(ada, SLOW)
    assert viewer.show(study)["user"] == "ada"
    for place in PLACES:
        if place.method != "GET":
            path = place.path.replace("{id}", study)
            assert ask_raw(service.url, place.method, path, b"{}", bearer(viewer.token))[0] == 403, place
    assert ada.show(study)["wish"] == ""


@pytest.mark.parametrize(
    "path",
    [
        "../train.py",
        "a/../../train.py",
        "/etc/cron.d/x.py",
        "a//b.py",
        "./train.py",
        ".bashrc.py",
        "a\\..\\b.py",
        "a\0b.py",
        "a\nb.py",
        "ä.py",
        "",
        "x" * 101,
        "/".join("abcdefghi") + ".py",
        7,
        None,
        ["train.py"],
    ],
)
def test_paths_that_could_lead_elsewhere_are_refused(shared: RunningService, path: object) -> None:
    user = shared.add_user("paths")
    files = [{"path": path, "text": STUDY}]
    status, told = refusal(lambda: user.submit({"file": path, "files": files}))
    assert status == 422
    assert "path of a file is" in told
    assert user.list_studies() == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "..%2f..%2fetc", "%2e%2e", "x" * 3000, "a b", "%00", "*"])
def test_names_that_could_lead_elsewhere_are_no_studies(shared: RunningService, name: str) -> None:
    status, content = ask_raw(
        shared.url, "GET", f"/v1/studies/{name.replace(' ', '%20')}/logs", None, bearer(shared.admin_token)
    )
    assert status == 404
    assert "root:" not in content.decode()


def test_a_body_that_is_too_large_is_refused_before_it_is_whole(start_service: Start) -> None:
    service = start_service("--devices", "1", "--upload", "0.01")
    user = service.add_user("ada")
    body = encode({"file": "train.py", "files": [{"path": "train.py", "text": "#" * 20_000}]})
    status, content = ask_raw(service.url, "POST", "/v1/studies", body, bearer(user.token))
    assert status == 413
    assert "more than the 10,485 bytes" in json.loads(content)["error"]
    parts = urlsplit(service.url)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=30) as line:
        lines = ["POST /v1/studies HTTP/1.1", "Host: x", f"Authorization: Bearer {user.token}"]
        head = "\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""])
        line.sendall(head.encode() + b"4000\r\n" + b"x" * 0x4000)  # and never ends
        assert line.recv(1000).startswith(b"HTTP/1.1 413")
    assert user.list_studies() == []


def test_one_user_cannot_fill_the_memory_of_the_service_with_submissions_that_never_end(
    service: RunningService,
) -> None:
    ada, ben = service.add_user("ada"), service.add_user("ben")
    parts = urlsplit(service.url)
    lines = ["POST /v1/studies HTTP/1.1", "Host: x", f"Authorization: Bearer {ada.token}", "Content-Length: 9000000"]
    head = "\r\n".join([*lines, "Expect: 100-continue", "", ""]).encode()
    with ExitStack() as sending:
        for _ in range(MOST_UPLOADS):
            line = socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=30)
            sending.enter_context(line)
            line.sendall(head)
            assert line.recv(1000).startswith(b"HTTP/1.1 100")  # the service waits for the rest
        body = encode({"file": "train.py", "files": [{"path": "train.py", "text": STUDY}], "options": {"trials": 1}})
        status, content = ask_raw(service.url, "POST", "/v1/studies", body, bearer(ada.token))
        assert status == 429
        assert "submissions of user ada are being sent already" in json.loads(content)["error"]
        assert ask_raw(service.url, "POST", "/v1/studies", body, bearer(ben.token))[0] == 201


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a": NaN}', b"[" * 100_000, b'"' + b"x" * 1000, b"9" * 5000, b"{}{}"],
    ids=range(10),
)
def test_a_body_that_is_no_object_is_refused(shared: RunningService, body: bytes) -> None:
    status, content = ask_raw(shared.url, "POST", "/v1/studies", body, bearer(shared.admin_token))
    assert status == 400
    assert "the body is" in json.loads(content)["error"]


FILES = [{"path": "train.py", "text": STUDY}]
GOOD = {"file": "train.py", "files": FILES}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"file": "other.py"}, "file is 'other.py'; it must be one of the files"),
        ({"files": []}, "files is []; it must be a list of 1 to 200 files"),
        ({"files": [{"path": "train.py"}]}, "it has a path, and either text or base64"),
        ({"files": [{"path": "train.py", "base64": "%%%"}]}, "is no text, or no base64"),
        ({"files": [{"path": "train.py", "text": "\ud800"}]}, "is no text, or no base64"),
        ({"files": [*FILES, {"path": "train.py/x", "text": ""}]}, "there are two files at"),
        ({"options": {"executor": "ray"}}, "options has 'executor'; possible are trials"),
        ({"options": {"storage": "postgresql://elsewhere"}}, "options has 'storage'"),
        ({"options": {"trials": 0}}, "options.trials is 0; it must be a whole number from 1"),
        ({"options": {"trials": True}}, "options.trials is True"),
        ({"options": {"search": "--storage=x"}}, "options.search is '--storage=x'; it must be one word"),
        ({"options": {"study": "a b"}}, "options.study is 'a b'"),
        ({"options": []}, "options is []; it must be an object"),
        ({"priority": 1e99}, "priority is 1e+99"),
        ({"deadline_s": -1}, "deadline_s is -1"),
        ({"budget_device_s": "all"}, "budget_device_s is 'all'"),
        ({"max_devices": 0}, "max_devices is 0"),
        ({"name": "../x"}, "name is '../x'"),
        ({"user": "admin"}, "the submission has 'user'"),
    ],
)
def test_a_submission_that_makes_no_sense_is_refused_with_what_is_possible(
    shared: RunningService, change: dict[str, object], told: str
) -> None:
    status, said = refusal(lambda: shared.admin.submit({**GOOD, **change}))
    assert (status, told in said) == (422, True), said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
KEY = st.sampled_from(["file", "files", "options", "name", "priority", "deadline_s", "budget_device_s", "max_devices"])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(change=st.dictionaries(KEY | st.text(), JSON, max_size=4))
def test_no_submission_does_anything_but_pass_or_be_refused(change: dict[str, object]) -> None:
    value = {**GOOD, **change}
    try:
        value = parse_json(json.dumps(value).encode())
        asked = read_submission(value, User(name="ada", role=Role.USER, place=0), 0.0)
    except StudyError:
        return
    assert all(".." not in path and not path.startswith("/") for path in asked.files)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    place=st.sampled_from(PLACES),
    name=st.text(alphabet=st.characters(codec="ascii"), min_size=1, max_size=20),
    body=st.binary(max_size=200),
    query=st.text(alphabet="0123456789abc&=%-.", max_size=20),
)
def test_no_request_makes_the_service_fail(
    shared: RunningService, place: Place, name: str, body: bytes, query: str
) -> None:
    path = place.path.replace("{id}", quote(name, safe=""))
    if path == "/v1/events":
        return  # it answers for as long as somebody listens
    status, content = ask_raw(
        shared.url, place.method, f"{path}?{quote(query, safe='&=')}", body, bearer(shared.admin_token)
    )
    assert status in (200, 400, 401, 403, 404, 405, 409, 413, 422), (status, content)
    if status >= 400:
        assert json.loads(content)["error"]


def test_what_is_not_there_is_told_as_json(shared: RunningService) -> None:
    for method, path, status in [("GET", "/v2", 404), ("PUT", "/v1/studies", 405), ("GET", "/../../etc/passwd", 404)]:
        found, content = ask_raw(shared.url, method, path)
        assert (found, "is not possible here" in json.loads(content)["error"]) == (status, True)


def test_a_host_that_others_can_reach_needs_tokens_first(open_folder: Path) -> None:
    command = [sys.executable, "-m", "headwater", "serve", "--host", "0.0.0.0", "--port", "0"]
    told = subprocess.run(
        [*command, "--storage", str(open_folder / "s.db")], capture_output=True, text=True, check=False, timeout=60
    )
    assert told.returncode == 2
    assert "nobody has a token yet; make one first with headwater token create USER" in told.stderr
    assert told.stdout == ""


def test_a_second_service_of_the_same_studies_is_refused(service: RunningService) -> None:
    command = [sys.executable, "-m", "headwater", "serve", "--port", "0", "--storage", service.storage]
    told = subprocess.run(
        [*command, "--folder", str(service.folder)], capture_output=True, text=True, check=False, timeout=60
    )
    assert told.returncode == 2
    assert "another service has" in told.stderr


def test_the_shown_service_has_no_token() -> None:
    assert "hw_secret" not in repr(Service("http://hw_secret@127.0.0.1:1"))
    assert Service("http://hw_secret@127.0.0.1:1").token == "hw_secret"


def connect(service: RunningService) -> socket.socket:
    address = urlsplit(service.url)
    return socket.create_connection((address.hostname, address.port))


def test_silent_connections_keep_nobody_out(start_service: Start) -> None:
    service = start_service("--devices", "1")
    user = service.add_user("ada")
    with ExitStack() as opened:
        for _ in range(1100):
            opened.enter_context(connect(service))
        assert user.list_studies() == []


def test_a_client_that_never_sends_its_headers_is_cut_off(service: RunningService) -> None:
    with connect(service) as silent, connect(service) as slow:
        slow.sendall(b"GET /v1/studies HTTP/1.1\r\nHost: ")
        for one in (silent, slow):
            one.settimeout(60)
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""


def test_the_files_of_the_service_are_readable_by_nobody_else(service: RunningService) -> None:
    storage = Path(service.storage)
    service.add_user("ada")
    for path in (storage, Path(f"{storage}-wal"), Path(f"{storage}-shm"), service.folder / "lock"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_locked_database_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.store.engine.LOCK_TIMEOUT_S", 0.1)
    with (
        ServiceStore.open(str(tmp_path / "service.db")) as store,
        closing(sqlite3.connect(tmp_path / "service.db")) as other,
    ):
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="locked by another process"):
            store.add_user("ada", Role.USER, {})
        other.rollback()
        store.add_user("ada", Role.USER, {})
