"""YAML files that a user writes: read as plain values, and no name twice, of which YAML would keep the last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def read_yaml(path: Path) -> Any:  # Any: whatever the file holds
    """Return what a file holds.

    Raises:
        OSError: It cannot be read.
        UnicodeDecodeError: It is no text.
        yaml.YAMLError: It is no YAML, or has a name twice.
    """
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueLoader)


class _UniqueLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{name[1]!r} is there twice", node.start_mark)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping
