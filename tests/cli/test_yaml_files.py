"""YAML files of users: values, and no name twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from headwater.cli.yaml_files import read_yaml


def test_values_and_merged_names_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("base: &base {a: 1, b: 2}\nown: {<<: *base, b: 3}\n")
    assert read_yaml(path) == {"base": {"a": 1, "b": 2}, "own": {"a": 1, "b": 3}}


def test_a_name_that_is_there_twice_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\nb: {c: 1, c: 2}\n")
    with pytest.raises(yaml.YAMLError, match=r"'c' is there twice(?s:.)*line 2"):
        read_yaml(path)
