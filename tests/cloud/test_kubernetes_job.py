"""The Job of Kubernetes that runs workers, as its schema wants it; no cluster has run it."""

from __future__ import annotations

import copy

import kubernetes_validate
import pytest
import yaml

from headwater.cloud.kubernetes_job import KEY_FOLDER, KEY_NAME, describe_job, write_job

URL = "tcp://lab-3:7700"
VERSIONS = ["1.31", kubernetes_validate.latest_version()]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_manifest_is_what_the_schema_of_kubernetes_wants(device: str, version: str) -> None:
    manifest = yaml.safe_load(write_job(URL, "lab/train:1", device=device, num_workers=4))
    kubernetes_validate.validate(manifest, version, strict=True)
    assert manifest["spec"]["parallelism"] == 4


def test_the_schema_would_find_a_field_that_is_misspelt() -> None:
    manifest = copy.deepcopy(describe_job(URL, "lab/train:1", "cpu", 1))
    manifest["spec"]["template"]["spec"]["terminationGracePeriod"] = 300
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


def test_a_pod_runs_a_worker_with_the_key_that_is_mounted() -> None:
    pod = describe_job(URL, "lab/train:1", "cuda", 1)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"][:4] == ["headwater", "worker", "--join", URL]
    assert f"{KEY_FOLDER}/{KEY_NAME}" in container["command"]
    assert container["volumeMounts"][0]["mountPath"] == KEY_FOLDER
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert pod["volumes"][0]["secret"]["defaultMode"] == 0o400
