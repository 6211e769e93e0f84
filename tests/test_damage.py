"""Records and files that are damaged, or made to do harm: one clear line each, never a traceback, never an escape."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.page_studies import write_plain
from typer.testing import CliRunner
from typer.testing import Result as Invoked

import headwater as hw
from headwater.cli import app
from headwater.errors import StoreError
from headwater.store import Lease, open_store
from headwater.store.state_format import StateHeader, seal_state

COLUMNS = [
    ("studies", "name"), ("studies", "metric"), ("studies", "mode"), ("studies", "seed"), ("studies", "space"),
    ("studies", "settings"), ("studies", "created"), ("studies", "uuid"),
    ("trials", "number"), ("trials", "config"), ("trials", "seed"), ("trials", "created"),
    ("reports", "number"), ("reports", "epoch"), ("reports", "metrics"), ("reports", "time"),
    ("transitions", "number"), ("transitions", "status"), ("transitions", "error"), ("transitions", "seconds"),
    ("notes", "number"), ("notes", "kind"), ("notes", "text"), ("facts", "key"), ("facts", "value"),
    ("leases", "holder"), ("leases", "pid"), ("leases", "process"), ("leases", "fence"),
]  # fmt: skip
ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b2J\r\u202egnp"
NUM_DRAWN = 4
"""So many of the values are tried in each column."""
VALUES: list[Any] = [  # Any: what SQLite takes
    None, "text", "", -1, 1.5, 2**62, -(2**63), 1e308, b"\x00\xff", "nul\x00nul", ESCAPES,
    "{", "[]", "{}", '"x"', "null", "1e999", "[" * 100_000, "[" * 200 + "]" * 200, "9" * 5000,
    '{"$float": "abc"}', '{"$float": [1]}', '{"loss": "x"}', '{"loss": null}', '{"loss": 1' + "0" * 400 + "}",
    '{"shown": 3, "codes": 3}', '{"shown": {"lr": {"a": "\\u001b[31m"}}, "codes": {}}', '{"num_seeds": 0}',
    '{"num_seeds": "x"}', '{"num_trials": "many", "part_of": 3}', '[{"key": 1}]', '{"measurements": [{"x": 1}]}',
    '{"measurements": [], "num_lanes": -1, "reason": 3}', "__import__('os').system('touch harmed')",
]  # fmt: skip


def train(trial: hw.Trial) -> None:
    for _ in trial.epochs(2):
        trial.report(loss=trial.config["lr"])


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two studies: one that will be damaged, and one beside it."""
    path = tmp_path_factory.mktemp("record") / "study.db"
    for name in ("other", "one"):
        hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", storage=path, name=name, lanes=2).run(3)
    with open_store(path) as store, store._writing("") as connection:
        connection.exec_driver_sql("UPDATE leases SET holder = 'x' WHERE study_id = 2")
        connection.exec_driver_sql(
            "INSERT INTO notes VALUES (100, 2, 1, 'lanes', 'a note', 0), (101, 2, NULL, 'a', 'b', 0)"
        )
        connection.exec_driver_sql(
            "INSERT INTO facts VALUES (100, 2, 'lanes: all', '{}', 0), (101, 2, 'target', '3', 0)"
        )
    return path


@pytest.fixture
def place(record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copy(record, tmp_path / "study.db")
    yield tmp_path
    assert not (tmp_path / "harmed").exists()


def ask(*arguments: str) -> Invoked:
    """Invoke a verb; whatever the record holds, it says what it has to say in lines, and sends no escapes."""
    result = CliRunner().invoke(app, [*arguments, "--storage", "study.db"])
    assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, result.exception)
    assert result.exit_code in (0, 2), arguments
    assert "Traceback" not in result.output
    if arguments[0] != "export":
        assert not set(result.output) & {"\x1b", "\x07", "\x9b", "\x00", "\r", "\u202e"}, arguments
    return result


