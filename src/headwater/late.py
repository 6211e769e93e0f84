"""Names of a package whose modules are imported when one of them is first asked for.

A worker process and most verbs of the command need a few modules of packages that import far more, such as a database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def load_late(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package; `homes` maps each name to a module of the package, or to a full name."""

    def find(name: str) -> Any:  # Any: whatever the name stands for
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        return getattr(import_module(home if home.startswith("headwater.") else f"{package}.{home}"), name)

    return find
