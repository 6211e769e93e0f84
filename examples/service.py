"""Start a service, submit a study to it as two users would, and look at what came of it.

    python examples/service.py

A real service runs for longer than this one, and its users sit elsewhere: see docs/service.md.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HEADWATER = [sys.executable, "-m", "headwater"]
STUDY = Path(__file__).parent / "digits.py"


def start(storage: Path) -> tuple["subprocess.Popen[str]", dict[str, str]]:
    """Return the service and the two variables that it prints: where it is, and a token of an admin."""
    command = [*HEADWATER, "serve", "--storage", str(storage), "--port", "0", "--devices", "2", "--same-user"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    return service, dict(service.stdout.readline().strip().partition("=")[::2] for _ in range(2))


def headwater(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [*HEADWATER, *arguments], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        storage = Path(folder) / "service.db"
        service, admin = start(storage)
        try:
            studies = []
            for user in ("ada", "grace"):
                token = headwater("token", "create", user, "--storage", str(storage)).strip()
                mine = {**admin, "HEADWATER_TOKEN": token}
                told = headwater("submit", str(STUDY), "--trials", "8", "--seed", str(len(studies)), **mine)
                studies.append((told.split()[2].rstrip(";"), mine))
            for study, mine in studies:
                print(headwater("logs", study, "--follow", **mine).splitlines()[0])
                print(headwater("best", study, "--count", "3", **mine))
            print(headwater("queue", "--all", **admin))
        finally:
            service.terminate()
            service.wait()
