"""A service under load, killed again and again: is any study lost or run twice, and how soon does one run?

Run `python benchmarks/service.py --folder DIR --storage postgresql://... --seconds 200` as often as it says that
something is left: 8 users submit 60 studies while the service, runners, stewards, workers and connections to the
database are killed 100 times at drawn moments, in pieces of some minutes. All that happened is kept in
`DIR/rows.jsonl`, and between two pieces the service is down while its studies go on. The service has another number of
devices each time it is started. Every study's trials are compared with those of `headwater run` on the same file, whose
training draws random numbers, carries momentum, and notices itself if it runs twice at the same time.

With `--share-lanes`, studies of unlike users have the same files and train as lanes of common groups, in one process;
their losses are compared within 1e-9, for lanes are computed in another order. `--kinds service` kills nothing else.
"""

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

os.environ.setdefault("OMP_NUM_THREADS", "1")

from measuring import heading
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from headwater.errors import ServiceError
from headwater.execute import Service
from headwater.serve.service.store import ServiceStore
from headwater.serve.service.values import Role

Json = dict[str, Any]

STUDY = """
import fcntl
import sys
import time

import torch

import headwater as hw

if "run" in sys.argv:  # the runner, and no worker
    alone = open("alone.lock", "ab")
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        open("twice", "a").write("another runner trains this study now\\n")


def train(trial):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(24, 4, generator=generator)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True).tanh())
    layers = torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
    model = trial.prepare_model(torch.nn.Sequential(*layers))
    loader = trial.prepare_data_loader(data, batch_size=8, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
    for epoch in trial.epochs(NUM_EPOCHS):
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()
        time.sleep(PAUSE_S)
        trial.report(loss=total)


study = hw.Study(train, space={"lr": hw.loguniform(1e-3, 0.1)}, metric="loss", lanes=NUM_LANES, save_every=1)
"""
KINDS = {"short": (2, 6, 0.05), "long": (6, 12, 0.25)}
"""Trials, epochs of each and the seconds that an epoch rests. Long ones go on in worker processes if devices come."""
SHARED_KINDS = {"short": (2, 300, 0.25), "long": (4, 1200, 0.25)}
"""The same for studies that share lanes: all trials of a study train at once."""
LARGEST_GAP = 1e-9
"""Relative difference of a loss that counts as equal where lanes were shared."""
KILLED = ("service", "runner", "steward", "worker", "connections")
NUM_SEEDS = 4
"""So many different studies there are of each kind, each run alone once to compare with."""
OVER = ("done", "failed", "stopped", "paused")
PATIENCE_S = 60.0


