"""Who is answered: by its token, under its own name, and nobody else."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.serve.conftest import serve


def ask(url: str, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
    connection.putrequest(method, path, skip_host="host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def token_of(url: str) -> str:
    return urlsplit(url).query.removeprefix("token=")


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/api/studies", "/api/study?id=1", "/api/events?id=1"])
@pytest.mark.parametrize(
    "cookie", ["", "headwater-{port}=wrong", "headwater-{port}=\N{LATIN SMALL LETTER E WITH ACUTE}"]
)
def test_without_the_token_nothing_is_answered(plain_url: str, path: str, cookie: str) -> None:
    headers = {"cookie": cookie.format(port=urlsplit(plain_url).port)} if cookie else {}
    answer, body = ask(plain_url, path, **headers)
    assert answer.status == 401
    assert "plain" not in body


def test_a_wrong_token_is_refused(plain_url: str) -> None:
    answer, _ = ask(plain_url, "/?token=wrong")
    assert answer.status == 401
    assert answer.headers["set-cookie"] is None


def test_the_token_becomes_a_cookie_that_other_sites_cannot_send(plain_url: str) -> None:
    answer, _ = ask(plain_url, f"/?token={token_of(plain_url)}")
    assert answer.status == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_another_name_is_not_answered_to(plain_url: str) -> None:
    token = token_of(plain_url)
    answer, body = ask(plain_url, "/api/studies", host="evil.example", authorization=f"Bearer {token}")
    assert answer.status == 421
    assert "plain" not in body


def test_scripts_may_ask_with_the_token(plain_url: str) -> None:
    answer, body = ask(plain_url, "/api/studies", authorization=f"Bearer {token_of(plain_url)}")
    assert answer.status == 200
    assert [study["study"] for study in json.loads(body)["studies"]] == ["plain"]


def test_the_page_may_run_its_own_scripts_only(plain_url: str) -> None:
    answer, body = ask(plain_url, "/", authorization=f"Bearer {token_of(plain_url)}")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in body


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null"])
def test_only_the_page_itself_may_stop_a_study(plain_url: str, origin: str | None) -> None:
    headers = {"authorization": f"Bearer {token_of(plain_url)}"} | ({"origin": origin} if origin else {})
    answer, _ = ask(plain_url, "/api/stop?id=1", "POST", **headers)
    assert answer.status == 403


def test_a_study_that_does_not_run_cannot_be_stopped(plain_url: str) -> None:
    origin = plain_url.split("/?", maxsplit=1)[0]
    answer, body = ask(
        plain_url, "/api/stop?id=1", "POST", authorization=f"Bearer {token_of(plain_url)}", origin=origin
    )
    assert answer.status == 409
    assert "not running" in json.loads(body)["error"]


def test_a_dashboard_for_looking_stops_nothing(plain: Path) -> None:
    with serve(plain, "--read-only") as url:
        headers = {"authorization": f"Bearer {token_of(url)}", "origin": url.split("/?")[0]}
        answer, body = ask(url, "/api/stop?id=1", "POST", **headers)
    assert answer.status == 409
    assert "--read-only" in json.loads(body)["error"]


@pytest.mark.parametrize("path", ["/api/study?id=7", "/api/study?id=x", "/api/study", "/api/trial?id=1&number=99"])
def test_what_is_not_there_is_said_to_be(plain_url: str, path: str) -> None:
    answer, body = ask(plain_url, path, authorization=f"Bearer {token_of(plain_url)}")
    assert answer.status == 409
    assert "has no" in json.loads(body)["error"]
