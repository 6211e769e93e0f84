"""Names of a package whose modules are imported when one of them is first asked for.

A worker process needs a few modules of packages that import far more, a database among it, and everybody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def load_late(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return what answers as `__getattr__` of a package; `homes` says which of its modules has which name."""

    def find(name: str) -> Any:  # Any: whatever the name stands for
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find