class Rows:
    """All that has happened, in a file that a later piece goes on with."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.all: list[Json] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def add(self, what: str, **row: Any) -> Json:  # Any: JSON values
        kept = {"what": what, **row}
        with self._lock:
            self.all.append(kept)
            with self._path.open("a") as file:
                file.write(json.dumps(kept) + "\n")
        return kept

    def of(self, what: str) -> list[Json]:
        with self._lock:
            return [row for row in self.all if row["what"] == what]


@dataclass
class Run:
    """A service, and what is done to it."""

    folder: Path
    storage: str
    rows: Rows
    dice: random.Random
    asked: argparse.Namespace
    process: Any = None  # Any: a process that prints text
    ending: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.asked.port}"

    def start(self) -> None:
        num_devices = self.dice.randint(1, self.asked.devices)
        command = [sys.executable, "-m", "headwater", "serve", "--storage", self.storage, "--same-user"]
        command += [
            "--port",
            str(self.asked.port),
            "--folder",
            str(self.folder / "studies"),
            "--devices",
            str(num_devices),
        ]
        with (self.folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        if not self.process.stdout.readline():
            raise RuntimeError(f"the service did not start; see {self.folder / 'service.log'}")
        self.rows.add("started", num_devices=num_devices)

    def kill_service(self) -> None:
        self.process.kill()
        self.process.wait()

    def kill_again_and_again(self) -> None:
        """Kill something now and then until that is enough; for a thread of its own."""
        while not self.ending.wait(self.dice.uniform(0.2, self.asked.between)):
            if len(self.rows.of("killed")) >= self.asked.kills:
                return
            self._kill_something()

    def _kill_something(self) -> None:
        kinds = [kind for kind in self.asked.kinds if kind != "connections" or "://" in self.storage]
        kind, num_together = self.dice.choice(kinds), self._count_together()
        if kind == "service":
            self.kill_service()
            self.start()
        elif kind == "connections":
            cut_connections(self.storage)
        else:
            pids = self._find_pids()[kind]
            if not pids:
                return
            os.kill(self.dice.choice(pids), signal.SIGKILL)
        self.rows.add("killed", kind=kind, num_together=num_together)

    def _count_together(self) -> int:
        """Return how many studies are in one process with others, of those that run now."""
        crews = [words[words.index("run-shared") + 2] for words in self._list_commands().values() if _is_shared(words)]
        return sum(len(json.loads(posts)) for posts in crews)

    def _list_commands(self) -> dict[int, list[str]]:
        """Return the words of the command of each process that names the folder of this service."""
        found = {}
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                with suppress(OSError):
                    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    if any(str(self.folder) in word for word in words):
                        found[int(process.name)] = words
        return found

    def _find_pids(self) -> dict[str, list[int]]:
        """Return the runners, stewards and workers of this service: what this program has started, if not directly."""
        mark = f"--storage={self.folder}"
        found: dict[str, list[int]] = {"runner": [], "steward": [], "worker": []}
        others: dict[int, int] = {}
        for process in Path("/proc").iterdir():
            if not process.name.isdecimal():
                continue
            try:
                words = (process / "cmdline").read_bytes().decode().split("\0")
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            shares = str(self.folder / "studies" / "shares")
            if ("run" in words and any(word.startswith(mark) for word in words)) or (
                _is_shared(words) and any(word.startswith(shares) for word in words)
            ):
                found["runner"].append(int(process.name))
            elif "headwater.serve.service.steward" in words and parent == self.process.pid:
                found["steward"].append(int(process.name))
            else:
                others[int(process.name)] = parent
        found["worker"] = [pid for pid, parent in others.items() if parent in found["runner"]]
        return found


def _is_shared(words: list[str]) -> bool:
    return "run-shared" in words


def cut_connections(storage: str) -> None:
    engine = create_engine(make_url(storage).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    with engine.connect() as connection:
        connection.execute(text(f"{cut} AND pid <> pg_backend_pid()"))
    engine.dispose()


class People:
    """Those who submit studies and look after them."""

    def __init__(self, run: Run, num_users: int) -> None:
        self._run = run
        self._rows = run.rows
        for number in range(len(self._rows.of("user")), num_users):
            with ServiceStore.open(run.storage) as store:
                store.add_user(f"user-{number}", Role.USER, {})
                self._rows.add("user", name=f"user-{number}", token=store.create_token(f"user-{number}"))
        self._tokens = [row["token"] for row in self._rows.of("user")]

    def submit(self, number: int, kind: str, *, is_quiet: bool = False) -> Json:
        """Submit a study, however often the service has to be asked."""
        share_lanes = self._run.asked.share_lanes
        num_trials, source = write_study(kind, share_lanes=share_lanes)
        seed, user, key = choose_seed(number, self._run.asked), number % len(self._tokens), uuid4().hex
        body = {"file": "train.py", "files": [{"path": "train.py", "text": source}]}
        body |= {"options": {"trials": num_trials, "seed": seed}, "priority": number % 3, "share_lanes": share_lanes}
        begin_s = time.monotonic()
        sent = self._ask(user, "POST", "/v1/studies", body, {"Idempotency-Key": key})
        row = {"study": sent["id"], "user": user, "kind": kind, "seed": seed, "is_quiet": is_quiet}
        return self._rows.add("submitted", asked_s=time.monotonic() - begin_s, **row)

    def time_start(self, number: int) -> None:
        """Submit a study while all devices are free, and see how soon it runs and has reported."""
        begin_s = time.monotonic()
        row = self.submit(number, "short", is_quiet=True)
        seen, client = self.show(row), Service(self._run.url, self._tokens[row["user"]])
        running_s = None
        while seen["state"] not in OVER:
            if running_s is None and seen["state"] == "running":
                running_s = time.monotonic() - begin_s
            if seen["progress"].get("num_epochs", 0):
                break
            seen = client.show(row["study"], seen["version"])
        self._rows.add("timed", running_s=running_s, reported_s=time.monotonic() - begin_s)
        while self.show(row)["state"] not in OVER:
            time.sleep(0.2)

    def show(self, row: Json) -> Json:
        return self._ask(row["user"], "GET", f"/v1/studies/{row['study']}")

    def resume(self, row: Json) -> None:
        """Let a study go on whose runner was killed three times before it had trained an epoch."""
        self._ask(row["user"], "POST", f"/v1/studies/{row['study']}/resume", {})
        self._rows.add("resumed", study=row["study"])

    def list_studies(self) -> dict[str, Json]:
        found = [self._ask(user, "GET", "/v1/studies")["studies"] for user in range(len(self._tokens))]
        return {one["id"]: one for studies in found for one in studies}

    def _ask(self, user: int, method: str, path: str, *more: Any) -> Json:  # Any: a body and headers
        """Ask until there is an answer; what is neither an answer nor a service that is away is a fault, and kept."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                return Service(self._run.url, self._tokens[user]).ask(method, path, *more)
            except ServiceError as error:
                if error.status not in (0, 503):
                    self._rows.add("fault", status=error.status, asked=f"{method} {path}", told=str(error))
                if time.monotonic() > give_up:
                    raise
            time.sleep(0.1)


