"""YAML files of users: values, and no name twice."""

from __future__ import annotations

import os
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


ALIASES = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 10)}]\n" for i in range(10))
MERGES = "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 10))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ALIASES, "more than 100,000 values"),
        (f"a0: &a0 {{b: 1}}\n{MERGES}", "more than 100,000 values"),
        ("a: &a [*a]", "nested more than 50 times"),
        ("[" * 2000, "nested more than 50 times"),
        ("{a: " * 200 + "}" * 200, "nested more than 50 times"),
        ("a: 2020-99-99", "month must be in"),
        (f"a: {'9' * 5000}", "4300 digits"),
        (f"a: 0x{'f' * 5000}", "hundreds of digits"),
        (f"a: {':'.join(['59'] * 3000)}", "hundreds of digits"),
    ],
    ids=["aliases", "merges", "alias of itself", "deep list", "deep names", "date", "digits", "hexadecimal", "base 60"],
)
def test_a_file_that_holds_too_much_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(yaml.YAMLError, match=told):
        read_yaml(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(OSError, match="more than 1,048,576 bytes"):
        read_yaml(path)
