"""Studies on EC2 that are killed at random moments: what is left at the kill, and after the lease.

    python benchmarks/ec2_kills.py [--kills 20] [--seed 0] [--write]

EC2 is moto's server on loopback, asked over HTTP; no account and no network is used. Two kinds of process are killed
with SIGKILL: whole studies (`Study.run` by a plan, with a Ray head of this machine), which ask for instances at their
start and then wait, and ones that launch, list and release instances without a pause, so that kills fall into requests.
What a watchdog on each real instance does when its lease has passed, `sweep` does here.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import ray  # noqa: F401 - so that those that are forked need not wait for it
import torch
from torch import nn

import headwater as hw
from headwater.cloud.ec2 import (
    LEASE_S,
    LEASE_TAG,
    RUN_TAG,
    STUDY_TAG,
    Ec2Cluster,
    Ec2Settings,
    end_instances,
    list_instances,
    open_client,
)
from headwater.cloud.protocol import Node
from headwater.plan.jobs import EpochSeconds, Instance, Job, JobStage

IMAGE = "ami-12c6146b"
"""One that moto knows."""
TWICE = 2.0
"""Kills come at most so many times later than the first instance of a process that is left alone."""
MOST_S = 120.0
"""So long may the first instance take."""
TAGS = {STUDY_TAG, LEASE_TAG, RUN_TAG}
JOB = Job(
    stages=[JobStage(num_trials=9, num_epochs=1), JobStage(num_trials=3, num_epochs=3)],
    epoch_seconds=EpochSeconds(by_devices={1: 60.0}),
    instance=Instance(num_devices=1, dollars_per_hour=3.06, initialise_s=30.0),
)
TABLE = Path(__file__).with_suffix(".md")


Act: TypeAlias = Callable[[Ec2Settings, str, Any], None]  # Any: a pipe, at which it tells that it has begun


@dataclass(frozen=True, slots=True)
class Victim:
    kind: str
    act: Act
    settings: Ec2Settings
    after_s: float


@dataclass(frozen=True, slots=True)
class Kill:
    kind: str
    after_s: float
    num_launched: int
    num_left: int
    num_untagged: int
    num_before_lease: int
    """How many a sweep ends while the lease still holds: it must be none."""


def sweep(client: Any, now_s: float, study: str | None = None) -> list[Node]:
    """Terminate the instances whose leases have passed, and return them."""
    expired = [node for node in list_instances(client, study) if node.lease_s is None or node.lease_s < now_s]
    end_instances(client, [node.id for node in expired])
    return expired


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rng, kills = Random(options.seed), []
    with serve_ec2(), start_head() as head:
        client = open_client()
        settings = Ec2Settings(image=IMAGE, instance="c5.large", head=head)
        for kind, act in (("study", run_study), ("requests", make_requests)):
            with begin(act, settings, kind) as process:
                first_s = await_instance(client, process)
            for number in range(options.kills):
                kills.append(kill_one(client, Victim(kind, act, settings, rng.uniform(0.0, TWICE * first_s))))
                print(f"{kind} {number}: {kills[-1]}", file=sys.stderr, flush=True)
        sweep(client, time.time() + LEASE_S + 1)
        text = draw(kills, len(list_live(client)))
    print(text)
    if options.write:
        TABLE.write_text(text, encoding="utf-8")
    if list_problems(kills):
        sys.exit("an instance was untagged, or ended before its lease")


def kill_one(client: Any, victim: Victim) -> Kill:
    """Start a process, kill it, and see what is there."""
    before = {about["InstanceId"] for about in describe(client)}
    name = f"{victim.kind}-{len(before)}-{victim.after_s}"
    with begin(victim.act, victim.settings, name) as process:
        process.join(victim.after_s)
        assert process.exitcode is None, "it ended by itself"
    own = [about for about in describe(client) if about["InstanceId"] not in before]
    left = [about for about in own if is_live(about)]
    untagged = [about for about in own if not {tag["Key"] for tag in about.get("Tags", [])} >= TAGS]
    ended = sweep(client, time.time(), name)  # its own: leases of those before may have passed by now
    return Kill(victim.kind, victim.after_s, len(own), len(left), len(untagged), len(ended))


@contextmanager
def begin(act: Act, settings: Ec2Settings, name: str) -> Iterator[BaseProcess]:
    """Start a process, and kill it in the end."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=act, args=(settings, name, theirs))
    process.start()
    try:
        assert ours.poll(MOST_S), "the process did not begin"
        yield process
    finally:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()


