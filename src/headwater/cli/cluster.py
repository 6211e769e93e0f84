"""The verb `cluster`: which nodes studies have launched, and the end of those that nobody needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape

from headwater.cli.terminal import JsonOption, open_out, print_json, telling_errors
from headwater.cloud.protocol import Node
from headwater.errors import StudyError

ACTIONS = ("ls", "stop", "sweep")
PROVIDERS = ("local", "ec2")


def cluster(
    action: Annotated[
        str, typer.Argument(metavar="[ls|stop|sweep]", help="List them, end them, or end those whose leases are over.")
    ] = "ls",
    study: Annotated[str | None, typer.Option(metavar="NAME", help="Only the nodes of this study.")] = None,
    provider: Annotated[
        str | None, typer.Option(metavar="ec2|local", help="Only the nodes of one provider; by default all.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="With stop: the nodes of all studies.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the nodes that studies have launched, whether or not these still run, or end them.

    Nodes of this machine are found in its process list, instances of EC2 by their tags, with the credentials and the
    region that AWS's own tools use. An instance whose lease has passed belongs to nobody any more.
    """
    with telling_errors():
        if action not in ACTIONS:
            raise StudyError(f"{action!r} is nothing that cluster can do; give one of {', '.join(ACTIONS)}")
        if provider not in (None, *PROVIDERS):
            raise StudyError(f"--provider is {provider!r}; it must be one of {', '.join(PROVIDERS)}")
        if action == "stop" and study is None and not everything:
            raise StudyError("stop ends nodes of studies that may be running; say whose with --study NAME, or --all")
        now_s = time.time()
        nodes = _find_nodes(study, provider)
        if action != "ls":
            chosen = {where: [one for one in some if action == "stop" or _is_over(one, now_s)] for where, some in nodes}
            _end_nodes(chosen)
            nodes = list(chosen.items())
        rows = [_describe(node, where, now_s) for where, some in nodes for node in some]
        if as_json:
            print_json({"ended" if action != "ls" else "nodes": rows})
        else:
            _show(rows, action)


def _find_nodes(study: str | None, provider: str | None) -> list[tuple[str, list[Node]]]:
    """Return the nodes by where they come from; EC2 is passed over where nobody asked for it and nobody could."""
    from headwater.cloud.ec2 import has_credentials, list_instances, open_client
    from headwater.cloud.local_cluster import list_local_nodes

    found = []
    if provider in (None, "local"):
        found.append(("local", list_local_nodes(study)))
    if provider == "ec2" or (provider is None and has_credentials()):
        found.append(("ec2", list_instances(open_client(), study)))
    return found


def _end_nodes(chosen: dict[str, list[Node]]) -> None:
    from headwater.cloud.ec2 import end_instances, open_client
    from headwater.cloud.local_cluster import end_local_nodes

    end_local_nodes(chosen.get("local", []))
    if names := [node.id for node in chosen.get("ec2", [])]:
        end_instances(open_client(), names)


def _is_over(node: Node, now_s: float) -> bool:
    """Whether the lease of an instance has passed; raylets of this machine have none, for they end with the study."""
    return node.lease_s is not None and node.lease_s < now_s


def _describe(node: Node, provider: str, now_s: float) -> dict[str, Any]:  # Any: JSON values
    return {
        "node": node.id,
        "provider": provider,
        "study": node.study,
        "instance": node.instance,
        "is_spot": node.is_spot,
        "state": node.state.value,
        "seconds": round(now_s - node.launched_s),
        "lease_left_s": None if node.lease_s is None else round(node.lease_s - now_s),
        "is_expired": _is_over(node, now_s),
    }


def _show(rows: Sequence[dict[str, Any]], action: str) -> None:  # Any: as above
    from headwater.report.spending_tables import nodes_table

    if not rows:
        open_out().print("no node is there" if action == "ls" else "no node was to be ended")
        return
    open_out().print(nodes_table(rows))
    if action != "ls":
        open_out().print(escape(f"ended {len(rows)}"))
    elif any(row["is_expired"] for row in rows):
        open_out().print("end those whose leases are over with headwater cluster sweep")