def choose_kind(number: int, asked: argparse.Namespace) -> str:
    """Return the kind of a study; those of one turn of all users may train together, so they are of one kind."""
    turn = number // asked.users if asked.share_lanes else number
    return "long" if turn % 3 == 0 else "short"


def choose_seed(number: int, asked: argparse.Namespace) -> int:
    """Return the seed of a study; studies of unlike seeds do not train together."""
    return (number // asked.users if asked.share_lanes else number) % NUM_SEEDS


def write_study(kind: str, *, share_lanes: bool, is_slow: bool = True) -> tuple[int, str]:
    """Return the number of trials of a kind of study, and its source."""
    num_trials, num_epochs, pause_s = (SHARED_KINDS if share_lanes else KINDS)[kind]
    source = STUDY.replace("NUM_EPOCHS", str(num_epochs)).replace("PAUSE_S", str(pause_s if is_slow else 0))
    source = source.replace("NUM_LANES", "8" if share_lanes else "1")
    return num_trials, "import torch\ntorch.set_default_dtype(torch.float64)\n" + source if share_lanes else source


def list_trials(place: list[str]) -> list[Json]:
    """Return the trials of a record, but for how long each took."""
    command = [sys.executable, "-m", "headwater", "export", *place, "--format", "json", "--history"]
    rows = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return [{key: value for key, value in row.items() if "seconds" not in key and "time" not in key} for row in rows]


def run_alone(folder: Path, kind: str, seed: int, *, share_lanes: bool) -> list[Json]:
    file, record = folder / "alone.py", folder / f"alone-{kind}-{seed}.db"
    num_trials, source = write_study(kind, share_lanes=share_lanes, is_slow=False)
    file.write_text(source)
    command = [sys.executable, "-m", "headwater", "run", str(file), "--trials", str(num_trials), "--quiet"]
    command += [f"--seed={seed}", f"--storage={record}", "--name=alone", "--executor=inline"]
    subprocess.run(command, stdout=subprocess.DEVNULL, cwd=folder, check=True)
    return list_trials(["alone", f"--storage={record}"])


def compare(run: Run, row: Json, ended: Json) -> None:
    """See what became of a study."""
    work = run.folder / "studies" / "studies" / row["study"] / "work"
    (alone,) = (
        one["trials"] for one in run.rows.of("alone") if (one["kind"], one["seed"]) == (row["kind"], row["seed"])
    )
    trials = list_trials([row["study"], f"--storage={work / 'record.db'}"])
    run.rows.add(
        "ended",
        study=row["study"],
        state=ended["state"],
        reason=ended["reason"],
        is_equal=is_equal(trials, alone) if run.asked.share_lanes else trials == alone,
        was_twice=(work / "source" / "twice").exists(),
    )


def is_equal(trials: list[Json], alone: list[Json]) -> bool:
    """Tell whether all reports are the same, with losses that differ by rounding alone."""
    loss = "metrics.loss"
    return len(trials) == len(alone) and all(
        {**one, loss: 0} == {**two, loss: 0} and math.isclose(one[loss], two[loss], rel_tol=LARGEST_GAP)
        for one, two in zip(trials, alone, strict=True)
    )


def drive(run: Run, people: People, until: float) -> bool:
    """Submit and look until time is up or all studies have ended; tell which."""
    num_studies = run.asked.studies
    while time.monotonic() < until:
        submitted = {row["study"]: row for row in run.rows.of("submitted")}
        ended = {row["study"] for row in run.rows.of("ended")}
        num_loaded = sum(not row["is_quiet"] for row in submitted.values())
        if num_loaded < num_studies and len(submitted) - len(ended) < run.asked.active:
            people.submit(num_loaded, choose_kind(num_loaded, run.asked))
            continue
        known = people.list_studies()
        for study, row in submitted.items():
            if study not in ended and known.get(study, {}).get("state") in OVER:
                if "without any progress" in known[study]["reason"]:
                    people.resume(row)
                else:
                    compare(run, row, known[study])
        if num_loaded == num_studies and len(run.rows.of("ended")) == len(submitted):
            return True
        time.sleep(0.3)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--storage", default=None)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--studies", type=int, default=60)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--quiet", type=int, default=10, help="studies that are timed before anything is killed")
    parser.add_argument("--active", type=int, default=8, help="how many studies run or wait at the same time")
    parser.add_argument("--devices", type=int, default=3, help="how many devices there are at most")
    parser.add_argument("--between", type=float, default=12.0, help="how many seconds pass between kills at most")
    parser.add_argument("--port", type=int, default=8790)
    parser.add_argument("--share-lanes", action="store_true", help="studies of unlike users train in one process")
    parser.add_argument("--kinds", nargs="+", choices=KILLED, default=KILLED, help="what is killed")
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    asked.folder.mkdir(parents=True, exist_ok=True)
    folder = asked.folder.resolve()
    rows = Rows(folder / "rows.jsonl")
    compared = {(row["kind"], row["seed"]) for row in rows.of("alone")}
    numbers = range(max(asked.studies, asked.quiet))
    wanted = {(choose_kind(number, asked), choose_seed(number, asked)) for number in numbers}
    wanted |= {("short", choose_seed(number, asked)) for number in range(asked.quiet)}
    for kind, seed in sorted(wanted):
        if (kind, seed) not in compared:
            rows.add("alone", kind=kind, seed=seed, trials=run_alone(folder, kind, seed, share_lanes=asked.share_lanes))
    dice = random.Random(len(rows.all))
    run = Run(folder, asked.storage or str(folder / "service.db"), rows, dice, asked)
    run_piece(run, until)


