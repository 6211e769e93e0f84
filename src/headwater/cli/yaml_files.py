"""YAML files that a user writes: read as plain values, and no name twice, of which YAML would keep the last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from headwater.plain_files import read_plain

LARGEST_FILE = 2**20
"""Bytes of a file. PyYAML takes about 10 s for so many."""
LARGEST_WHOLE = 10**300
MOST_VALUES, DEEPEST = 100_000, 50
"""An alias counts as often as it is used: a short file can stand for more values than fit into memory."""


def read_yaml(path: Path) -> Any:  # Any: whatever the file holds
    """Return what a file holds.

    Raises:
        OSError: It is no file, is too large, or cannot be read.
        UnicodeDecodeError: It is no text.
        yaml.YAMLError: It is no YAML, or has a name twice, or holds too much.
    """
    loader = _UniqueLoader(read_plain(path, LARGEST_FILE).decode("utf-8"))
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _require_bounded(node)
        return loader.construct_document(node)
    except RecursionError:
        raise _TOO_DEEP from None
    except ValueError as error:  # a date or a number that Python cannot hold
        raise yaml.YAMLError(str(error)) from error
    finally:
        loader.dispose()


_TOO_DEEP = yaml.YAMLError(f"it is nested more than {DEEPEST} times")


def _require_bounded(root: yaml.Node) -> None:
    """Refuse a file whose aliases lead back to themselves, or stand for too much together."""
    open_nodes, num_values = [(root, 0)], 0
    while open_nodes:
        node, depth = open_nodes.pop()
        num_values += 1
        if depth > DEEPEST:
            raise _TOO_DEEP
        if num_values > MOST_VALUES:
            raise yaml.YAMLError(f"it holds more than {MOST_VALUES:,} values, with what its aliases stand for")
        if isinstance(node, yaml.MappingNode):
            open_nodes += [(part, depth + 1) for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            open_nodes += [(part, depth + 1) for part in node.value]


class _UniqueLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        number: int = super().construct_yaml_int(node)
        if abs(number) >= LARGEST_WHOLE:  # which Python may refuse to write in a message
            raise yaml.constructor.ConstructorError(None, None, "a number has hundreds of digits", node.start_mark)
        return number

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = set()
        for key, _ in node.value:
            name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
            if name in names:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is there twice", node.start_mark)
            if name is not None:
                names.add(name)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


_UniqueLoader.add_constructor("tag:yaml.org,2002:int", _UniqueLoader.construct_yaml_int)