def spoil(path: Path, table: str, column: str, value: Any, where: str) -> None:  # Any: what SQLite takes
    """Put a value where it does not belong; without its constraints, a table takes anything."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"CREATE TABLE loose AS SELECT * FROM {table}")
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"ALTER TABLE loose RENAME TO {table}")
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_bad_row_is_left_out_with_a_line(place: Path, record: Path, table: str, column: str) -> None:
    where = "id = 2" if table == "studies" else "study_id = 2"
    where += " AND number = 1" if table in ("trials", "reports", "transitions") else ""
    others = [["best", "one"], ["export", "one"], ["show", "one", "--trial", "1"], ["best"]]
    drawn = random.Random(f"{table}.{column}").sample(VALUES, NUM_DRAWN)
    for place_in_turn, value in enumerate(drawn):
        shutil.copy(record, "study.db")
        spoil(Path("study.db"), table, column, value, where)
        listed = ask("ls")
        assert listed.exit_code == 0
        assert "other" in listed.output
        ask("show", "one")
        ask(*others[place_in_turn % len(others)])


@pytest.mark.parametrize("value", [None, "{", '{"codes": 3, "shown": {}}', b"\x00"])
def test_the_sound_trials_of_a_study_are_shown_and_the_other_is_named(place: Path, value: object) -> None:
    spoil(place / "study.db", "trials", "config", value, "study_id = 2 AND number = 1")
    if value != '{"codes": 3, "shown": {}}':
        told = ask("ls").stderr
        assert told.startswith("the record is damaged: study 'one': trial 1 is left out: its config is ")
        assert "0," in ask("export", "one").stdout
        assert "\n1," not in ask("export", "one").stdout
    study = hw.Study(
        train, space={"lr": hw.uniform(0, 1)}, metric="loss", storage=place / "study.db", name="one", lanes=2
    )
    with open_store(place / "study.db") as store, store._writing("") as connection:
        connection.exec_driver_sql("UPDATE leases SET holder = NULL")
    with pytest.raises(StoreError, match="trial 1 cannot be read from the record: its config"):
        study.resume(4)


def test_names_and_notes_are_printed_without_escapes(place: Path) -> None:
    spoil(place / "study.db", "studies", "name", f"one{ESCAPES}", "id = 2")
    spoil(place / "study.db", "notes", "text", f"so{ESCAPES}", "study_id = 2")
    assert "one␛[31mred␛]0;title" in ask("ls").output
    assert "so␛[31mred␛]0;title" in ask("show").output


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def scramble(content: bytes) -> bytes:
    return content[:2048] + bytes(byte ^ 0x5A for byte in content[2048:])


FILES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut in the first page": lambda content: content[:1000],
    "cut in the middle": cut,
    "scrambled": scramble,
    "zeros": lambda content: bytes(len(content)),
    "text": lambda content: b"these are no studies\n" * 1000,
    "without its header": lambda content: content[100:],
    "a header alone": lambda content: content[:100],
}


@pytest.mark.parametrize("harm", FILES)
def test_a_damaged_file_is_one_line(place: Path, harm: str) -> None:
    path = place / "study.db"
    path.write_bytes(FILES[harm](path.read_bytes()))
    for verb in ("ls", "show", "best", "export", "stop"):
        result = ask(verb)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
    (place / "train.py").write_text(SCRIPT)
    resumed = CliRunner().invoke(app, ["resume", "train.py", "--storage", "study.db", "--name", "one"])
    assert resumed.exit_code == 2
    assert resumed.stderr.count("\n") == 1


SCRIPT = """
import headwater as hw
def train(trial):
    trial.report(loss=1.0)
