"""The options by which `run` trains on nodes that come and go by a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.study_stages import follow_plan, list_job_stages
from headwater.errors import StudyError

if TYPE_CHECKING:
    from headwater.cli.plan_sources import Asked
    from headwater.cloud.protocol import Cluster
    from headwater.execute import ElasticExecutor
    from headwater.plan.jobs import Instance, Job, JobStage
    from headwater.study import Study

ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="local|ray|FILE",
        help="Train on nodes that come and go: of this machine, of a Ray cluster, or of EC2 as a YAML file says.",
    ),
]
DeadlineOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="With --cluster: when to be done, such as 90s, 30m or 1h30m.")
]
BudgetOption = Annotated[
    float | None, typer.Option(min=0, metavar="DOLLARS", help="With --cluster: what may be spent; it ends before that.")
]
ProfileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --cluster: a YAML file, what a node costs and how long epochs take."),
]
InstanceOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="With --cluster: what nodes cost, by the catalogue of headwater plan."),
]
NodesOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="With --cluster: how many nodes where there is no plan.")
]
SpotHistoryOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="On spot instances: a JSON file, how many of them could be had when."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What was asked for."""

    cluster: str | None
    deadline: str | None
    budget: float | None
    profile: Path | None
    nodes: int | None
    instance: str | None = None
    spot_history: Path | None = None

    def check(self, executor: str | None, devices: int | None) -> None:
        """Refuse what makes no sense together.

        Raises:
            StudyError: Something does not.
        """
        names = ("deadline", "budget", "profile", "instance", "nodes", "spot_history")
        given = [name for name in names if getattr(self, name) is not None]
        if self.cluster is None and given:
            name = given[0].replace("_", "-")
            raise StudyError(f"--{name} is for a cluster; say which with --cluster local, ray or FILE")
        if self.cluster is None:
            return
        for name, value in (("executor", executor), ("devices", devices)):
            if value is not None:
                raise StudyError(f"--cluster and --{name} both say where to train; give one of them")
        is_priced = self.profile is not None or self.instance is not None
        if not is_priced and (self.budget is not None or self.deadline is not None):
            raise StudyError(
                "--deadline and --budget need to know what a node costs; give --instance NAME, or --profile FILE"
            )
        if self.spot_history is not None and (self.deadline is None or not _asks_for_spot(self.cluster)):
            raise StudyError(
                "--spot-history says when to wait for spot instances; it needs a --deadline, and is_spot: true in the "
                "file of --cluster"
            )


def build_elastic(study: Study, num_trials: int, options: ClusterOptions, file: Path | None = None) -> ElasticExecutor:
    """Return the executor that trains a study on the cluster that is asked for, by a plan where one can be made.

    Raises:
        HeadwaterError: A file cannot be read, or no plan keeps to the limits.
    """
    from headwater.cli.plan_sources import parse_seconds
    from headwater.execute import ElasticExecutor
    from headwater.execute.elastic_executor import FREE
    from headwater.train.running import choose_device

    kind = choose_device(study.device).type
    is_priced = options.profile is not None or options.instance is not None
    stages = list_job_stages(study, num_trials) if is_priced else None
    job = None if stages is None else _find_job(study, stages, options, file)
    instance = job.instance if job is not None else _find_instance(options) if is_priced else FREE
    assert options.cluster is not None
    return ElasticExecutor(
        open_cluster(options.cluster, kind, instance.num_devices),
        job,
        instance=instance,
        deadline_s=None if options.deadline is None else parse_seconds(options.deadline),
        budget_dollars=options.budget,
        num_nodes=options.nodes or 1,
        kind=kind,
    )


def set_elastic(study: Study, num_trials: int, options: ClusterOptions, file: Path) -> Study:
    """Return a study as it trains on the cluster that is asked for: by a plan, where one can be made.

    Raises:
        HeadwaterError: A file cannot be read, or no plan keeps to the limits.
    """
    executor = build_elastic(study, num_trials, options, file)
    return replace(follow_plan(study) if executor.is_planned else study, executor=executor)


