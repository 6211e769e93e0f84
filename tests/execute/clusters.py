"""A real Ray cluster of two nodes that train, on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

DEADLINE_S = 120
STORE_BYTES = 100 << 20
QUICK_TO_NOTICE = {
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
    "health_check_initial_delay_ms": 0,
}


@contextmanager
def open_cluster() -> Iterator[Any]:  # Any: Ray has no types
    """Start two nodes that train, and one that this process is connected to."""
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
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
