"""The connection to a Ray cluster. This is the one module that imports Ray."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from headwater.cloud.protocol import Node, NodeState
from headwater.cloud.ray_settings import NODE_LABEL, QUICK_TO_NOTICE, without_statistics
from headwater.errors import StudyError

Ref: TypeAlias = Any  # Any: Ray has no types that could be checked without it


def connect(address: str | None, num_workers: int | None) -> bool:
    """Have this process connected to a cluster; tell whether it was not before."""
    ray = import_ray()
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here) and not str(address).startswith("ray://"):
            raise StudyError(
                f"address is {address!r}, but this process is connected to the Ray cluster at {here}; give that, or "
                "call ray.shutdown() first"
            )
        return False
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}  # Any: what Ray takes
    if address is None:
        num_cpus = num_workers or len(os.sched_getaffinity(0))
        settings |= {"num_cpus": num_cpus, "include_dashboard": False, "_system_config": QUICK_TO_NOTICE}
    _read_authentication_again()
    try:
        with without_statistics():
            ray.init(address=address or "local", **settings)
    except ConnectionError as error:
        raise StudyError(
            f"there is no Ray cluster at {address!r}: {error}; start one with `ray start --head`, or leave the address "
            "out to have one on this machine for the time of the study"
        ) from error
    return True


def _read_authentication_again() -> None:
    """Have Ray read RAY_AUTH_MODE and RAY_AUTH_TOKEN now: it keeps those of an earlier cluster of this process."""
    raylet = import_ray()._raylet
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def list_draining_nodes() -> set[str]:
    """Return the ids of the nodes that are about to go: `ray start` drains its node when it is sent SIGTERM."""
    if import_ray().util.client.ray.is_connected():
        return set()  # a client is not told
    from ray._private.state import state

    return set(state.get_draining_nodes())


def find_address() -> str:
    """Return where other processes reach the cluster that this one is connected to."""
    return str(import_ray().get_runtime_context().gcs_address)


def disconnect() -> None:
    """End the connection, and the cluster if it was started for it."""
    import_ray().shutdown()


def name_node(about: Mapping[str, Any]) -> str:  # Any: as Ray describes nodes
    """Return what the cluster that a node comes from calls it."""
    return str(about.get("Labels", {}).get(NODE_LABEL, about["NodeID"]))


def list_ray_nodes(kind: str) -> list[Node]:
    """Return the nodes of the cluster that have devices of a kind and are not its head, charged from when Ray says."""
    resource = "CPU" if kind == "cpu" else "GPU"
    return [
        Node(
            id=name_node(about),
            instance="ray",
            num_devices=int(about["Resources"][resource]),
            state=NodeState.RUNNING,
            launched_s=time.time(),
        )
        for about in import_ray().nodes()
        if about["Alive"] and about["Resources"].get(resource) and "node:__internal_head__" not in about["Resources"]
    ]


def request_bundles(bundles: Sequence[Mapping[str, float]]) -> None:
    """Have Ray's autoscaler see to it that there is room for these, until something else is asked for."""
    import_ray()
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=[dict(bundle) for bundle in bundles])


def import_ray() -> Any:  # Any: the module, which has no types
    """Return Ray.

    Raises:
        StudyError: It is not there.
    """
    try:
        import ray
        import ray.exceptions
        import ray.util.client
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise StudyError(
            "training on Ray or on jobs of Slurm needs Ray; install it with pip install 'headwater[ray]'"
        ) from error
    return ray
