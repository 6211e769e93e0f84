"""Records from strangers: no path in them is read, written or removed outside of folders that the user named."""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.errors import StoreError
from headwater.space import Space, uniform
from headwater.store import Folder, Recorder, Store, StudyInfo, find_states, open_store, place_states, remove_study
from headwater.store.states import FOLDER, MARKER, STATES, is_marked, name_folder


def record_study(store: Store, **facts: object) -> Recorder:
    store.create_study(StudyInfo(name="theirs", metric="loss", mode="min", seed=0))
    recorder = Recorder(store, store.study("theirs"), Space({"lr": uniform(0, 1)}))
    for key, value in facts.items():
        recorder.add_fact(key, value)
    return recorder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    return folder


@pytest.mark.parametrize("folder", ["../../victim", "..", ".", "a/b", "/etc", "a\0b", "", 7, ["x"]])
def test_a_folder_name_that_leads_elsewhere_is_refused(tmp_path: Path, folder: object) -> None:
    with open_store(tmp_path / "study.db") as store:
        recorder = record_study(store, **{FOLDER: folder})
        if folder == "":
            assert Path(find_states(store, recorder.info).url).parent == tmp_path / "study.db.states"
            return
        with pytest.raises(StoreError, match="leads elsewhere"):
            find_states(store, recorder.info)


def test_removing_a_study_leaves_the_folder_that_a_stranger_named(tmp_path: Path, victim: Path) -> None:
    with open_store(tmp_path / "study.db") as store:
        recorder = record_study(store, **{FOLDER: "../../victim"})
        names, left = remove_study(store, recorder.info)
        assert names == ["theirs"]
        assert "leads elsewhere" in left[0]
        assert store.studies() == []
    assert (victim / "thesis.tex").read_text() == "years of work"


def test_a_link_beside_the_record_is_not_followed(tmp_path: Path, victim: Path) -> None:
    with open_store(tmp_path / "study.db") as store:
        recorder = record_study(store)
        place = tmp_path / "study.db.states" / name_folder(recorder.info)
        place.parent.mkdir()
        place.symlink_to(victim)
        with pytest.raises(StoreError, match="link to another place"):
            place_states(recorder, None)
        remove_study(store, recorder.info)
    assert (victim / "thesis.tex").exists()


def test_a_place_that_only_the_record_names_is_neither_read_nor_written(tmp_path: Path, victim: Path) -> None:
    with open_store(tmp_path / "study.db") as store:
        recorder = record_study(store, **{STATES: str(victim)})
        with pytest.raises(StoreError, match="name the folder yourself"):
            find_states(store, recorder.info)
        with pytest.raises(StoreError, match="name the folder yourself"):
            place_states(recorder, None)
    assert [path.name for path in victim.iterdir()] == ["thesis.tex"]


def test_a_place_that_the_user_names_is_marked_and_found_again(tmp_path: Path) -> None:
    with open_store(tmp_path / "study.db") as store:
        recorder = record_study(store)
        place = place_states(recorder, tmp_path / "elsewhere")
        assert is_marked(place)
        assert place_states(recorder, None) == find_states(store, recorder.info) == place
        remove_study(store, recorder.info)
    assert not Path(place.url).exists()


def test_a_uuid_that_leads_elsewhere_does_not(tmp_path: Path) -> None:
    with open_store(tmp_path / "study.db") as store:
        info = record_study(store).info
        assert "/" not in name_folder(replace(info, uuid="/../../../../etc"))


def test_only_files_that_a_run_writes_are_removed(tmp_path: Path) -> None:
    with open_store(tmp_path / "study.db") as store:
        recorder = record_study(store)
        folder = Path(place_states(recorder, None).url)
        for name in ("0-1.safetensors", "best-0-1.safetensors", "notes.txt"):
            (folder / name).write_text("")
        _, left = remove_study(store, recorder.info)
        assert "notes.txt" not in left[0]
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", MARKER]


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"


@pytest.mark.parametrize(
    "statements",
    [
        f"DROP TABLE notes; CREATE VIEW notes AS {ENDLESS} x AS sequence, 1 AS study_id, 0 AS number, 'a' AS kind, "
        "'b' AS text, 0.0 AS time FROM c",
        "CREATE TRIGGER more AFTER UPDATE ON leases BEGIN INSERT INTO notes (study_id, kind, text, time) "
        f"{ENDLESS} 1, 'a', x, 0.0 FROM c; END",
    ],
    ids=["view", "trigger"],
)
@pytest.mark.parametrize("create", [True, False], ids=["to change", "to read"])
def test_a_record_with_sql_of_its_own_is_not_opened(tmp_path: Path, statements: str, create: bool) -> None:
    path = tmp_path / "study.db"
    with open_store(path) as store:
        record_study(store)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)
    with pytest.raises(StoreError, match="which no record of Headwater has"):
        open_store(path, create=create)


def test_a_value_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with open_store(path) as store:
        record_study(store)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE studies SET metric = CAST(zeroblob(300000000) AS TEXT)")
        connection.commit()
    with open_store(path, create=False) as store, pytest.raises(StoreError, match="a value of more than 256 MiB"):
        store.studies()


def test_a_place_on_the_network_is_not_contacted_unless_the_user_names_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, open_store(tmp_path / "study.db") as store:
        listening.settimeout(0)
        url = f"ftp://127.0.0.1:{listening.getsockname()[1]}/theirs"
        recorder = record_study(store, **{STATES: url})
        with pytest.raises(StoreError, match="on the network"):
            find_states(store, recorder.info)
        with pytest.raises(StoreError, match="on the network"):
            place_states(recorder, None)
        assert find_states(store, recorder.info, url).url.startswith(url)
        with pytest.raises(StoreError, match="was named"):
            find_states(store, recorder.info, "ftp://127.0.0.1/others")
        _, left = remove_study(store, recorder.info)
        assert "on the network" in left[0]
        with pytest.raises(BlockingIOError):  # nobody has connected
            listening.accept()


@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
def test_a_checkpoint_that_is_no_file_is_not_read(tmp_path: Path, kind: str) -> None:
    with open_store(tmp_path / "study.db") as store:
        place = place_states(record_study(store), None)
    path = Path(place.url) / "0-1.safetensors"
    (tmp_path / "secret").write_text("secret")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "secret" if kind == "link" else "/dev/zero")
    with pytest.raises(StoreError, match="cannot be read"):
        Folder(place.url).read(path.name)