study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", lanes=1)
"""


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM headwater_schema_version",
        "UPDATE headwater_schema_version SET version = 'x'",
        "INSERT INTO headwater_schema_version VALUES (2, 2)",
        "DROP TABLE reports",
        "DROP TABLE studies",
        "ALTER TABLE trials RENAME COLUMN config TO settings",
    ],
)
def test_damaged_tables_are_one_line(place: Path, change: str) -> None:
    with closing(sqlite3.connect(place / "study.db", isolation_level=None)) as connection:
        connection.execute(change)
    result = ask("show", "one")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x01\x02",
        b"\xff\xfe",
        b"def train(:\n",
        b"import headwater as hw\nstudy = 3\n",
        b"raise KeyError('x')",
    ],
)
def test_a_damaged_file_of_a_study_is_an_error_in_words(place: Path, content: bytes) -> None:
    (place / "train.py").write_bytes(content)
    result = CliRunner().invoke(app, ["run", "train.py", "--trials", "1"])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("error: train.py")


SPACE = "UPDATE studies SET space = json_replace(space, '$[1].{}', json('{}'))"
CONFIG = "UPDATE trials SET config = json_set(config, '$.{}', {})"
METRIC = "UPDATE reports SET metrics = '{{\"accuracy\": ' || ({}) || '{}}}'"
FACT = "INSERT INTO facts VALUES (200, 1, '{}', '{}', 0)"
STEP = '{"num_lanes": 1, "seconds_per_lane_step": 1.0, "peak_bytes": ""}'
HARMS = {
    "fence": (["rename", "plain", "new"], "UPDATE leases SET fence = 9223372036854775807"),
    "half a character": (["show"], 'UPDATE studies SET settings = \'{"order": "\\ud800"}\''),
    "start": (["show"], FACT.format("start", "0")),
    "passes": (["show"], FACT.format("start", '{"num_passes": "x", "drift": null}')),
    "memory": (["show"], FACT.format("lanes: x", f'{{"num_lanes": 1, "reason": "", "measurements": [{STEP}]}}')),
    "number in a table": (["best"], CONFIG.format("shown.lr", f"json('1{'0' * 400}' || number)")),
    "seeds": (["report"], "UPDATE studies SET settings = json_set(settings, '$.num_seeds', 1000000000000)"),
    "no seeds": (["ls"], "UPDATE studies SET settings = json_set(settings, '$.num_seeds', NULL)"),
    "device": (["show", "--timeline"], f"UPDATE spans SET device = '{'9' * 5000}'"),
    "values": (["plot", "plain", "curves"], METRIC.format("number - 9", "e307")),
    "tiny values": (["plot", "plain", "curves"], METRIC.format("number % 2 * 5", "e-324")),
    "rate": (["plot", "plain", "slice"], CONFIG.format("shown.lr", "CASE number WHEN 0 THEN 1e-3 ELSE 1e308 END")),
    "key in a figure": (["plot", "plain", "parallel"], SPACE.format("key", "[1]")),
    "key": (["mirror"], SPACE.format("key", "[1]")),
    "codes": (["mirror"], CONFIG.format("codes", 3)),
    "code": (["mirror"], CONFIG.format("codes.lr", -5)),
    "code in a figure": (["plot", "plain", "importance"], CONFIG.format("codes.lr", "-5.0 - number")),
    "options": (["mirror"], SPACE.format("num_values", "1000000000")),
    "signs": (["mirror"], SPACE.format("text", f'"uniform({"-" * 15_000}1)"')),
    "sum": (["mirror"], SPACE.format("text", f'"uniform({"1+" * 9_000}1, 2)"')),
    "bounds": (["mirror"], SPACE.format("text", '"uniform(1, 0, 5, 6)"')),
    "step": (["mirror"], SPACE.format("text", '"quniform(0, 1, 0)"')),
    "date": (["ls"], "UPDATE studies SET created = 1e15"),
    "time": (["mirror"], "UPDATE transitions SET seconds = 253402300799"),
}
"""By what is wrong: a verb, and a statement that has it stumble over that."""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", HARMS)
def test_no_value_of_a_stranger_ends_a_verb_in_a_traceback(empty_place: Path, what: str) -> None:
    arguments, statement = HARMS[what]
    write_plain(Path("study.db"))
    with open_store("study.db") as store, Lease(store, store.study()):
        pass
    with closing(sqlite3.connect("study.db", isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount
    ask(*arguments)


@pytest.mark.parametrize(
    "models",
    [
        [-1],
        ["x"],
        [{"$map": [[None, {"$tensor": "/models/0/weight"}]]}],
        [{"$map": [["weight", 5]]}],
        {"$map": []},
        [{"$map": [["weight", {"$tensor": "not there"}]]}],
    ],
)
def test_kept_weights_of_a_stranger_are_refused_in_one_line(empty_place: Path, models: object) -> None:
    study = hw.Study(train_model, space={"lr": hw.uniform(0, 1)}, metric="loss", storage="study.db", name="one")
    study.run(num_trials=1)
    (path,) = Path("study.db.states").rglob("best-*")
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    tree = {
        "$map": [[name, models if name == "models" else value] for name, value in json.loads(metadata["tree"])["$map"]]
    }
    header = StateHeader(
        study=metadata["study"], trial=int(metadata["trial"]), epoch=int(metadata["epoch"]), tree=json.dumps(tree)
    )
    path.write_bytes(seal_state(header, content))
    result = ask("best", "one", "--save", "weights.safetensors")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def train_model(trial: hw.Trial) -> None:
    model = trial.prepare_model(torch.nn.Linear(2, 1))
    for _ in trial.epochs(1):
        trial.report(loss=model(torch.ones(1, 2)).sum())
