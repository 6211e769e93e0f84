"""Records from strangers: no path in them is read, written or removed outside of folders that the user named."""

from __future__ import annotations

import os
import socket
import sqlite3
import struct
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


def test_a_link_in_the_place_of_all_checkpoints_is_not_followed(tmp_path: Path, victim: Path) -> None:
    with open_store(tmp_path / "study.db") as store:
        recorder = record_study(store)
        (tmp_path / "study.db.states").symlink_to(victim)
        with pytest.raises(StoreError, match="link to another place"):
            place_states(recorder, None)
        _, left = remove_study(store, recorder.info)
    assert "link to another place" in left[0]
    assert [path.name for path in victim.iterdir()] == ["thesis.tex"]


def test_a_study_whose_checkpoints_cannot_be_removed_is_removed_all_the_same(tmp_path: Path) -> None:
    with open_store(tmp_path / "study.db") as store:
        recorder = record_study(store)
        (tmp_path / "study.db.states").write_text("no folder")
        names, left = remove_study(store, recorder.info)
    assert names == ["theirs"]
    assert "were left" in left[0]


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
        "ALTER TABLE notes ADD COLUMN slow AS (length(hex(zeroblob(100000000))))",
        "CREATE INDEX slow ON notes (length(hex(zeroblob(100000000))))",
        "CREATE INDEX part ON notes (text) WHERE length(hex(zeroblob(100000000))) > 1",
        "DROP TABLE notes; CREATE VIRTUAL TABLE notes USING fts5(sequence, study_id, number, kind, text, time)",
        "DROP TABLE notes; CREATE TABLE notes (sequence INTEGER PRIMARY KEY, study_id INTEGER, number INTEGER, "
        "kind TEXT, text TEXT CHECK (text LIKE '%a%a%a%a%a%a%a%b'), time DOUBLE)",
    ],
    ids=["view", "trigger", "computed column", "index of an expression", "partial index", "virtual table", "check"],
)
@pytest.mark.parametrize("create", [True, False], ids=["to change", "to read"])
def test_a_record_with_sql_of_its_own_is_not_opened(tmp_path: Path, statements: str, create: bool) -> None:
    path = tmp_path / "study.db"
    with open_store(path) as store:
        record_study(store)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)
    with pytest.raises(StoreError, match="that no record of Headwater has"):
        open_store(path, create=create)


@pytest.mark.parametrize("create", [True, False], ids=["to change", "to read"])
@pytest.mark.parametrize("suffix", ["", "-journal", "-wal", "-shm"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_pipe_or_link_in_the_place_of_a_file_is_refused(
    tmp_path: Path, victim: Path, kind: str, suffix: str, create: bool
) -> None:
    path = tmp_path / "study.db"
    if suffix:
        with open_store(path) as store:
            record_study(store)
    elif kind == "link":
        return  # the record itself may be a link, which is followed as the user wishes
    beside = tmp_path / f"study.db{suffix}"
    if kind == "pipe":
        os.mkfifo(beside)
    else:
        beside.symlink_to(victim / "thesis.tex")
    with pytest.raises(StoreError, match=r"is a pipe|is no file"):
        open_store(path, create=create)
    assert (victim / "thesis.tex").read_text() == "years of work"


def test_a_pipe_that_takes_the_place_of_an_open_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with open_store(path) as store:
        record_study(store)
    with open_store(path, create=False) as store:
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(StoreError, match="is a pipe"):
            store.studies()


def write_journal(path: Path, other: Path) -> None:
    """Write a rollback journal of no pages that names a super-journal, as SQLite's file format describes it."""
    magic, page = bytes.fromhex("d9d505f920a163d7"), 4096
    head = magic + struct.pack(">5I", 0, 1, path.stat().st_size // page, 512, page)
    name = str(other).encode()
    tail = struct.pack(">I", 2**30 // page + 1) + name + struct.pack(">2I", len(name), sum(name)) + magic
    Path(f"{path}-journal").write_bytes(head.ljust(512, b"\0") + tail)


@pytest.mark.parametrize("is_linked", [False, True], ids=["by its own name", "by a link"])
def test_a_journal_beside_a_record_deletes_no_other_file(tmp_path: Path, victim: Path, is_linked: bool) -> None:
    path = named = tmp_path / "study.db"
    with open_store(path) as store:
        record_study(store)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    write_journal(path, victim / "thesis.tex")
    if is_linked:
        named = tmp_path / "link.db"
        named.symlink_to(path)
    with pytest.raises(StoreError, match="names another file"):
        open_store(named)
    assert (victim / "thesis.tex").read_text() == "years of work"
    with closing(sqlite3.connect(path)) as connection:  # the attack works where nothing checks
        connection.execute("SELECT * FROM studies").fetchall()
    assert not (victim / "thesis.tex").exists()


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
