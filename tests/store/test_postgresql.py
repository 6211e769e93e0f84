"""What a server does beyond the conformance tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url

import headwater as hw
from headwater.errors import StoreError
from headwater.report import Callback
from headwater.store import StudyInfo, engine, open_store
from headwater.trials import Report, Status

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


@pytest.fixture
def other(postgres_url: str) -> Iterator[Connection]:
    """A connection of somebody else."""
    server = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"))
    with server.connect() as connection:
        yield connection
    server.dispose()


class At(Callback):
    """Runs a statement on a connection of somebody else after so many reports."""

    def __init__(self, num_reports: int, other: Connection, statement: str) -> None:
        self._num_left = num_reports
        self._other = other
        self._statement = statement

    def on_reports(self, reports: Sequence[Report]) -> None:
        self._num_left -= 1
        if self._num_left == 0:
            self._other.execute(text(self._statement))


def build_study(url: str, states: Path, other: Connection | None = None, statement: str = "") -> hw.Study:
    def train(trial: hw.Trial) -> None:
        try:
            for _ in trial.epochs(3):
                trial.report(loss=trial.config["lr"])
        except Exception:
            if other is not None:  # so that it could be recorded that the trial has failed
                other.rollback()
            raise

    callbacks = [] if other is None else [At(2, other, statement)]
    space = {"lr": hw.uniform(0, 1)}
    return hw.Study(train, space=space, metric="loss", lanes=1, storage=url, states=states, callbacks=callbacks)


def test_a_lock_that_lasts_ends_the_run_and_it_goes_on(
    postgres_url: str, other: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LOCK_TIMEOUT_S", 0.2)
    study = build_study(postgres_url, tmp_path, other, "LOCK TABLE reports IN ACCESS EXCLUSIVE MODE")
    with pytest.raises(StoreError, match="has been locked by another process for 0 s; end that process and resume"):
        study.run(num_trials=2)
    other.rollback()
    result = build_study(postgres_url, tmp_path).resume()
    assert [(trial.status, trial.epochs) for trial in result.trials] == [(Status.COMPLETED, 3)] * 2


def test_connections_that_the_server_ends_cost_no_trial(postgres_url: str, other: Connection, tmp_path: Path) -> None:
    mine = "pid <> pg_backend_pid() AND datname = current_database()"
    statement = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}"
    with suppress(StoreError):
        build_study(postgres_url, tmp_path, other, statement).run(num_trials=2)
    other.rollback()
    result = build_study(postgres_url, tmp_path).resume()
    assert [(trial.status, trial.epochs) for trial in result.trials] == [(Status.COMPLETED, 3)] * 2


def test_bad_rows_are_left_out_and_named(postgres_url: str, other: Connection, tmp_path: Path) -> None:
    build_study(postgres_url, tmp_path).run(num_trials=3)
    other.execute(text("UPDATE trials SET config = '{' WHERE number = 1"))
    other.execute(text("UPDATE reports SET metrics = '[3]' WHERE number = 2 AND epoch = 2"))
    other.commit()
    damaged: list[str] = []
    with open_store(postgres_url, create=False) as store:
        assert [trial.number for trial in store.trials(1, None, damaged)] == [0]
    assert [line.partition(":")[0] for line in damaged] == ["trial 1 is left out", "trial 2 is left out"]
