"""Several processes at one file: killed writers, readers beside a writer."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from headwater.store import Batch, StudyInfo, Transition, open_store
from headwater.trials import Lane, Report, Status

NUM_LANES = 16

WRITER = """
import sys
from headwater.store import *
from headwater.trials import *

store = open_store(sys.argv[1])
lanes = range(16)
study_id = store.create_study(StudyInfo(name="killed", metric="a", mode="max", seed=0))
store.add_trials(study_id, [Lane(number=n, config={"lr": n}, seed=n) for n in lanes])
for epoch in range(1, 1_000_000):
    store.write(study_id, Batch(
        reports=tuple(Report(number=n, epoch=epoch, metrics={"a": 0.1}) for n in lanes),
        transitions=tuple(Transition(number=n, status=Status.PAUSED, epoch=epoch, seconds=1.0) for n in lanes),
        notes=tuple(Note(number=n, kind="k", text="x" * 2000) for n in lanes),
    ))
    print(epoch, flush=True)
"""

READER = """
import sys
from headwater.store import *

with open_store(sys.argv[1], create=False) as store:
    study_id = store.study().id
    print("ready", flush=True)
    seen = 0
    while seen < 200:
        epochs = {record.epochs for record in store.trials(study_id)}
        assert len(epochs) == 1, f"half a batch: {epochs}"
        assert seen <= min(epochs), "went back"
        seen = min(epochs)
"""


def test_a_killed_writer_leaves_whole_batches_and_all_that_were_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    confirmed = [int(writer.stdout.readline()) for _ in range(40)]
    os.kill(writer.pid, signal.SIGKILL)
    confirmed += [int(line) for line in writer.communicate()[0].splitlines()]

    with open_store(path, create=False) as reader:
        before = reader.trials(reader.study("killed").id)
    with open_store(path) as store:
        records = store.trials(store.study("killed").id)
    last = records[0].epochs
    assert last >= confirmed[-1]
    assert records == before
    assert [(record.epochs, record.seconds, len(record.notes)) for record in records] == [
        (last, last, last)
    ] * NUM_LANES
    assert check_integrity(path) == "ok"


def test_a_reader_in_another_process_sees_whole_batches_while_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with open_store(path) as store:
        study_id = create_study(path)
        reader = subprocess.Popen([sys.executable, "-c", READER, str(path)], stdout=subprocess.PIPE, text=True)
        assert reader.stdout is not None
        reader.stdout.readline()
        for epoch in range(1, 201):
            store.write(study_id, report_all(epoch))
        reader.communicate()
    assert reader.returncode == 0


def test_a_reader_that_holds_its_transaction_does_not_hold_up_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    study_id = create_study(path)
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN')\n"
        "c.execute('SELECT * FROM trials').fetchall(); print('reading', flush=True); input(); c.close()\n"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    reader.stdout.readline()
    with open_store(path) as store:
        store.write(study_id, report_all(1))
        assert store.trials(study_id)[0].epochs == 1
    reader.communicate("\n")
    assert reader.returncode == 0


def test_reading_goes_on_while_a_writer_holds_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    study_id = create_study(path)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with open_store(path, create=False) as reader:
        assert len(reader.trials(study_id)) == NUM_LANES
    writer.close()


def create_study(path: Path) -> int:
    with open_store(path) as store:
        study_id = store.create_study(StudyInfo(name="live", metric="a", mode="max", seed=0))
        store.add_trials(study_id, [Lane(number=n, config={}, seed=n) for n in range(NUM_LANES)])
    return study_id


def report_all(epoch: int) -> Batch:
    lanes = range(NUM_LANES)
    return Batch(
        reports=tuple(Report(number=n, epoch=epoch, metrics={"a": 0.1}) for n in lanes),
        transitions=tuple(Transition(number=n, status=Status.RUNNING, epoch=epoch) for n in lanes),
    )


def check_integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()
