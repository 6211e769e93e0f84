"""A real Ray cluster of two nodes that train, on this machine."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.cloud.raylets import Raylet

DEADLINE_S = 120
STORE_BYTES = 100 << 20
QUICK_TO_NOTICE = {
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
    "health_check_initial_delay_ms": 0,
}


@contextmanager
def open_cluster(temporary: Path | None = None) -> Iterator[Any]:  # Any: Ray has no types
    """Start two nodes that train, and one that this process is connected to, with this place for temporary files."""
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        if temporary is not None:
            patch.setenv("TMPDIR", str(temporary))
            patch.setenv("RAY_TMPDIR", "/tmp")  # its sockets bear no long path
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args=head | {"_system_config": QUICK_TO_NOTICE})
        try:
            for _ in range(2):
                add_node(cluster)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def add_node(cluster: Any) -> None:  # Any: as above
    """Start one more node that trains."""
    cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)


def count_reserved() -> int:
    """Count the placement groups that are not given back."""
    import ray

    return sum(group["state"] != "REMOVED" for group in ray.util.placement_group_table().values())


def await_truth(is_so: Callable[[], bool]) -> None:
    """Wait until something is so; a test that waits in vain fails."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline


@contextmanager
def open_autoscaled(folder: Path) -> Iterator[str]:
    """Start a head without CPUs whose autoscaler launches real raylets with one each, and return its address.

    The provider is Ray's own for tests; all else is what a cluster in a cloud has.
    """
    import ray
    from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID

    address = ray.util.get_node_ip_address()
    with socket.create_server((address, 0)) as server:
        port = server.getsockname()[1]
    provider = {"type": "fake_multinode", "use_node_id_as_ip": True, "gcs_address": f"{address}:{port}"}
    lists = ("cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands", "setup_commands")
    more = ("head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands")
    config = {
        **{name: [] for name in (*lists, *more)},
        **{name: {} for name in ("auth", "docker", "file_mounts")},
        "file_mounts_sync_continuously": False,
        "cluster_name": "autoscaled",
        "max_workers": 4,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.05,
        "provider": provider | {"disable_node_updaters": True, "disable_launch_config_check": True},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {
                "resources": {"CPU": 1, "object_store_memory": STORE_BYTES},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 3,
            },
        },
    }
    (folder / "autoscaler.json").write_text(json.dumps(config))
    temporary = tempfile.mkdtemp(prefix="hw-", dir="/tmp")
    options = [
        *("--head", "--block", "--num-cpus=0", "--include-dashboard=false", f"--port={port}"),
        *(f"--node-ip-address={address}", f"--object-store-memory={STORE_BYTES}", f"--temp-dir={temporary}"),
        f"--autoscaling-config={folder / 'autoscaler.json'}",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        own = {
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_FAKE_CLUSTER": "1",
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
        }
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
        raylet = Raylet("autoscaled", "head", command, folder / "head.log", own)
        try:
            await_truth(lambda: "Ray runtime started" in (folder / "head.log").read_text())
            yield f"{address}:{port}"
        finally:
            raylet.end()
            raylet.wait()
            shutil.rmtree(temporary, ignore_errors=True)
