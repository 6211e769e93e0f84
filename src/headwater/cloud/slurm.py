"""A cluster whose nodes are jobs of Slurm: each starts a raylet that joins the Ray head of the study.

Nobody but Slurm knows which jobs there are: nodes are listed by `squeue`. The head runs beside the study and ends with
it. Raylets that have lost their head end by themselves after about a minute, and with them their jobs.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from time import time as read_clock

from headwater.cloud.protocol import Node, NodeState
from headwater.cloud.ray_settings import NODE_LABEL, authenticated, read_authentication
from headwater.cloud.raylets import START_RAY, RayHead
from headwater.errors import StudyError

GRACE_S = 60
"""So long before its time limit a job drains its node, and so long may that take."""
LOOK_EVERY_S = 10.0
"""So often is Slurm asked which jobs there are, unless something has changed."""
ANSWER_S = 60.0
"""So long may Slurm take to answer."""
SHORT_S = 60.0
"""A job that has ended after less than this has failed to start its node."""
MOST_SHORT = 3
"""So many of them in a row end the study."""
FIELDS = ("ArrayJobID", "ArrayTaskID", "State", "RestartCnt")
STATES = {"RUNNING": NodeState.RUNNING, "COMPLETING": NodeState.ENDING}
"""What a job is as a node; one in any other state waits in the queue."""
ANYWHERE = ("0.0.0.0", "")
SCRIPT = """#!/bin/bash
# A Ray node of a study. Slurm sends USR1 before the time limit: the node drains, which has all trials leave it with
# their checkpoints saved, and the job is queued again. TERM ends the node at once.
set -m
export {environment} RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S={grace_s}
folder=$(mktemp -d /tmp/hw-XXXXXX)
name="${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}.${{SLURM_RESTART_COUNT:-0}}"
{command} --temp-dir="$folder" --labels={label}="$name" &
node=$!
again=
trap 'again=1; kill -TERM "$node"' USR1
trap 'kill -KILL -- "-$node"' TERM
while kill -0 "$node" 2>/dev/null; do
    wait "$node"
    status=$?
