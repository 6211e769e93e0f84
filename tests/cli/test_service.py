"""Verbs about services, as far as no service is needed; tests/serve/service has the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.serve.service.store import ServiceStore
from headwater.serve.service.values import Role


@pytest.fixture(autouse=True)
def place(empty_place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HEADWATER_SERVER", "HEADWATER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (empty_place / "train.py").write_text("")
    return empty_place


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_token_is_printed_once_and_listed_without_itself() -> None:
    made = invoke("token", "create", "ada", "--storage", "s.db", "--weight", "2", "--max-devices", "3")
    token = made.stdout.strip()
    assert token.startswith("hw_")
    with ServiceStore.open("s.db") as store:
        user = store.find_user(token)
        assert user is not None
        assert (user.name, user.role, user.weight, user.max_devices) == ("ada", Role.USER, 2.0, 3)
    listed = invoke("token", "ls", "--storage", "s.db", "--json")
    (row,) = json.loads(listed.stdout)["tokens"]
    assert (row["user"], row["role"]) == ("ada", "user")
    assert token not in listed.stdout
    assert token not in invoke("token", "ls", "--storage", "s.db").stdout
    assert invoke("token", "revoke", row["id"], "--storage", "s.db").exit_code == 0
    assert json.loads(invoke("token", "ls", "--storage", "s.db", "--json").stdout) == {"tokens": []}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("token", "make", "ada"), "the action is 'make'; it must be one of 'create', 'ls', 'revoke'"),
        (("token", "create"), "say whose token"),
        (("token", "create", "Ada Lovelace"), "user is 'Ada Lovelace'; a user's name has"),
        (("token", "create", "ada", "--role", "king"), "--role is 'king'; it must be one of 'admin', 'user', 'viewer'"),
        (("token", "revoke", "nobody"), "no token has the id or the user 'nobody'"),
        (("token", "ls", "--storage", "memory:"), "a service cannot be kept in memory"),
        (("queue",), "no service is named; give its URL by --server, or in HEADWATER_SERVER"),
        (("submit", "train.py"), "no service is named"),
        (("submit", "nothing.py", "--server", "http://127.0.0.1:1"), "there is no file nothing.py"),
        (("queue", "--server", "lab-3:8700"), "'lab-3:8700' is not where a service can be"),
        (("logs", "x", "--server", "http://127.0.0.1:1"), "does not answer: Connection refused"),
        (("stop", "--server", "http://127.0.0.1:1"), "say which study of the service"),
        (("stop", "x", "--now"), "--now is for a study of a service"),
        (("best", "--server", "http://127.0.0.1:1"), "say which study of the service"),
        (("serve", "--host", "0.0.0.0", "--port", "0"), "nobody has a token yet"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    arguments: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.execute.service.SHORT_PATIENCE_S", 0.0)
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
