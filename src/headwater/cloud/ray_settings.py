"""How Ray is started here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

QUICK_TO_NOTICE = {
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
    "health_check_initial_delay_ms": 0,
}
"""With these a node that dies is noticed after one or two seconds, by default after fifteen."""
NODE_LABEL = "headwater-node"
"""The label of a Ray node that says which node of a cluster it is."""
AUTHENTICATION = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")


def authenticated(token: str) -> dict[str, str]:
    """Return the environment of processes of a Ray cluster that only those with this token can use."""
    return dict(zip(AUTHENTICATION, ("token", token), strict=True))


def read_authentication() -> dict[str, str | None]:
    """Return what the environment of this process says of tokens."""
    return {name: os.environ.get(name) for name in AUTHENTICATION}


@contextmanager
def without_statistics() -> Iterator[None]:
    """Have Ray start without telling its makers, unless the user has said what it is to tell."""
    name = "RAY_USAGE_STATS_ENABLED"
    is_said = name in os.environ
    os.environ.setdefault(name, "0")
    try:
        yield
    finally:
        if not is_said:
            del os.environ[name]
