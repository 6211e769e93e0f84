"""Real services, as processes of their own, and people who ask them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from urllib.parse import urlsplit

import pytest

import headwater
from headwater.errors import ServiceError
from headwater.execute import Service
from headwater.serve.service.store import ServiceStore
from headwater.serve.service.values import Role

Json = dict[str, Any]


def _is_open(path: Path) -> bool:
    """Tell whether every system user gets to a file."""
    return all(one.stat().st_mode & 0o001 for one in (path, *path.parents))


def _find_python() -> Path | None:
    """Return a Python of this version that other system users can start, where this is root."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [Path(sys.executable).resolve(), Path("/usr/bin") / version, Path("/usr/local/bin") / version]
    needed = [
        Path(headwater.__file__).resolve().parent,
        *(Path(one) for one in sys.path if one.endswith("site-packages")),
    ]
    can_load = all(_is_open(path.resolve()) for path in needed)
    usable = [path for path in found if can_load and path.exists() and _is_open(path.resolve())]
    return usable[0] if usable and os.geteuid() == 0 else None


PYTHON = _find_python()
"""What the service is run by in tests where studies run as system users of their own."""

PATIENCE_S = 100.0
OVER = ("done", "failed", "stopped", "paused")

STUDY = """
import headwater as hw

def train(trial):
    for epoch in trial.epochs(3):
        trial.report(loss=trial.config["lr"] / (epoch + 1))

study = hw.Study(train, space={"lr": hw.uniform(0.1, 1)}, metric="loss", lanes=1)
"""
"""Ends at once."""

SLOW = """
import os
import time
from pathlib import Path

import headwater as hw

def train(trial):
    for epoch in trial.epochs(40000):
        time.sleep(0.05)
        trial.report(loss=trial.config["lr"] / (epoch + 1))

study = hw.Study(train, space={"lr": hw.uniform(0.1, 1)}, metric="loss", lanes=1, save_every=1)
"""
"""Goes on until somebody ends it."""


@dataclass
class RunningService:
    """A service that runs as a process, and can be killed and started again."""

    storage: str
    folder: Path
    options: tuple[str, ...] = ()
    url: str = ""
    admin_token: str = ""
    process: subprocess.Popen[str] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    python: Path = field(default_factory=lambda: Path(sys.executable))

    def start(self) -> None:
        command = [
            str(self.python),
            "-m",
            "headwater",
            "serve",
            "--storage",
            self.storage,
            "--folder",
            str(self.folder),
        ]
        with (self.folder.parent / "service.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--port", "0", *self.options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **self.environment},
            )
        assert self.process.stdout is not None
        self.url, self.admin_token = (self.process.stdout.readline().strip().partition("=")[2] for _ in range(2))
        assert self.url, (self.folder.parent / "service.log").read_text()

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.communicate()

    def add_user(self, name: str, role: Role = Role.USER, **limits: float) -> Service:
        with ServiceStore.open(self.storage) as store:
            store.add_user(name, role, limits)
            return Service(self.url, store.create_token(name))

    @property
    def admin(self) -> Service:
        return Service(self.url, self.admin_token)

    def end_all(self) -> None:
        """Kill what is left of studies that a test has started, and nothing else."""
        for pid in self.folder.glob("studies/*/work/runner.pid"):
            for process in Path("/proc").iterdir():
                if process.name.isdecimal() and _read_session(process) == int(pid.read_text()):
                    os.kill(int(process.name), signal.SIGKILL)


def _read_session(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[3])
    except (OSError, IndexError):
        return None


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other system users can get through, as pytest's own are not."""
    path = Path(mkdtemp(prefix="headwater-service-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    rmtree(path, ignore_errors=True)


Start = Callable[..., RunningService]


@pytest.fixture
def start_service(open_folder: Path) -> Iterator[Start]:
    started: list[RunningService] = []

    def start(*options: str, storage: str | None = None, **environment: str) -> RunningService:
        storage = storage or str(open_folder / "service.db")
        options = options if PYTHON is not None or os.geteuid() != 0 else (*options, "--same-user")
        service = RunningService(storage, open_folder / "studies", options, environment=environment)
        if PYTHON is not None:
            service.python = _make_open_python(open_folder)
        started.append(service)
        service.start()
        return service

    yield start
    for service in started:
        if service.process is not None and service.process.poll() is None:
            service.kill(signal.SIGTERM)
        service.end_all()


def _make_open_python(folder: Path) -> Path:
    """Make an environment that every system user can use, with all that this one has."""
    assert PYTHON is not None
    subprocess.run([str(PYTHON), "-m", "venv", "--without-pip", "--symlinks", str(folder / "venv")], check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    paths = [str(Path(headwater.__file__).parents[1]), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "all.pth").write_text("\n".join(paths))
    return folder / "venv" / "bin" / "python"


@pytest.fixture
def service(start_service: Start) -> RunningService:
    return start_service("--devices", "2")


def submit(user: Service, source: str = STUDY, **more: Any) -> str:  # Any: JSON values
    options = {"trials": 3, **more.pop("options", {})}
    files = [{"path": "train.py", "text": source}, *more.pop("files", [])]
    return str(user.submit({"file": "train.py", "files": files, "options": options, **more})["id"])


def wait_for(user: Service, study: str, is_there: Callable[[Json], bool]) -> Json:
    """Return a study when it is as it should be, without asking more often than it changes."""
    found = user.show(study)
    give_up = time.monotonic() + PATIENCE_S
    while not is_there(found):
        assert time.monotonic() < give_up, found
        assert found["state"] not in ("failed",), found
        found = user.show(study, found["version"])
    return found


def wait_for_end(user: Service, study: str) -> Json:
    found = user.show(study)
    give_up = time.monotonic() + PATIENCE_S
    while found["state"] not in OVER:
        assert time.monotonic() < give_up, found
        found = user.show(study, found["version"])
    return found


def has_epochs(number: int) -> Callable[[Json], bool]:
    return lambda study: study["progress"].get("num_epochs", 0) >= number


def ask_raw(
    url: str, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """Send a request as it is, however wrong."""
    parts = urlsplit(url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def refusal(ask: Callable[[], object]) -> tuple[int, str]:
    """Return the status and the words by which a service refuses."""
    with pytest.raises(ServiceError) as caught:
        ask()
    return caught.value.status, str(caught.value)


def bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def encode(value: object) -> bytes:
    return json.dumps(value).encode()