def await_instance(client: Any, process: BaseProcess) -> float:
    """Return after how long the first instance is there."""
    begin_s, before = time.monotonic(), len(describe(client))
    while len(describe(client)) == before:
        assert process.exitcode is None, "it ended by itself"
        assert time.monotonic() < begin_s + MOST_S, "it has launched nothing"
        time.sleep(0.02)
    return time.monotonic() - begin_s


def run_study(settings: Ec2Settings, name: str, pipe: Any) -> None:
    """Run a study whose nodes are asked for and never join, as those of real instances do not for minutes."""
    os.chdir(tempfile.mkdtemp(prefix="hw-kills-"))
    executor = hw.ElasticExecutor(Ec2Cluster(settings), JOB, deadline_s=600.0)
    study = hw.Study(
        train,
        space={"lr": hw.loguniform(1e-3, 0.5)},
        metric="loss",
        search=hw.search.SHA(reduction=3),
        name=name,
        max_epochs=4,
        executor=executor,
        storage="study.db",
    )
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - as long as the process lives
    pipe.send("begun")
    study.run(num_trials=9)


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Linear(4, 1))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(4):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        trial.report(loss=loss)


def make_requests(settings: Ec2Settings, name: str, pipe: Any) -> None:
    """Launch, list and release without a pause."""
    cluster = Ec2Cluster(settings)
    cluster.start(name)
    pipe.send("begun")
    while True:
        cluster.launch(2)
        nodes = cluster.list_nodes()
        cluster.release(nodes[: len(nodes) // 2])


@contextmanager
def serve_ec2() -> Iterator[None]:
    """Let moto play EC2 on loopback, with credentials that only it accepts."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    try:
        yield
    finally:
        server.stop()


@contextmanager
def start_head() -> Iterator[str]:
    cluster = hw.LocalCluster()
    try:
        yield cluster.start("kills")
    finally:
        cluster.close()


def describe(client: Any) -> list[Mapping[str, Any]]:
    pages = client.get_paginator("describe_instances").paginate()
    return [one for page in pages for held in page["Reservations"] for one in held["Instances"]]


def list_live(client: Any) -> list[Mapping[str, Any]]:
    return [about for about in describe(client) if is_live(about)]


def is_live(about: Mapping[str, Any]) -> bool:
    return bool(about["State"]["Name"] not in ("terminated", "shutting-down"))


def list_problems(kills: list[Kill]) -> list[Kill]:
    return [kill for kill in kills if kill.num_untagged or kill.num_before_lease]


def draw(kills: list[Kill], num_after: int) -> str:
    lines = [
        "# Studies on EC2 that are killed",
        "",
        "`python benchmarks/ec2_kills.py --write`: SIGKILL at random moments, against moto's server on loopback.",
        f"{os.cpu_count()} cores, with a load of {os.getloadavg()[2]:.0f}.",
        "",
        "| killed | after | launched | left at the kill | without tags | ended before the lease |",
        "|---|---|---|---|---|---|",
    ]
    for kill in kills:
        counts = (kill.num_launched, kill.num_left, kill.num_untagged, kill.num_before_lease)
        lines.append(f"| {kill.kind} | {kill.after_s:.2f} s | {' | '.join(map(str, counts))} |")
    left, launched = sum(kill.num_left for kill in kills), sum(kill.num_launched for kill in kills)
    lines += [
        "",
        f"{len(kills)} kills; {launched} instances launched, {left} left at the kills. "
        f"**Left after the lease of {LEASE_S:.0f} s: {num_after}.**",
        "",
        "A study asks for its instances at the start and then waits for them, which takes minutes on real ones, so its",
        "kills fall before a node has joined: at most twice as late as its first instance came when it was left alone.",
        "In rows of requests, a process launches, lists and releases without a pause. After the lease, `sweep` ends",
        "what is left here; on real instances a watchdog does (`tests/cloud/test_watchdog.py`).",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
