"""The executor of a Slurm cluster: one array of jobs, each of which is a worker that joins the study."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headwater.conduct.protocol import Conductor
from headwater.errors import StudyError
from headwater.execute.join_executor import JoinExecutor
from headwater.execute.join_keys import KEY_FILE
from headwater.settings import read_whole
from headwater.trials import Device

GRACE_S = 60
"""So long before its time is over a job is asked to leave."""
LOOK_EVERY_S = 10.0
"""So often is it seen whether there are any jobs left, while no worker is there."""
ANSWER_S = 60.0
"""So long may Slurm take to answer."""
SCRIPT = """#!/bin/bash
# A worker of a study. TERM has it leave at its next report; so has USR1, before its time is over, and queues it again.
{command} &
worker=$!
again=
trap 'kill -TERM "$worker"' TERM
trap 'again=1; kill -USR1 "$worker"' USR1
while kill -0 "$worker" 2>/dev/null; do
    wait "$worker"
    status=$?
done
[ -z "$again" ] || scontrol requeue "$SLURM_JOB_ID"
exit "$status"
"""


class SlurmExecutor:
    """Runs placements on workers that Slurm starts: an array of jobs, which are used as soon as they run.

    Args:
        partition: In which partition; None for Slurm's own choice.
        gres: What each job needs besides a CPU, as Slurm writes it: `"gpu:1"`, with which it trains on a GPU.
        time: How long a job may take, as Slurm writes it: `"4:00:00"`. It leaves a minute before, with everything
            saved, and is queued again. None for what the partition allows.
        max_workers: How many jobs to have.
        options: Further options of `sbatch`, such as `{"account": "lab", "mem": "8G"}`.
        listen: Where workers join, as HOST:PORT; with port 0, the system chooses one. By default on all networks of
            this machine, which the nodes must reach by its name.
        key_file: The file with the key that the study and its workers share; the nodes must see it too.
        clock: What events are stamped with.

    The jobs are cancelled when the study ends. If it dies, they end by themselves when they cannot reach it.
    """

    def __init__(  # noqa: PLR0913 - what a job is made of
        self,
        partition: str | None = None,
        *,
        gres: str | None = None,
        time: str | None = None,
        max_workers: int = 2,
        options: Mapping[str, str] | None = None,
        listen: str = "0.0.0.0:0",
        key_file: str | Path = KEY_FILE,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        given = {"partition": partition, "gres": gres, "time": time, **(options or {})}
        self._options = {name: str(value) for name, value in given.items() if value is not None}
        self._max_workers = read_whole("max_workers", max_workers)
        self._kind = "cuda" if "gpu" in self._options.get("gres", "") else "cpu"
        self._key_file = Path(key_file).expanduser().absolute()
        self._jobs = _Jobs()
        self._join = JoinExecutor(
            listen, key_file=self._key_file, kind=self._kind, clock=clock, see_to_workers=self._jobs.require
        )

    @property
    def kind(self) -> str:
        """What its workers train on, whatever this machine has."""
        return self._kind

    def list_devices(self) -> Sequence[Device]:
        """Return what has joined until now; more may come at any time."""
        return self._join.list_devices()

    def run(self, conductor: Conductor) -> None:
        """Queue the jobs, and run until the conductor has nothing more to place and nothing is under way.

        Raises:
            StudyError: Slurm does not take the jobs, or all of them have ended and something is left to be trained.
        """
        self._jobs.submit(self.write_script(), self._list_options(conductor.name))
        self._join.run(conductor)

    def close(self) -> None:
        """Let all workers go, and cancel the jobs."""
        self._join.close()
        self._jobs.cancel()

    def write_script(self) -> str:
        """Return what each job runs."""
        command = [sys.executable, "-m", "headwater", "worker", "--join", self._join.url]
        command += ["--key-file", str(self._key_file), "--device", self._kind]
        return SCRIPT.format(command=shlex.join(command))

    def _list_options(self, study: str) -> list[str]:
        own = {"job-name": f"headwater-{study}", "ntasks": "1", "signal": f"B:USR1@{GRACE_S}", "open-mode": "append"}
        named = [f"--{name}={value}" for name, value in {**own, **self._options}.items()]
        return [f"--array=0-{self._max_workers - 1}", "--requeue", *named]


class _Jobs:
    """The array of jobs of a study, if it is queued."""

    def __init__(self) -> None:
        self._array: str | None = None
        self._look_s = 0.0

    def submit(self, script: str, options: Sequence[str]) -> None:
        """Queue the array, unless it is."""
        if self._array is None:
            self._array = _ask(["sbatch", "--parsable", *options], script).strip().partition(";")[0]
            self._look_s = time.monotonic() + LOOK_EVERY_S

    def require(self) -> None:
        """See from time to time whether any job is left that could join.

        Raises:
            StudyError: None is.
        """
        if self._array is None or time.monotonic() < self._look_s:
            return
        self._look_s = time.monotonic() + LOOK_EVERY_S
        if self._array not in _ask(["squeue", "--noheader", "--me", "--format=%F"]).split():
            raise StudyError(
                f"all jobs of the Slurm array {self._array} have ended, and something is left to be trained; see what "
                f"they say in slurm-{self._array}_*.out, mend that, and resume the study"
            )

    def cancel(self) -> None:
        """Cancel what is left of the array."""
        if self._array is not None:
            array, self._array = self._array, None
            _ask(["scancel", "--quiet", array])


def _ask(command: Sequence[str], text: str = "") -> str:
    """Run a program of Slurm, and return what it prints.

    Raises:
        StudyError: It is not there, or refuses.
    """
    program = shutil.which(command[0])
    if program is None:
        raise StudyError(f"{command[0]} is not on this machine; run the study where jobs of Slurm are submitted")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_JOB", "SLURM_ARRAY"))}
    try:
        done = subprocess.run(
            [program, *command[1:]],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_S,
            env=inherited,
        )
    except subprocess.TimeoutExpired as error:
        raise StudyError(f"{command[0]} does not answer; see whether Slurm runs with sinfo") from error
    if done.returncode:
        raise StudyError(f"{shlex.join(command)} was refused: {(done.stderr or done.stdout).strip()}")
    return done.stdout