done
kill -KILL -- "-$node" 2>/dev/null
rm -rf "$folder"
[ -z "$again" ] || scontrol requeue "$SLURM_JOB_ID"
exit "$status"
"""


class SlurmCluster:
    """Nodes that are jobs of Slurm, which become part of the cluster as soon as they run.

    Args:
        partition: In which partition; None for Slurm's own choice.
        gres: What each job needs besides a CPU, as Slurm writes it: with `"gpu:2"` it has two GPUs to train on.
        time: How long a job may take, as Slurm writes it: `"4:00:00"`. None for what the partition allows.
        options: Further options of `sbatch`, such as `{"account": "lab", "mem": "8G"}`.
        listen: Where the Ray head of the study listens, as HOST:PORT: an address of this machine that the nodes reach.
            0.0.0.0 stands for the one by which this machine reaches others, port 0 for a free one.
        store_bytes: How large the object store of each node is; None for Ray's own choice.
        clock: What nodes are charged by.

    Raises:
        StudyError: There is no such address.
    """

    def __init__(  # noqa: PLR0913 - what a job is made of
        self,
        partition: str | None = None,
        *,
        gres: str | None = None,
        time: str | None = None,
        options: Mapping[str, str] | None = None,
        listen: str = "0.0.0.0:0",
        store_bytes: int | None = None,
        clock: Callable[[], float] = read_clock,
    ) -> None:
        given = {"partition": partition, "gres": gres, "time": time, **(options or {})}
        self._options = {name: str(value) for name, value in given.items() if value is not None}
        self._host, self._port = _read_address(listen)
        self._num_gpus = _count_gpus(self._options.get("gres", ""))
        self._store_bytes = store_bytes
        self._clock = clock
        self._study = ""
        self._environment: dict[str, str] = {}
        self._former: Mapping[str, str | None] = {}
        """What this process had in its environment before the cluster was started."""
        self._head: RayHead | None = None
        self._arrays: list[str] = []
        self._released: set[str] = set()
        """The jobs that were cancelled."""
        self._nodes: dict[str, Node] = {}
        self._look_s = 0.0
        self._num_short = 0
        """How many jobs in a row have ended after a short time."""

    @property
    def kind(self) -> str:
        """What its nodes have to train on, "cpu" or "cuda"."""
        return "cuda" if self._num_gpus else "cpu"

    def start(self, study: str) -> str:
        """Start the head on this machine, and return its address.

        Only processes that have its token can use the cluster: the jobs have it in their script, and this process in
        its environment until `close`.

        Raises:
            StudyError: It does not answer, or there is no Slurm.
        """
        _find_program("sbatch")
        self._study = study
        token = authenticated(secrets.token_hex(32))
        self._head = RayHead(study, self._host, self._port, store_bytes=self._store_bytes, environment=token)
        self._former = read_authentication()
        os.environ.update(token)
        self._environment = token
        return self._head.address

    def list_nodes(self) -> list[Node]:
        """Return the jobs that wait or run, as Slurm had them a few seconds ago at most."""
        now_s = self._clock()
        if self._arrays and now_s >= self._look_s:
            self._look(now_s)
        return list(self._nodes.values())

    def launch(self, count: int, *, on_demand: bool = False) -> int:
        """Queue an array of so many jobs.

        Raises:
            StudyError: Slurm refuses it, or the jobs before have all ended at once.
        """
        if self._num_short >= MOST_SHORT:
            raise StudyError(
                f"{self._num_short} jobs of Slurm in a row have ended within {SHORT_S:.0f} s, the last of the array "
                f"{self._arrays[-1]}, and something is left to be trained; see what they say in "
                f"slurm-{self._arrays[-1]}_*.out, mend that, and resume the study"
            )
        own = {
            "job-name": f"headwater-{self._study}",
            "ntasks": "1",
            "signal": f"B:USR1@{GRACE_S}",
            "open-mode": "append",
        }
        named = [f"--{name}={value}" for name, value in {**own, **self._options}.items()]
        command = ["sbatch", "--parsable", f"--array=0-{count - 1}", "--requeue", *named]
        self._arrays.append(_ask(command, self.write_script()).strip().partition(";")[0])
        self._look_s = 0.0
        return count

    def release(self, nodes: Sequence[Node]) -> None:
        """Cancel the jobs of these nodes."""
        jobs = {_name_job(node.id) for node in nodes} - self._released
        for node in nodes:
            self._nodes.pop(node.id, None)
        self._released |= jobs
        _cancel(sorted(jobs))

    def close(self) -> None:
        """Cancel all jobs, and end the head."""
        _cancel(self._arrays)
        self._arrays.clear()
        self._nodes.clear()
        if self._head is not None:
            self._head.close()
            self._head = None
            _restore(self._former)

    def write_script(self) -> str:
        """Return what each job runs."""
        assert self._head is not None
        own = f"--num-gpus={self._num_gpus}" if self._num_gpus else "--num-cpus=1"
        # Ports that the system chooses: other users have Ray nodes on the same machines.
        options = [f"--address={self._head.address}", own, "--min-worker-port=0", "--max-worker-port=0"]
        options += [] if self._store_bytes is None else [f"--object-store-memory={self._store_bytes}"]
        options += [f"--node-ip-address={self._host}"] if ip_address(self._host).is_loopback else []
        environment = shlex.join(f"{name}={value}" for name, value in self._environment.items())
        command = shlex.join([*START_RAY, *options])
        return SCRIPT.format(environment=environment, grace_s=GRACE_S, command=command, label=NODE_LABEL)

    def _look(self, now_s: float) -> None:
        self._look_s = now_s + LOOK_EVERY_S
        wanted = ",".join(f"{name}:|" for name in FIELDS)
        try:
            lines = _ask(["squeue", "--noheader", "--array", "--me", f"--Format={wanted}"]).splitlines()
        except StudyError:  # Slurm's controller is away for a moment: trials go on, and it is asked again
            return
        nodes: dict[str, Node] = {}
        jobs = set()
        for array, task, state, num_restarts in (line.strip().split("|")[: len(FIELDS)] for line in lines):
            job = f"{array}_{task}"
            if array in self._arrays and job not in self._released:
                jobs.add(job)
                name = f"{job}.{num_restarts}"  # a job that is queued again comes back as another node
                nodes[name] = self._see(name, STATES.get(state, NodeState.QUEUED), now_s)
        for name, node in self._nodes.items():
            if _name_job(name) not in jobs:
                is_short = node.state is NodeState.QUEUED or now_s - node.launched_s < SHORT_S
                self._num_short = self._num_short + 1 if is_short else 0
        self._nodes = nodes

    def _see(self, name: str, state: NodeState, now_s: float) -> Node:
        before = self._nodes.get(name)
        return Node(
            id=name,
            instance="slurm",
            num_devices=self._num_gpus or 1,
            state=state,
            launched_s=now_s if before is None or before.state is NodeState.QUEUED else before.launched_s,
            study=self._study,
        )


def _read_address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    try:
        return _find_own_address() if host in ANYWHERE else socket.gethostbyname(host), int(port)
    except (OSError, ValueError) as error:
        raise StudyError(
            f"listen is {listen!r}; it must be HOST:PORT, an address of this machine that the nodes reach, such as "
            "login-1:6380, and port 0 for a free one"
        ) from error


def _find_own_address() -> str:
    """Return the address of this machine from which it would reach others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address that is reserved for documentation
        except OSError:  # there is no network
            return socket.gethostbyname(socket.gethostname())
        return str(probe.getsockname()[0])


def _count_gpus(gres: str) -> int:
    """Return how many GPUs a job has, by what Slurm calls `gpu`, `gpu:2` or `gpu:a100:2`."""
    for one in gres.split(","):
        name, *rest = one.split(":")
        if name == "gpu":
            return int(rest[-1]) if rest and rest[-1].isdecimal() else 1
    return 0


def _name_job(node: str) -> str:
    """Return what Slurm calls the job of a node."""
    return node.rpartition(".")[0]


def _cancel(jobs: Sequence[str]) -> None:
    """Cancel jobs, of which some may have ended."""
    if jobs:
        with suppress(StudyError):  # without the head they end by themselves; no study fails for that
            _ask(["scancel", "--quiet", *jobs])


def _restore(environment: Mapping[str, str | None]) -> None:
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _find_program(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise StudyError(f"{name} is not on this machine; run the study where jobs of Slurm are submitted")
    return program


def _ask(command: Sequence[str], text: str = "") -> str:
    """Run a program of Slurm, and return what it prints.

    Raises:
        StudyError: It is not there, or refuses.
    """
    program = _find_program(command[0])
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