def open_cluster(name: str, kind: str, num_devices: int) -> Cluster:
    """Return the cluster of this name, or the one that a file describes.

    Raises:
        StudyError: There is no such cluster.
    """
    from headwater.cloud.local_cluster import LocalCluster
    from headwater.cloud.ray_autoscaler import AutoscaledCluster
    from headwater.execute.ray_connection import list_ray_nodes
    from headwater.execute.resource_requests import ResourceRequests

    if name == "local":
        return LocalCluster(num_devices)
    word, _, address = name.partition(":")
    if word == "ray":
        look = partial(list_ray_nodes, kind)
        return AutoscaledCluster(
            ResourceRequests(), look, address=address or "auto", num_devices=num_devices, kind=kind
        )
    if not Path(name).is_file():
        raise StudyError(
            f"--cluster is {name!r}; it must be local, ray, ray:ADDRESS, or a YAML file with provider: ec2, which "
            "docs/cluster.md describes"
        )
    return _open_ec2(Path(name), kind, num_devices)


def _open_ec2(path: Path, kind: str, num_devices: int) -> Cluster:
    from headwater.cloud.ec2 import Ec2Cluster, Ec2Settings

    return Ec2Cluster(Ec2Settings(kind=kind, num_devices=num_devices, **_read_ec2(path)))


def _asks_for_spot(cluster: str | None) -> bool:
    """Tell whether nodes are spot instances, which have a price of their own."""
    is_file = cluster is not None and cluster != "local" and Path(cluster).is_file()
    return is_file and bool(_read_ec2(Path(cluster or "")).get("is_spot"))


def _read_ec2(path: Path) -> dict[str, Any]:  # Any: what a YAML file holds
    import yaml

    from headwater.cli.yaml_files import read_yaml
    from headwater.cloud.ec2 import Ec2Settings

    try:
        content = read_yaml(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StudyError(f"the cluster {str(path)!r} cannot be read: {' '.join(str(error).split())}") from error
    known = [field.name for field in fields(Ec2Settings) if field.name not in ("kind", "num_devices")]
    given = dict(content) if isinstance(content, Mapping) else {}
    if given.pop("provider", None) != "ec2" or not {"image", "instance", "head"} <= given.keys() <= set(known):
        raise StudyError(
            f"the cluster {str(path)!r} needs provider: ec2, image, instance and head, and may have "
            f"{', '.join(name for name in known if name not in ('image', 'instance', 'head'))}"
        )
    return _read_settings(given)


def _read_settings(given: Mapping[str, Any]) -> dict[str, Any]:  # Any: what a YAML file holds
    kinds = {"is_spot": bool, "lease_s": float, "security_groups": tuple}
    try:
        return {key: kinds.get(key, str)(value) for key, value in given.items() if value is not None}
    except (TypeError, ValueError) as error:
        raise StudyError(f"the cluster's settings make no sense: {error}") from error


def _find_job(study: Study, stages: list[JobStage], options: ClusterOptions, file: Path | None) -> Job:
    """Return what to plan: times from the profile, or else from the record of an earlier study of the file."""
    from headwater.cli.plan_sources import collect_sources

    text = ",".join(f"{stage.num_trials}x{stage.num_epochs}" for stage in stages)
    is_recalled = options.profile is None
    asked = _ask(options, file=file if is_recalled else None, stages=None if is_recalled else text)
    search = study.search if isinstance(study.search, str) else None
    storage = None if study.storage is None else str(study.storage)
    sources = collect_sources(replace(asked, search=search, storage=storage, max_epochs=study.max_epochs))
    return replace(sources.jobs[-1], stages=stages)  # the spot price comes last where it is asked for


def _find_instance(options: ClusterOptions) -> Instance:
    """Return what a node costs where nothing can be planned."""
    from headwater.cli.plan_sources import collect_sources
    from headwater.plan.catalogue import find_offer, load_catalogue

    if options.profile is None:
        return find_offer(load_catalogue(), options.instance or "").rent(is_spot=_asks_for_spot(options.cluster))
    return collect_sources(_ask(options, file=None, stages="1x1")).jobs[-1].instance


def _ask(options: ClusterOptions, file: Path | None, stages: str | None) -> Asked:
    from headwater.cli.plan_sources import Asked

    return Asked(
        file=file,
        stages=stages,
        trials=None,
        max_epochs=None,
        search=None,
        storage=None,
        study=None,
        profile=options.profile,
        is_measured=False,
        instances=[] if options.instance is None else [options.instance],
        catalogue=None,
        is_spot=_asks_for_spot(options.cluster),
        relative_speed=None,
        spot_history=options.spot_history,
    )
