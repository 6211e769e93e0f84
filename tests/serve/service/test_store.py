"""What the service keeps, on a file and on a real server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from tests.serve.service.conftest import STUDY, RunningService, Start, submit, wait_for_end

from headwater.errors import StoreError, StudyError
from headwater.serve.service.store import PROGRESS, ServiceStore
from headwater.serve.service.values import Role, State, Submission, Wish
from headwater.store import StudyInfo, open_store

VARIABLE = "HEADWATER_POSTGRES_URL"
needs_server = pytest.mark.skipif(
    not os.environ.get(VARIABLE) and os.environ.get("CI") != "true",
    reason=f"{VARIABLE} names no server; .ci/with_postgresql COMMAND starts one",
)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    url = make_url(os.environ[VARIABLE])
    name = f"test_{uuid4().hex}"
    engine = create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield url.set(database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@pytest.fixture(params=["file", pytest.param("postgresql", marks=needs_server)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("postgres_url") if request.param == "postgresql" else tmp_path / "service.db")


@pytest.fixture
def store(url: str) -> Iterator[ServiceStore]:
    with ServiceStore.open(url, clock=lambda: 100.0) as store:
        yield store


def make(name: str = "train-1", user: str = "ada", **changes: object) -> Submission:
    plain = {"id": name, "user": user, "file": "train.py", "options": {"trials": 3}, "created": 1.0}
    return Submission(**{**plain, "state": State.QUEUED, **changes})  # type: ignore[arg-type] # its settings


def test_a_token_names_its_user_until_it_is_revoked(store: ServiceStore) -> None:
    ada = store.add_user("ada", Role.USER, {"weight": 2.0})
    first, second = store.create_token("ada"), store.create_token("ada")
    assert store.find_user(first) == store.find_user(second) == ada
    assert store.find_user(first[:-1]) is None
    assert store.find_user("") is None
    (one, other) = store.tokens()
    assert {one.user, other.user} == {"ada"}
    assert store.revoke_tokens(one.id) == 1
    assert [store.find_user(token) for token in (first, second)].count(None) == 1
    assert store.revoke_tokens("ada") == 1
    assert store.find_user(second) is None


def test_users_have_places_of_their_own_and_keep_them(store: ServiceStore) -> None:
    names = ["ada", "ben", "cleo"]
    assert [store.add_user(name, Role.USER, {}).place for name in names] == [0, 1, 2]
    changed = store.add_user("ben", Role.VIEWER, {"max_devices": 3})
    assert (changed.place, changed.role, changed.max_devices) == (1, Role.VIEWER, 3)
    assert store.users()[1] == changed


@pytest.mark.parametrize("name", ["", "Ada", "a b", "../x", "x" * 41, "-x", "ä", "a\n"])
def test_a_name_that_is_none_is_refused(store: ServiceStore, name: str) -> None:
    with pytest.raises(StudyError, match="a user's name has 1 to 40"):
        store.add_user(name, Role.USER, {})


def test_a_submission_comes_back_as_it_was_kept(store: ServiceStore) -> None:
    asked = make(priority=-3, deadline=7.5, budget_device_s=1.5, max_devices=2)
    assert store.add(asked, "key", "body") == asked
    assert store.find("train-1") == asked
    assert store.find("train-2") is None
    changed = store.change("train-1", state=State.RUNNING, wish=Wish.PAUSE, progress={"num_epochs": 3})
    assert (changed.version, changed.progress) == (1, {"num_epochs": 3})
    assert store.list_submissions("ada", (State.RUNNING,)) == [changed]
    assert store.list_submissions("ben") == store.list_submissions(states=(State.DONE,)) == []


def test_the_same_key_gives_the_same_submission_however_many_ask_at_once(store: ServiceStore) -> None:
    def add(place: int) -> str:
        return store.add(make(f"train-{place}"), "key", "body").id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(add, range(8)))) == 1
    assert len(store.list_submissions()) == 1
    assert len(store.events_after(0)) == 1
    with pytest.raises(StudyError, match="was sent with another study"):
        store.add(make("train-9"), "key", "other body")


def test_of_progress_the_last_event_is_kept_and_of_states_all(store: ServiceStore) -> None:
    store.add(make(), "key", "body")
    for number in range(3):
        store.change("train-1", kind=PROGRESS, progress={"num_epochs": number})
    store.change("train-1", state=State.DONE)
    events = store.events_after(0)
    assert [(event.kind, event.data["progress"].get("num_epochs")) for event in events] == [
        ("state", None),
        ("progress", 2),
        ("state", 2),
    ]
    assert store.events_after(events[1].sequence) == events[2:]
    assert store.events_after(0, user="ben") == store.events_after(0, submission="train-2") == []
    assert store.last_event() == events[-1].sequence


def test_what_is_spent_adds_up_by_user(store: ServiceStore) -> None:
    for name, user in (("a", "ada"), ("b", "ada"), ("c", "ben")):
        store.add(make(name, user), name, "body")
    store.add_user("ada", Role.USER, {})
    store.spend({"a": 1.5, "b": 2.0, "c": 4.0}, {})
    store.spend({"a": 1.0}, {"ada": (3.25, 7.0)})
    assert store.used_device_s() == {"ada": 4.5, "ben": 4.0}
    assert (store.users()[0].use_device_s, store.users()[0].use_at) == (3.25, 7.0)


def test_the_tables_stand_beside_those_of_a_record(store: ServiceStore, url: str) -> None:
    store.add_user("ada", Role.USER, {})
    with open_store(url) as record:
        record.create_study(StudyInfo(name="first", metric="loss", mode="min", seed=0))
        assert record.study().name == "first"
    assert store.users()[0].name == "ada"


def test_studies_in_another_place_are_not_taken_over(store: ServiceStore) -> None:
    store.claim("lab-1", "/srv/a")
    store.claim("lab-1", "/srv/a")
    with pytest.raises(StudyError, match="are on lab-1 in /srv/a, and were asked for on lab-2"):
        store.claim("lab-2", "/srv/a")


def test_a_service_in_memory_is_refused() -> None:
    with pytest.raises(StudyError, match="cannot be kept in memory"):
        ServiceStore.open("memory:")


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    with ServiceStore.open(str(tmp_path / "service.db")):
        assert (tmp_path / "service.db").stat().st_mode & 0o077 == 0


@needs_server
def test_a_service_on_a_server_outlives_connections_that_are_cut(start_service: Start, postgres_url: str) -> None:
    service: RunningService = start_service("--devices", "2", storage=postgres_url)
    user = service.add_user("ada")
    study = submit(user, STUDY.replace("epochs(3)", "epochs(200)").replace("def train", "import time\n\ndef train"))
    engine = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    cut = text(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with engine.connect() as connection:
        num_cut = sum(connection.execute(cut).scalar_one() for _ in range(5))
    engine.dispose()
    assert num_cut > 0
    assert wait_for_end(user, study)["state"] == "done"


@needs_server
def test_a_database_that_is_gone_is_told_as_such(postgres_url: str) -> None:
    with ServiceStore.open(postgres_url) as store:
        store.add_user("ada", Role.USER, {})
        name = make_url(postgres_url).database
        engine = create_engine(
            make_url(postgres_url).set(drivername="postgresql+psycopg", database="postgres"),
            isolation_level="AUTOCOMMIT",
        )
        with engine.connect() as connection:
            connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
            connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"))
        with pytest.raises(StoreError, match="cannot be used"):
            store.users()
        with engine.connect() as connection:
            connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"))
        engine.dispose()
        assert store.users()[0].name == "ada"
