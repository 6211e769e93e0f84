"""The verb `devices`: it lists what a running study trains on, and what it asks for is done or refused in one line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest
from tests.scripts import ENDLESS
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.store import Lease, find_runner, open_store
from headwater.store.device_wishes import ShownDevices, show_devices
from headwater.trials import DevicePool

DEADLINE_S = 120.0


@pytest.fixture(autouse=True)
def place(empty_place: Path) -> Path:
    (empty_place / "endless.py").write_text(ENDLESS)
    return empty_place


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["devices", *arguments])


def refuse(*arguments: str) -> str:
    """Have something refused, and return the one line that says why."""
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


@contextmanager
def start(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the study in another process, and wait until it says that it has reported."""
    command = [sys.executable, "-m", "headwater", "run", "endless.py", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert "reported" in process.stdout.readline(), process.communicate()[1]
            yield process
        finally:
            process.kill()


def await_devices(is_there: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """Ask until the devices do what is awaited, and return what each does."""
    end_s = monotonic() + DEADLINE_S
    found: dict[str, str] = {}
    while monotonic() < end_s:
        listed = json.loads(invoke("--json").stdout)["devices"]
        found = {one["device"]: one["does"] if one["is_wanted"] else "leaves" for one in listed}
        if is_there(found):
            return found
    raise AssertionError(found)


def run_on(pool: DevicePool) -> None:
    """Have a record say that this process runs a study on these devices."""
    store = open_store("headwater.db")
    lease = Lease(store, store.study()).__enter__()
    show_devices(store, 1, ShownDevices(pool=pool), lease.fence)


def test_devices_come_and_go_while_a_study_runs_and_are_listed() -> None:
    with start("--executor", "processes", "--devices", "1") as process:
        asked = invoke("add")
        assert asked.exit_code == 0, asked.stderr
        assert "asked study train-1 to train on cpu:1 too" in asked.stdout
        assert f"process {process.pid} on " in asked.stdout
        await_devices(lambda found: found == {"cpu:0": "trains", "cpu:1": "trains"})
        table = invoke().stdout
        assert "cpu:0" in table
        assert "trains" in table
        gone = invoke("remove", "cpu:0", "--study", "train-1")
        assert "to give up cpu:0" in gone.stdout
        await_devices(lambda found: found == {"cpu:1": "trains"})
        assert "cannot go" in refuse("remove")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 130
        assert "asked for other devices: cpu:0 is to go" in told
    assert "is not running, so there is nothing to add devices to" in refuse("add")


def test_one_process_says_what_to_do_for_more() -> None:
    with start("--executor", "inline"):
        assert json.loads(invoke("--json").stdout)["devices"][0]["device"] == "cpu:0"
        assert "resume it with --executor processes" in refuse("add")


@pytest.fixture
def recorded(place: Path) -> None:
    done = CliRunner().invoke(app, ["run", "endless.py", "--max-epochs", "1", "--executor", "inline", "--quiet"])
    assert done.exit_code == 0, done.stderr


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["grow"], "'grow' is nothing that devices can do; give add or remove"),
        (["add", "two"], "add got 'two'; give how many devices are to come, as in headwater devices add 2"),
        (["add", "1.5"], "add got '1.5'; give how many"),
        (["add", "1", "2"], "add got '1 2'; give how many"),
        (["add", "0"], "add got 0; give a number from 1 to 1,000"),
        (["add", "--", "-3"], "add got -3; give a number from 1 to 1,000"),
        (["add", "5000"], "add got 5000; give a number from 1 to 1,000"),
        (["remove", "0"], "remove got 0; give a number"),
        (["remove", "cpu:7"], "study 'train-1' has no device 'cpu:7'; there are cpu:0, cpu:1"),
        (["remove", "1", "cpu:1"], "study 'train-1' has no device '1'; there are cpu:0, cpu:1"),
        (["remove", "cpu:2"], "device cpu:2 is leaving already; there are cpu:0, cpu:1"),
        (["remove", "2"], "2 of the 2 devices of study 'train-1' cannot go, for it needs one to train on"),
        (["remove", "9"], "9 of the 2 devices of study 'train-1' cannot go"),
        (["remove", "cpu:0", "cpu:1"], "2 of the 2 devices of study 'train-1' cannot go"),
        (["add", "--study", "none"], "holds no study named 'none'; there are 'train-1'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: list[str], told: str) -> None:
    run_on(DevicePool(names=("cpu:0", "cpu:1"), leaving=("cpu:2",), num_there=4))
    assert told in refuse(*words)


@pytest.mark.usefixtures("recorded")
def test_wishes_count_before_they_are_heard() -> None:
    run_on(DevicePool(names=("cpu:0",), num_there=2))
    assert "its machine has 2 cores" not in invoke("add").stdout
    asked = invoke("add", "2").stdout
    assert "then has 4: cpu:0, cpu:1, cpu:2, cpu:3; its machine has 2 cores, which they share" in asked
    assert "to give up cpu:2, cpu:3" in invoke("remove", "2").stdout
    listed = json.loads(invoke("--json").stdout)["devices"]
    assert [(one["device"], one["is_there"], one["is_wanted"]) for one in listed] == [
        ("cpu:0", True, True),
        ("cpu:1", False, True),
    ]


@pytest.mark.usefixtures("recorded")
def test_there_are_no_more_gpus_than_the_machine_has() -> None:
    run_on(DevicePool(names=("cuda:0", "cuda:1"), kind="cuda", num_there=3))
    assert "then has 3: cuda:0, cuda:1, cuda:2" in invoke("add").stdout
    assert "has 3 devices, and its machine 3 of kind cuda; 1 more cannot come" in refuse("add")


@pytest.mark.usefixtures("recorded")
def test_a_run_that_has_not_said_which_devices_it_has_says_so() -> None:
    store = open_store("headwater.db")
    Lease(store, store.study()).__enter__()
    assert "has not said which devices it has" in refuse()


@pytest.mark.usefixtures("recorded")
def test_a_study_that_has_ended_has_no_devices() -> None:
    with open_store("headwater.db", create=False) as store:
        assert find_runner(store, 1) is None
    assert "study 'train-1' is not running" in refuse()
    assert "study 'train-1' is not running" in refuse("remove")


def test_without_a_record_nothing_is_made(place: Path) -> None:
    assert str(place / "headwater.db") in refuse("add")
    assert list(place.glob("*.db")) == []


@pytest.mark.usefixtures("recorded")
def test_a_study_that_was_asked_to_stop_needs_no_other_devices() -> None:
    run_on(DevicePool(names=("cpu:0",)))
    assert CliRunner().invoke(app, ["stop"]).exit_code == 0
    assert "was asked to stop by" in refuse("add", "2")
