"""The executor of a Slurm cluster: jobs of an array are Ray nodes on which a study trains."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.cloud.slurm import SlurmCluster
from headwater.execute.elastic_executor import ElasticExecutor

NEVER_S = 1e9
"""Jobs stay until the study ends: to have one again may take hours."""


class SlurmExecutor(ElasticExecutor):
    """Trains on Ray nodes that Slurm starts: an array of jobs, which are used as soon as they run.

    Args:
        partition: In which partition; None for Slurm's own choice.
        gres: What each job needs besides a CPU, as Slurm writes it: `"gpu:1"`, with which it trains on a GPU.
        time: How long a job may take, as Slurm writes it: `"4:00:00"`. A minute before, its trials leave it with
            their checkpoints saved, and it is queued again. None for what the partition allows.
        max_workers: How many jobs to have.
        options: Further options of `sbatch`, such as `{"account": "lab", "mem": "8G"}`.
        listen: Where the Ray head of the study listens, as HOST:PORT: an address of this machine that the nodes reach.
            0.0.0.0 stands for the one by which this machine reaches others, port 0 for a free one.
        store_bytes: How large the object store of each node is; None for Ray's own choice.

    The jobs are cancelled when the study ends. If it dies, they end by themselves when they cannot reach it.
    """

    def __init__(  # noqa: PLR0913 - what a job is made of
        self,
        partition: str | None = None,
        *,
        gres: str | None = None,
        time: str | None = None,
        max_workers: int = 2,
        options: Mapping[str, str] | None = None,
        listen: str = "0.0.0.0:0",
        store_bytes: int | None = None,
    ) -> None:
        cluster = SlurmCluster(partition, gres=gres, time=time, options=options, listen=listen, store_bytes=store_bytes)
        super().__init__(cluster, num_nodes=max_workers, idle_s=NEVER_S, kind=cluster.kind)
