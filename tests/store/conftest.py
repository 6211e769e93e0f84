"""The stores that the conformance tests run on: memory, file and, where HEADWATER_POSTGRES_URL names one, a server.

With CI=true there must be a server: what needs it fails without, and is never skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from headwater.store import Store, StudyInfo, open_store

CLOCK_S = 1_700_000_000.5
VARIABLE = "HEADWATER_POSTGRES_URL"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    shared = "shared_url" in metafunc.fixturenames
    if shared or "store_url" in metafunc.fixturenames:
        is_wanted = bool(os.environ.get(VARIABLE)) or os.environ.get("CI") == "true"
        kinds = [*([] if shared else ["memory"]), "file", *(["postgresql"] if is_wanted else [])]
        metafunc.parametrize("shared_url" if shared else "store_url", kinds, indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from _lend(request.param, tmp_path)


@pytest.fixture
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store that several can open at once."""
    yield from _lend(request.param, tmp_path)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    yield from _lend_database()


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with open_store(store_url, clock=lambda: CLOCK_S) as store:
        yield store


@pytest.fixture
def study_id(store: Store) -> int:
    return store.create_study(StudyInfo(name="first", metric="accuracy", mode="max", seed=7))


def _lend(kind: str, folder: Path) -> Iterator[str]:
    if kind == "postgresql":
        yield from _lend_database()
    else:
        yield "memory:" if kind == "memory" else f"sqlite:///{folder / 'study.db'}"


def _lend_database() -> Iterator[str]:
    """Make an empty database on the server, and drop it afterwards."""
    url = os.environ.get(VARIABLE)
    if not url:
        missing = f"{VARIABLE} names no server; .ci/with_postgresql COMMAND starts one"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    name = f"test_{uuid4().hex}"
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield make_url(url).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        engine.dispose()
