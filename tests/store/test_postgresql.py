"""What a server does beyond the conformance tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

import headwater as hw
from headwater.errors import StoreError
from headwater.store import StudyInfo, open_store

INFO = StudyInfo(name="first", metric="accuracy", mode="max", seed=7)


def test_a_reader_sees_what_was_written_and_cannot_write(postgres_url: str) -> None:
    with open_store(postgres_url) as store, open_store(postgres_url, create=False) as reader:
        store.create_study(INFO)
        assert reader.study().name == "first"
        with pytest.raises(StoreError, match="was opened for reading"):
            reader.create_study(INFO)


def test_an_empty_database_holds_nothing_to_read(postgres_url: str) -> None:
    with pytest.raises(StoreError, match="holds no study yet"):
        open_store(postgres_url, create=False)


def test_writers_that_open_an_empty_database_at_once_all_succeed(postgres_url: str) -> None:
    def create(name: str) -> None:
        with open_store(postgres_url) as store:
            store.create_study(StudyInfo(name=name, metric="a", mode="max", seed=0))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, map(str, range(8))))
    with open_store(postgres_url, create=False) as reader:
        assert len(reader.studies()) == 8


def test_a_server_that_does_not_answer_is_named_without_its_password(postgres_url: str) -> None:
    url = make_url(postgres_url).set(port=1, username="me", password="secret")
    with pytest.raises(StoreError, match="check that the server runs") as caught:
        open_store(url.render_as_string(hide_password=False))
    assert "secret" not in str(caught.value)


def test_an_unknown_database_is_explained(postgres_url: str) -> None:
    url = make_url(postgres_url).set(database="nowhere")
    with pytest.raises(StoreError, match='"nowhere" does not exist; check that the server runs'):
        open_store(url.render_as_string(hide_password=False))


def test_a_database_that_vanishes_while_a_study_runs_is_an_error(postgres_url: str) -> None:
    url = make_url(postgres_url)
    server = create_engine(url.set(drivername="postgresql+psycopg", database="postgres"), isolation_level="AUTOCOMMIT")

    def train(trial: hw.Trial) -> None:
        for epoch in trial.epochs(3):
            if epoch == 1:
                with server.connect() as connection:
                    connection.execute(text(f"DROP DATABASE {url.database} WITH (FORCE)"))
                    connection.execute(text(f"CREATE DATABASE {url.database}"))
            trial.report(loss=1.0)

    study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", lanes=1, storage=postgres_url)
    with pytest.raises(StoreError, match="cannot be used"):
        study.run(num_trials=1)
    server.dispose()
