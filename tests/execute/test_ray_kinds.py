"""Of which kind the devices of a node of a Ray cluster are."""

from __future__ import annotations

import pytest

from headwater.execute.ray_cluster import name_kind


@pytest.mark.parametrize(
    ("kind", "resources", "expected"),
    [
        ("cuda", {"GPU": 8.0, "accelerator_type:V100": 1.0}, "cuda V100"),
        ("cuda", {"GPU": 8.0, "accelerator_type:A100": 1.0}, "cuda A100"),
        ("cuda", {"GPU": 8.0}, "cuda"),
        ("cpu", {"CPU": 64.0, "accelerator_type:A100": 1.0}, "cpu"),
    ],
)
def test_gpus_of_unlike_types_are_of_unlike_kinds(kind: str, resources: dict[str, float], expected: str) -> None:
    assert name_kind(kind, resources) == expected
