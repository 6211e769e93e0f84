"""The stores that the conformance tests run on: memory, file and, with --postgres-url, a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from headwater.store import Store, StudyInfo, open_store
from headwater.store.schema import METADATA

CLOCK_S = 1_700_000_000.5


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--postgres-url", default=None, help="an empty PostgreSQL database; its tables are dropped")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store_url" in metafunc.fixturenames:
        postgres_url = metafunc.config.getoption("--postgres-url", default=None)
        metafunc.parametrize("store_url", ["memory", "file", *([postgres_url] if postgres_url else [])], indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "memory":
        yield "memory:"
    elif request.param == "file":
        yield f"sqlite:///{tmp_path / 'study.db'}"
    else:
        yield from _lend(request.param)


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    url = request.config.getoption("--postgres-url", default=None)
    if url is None:
        pytest.skip("runs with --postgres-url")
    yield from _lend(url)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with open_store(store_url, clock=lambda: CLOCK_S) as store:
        yield store


@pytest.fixture
def study_id(store: Store) -> int:
    return store.create_study(StudyInfo(name="first", metric="accuracy", mode="max", seed=7))


def _lend(url: str) -> Iterator[str]:
    yield url
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    METADATA.drop_all(engine)
    engine.dispose()
