"""A Job of Kubernetes whose pods are workers that join a study."""

from __future__ import annotations

from typing import Any

SECRET = "headwater-join-key"
KEY_FOLDER = "/etc/headwater"
KEY_NAME = "join.key"
GRACE_S = 300
"""So long has a pod that is to go until its next report."""


def write_job(url: str, image: str, *, device: str = "cpu", num_workers: int = 1) -> str:
    """Return the manifest as YAML, with how to use it.

    A pod that is evicted leaves at its next report and does not count as a failure. When the study ends, the pods end
    well, and with them the Job.
    """
    import yaml

    notes = (
        f"# Workers that join the study at {url}; the pods must reach it there. Its key becomes a secret with\n"
        f"#   kubectl create secret generic {SECRET} --from-file={KEY_NAME}=$HOME/.config/headwater/{KEY_NAME}\n"
    )
    return notes + str(yaml.safe_dump(describe_job(url, image, device, num_workers), sort_keys=False))


def describe_job(url: str, image: str, device: str, num_workers: int) -> dict[str, Any]:  # Any: JSON values
    """Return the Job as Kubernetes writes it."""
    resource = "cpu" if device == "cpu" else "nvidia.com/gpu"
    command = ["headwater", "worker", "--join", url, "--key-file", f"{KEY_FOLDER}/{KEY_NAME}", "--device", device]
    container = {
        "name": "worker",
        "image": image,
        "command": command,
        "resources": {"requests": {resource: "1"}, "limits": {resource: "1"}},
        "volumeMounts": [{"name": "key", "mountPath": KEY_FOLDER, "readOnly": True}],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "key", "secret": {"secretName": SECRET, "defaultMode": 0o400}}],
    }
    labels = {"app.kubernetes.io/name": "headwater-worker"}
    evicted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "headwater-worker", "labels": labels},
        "spec": {
            "parallelism": num_workers,
            "backoffLimit": 6,
            "podFailurePolicy": {"rules": [evicted]},
            "template": {"metadata": {"labels": dict(labels)}, "spec": pod},
        },
    }