def run_piece(run: Run, until: float) -> None:
    """Have the service run and be killed for a while, and tell what has happened in all pieces so far."""
    run.start()
    killer = threading.Thread(target=run.kill_again_and_again)
    try:
        people = People(run, run.asked.users)
        for number in range(len(run.rows.of("timed")), run.asked.quiet):
            people.time_start(number)
        killer.start()
        is_over = drive(run, people, until)
        num_known = len(people.list_studies())
    finally:
        run.ending.set()
        if killer.is_alive():
            killer.join()
        run.kill_service()
    tell(run.rows, num_known, is_over=is_over)


def tell(rows: Rows, num_known: int, *, is_over: bool) -> None:
    ended, kills = rows.of("ended"), Counter(row["kind"] for row in rows.of("killed"))
    timed = rows.of("timed")
    starts = [row["num_devices"] for row in rows.of("started")]
    table = {
        "users": len(rows.of("user")),
        "studies submitted": len(rows.of("submitted")),
        "studies known at the end": num_known,
        "done": sum(row["state"] == "done" for row in ended),
        "with the trials of an undisturbed run": sum(row["is_equal"] for row in ended),
        "trained by two runners at once": sum(row["was_twice"] for row in ended),
        "resumed by hand after three deaths without an epoch": len(rows.of("resumed")),
        "answers that were errors of the service": len(rows.of("fault")),
        "kills": f"{sum(kills.values())}: " + ", ".join(f"{count} of {kind}" for kind, count in sorted(kills.items())),
        "kills while studies trained together": sum(row.get("num_together", 0) > 1 for row in rows.of("killed")),
        "starts of the service, with devices": f"{len(starts)}, with {min(starts)} to {max(starts)}",
        "submitted to running, all devices free": describe([row["running_s"] for row in timed if row["running_s"]]),
        "submitted to the first report": describe([row["reported_s"] for row in timed]),
    }
    print(heading("The service under load"))
    print("| | |\n|---|---|")
    for name, value in table.items():
        print(f"| {name} | {value} |")
    if not is_over:
        print("\nSomething is left to do: run this again.")


def describe(seconds: list[float]) -> str:
    if not seconds:
        return "not measured"
    return f"median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s of {len(seconds)}"


if __name__ == "__main__":
    main()
